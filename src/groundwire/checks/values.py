"""Value check: numbers, dates, amounts and negations of an answer that its passages do not hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from groundwire.checks.values_index import ValueIndex, alike, differ, similarity
from groundwire.checks.values_statements import Bound, Statement, statements
from groundwire.checks.values_negation import ClauseIndex, clauses
from groundwire.checks.warnings import ReportWarning, WarningType

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class UnsupportedValue:
    text: str
    kind: str
    start: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class ValueReport:
    found: int
    unsupported: tuple[UnsupportedValue, ...]
    warnings: list[ReportWarning]


NOT_FOUND = "not_in_sources"
OTHER = "said_of_something_else"
DIFFERS = "sources_differ"


def check_values(answer: str, passages: Sequence[str]) -> ValueReport:
    index = ValueIndex()
    cindex = ClauseIndex()
    for passage in passages:
        for statement in statements(passage):
            index.add(statement)
            cindex.add(statement)
    found = 0
    bad = []
    before = None
    for statement in statements(answer):
        values = [b for b in statement.values if not b.value.implied]
        found += len(values)
        if values and not index.says(statement):
            for b in values:
                why = judge(b, index, before)
                if why:
                    bad.append(UnsupportedValue(answer[b.start:b.end], b.value.kind, b.start, b.end, why))
        before = statement
        said = index.says(statement)
        for c in clauses(statement):
            why = "" if said else cindex.contradicts(c)
            found += bool(c.polarity or why)
            if why:
                bad.append(UnsupportedValue(statement_text(answer, statement)[c.first.start:c.last.end], "negation", c.first.start, c.last.end, why + (" (yes)" if not c.polarity else "")))
    return ValueReport(found, tuple(bad), [])


def judge(v: Bound, index: ValueIndex, before) -> str:
    words = v.own or v.statement.words or (before.words if before else frozenset())
    cands = [w for w in index.equal(v, words) if not (v.value.bound and w.value.bound and v.value.bound != w.value.bound)]
    if not cands:
        return NOT_FOUND
    rel = [w for w in cands if relevant(words, w, v.statement.words)]
    if not rel:
        return OTHER
    rivals = index.comparable(v, words)
    if not words:
        return ''
    for w in rel:
        if beaten(v, w, rivals, words):
            continue
        return ""
    return DIFFERS


def relevant(words, w, all_words):
    if not words:
        return True
    return bool(words & w.statement.words) or len(all_words & w.statement.words) > 1


def beaten(v, w, rivals, words):
    af = alike(v.statement, w.statement)
    sw = similarity(v, w, same_form=af)
    cov = len(words & w.statement.words)
    own = len(words & w.own)
    for u in w.statement.values:
        if not u.value.implied and differ(v, u) and dims(u) & dims(v) and similarity(v, u, same_form=af) > sw:
            return True
    for u in rivals:
        cu = len(words & u.statement.words)
        if u.statement is not w.statement and cu > cov and len(words & u.own) >= own and cu >= FRAC * len(words):
            return True
    return False

from groundwire.checks.values_units import dimensions


def dims(b): return dimensions(b.value.covers)
import os

FRAC = float(os.environ.get("FRAC", "0.6"))

def statement_text(answer, st): return answer[st.start:st.end]

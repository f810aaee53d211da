"""The deterministic verifier: each claim of an answer checked against the evidence, without a model or a network.

It knows words, not meaning: a paraphrase in other words looks unsupported, and a sentence that says something else in
the evidence's words may look supported. `bench/quality` says how often.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Final

from groundwire.checks.citations import CitationDetector
from groundwire.checks.marks import Citable, without_marks
from groundwire.checks.reading.force import Force
from groundwire.checks.reading.statements import (
    Bound,
    Statement,
    StatementReader,
    read_statements,
    statements,
)
from groundwire.checks.support.assertion import unasserted
from groundwire.checks.support.atoms import Atom, atoms
from groundwire.checks.support.evidence import Evidence
from groundwire.checks.support.joins import joins_apart
from groundwire.checks.support.roles import cost_of_additions, misplaced, names_somebody_else
from groundwire.checks.support.score import (
    ENOUGH,
    ClaimCheck,
    SupportVerdict,
    align,
    passages_of,
    score,
    support_of,
)
from groundwire.checks.values.answer import SOURCES_DIFFER, UnsupportedValue, judge, with_swaps
from groundwire.checks.values.negation import NOT_IN_SOURCES
from groundwire.text.negation import negations
from groundwire.text.refusals import lack_of
from groundwire.text.stems import content_words
from groundwire.text.tokens import tokenize

_ADDED: Final = (
    0.5  # of the weight of what is not covered, and of the most of it in a claim that is half invented
)
_HALF: Final = 0.6  # of a claim, that the evidence has to hold lest it count as half invented
_LEAST, _PER, _MOST, _SHORT, _GROWTH = 1.1, 1.9, 12.3, 60, 0.77
"""Doubt at which an answer's support is `ENOUGH`: 1.9 for 60 characters, more for a longer one, within bounds. Chosen
on answers to questions over passages, grouped by source; nothing learned from hundreds of them did better."""
_SAME: Final = 0.6  # of a statement's words, that another one must say to be about the same thing


def conflicts(
    answer: str, said: Iterable[Statement], evidence: Evidence
) -> dict[int, list[UnsupportedValue]]:
    """Return id of statement -> its values and negations that the passages do not support.

    Beyond the value check: a value that no passage holds differs from the sources where one of them gives another
    value of the same kind in a statement that says most of the same words.
    """
    found: dict[int, list[UnsupportedValue]] = {}
    before: Statement | None = None
    for statement in said:
        _, faults = judge(answer, statement, before, evidence.values, evidence.sayings)
        given = {value.start: value for value in statement.values} if faults else {}
        for place, fault in enumerate(faults):
            absent = fault.why == NOT_IN_SOURCES and fault.kind != "negation"
            if absent and fault.start in given and _is_given_otherwise(given[fault.start], evidence):
                faults[place] = replace(fault, why=SOURCES_DIFFER)
        found[id(statement)] = with_swaps(faults)
        before = statement
    return found


def _is_given_otherwise(value: Bound, evidence: Evidence) -> bool:
    words = value.statement.words
    own = frozenset(key for other in value.statement.near(value) for key in other.value.keys)
    return any(
        len(words & rival.statement.words) >= _SAME * len(words) and own.isdisjoint(rival.value.covers)
        for rival in (evidence.values.comparable(value, value.own or words) if words else ())
        if not rival.value.implied
    )


JUDGED: Final = 1_000
"""Claims of an answer that are looked at; the others are counted, and supported by nothing."""


@dataclass(frozen=True, slots=True)
class AnswerCheck:
    """At most `JUDGED` claims of an answer, and its support as a whole, 0..1; 1.0 where it claims nothing."""

    claims: tuple[ClaimCheck, ...]
    left_out: int
    support: float


def check_answer(
    answer: str,
    evidence: Mapping[str, str] | Sequence[str],
    *,
    question: str = "",
    declared: bool = False,
    read: StatementReader = read_statements,
    citable: Citable | None = None,
) -> AnswerCheck:
    """Check each claim of an answer against evidence in any order (S4-05, S4-06), in linear time.

    Texts without ids are numbered from 1. Words of the `question` may be spoken of, but support nothing. Where the text
    is `declared` a claim, courtesy and lead-ins are claims too. Without `citable` names in brackets are words.
    """
    shown = without_marks(answer, citable)
    spoken_of = f"{question}\n{citable.titles}" if citable else question
    index = Evidence(evidence, read(shown), read, spoken_of)
    faults = conflicts(shown, index.said, index)
    claims: list[ClaimCheck] = []
    left_out = 0
    for atom in atoms(shown, index.said, index, declared=declared):
        if len(claims) >= JUDGED:
            left_out += 1
            continue
        claim = _check(answer, atom, index, faults[id(atom.statement)])
        marked = shown.count(" ", claim.start, claim.end) - claim.text.count(" ")
        claims.append(replace(claim, size=len(claim.text) - marked, declared=declared))
    if left_out:
        return AnswerCheck(tuple(claims), left_out, 0.0)
    doubt = sum(claim.cost**2 for claim in claims) ** 0.5
    return AnswerCheck(tuple(claims), 0, support_of(doubt) if declared else answer_support(claims))


def answer_support(claims: Iterable[ClaimCheck]) -> float:
    """Return the support of an answer, 0..1: doubts about its claims and words that nothing holds add up."""
    costs = lacking = invented = size = 0.0
    for claim in claims:
        costs, lacking, size = costs + claim.cost**2, lacking + claim.lacking, size + claim.size
        invented = max(invented, claim.lacking if claim.held < _HALF else 0)
    doubt = sqrt(costs) + _ADDED * (lacking + invented)
    tolerated: float = min(_MOST, max(_LEAST, _PER * (size / _SHORT) ** _GROWTH))
    return 1 / (1 + (1 - ENOUGH) / ENOUGH * (doubt / tolerated) ** 2)


def _check(answer: str, atom: Atom, index: Evidence, faults: Iterable[UnsupportedValue]) -> ClaimCheck:
    own = tuple(fault for fault in faults if fault.start < atom.end and atom.start < fault.end)
    if index.values.says(atom.statement):
        text, supported = answer[atom.start : atom.end], SupportVerdict.SUPPORTED
        passages = passages_of(atom, index)
        return ClaimCheck(
            text, atom.start, atom.end, 1.0, 0.0, supported, passages, held=1.0, faults=own, quoted=True
        )
    alignment = align(atom, index)
    found = score(answer, atom, alignment, index, own)
    lack = lack_of(answer[atom.start : atom.end])
    if lack is not None and index.tells(lack):
        found = replace(found, verdict=SupportVerdict.CONTRADICTED, misplaced=True)
    if not atom.units or found.misplaced:
        return found
    if added := cost_of_additions(atom, index):
        cost = found.cost + added
        verdict = SupportVerdict.PARTIAL if found.verdict is SupportVerdict.SUPPORTED else found.verdict
        found = replace(found, cost=cost, support=support_of(cost), verdict=verdict)
    force = unasserted(atom, alignment, index)
    return replace(
        found,
        verdict=_WEAKENED.get(force, SupportVerdict.EXTRAPOLATED) if force else found.verdict,
        force=force,
        misplaced=misplaced(atom, alignment.masks, index) or joins_apart(atom, alignment.masks, index),
        invented=bool(found.uncovered) and names_somebody_else(atom, index),
    )


_WEAKENED: Final = dict.fromkeys((Force.DENIED, Force.NEGATED), SupportVerdict.CONTRADICTED)


def similarity(one: str, other: str) -> float:
    """Return a number from 0.0 (nothing in common, or the opposite) to 1.0 (the same words and values).

    It is the share of words and values that both have, as often as they have them; half of it where only one denies, or
    where both give values and share none.
    """
    (words, values), (others, other_values) = _content(one), _content(other)
    total = words.total() + values.total() + others.total() + other_values.total()
    if not total:
        return float(tokenize(one) == tokenize(other))
    common = (words & others).total() + (values & other_values).total()
    share = 2 * common / total
    denied = len(negations(tokenize(one))) % 2 != len(negations(tokenize(other))) % 2
    differ = bool(values and other_values and not values & other_values)
    return share / 2 if denied or differ else share


def _content(text: str) -> tuple[Counter[str], Counter[str]]:
    words: Counter[str] = Counter()
    values: Counter[str] = Counter()
    for statement in statements(text):
        for token in statement.tokens:
            if token.value and not token.value.implied:
                values[min(token.value.keys)] += 1
            elif not token.mark:
                words.update(token.stems)
    return words, values


MAX_SOURCES = 60_000  # characters of sources that a claim is held against; it bounds the time


def relevance(claim_text: str, sources: Sequence[str]) -> list[float]:
    """Return, for each cited source, the support of the claim by all of them, 0..1, rounded to 4 decimals (S0-155).

    It may only lower a tier: high support shows that the words agree, not that the claim is true. It is 0 for a source
    that has no content word of the claim, or comes after `MAX_SOURCES` characters of others.
    """

    def content(text: str) -> set[str]:
        return {stem for word in re.findall(r"[^\W_]+", text) for stem in content_words(word)}

    kept, at = [], 0
    for citation in CitationDetector().detect(claim_text):
        kept.append(claim_text[at : citation.start])
        at = citation.end
    claim = " ".join([*kept, claim_text[at:]])
    claimed = content(claim)
    shown: list[str] = []
    counts: list[bool] = []
    room = MAX_SOURCES
    for source in sources:
        room -= len(source)
        counts.append(room >= 0 and not claimed.isdisjoint(content(source)))
        shown += [source] * counts[-1]
    support = round(check_answer(claim, shown, declared=True).support, 4) if shown else 0.0
    return [support if counted else 0.0 for counted in counts]

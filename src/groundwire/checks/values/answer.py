"""Value check: numbers, dates, amounts and negations of an answer that its passages do not hold. English only.

A value of the answer is supported when a passage holds an equal one (`units` says what is equal, `statements` what is a
value) that is about the same thing:

1.  one of the words that belong to the value (`binding`), or two words of its statement, occur in the statement of
    the equal value or above it. A value without any words ("30 s.") only has to occur;
2.  in that statement no other value is closer to the answer's words, by the words that belong to both;
3.  no other statement says most of the answer's words of a different value, more of them or in the answer's form.

A statement that a passage holds word by word is supported without more. By rule 3 an additional passage can take
support away. What exceeds a bound (values kept per passage word, values checked) is unsupported: it fails closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Final, NamedTuple

from groundwire.checks import ReportWarning, WarningType
from groundwire.checks.marks import Citable, without_marks
from groundwire.checks.reading.statements import Bound, Statement, StatementReader, read_statements
from groundwire.checks.reading.units import DATE, NUMBER, VERSION, dimensions
from groundwire.checks.values.negation import NOT_IN_SOURCES, OPPOSITE, ClauseIndex
from groundwire.checks.values.postings import (
    BESIDE,
    ValueIndex,
    ValueQuery,
    differ,
    is_strict,
    label_of,
    resolved,
)
from groundwire.text.refusals import lack_of

LISTED: Final = 1_000
"""Unsupported values that a report lists; the others are only counted."""
JUDGED: Final = 20_000
"""Values of an answer that are looked at; the others count as unsupported."""

SAID_OF_SOMETHING_ELSE: Final = "said_of_something_else"
SOURCES_DIFFER: Final = "sources_differ"
_MESSAGES: Final = {
    NOT_IN_SOURCES: "No source holds {text}",
    SAID_OF_SOMETHING_ELSE: "The sources say {text} of something else",
    SOURCES_DIFFER: "The sources give another value than {text}",
    OPPOSITE: "The sources say the opposite of {text}",
}
_MOVED: Final = frozenset((SAID_OF_SOMETHING_ELSE, SOURCES_DIFFER))
_MEASURED: Final = frozenset(("quantity", "duration", "percent", "amount"))
_NEARBY: Final = 200  # characters between two values that may have been exchanged
_IN: Final = frozenset(("in", "since", "until", "by"))
_DIGITS: Final = 20  # of a number that is compared
_SHOWN: Final = 80  # characters of a value in a message
_CASES: Final = frozenset({"date", "version", "ordinal"})
_CASED: Final = ("date ", "quarter ", "version v")
_MOST: Final = 0.6  # of the answer's words, that a statement with another value must say to count against it
_OWN_WEIGHT: Final = 4
_ALIKE: Final = 0.7
_DIRECTIONS: Final = frozenset(("from", "to", "before", "after", "until", "since"))


@dataclass(frozen=True, slots=True)
class UnsupportedValue:
    """A value, `answer[start:end]`, that the passages do not hold.

    `kind` is number, quantity (with a unit), duration, percent, amount, date, version or negation; `why`
    not_in_sources, said_of_something_else, sources_differ or sources_say_the_opposite. `hard`: a fault, whatever else
    the answer says; else a doubt that adds to others.
    """

    text: str
    kind: str
    start: int
    end: int
    why: str
    hard: bool = True


@dataclass(frozen=True, slots=True)
class ValueReport:
    """The number of values found (each occurrence; negations and denied clauses count), and the unsupported.

    Those are in text order, at most `LISTED`; each hard one has a warning; the `left_out` ones count as hard.
    """

    found: int
    unsupported: tuple[UnsupportedValue, ...]
    warnings: list[ReportWarning] = field(default_factory=list)
    left_out: int = 0

    @property
    def faults(self) -> int:
        return len(self.warnings) + self.left_out


def check_values(
    answer: str,
    passages: Sequence[str],
    *,
    question: str = "",
    read: StatementReader = read_statements,
    citable: Citable | None = None,
) -> ValueReport:
    """Return the values of an answer that its passages do not support (UNSUPPORTED_VALUE), in linear time."""
    answer = without_marks(answer, citable or Citable((), len(passages), passages))
    # a refusal says nothing of what it did not find (S2-21)
    readings = [*map(read, map(without_marks, passages))]
    there = [*chain.from_iterable(readings)]
    said = resolved([s for s in read(answer) if lack_of(answer[s.start : s.end]) is None], there)
    values = ValueIndex(ValueQuery(said), readings, read(question))
    sayings = index_clauses(said, there)
    found = left_out = 0
    listed: list[UnsupportedValue] = []
    before: Statement | None = None
    for statement in said:
        count, missing = judge(answer, statement, before, values, sayings, within=found < JUDGED)
        found += count
        room = LISTED - len(listed)
        listed += missing[:room]
        left_out += len(missing[room:])
        before = statement
    listed = with_swaps(listed)
    warnings: list[ReportWarning] = []
    for value in listed:
        if value.hard:
            text = value.text if len(value.text) <= _SHOWN else f"{value.text[: _SHOWN - 1]}\u2026"
            message = _MESSAGES[value.why].format(text=f'"{text}"') + "."
            details = {"kind": value.kind, "why": value.why, "start": value.start, "end": value.end}
            warnings.append(ReportWarning(WarningType.UNSUPPORTED_VALUE, message, details))
    return ValueReport(found, tuple(listed), warnings, left_out)


def with_swaps(listed: Sequence[UnsupportedValue]) -> list[UnsupportedValue]:
    """Return values with those hard that were exchanged: two of one kind in a row, each said of something else."""
    found = list(listed)
    doubts = [place for place, value in enumerate(found) if value.why in _MOVED and not value.hard]
    for one, other in pairwise(doubts):
        first, second = found[one], found[other]
        near = second.start - first.end <= _NEARBY and first.why == second.why and first.text != second.text
        large = all(
            value.kind == NUMBER and value.text.isdecimal() and int(value.text[:_DIGITS]) > _FEW
            for value in (first, second)
        )
        if near and first.kind == second.kind and (first.kind in _MEASURED or large):
            found[one], found[other] = replace(first, hard=True), replace(second, hard=True)
    return found


def index_clauses(said: Sequence[Statement], there: Sequence[Statement]) -> ClauseIndex | None:
    """Return the clauses of passages that an answer may contradict; None where neither holds a negation."""
    if not any(statement.denies for statement in chain(said, there)):
        return None
    sayings = ClauseIndex(clause for statement in said for clause in statement.clauses)
    for statement in there:
        sayings.add(statement)
    return sayings


def judge(
    answer: str,
    statement: Statement,
    before: Statement | None,
    values: ValueIndex,
    sayings: ClauseIndex | None,
    *,
    within: bool = True,
) -> tuple[int, list[UnsupportedValue]]:
    """Return the number of values of a statement, and those that passages do not support, in text order."""
    found = sum(not value.implied for value in statement.given)
    said = statement.clauses if sayings else ()
    if values.says(statement):
        return found + sum(bool(clause.polarity) for clause in said), []
    missing: list[UnsupportedValue] = []
    for value in statement.values:
        if value.value.implied:
            continue
        why, hard = _why(value, before, values) if within else (NOT_IN_SOURCES, True)
        if why and not values.is_topic(value, answer[value.end : value.end + 2]):
            text = answer[value.start : value.end]
            missing.append(UnsupportedValue(text, value.value.kind, value.start, value.end, why, hard))
    for clause in said:
        denied = NOT_IN_SOURCES if clause.polarity else ""
        why = sayings.contradicted(clause) if sayings and within else denied
        reversed_ = within and sayings is not None and sayings.reverses(clause)
        why = OPPOSITE if reversed_ and not why else why
        found += bool(clause.polarity or why)
        if why:
            start, end = statement.span(clause.first.start, clause.last.end)
            hard = sayings is None or (why == OPPOSITE and reversed_)
            missing.append(UnsupportedValue(answer[start:end], "negation", start, end, why, hard))
    return found, sorted(missing, key=lambda value: value.start)


def _why(value: Bound, before: Statement | None, index: ValueIndex) -> tuple[str, bool]:
    words = value.own or value.statement.words or (before.words if before else frozenset())
    equal = [other for other in index.equal(value, words) if not excluded(value, other)]
    if not equal:
        if words and any(fit.said >= _MOST * len(words) for fit in _rivals(value, words, index)):
            return NOT_IN_SOURCES, True
        if index.asks_of(value):
            return "", False
        return NOT_IN_SOURCES, not (_merely_counts(value) or index.holds_part(value))
    if not words:
        return "", False
    mine = _cases(value)
    about: list[Bound] = []
    for other in equal:
        there, theirs = other.statement.words, _cases(other)
        same_case = not any(mine[kind].isdisjoint(theirs[kind]) for kind in mine.keys() & theirs.keys())
        if same_case and (not words.isdisjoint(there) or len(value.statement.words & there) > 1):
            about.append(other)
    if not about or _is_of_another_noun(value, about, index):
        in_rows = all(other.statement.heads for other in equal) and not _is_case(value)
        measured = value.value.amount is None or bool(value.value.amount.readings)
        others = measured and any(fit.own for fit in _rivals(value, words, index))
        return SAID_OF_SOMETHING_ELSE, bool(about) or in_rows or (others and not _is_case(value))
    amount = value.value.amount
    strict = is_strict(value.value.bound) and value.value.kind != "duration"
    if amount and strict:  # "more than 46" excludes the 46 of the passages
        given = (one.value for one in about)
        if not any(one.bound or one.ranged or one.keys.isdisjoint(amount.keys) for one in given):
            return SOURCES_DIFFER, True
    rivals: Sequence[_Fit] | None = None
    hard = False
    row = _case(value, alone=True)
    for other in about:
        other_row = _case(other)
        if (row and other_row and row.isdisjoint(other_row)) or _is_in_another_row(value, other, index):
            hard = True
            continue
        close, fit = alike(value.statement, other.statement), _fit(words, other)
        if _is_nearer_in_statement(value, other):
            hard = hard or close
            continue
        if close and fit.said == len(words):
            return "", False  # no rival can say more of the answer's words, or say them more alike
        rivals = _rivals(value, words, index) if rivals is None else rivals
        if not _is_said_of_another(value, fit, rivals, len(words)):
            return "", False
    return SOURCES_DIFFER, hard


def _is_of_another_noun(value: Bound, about: Iterable[Bound], index: ValueIndex) -> bool:
    """Return whether a bare number counts something else in all passages: "46 students", where they have 46 courses."""
    amount, noun = value.value.amount, value.near[1]
    bare = amount is not None and not amount.readings and not amount.rate and amount.magnitude > _FEW
    if not bare or value.value.kind != "number" or not index.speaks_of(noun):
        return False
    return all(noun not in other.own and index.speaks_of(other.near[1]) for other in about)


def _rivals(value: Bound, words: frozenset[str], index: ValueIndex) -> list[_Fit]:
    return [_fit(words, rival) for rival in index.comparable(value, words)]


_FEW: Final = 12


def _merely_counts(value: Bound) -> bool:
    amount = value.value.amount
    if amount is None:
        return any(key.startswith("ordinal ") for key in value.value.keys)
    bare = not amount.readings and not amount.rate and amount.magnitude <= _FEW
    return bare and value.end - value.start > 2


def _cases(value: Bound) -> dict[str, frozenset[str]]:
    cases: dict[str, frozenset[str]] = {}
    for beside in value.statement.values[:BESIDE]:
        keys = [key.partition(" ")[0] for key in beside.value.keys]
        kind = "date" if "date" in keys else keys[0] if len(keys) == 1 else ""
        if beside is not value and not beside.value.implied and kind in _CASES:
            cases[kind] = cases.get(kind, frozenset()) | beside.value.covers
    return cases


def _is_in_another_row(value: Bound, other: Bound, index: ValueIndex) -> bool:
    """Return whether the label of a value's row is not said, and that of another row with such a value is."""
    words, row = value.statement.words, other.statement
    label = label_of(row)
    return bool(label) and words.isdisjoint(label) and not words.isdisjoint(index.labels(row.heads))


def _head(bound: Bound) -> str:
    """Return the word to which a preposition leads a value: of "founded in 1958" the first."""
    if bound.near[0] not in _IN:
        return ""
    tokens = bound.statement.tokens
    place = bound.statement.valued[bound.place] if bound.place < len(bound.statement.valued) else 0
    stems = tokens[place - 2].stems if place > 1 else ()
    return stems[0] if stems else ""


def _is_case(bound: Bound) -> bool:
    # "in 2014" is a year
    return (bound.value.amount is None or bound.near[0] in _IN) and any(
        key.startswith(_CASED) for key in bound.value.keys
    )


def _case(bound: Bound, *, alone: bool = False) -> frozenset[str]:
    """Return the date, quarter or version of which a value is said: that of its column, or of its pair.

    "From 4 million in 2022 to 6 million in 2023" has two pairs. `alone`: or the only one of its statement.
    """
    columns = frozenset(word for word in bound.own if word.startswith(_CASED))
    given = [one for one in bound.statement.values[:BESIDE] if not one.value.implied]
    cased = [*map(_is_case, given)]
    at = next((at for at, one in enumerate(given) if one is bound), -1)
    if columns or at < 0 or cased[at]:
        return columns
    if alone and sum(cased) == 1:
        return given[cased.index(True)].value.covers
    paired = (at ^ 1) < len(given) and all(one is not other for one, other in pairwise(cased))
    return given[at ^ 1].value.covers if paired else columns


def _is_nearer_in_statement(value: Bound, other: Bound) -> bool:
    same_form = alike(value.statement, other.statement)
    closeness = similarity(value, other, same_form=same_form)
    kinds = dimensions(value.value.keys)
    if value.near[0] in _IN and DATE in kinds:  # "in 2014" is a year
        kinds = frozenset((DATE,))
    if value.value.ranged:  # the first end of "10 to 12 minutes" is a bare number as well
        kinds = kinds - {NUMBER, VERSION} or kinds
    head = _head(value)
    return any(
        not (
            rival.value.implied
            or (
                value.value.ranged
                and (rival.value.ranged and other.value.ranged and abs(rival.place - other.place) == 1)
            )
        )
        and (
            (similarity(value, rival, same_form=same_form) > closeness or head in rival.own - other.own)
            and head not in other.own - rival.own
        )
        and differ(value, rival)
        and not kinds.isdisjoint(dimensions(rival.value.covers))
        and _case(value, alone=True).isdisjoint(_case(other))
        and not _are_both_given(value, other, rival)
        for rival in other.statement.near(other)
    )


def _are_both_given(value: Bound, equal: Bound, rival: Bound) -> bool:
    """Return whether the answer gives the rival too, and both values fit better as they are than exchanged.

    So also where it gives another one that is next to the equal value and not next to the rival: "25 % from 60
    minutes, 50 % from 120 minutes".
    """
    for beside in value.statement.near(value):
        if beside is value or beside.value.implied:
            continue
        if not beside.value.keys.isdisjoint(rival.value.covers):
            given = len(value.own & equal.own) + len(beside.own & rival.own)
            exchanged = len(value.own & rival.own) + len(beside.own & equal.own)
            return given > exchanged
        if _is_next(beside, equal) and not _is_next(beside, rival):
            return True
    return False


def _is_next(value: Bound, other: Bound) -> bool:
    around = other.statement.values[max(0, other.place - 1) : other.place + 2]
    return any(one is not other and not value.value.keys.isdisjoint(one.value.covers) for one in around)


class _Fit(NamedTuple):
    said: int  # of the answer's words, those in its statement
    own: int  # those that belong to it
    statement: Statement


def _fit(words: frozenset[str], other: Bound) -> _Fit:
    return _Fit(len(words & other.statement.words), len(words & other.own), other.statement)


def _is_said_of_another(value: Bound, fit: _Fit, rivals: Sequence[_Fit], words: int) -> bool:
    said = value.statement
    return any(
        rival.statement is not fit.statement
        and rival.own >= fit.own
        and (rival.said >= _MOST * words or (rival.own and not fit.said))
        and (
            rival.said > fit.said
            or (rival.said == fit.said and alike(said, rival.statement) and not alike(said, fit.statement))
        )
        for rival in rivals
    )


def excluded(one: Bound, other: Bound) -> bool:
    return {one.value.bound[:1], other.value.bound[:1]} == {"<", ">"}


def alike(one: Statement, other: Statement) -> bool:
    """Return whether two statements use nearly the same words, so that the places of their values compare."""
    common = len(one.words & other.words)
    return _ALIKE * (len(one.words) + len(other.words) - common) <= common


def similarity(one: Bound, other: Bound, *, same_form: bool) -> tuple[int, int]:
    """Return how much a value of the answer and one of a passage are about the same thing.

    Where their statements are alike (`same_form`), what is right beside the values counts too, and what `other` is
    bound to beyond `one`.
    """
    own = len(one.own & other.own)
    beside = sum(
        mine == yours and (same_form or mine in _DIRECTIONS)
        for mine, yours in zip(one.near, other.near, strict=True)
    )
    return _OWN_WEIGHT * own + beside, -len(other.own - one.own) if same_form else 0

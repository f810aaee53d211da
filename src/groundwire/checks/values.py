"""Value check: numbers, dates, amounts and negations of an answer that its passages do not hold.

That a number stands somewhere in a passage supports nothing: "Timeout 30 s, retries 5" is not what a passage
says that reads "Timeout 5 s, retries 30". A value of the answer is supported when a passage holds an equal one
(`values_units` says what is equal, `values_scan` what is a value) that is about the same thing:

1.  one of the words that belong to the value (`values_binding`), or two words of its statement, stand in the
    statement of the equal value or above it. A value without any words ("30 s.") is held to its presence alone;
2.  in that statement no other value is closer to the answer's words, by the words that belong to both;
3.  no other statement says most of the answer's words of a different value, more of them or in the answer's
    very form.

A statement that a passage holds word by word is supported without more. Rule 3 is why a passage more can take
support away: it says of the same thing, more nearly, something else. A passage that shares no word with the
answer never does. For negations see `values_negation`; English only.

What exceeds a bound (values kept per passage word, values looked at) supports nothing: the check fails closed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from groundwire.checks.claim_sentences import is_refusal
from groundwire.checks.values_index import ValueIndex, Wanted, alike, differ, excluded, similarity
from groundwire.checks.values_negation import NOT_IN_SOURCES, OPPOSITE, ClauseIndex, clauses, denies
from groundwire.checks.values_statements import read_statements
from groundwire.checks.values_units import dimensions
from groundwire.checks.warnings import ReportWarning, WarningType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from groundwire.checks.values_statements import Bound, Read, Statement

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
_SHOWN: Final = 80  # characters of a value in a message
_CASES: Final = frozenset({"date", "version", "ordinal"})
_BESIDE: Final = 20  # values of a statement that are looked at for what tells it from others
_MOST: Final = 0.6  # of the answer's words, that a statement with another value must say to count against it


@dataclass(frozen=True, slots=True)
class UnsupportedValue:
    """A value of the answer that the passages do not hold.

    Args:
        text: as written: `answer[start:end]`.
        kind: number, quantity (with a unit), duration, percent, amount, date, version or negation.
        start: position in the answer, in characters.
        end: the same, behind its last character.
        why: not_in_sources, said_of_something_else, sources_differ or sources_say_the_opposite.
    """

    text: str
    kind: str
    start: int
    end: int
    why: str


@dataclass(frozen=True, slots=True)
class ValueReport:
    """What the value check found.

    Args:
        found: values in the answer, each occurrence; negations, and clauses that a passage denies, count.
        unsupported: those that the passages do not hold, in text order; at most `LISTED`.
        warnings: one UNSUPPORTED_VALUE for each entry of `unsupported`, in the same order.
        left_out: unsupported values that are not listed.
    """

    found: int
    unsupported: tuple[UnsupportedValue, ...]
    warnings: list[ReportWarning] = field(default_factory=list)
    left_out: int = 0


def check_values(answer: str, passages: Sequence[str], *, read: Read = read_statements) -> ValueReport:
    """Return the values of an answer that its passages do not support (UNSUPPORTED_VALUE).

    Work and memory are in proportion to the length of both.

    Args:
        answer: what the model wrote, Markdown included.
        passages: what it was given; without any, nothing is supported.
        read: reads a text's statements; one that remembers serves several checks of the same texts.
    """
    # a refusal says nothing of what it did not find (S2-21)
    said = [s for s in read(answer) if not is_refusal(answer[s.start : s.end])]
    values = ValueIndex(Wanted(said))
    there = list(chain.from_iterable(map(read, passages)))
    sayings = index_clauses(said, there)
    for statement in there:
        values.add(statement)
    found = left_out = 0
    listed: list[UnsupportedValue] = []
    before: Statement | None = None
    for statement in said:
        told, missing = judge(answer, statement, before, values, sayings, within=found < JUDGED)
        found += told
        room = LISTED - len(listed)
        listed += missing[:room]
        left_out += len(missing[room:])
        before = statement
    return ValueReport(found, tuple(listed), [_warning(value) for value in listed], left_out)


def index_clauses(said: Sequence[Statement], there: Sequence[Statement]) -> ClauseIndex | None:
    """Return what passages say yes and no to, of what an answer says; None where nobody says no to anything."""
    if not any(map(denies, chain(said, there))):
        return None
    sayings = ClauseIndex(clause for statement in said for clause in clauses(statement))
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
    """Hold the values of one statement against passages.

    Args:
        answer: the text whose statement it is.
        statement: what is judged.
        before: the statement before it, which names what a value without words is about.
        values: the values of the passages.
        sayings: their clauses, from `index_clauses`.
        within: off, nothing is looked up: the answer holds more values than are judged.

    Returns:
        The number of its values, and those that are unsupported, in text order.
    """
    verbatim = values.says(statement)
    found = 0
    missing: list[UnsupportedValue] = []
    for value in statement.values:
        if not value.value.implied:
            found += 1
            why = "" if verbatim else _why(value, before, values) if within else NOT_IN_SOURCES
            if why:
                text = answer[value.start : value.end]
                missing.append(UnsupportedValue(text, value.value.kind, value.start, value.end, why))
    for clause in clauses(statement) if sayings else ():
        why = (
            ""
            if verbatim or not sayings
            else sayings.contradicted(clause)
            if within
            else NOT_IN_SOURCES * bool(clause.polarity)
        )
        found += bool(clause.polarity or why)
        if why:
            start, end = statement.span(clause.first.start, clause.last.end)
            missing.append(UnsupportedValue(answer[start:end], "negation", start, end, why))
    return found, sorted(missing, key=lambda value: value.start)


def _why(value: Bound, before: Statement | None, index: ValueIndex) -> str:
    """Return why a value is not supported, or an empty text."""
    words = value.own or value.statement.words or (before.words if before else frozenset())
    equal = [other for other in index.equal(value, words) if not excluded(value, other)]
    if not equal:
        return NOT_IN_SOURCES
    if not words:
        return ""
    about = [
        other for other in equal if _is_about(value, words, other) and not _is_another_case(value, other)
    ]
    if not about:
        return SAID_OF_SOMETHING_ELSE
    rivals = [_fit(words, rival) for rival in index.comparable(value, words)]
    supported = any(
        not (
            _is_nearer_in_statement(value, other)
            or _is_said_of_another(value, _fit(words, other), rivals, len(words))
        )
        for other in about
    )
    return "" if supported else SOURCES_DIFFER


def _is_about(value: Bound, words: frozenset[str], other: Bound) -> bool:
    there = other.statement.words
    return not words.isdisjoint(there) or len(value.statement.words & there) > 1


def _is_another_case(value: Bound, other: Bound) -> bool:
    """Tell whether the two statements speak of different years, versions or ordinals: of 2023, and of 2024."""
    mine, theirs = _cases(value), _cases(other)
    return any(mine[kind].isdisjoint(theirs[kind]) for kind in mine.keys() & theirs.keys())


def _cases(value: Bound) -> dict[str, frozenset[str]]:
    """Return what tells a value's statement from others like it: kind -> what the other values there cover."""
    cases: dict[str, frozenset[str]] = {}
    for beside in value.statement.values[:_BESIDE]:
        keys = [key.partition(" ")[0] for key in beside.value.keys]
        kind = "date" if "date" in keys else keys[0] if len(keys) == 1 else ""
        if beside is not value and not beside.value.implied and kind in _CASES:
            cases[kind] = cases.get(kind, frozenset()) | beside.value.covers
    return cases


def _is_nearer_in_statement(value: Bound, other: Bound) -> bool:
    """Tell whether the statement of an equal value binds another value more closely to the answer's words."""
    same_form = alike(value.statement, other.statement)
    closeness = similarity(value, other, same_form=same_form)
    kinds = dimensions(value.value.keys)
    return any(
        not rival.value.implied
        and similarity(value, rival, same_form=same_form) > closeness
        and differ(value, rival)
        and not kinds.isdisjoint(dimensions(rival.value.covers))
        for rival in other.statement.near(other)
    )


class _Fit(NamedTuple):
    """How well a value of a passage fits what the answer says of its value."""

    said: int  # of the answer's words, those in its statement
    own: int  # those that belong to it
    statement: Statement


def _fit(words: frozenset[str], other: Bound) -> _Fit:
    return _Fit(len(words & other.statement.words), len(words & other.own), other.statement)


def _is_said_of_another(value: Bound, fit: _Fit, rivals: Sequence[_Fit], words: int) -> bool:
    """Tell whether another statement says most of the answer's words, more or as it does, of a different value."""
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


def _warning(value: UnsupportedValue) -> ReportWarning:
    text = value.text if len(value.text) <= _SHOWN else f"{value.text[: _SHOWN - 1]}\u2026"
    message = _MESSAGES[value.why].format(text=f'"{text}"') + "."
    details = {"kind": value.kind, "why": value.why, "start": value.start, "end": value.end}
    return ReportWarning(WarningType.UNSUPPORTED_VALUE, message, details)

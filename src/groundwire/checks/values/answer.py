"""Value check: numbers, dates, amounts and negations of an answer that its passages do not hold.

That a number occurs in a passage supports nothing: "Timeout 30 s, retries 5" is not supported by "Timeout 5 s,
retries 30". A value of the answer is supported when a passage holds an equal one (`units` says what is equal,
`statements` what is a value) that is about the same thing:

1.  one of the words that belong to the value (`binding`), or two words of its statement, occur in the statement of
    the equal value or above it. A value without any words ("30 s.") only has to occur;
2.  in that statement no other value is closer to the answer's words, by the words that belong to both;
3.  no other statement says most of the answer's words of a different value, more of them or in the answer's form.

A statement that a passage holds word by word is supported without more. By rule 3 an additional passage can take
support away: it says of the same thing, more nearly, something else. A passage that shares no word with the answer
never does. For negations see `negation`; English only.

What exceeds a bound (values kept per passage word, values checked) supports nothing: the check fails closed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain, pairwise, product
from typing import Final, NamedTuple

from groundwire.checks.marks import Citable, without_marks
from groundwire.checks.values.negation import NOT_IN_SOURCES, OPPOSITE, ClauseIndex, clauses, denies
from groundwire.checks.values.postings import ValuePostings, is_strict, resolved
from groundwire.checks.values.statements import Bound, StatementReader, ValueStatement, read_statements
from groundwire.checks.values.units import DATE, NUMBER, VERSION, Amount, dimensions
from groundwire.checks.warnings import ReportWarning, WarningType
from groundwire.text.refusals import lack_of
from groundwire.text.work import spend

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
_BESIDE: Final = 20  # values of a statement that are looked at for what tells it from others
_COMPARED: Final = 3  # units of work that it takes to compare a value with another, and with each beside that
_MOST: Final = 0.6  # of the answer's words, that a statement with another value must say to count against it
_CANDIDATES: Final = 24  # values of the passages that are compared per value and way of finding them
_OWN_WEIGHT: Final = 4
_ALIKE: Final = 0.7
_DIRECTIONS: Final = frozenset(("from", "to", "before", "after", "until", "since"))


@dataclass(frozen=True, slots=True)
class UnsupportedValue:
    """A value of the answer that the passages do not hold.

    Args:
        text: as written: `answer[start:end]`.
        kind: number, quantity (with a unit), duration, percent, amount, date, version or negation.
        start: position in the answer, in characters.
        end: the same, behind its last character.
        why: not_in_sources, said_of_something_else, sources_differ or sources_say_the_opposite.
        hard: a fault, whatever else the answer says; else a doubt that adds to others.
    """

    text: str
    kind: str
    start: int
    end: int
    why: str
    hard: bool = True


@dataclass(frozen=True, slots=True)
class ValueReport:
    """What the value check found.

    Args:
        found: values in the answer, each occurrence; negations, and clauses that a passage denies, count.
        unsupported: those that the passages do not hold, in text order; at most `LISTED`.
        warnings: one UNSUPPORTED_VALUE for each hard entry of `unsupported`, in the same order.
        left_out: unsupported values that are not listed; they count as hard.
    """

    found: int
    unsupported: tuple[UnsupportedValue, ...]
    warnings: list[ReportWarning] = field(default_factory=list)
    left_out: int = 0

    @property
    def faults(self) -> int:
        """Values and negations for which the answer is flagged."""
        return len(self.warnings) + self.left_out


_OTHER_FORMS: Final = {"bare": ("bare", "unit", "rate"), "unit": ("bare",), "rate": ("bare", "unit")}


def _form(amount: Amount) -> str:
    return "rate" if amount.rate else "unit" if amount.readings else "bare"


class ValueQuery:
    """The words and values of an answer; a passage's statements without any of them are not indexed."""

    def __init__(self, statements: Iterable[ValueStatement]) -> None:
        words: set[str] = set()
        keys: set[str] = set()
        for statement in statements:
            words |= statement.words
            for bound in statement.values:
                keys |= bound.value.keys
        self.words = frozenset(words)
        self.keys = frozenset(keys)

    def __contains__(self, statement: ValueStatement) -> bool:
        return not statement.words.isdisjoint(self.words) or any(
            not value.covers.isdisjoint(self.keys) for value in statement.given
        )


class ValueIndex:
    """The values of passages that an answer may rest on; size and work of a look-up are bounded."""

    def __init__(
        self,
        wanted: ValueQuery,
        there: Sequence[Sequence[ValueStatement]],
        question: Iterable[ValueStatement] = (),
    ) -> None:
        """Index passages, in their order; a value of the question is given, as long as no passage gives another."""
        self._wanted = wanted
        asked = [bound for said in question for bound in said.values]
        self._asked = {key for bound in asked for key in bound.value.covers}
        self._topics = {
            (key, bound.near[1]) for bound in asked if bound.near[1] for key in bound.value.covers
        }
        self._there = ValuePostings([*chain.from_iterable(there)], wanted.__contains__)
        self._numbers: dict[str, set[Fraction]] | None = None  # they are rarely asked for
        self._equal: dict[str, list[Bound]] = {}
        self._equal_about: dict[str, dict[str, list[Bound]]] = {}
        self._comparable: dict[str, dict[str, list[Bound]]] = {}

    def says(self, statement: ValueStatement) -> bool:
        """Tell whether a passage holds a statement word by word, under the same headings."""
        return self._there.says(statement.signature)

    def speaks_of(self, word: str) -> bool:
        """Tell whether a passage holds a word."""
        return self._there.speaks_of(word)

    def asks_of(self, value: Bound) -> bool:
        """Tell whether the question holds a value."""
        return not value.value.keys.isdisjoint(self._asked)

    def is_topic(self, value: Bound, behind: str) -> bool:
        """Tell whether a value belongs to the name, `behind` it, of what was asked about: "a 2006 Chevy".

        Where a passage speaks of a 2005 Chevy instead, it does not.
        """
        name = value.near[1]
        named = value.value.kind == NUMBER and behind.lstrip()[:1].isupper()
        asked = named and any((key, name) in self._topics for key in value.value.keys)
        return asked and not self.comparable(value, (name,))

    def holds_part(self, value: Bound) -> bool:
        """Tell whether a passage holds a value's number, one of them without a unit, or a date's month."""
        amount = value.value.amount
        if amount is None:
            return self._there.gives_date(value.value.covers)
        if self._numbers is None:
            self._numbers = {form: set() for form in _OTHER_FORMS}
            for given in self._there.amounts():
                self._numbers[_form(given)] |= {given.magnitude, Fraction(round(given.magnitude))}
        numbers = self._numbers
        return any(amount.magnitude in numbers[form] for form in _OTHER_FORMS[_form(amount)])

    def equal(self, value: Bound, words: Iterable[str]) -> list[Bound]:
        """Return values of the passages that are equal to a value, those about the rarest words first."""
        keys = sorted(value.value.keys)
        for key in keys:
            if key not in self._equal:
                found = self._there.equal(key)
                self._equal[key], self._equal_about[key] = list(found[:_CANDIDATES]), self._by_word(found)
        lists = [self._equal_about[key].get(word, []) for key, word in product(keys, sorted(words))]
        return _first([*lists, *(self._equal[key] for key in keys)])

    def comparable(self, value: Bound, words: Iterable[str]) -> list[Bound]:
        """Return values of the passages that could stand in a value's place and differ from it."""
        kinds = sorted(dimensions(value.value.keys))
        for kind in kinds:
            if kind not in self._comparable:
                found = self._there.comparable(kind)
                self._comparable[kind] = self._by_word(found)
        lists = [self._comparable[kind].get(word, []) for kind, word in product(kinds, sorted(words))]
        return [other for other in _first(lists) if differ(value, other)]

    def _by_word(self, values: Iterable[Bound]) -> dict[str, list[Bound]]:
        """Return the first values to which each word of the answer belongs: once for all words, whatever is asked."""
        found: dict[str, list[Bound]] = {}
        for bound in values:
            for word in bound.own & self._wanted.words:
                entries = found.setdefault(word, [])
                if len(entries) < _CANDIDATES:
                    entries.append(bound)
        return found


def check_values(
    answer: str,
    passages: Sequence[str],
    *,
    question: str = "",
    read: StatementReader = read_statements,
    citable: Citable | None = None,
) -> ValueReport:
    """Return the values of an answer that its passages do not support (UNSUPPORTED_VALUE).

    Work and memory are in proportion to the length of both.
    """
    answer = without_marks(answer, citable or Citable((), len(passages), passages))
    # a refusal says nothing of what it did not find (S2-21)
    readings = [*map(read, map(without_marks, passages))]
    there = [*chain.from_iterable(readings)]
    said = resolved([s for s in read(answer) if lack_of(answer[s.start : s.end]) is None], there)
    values = ValueIndex(ValueQuery(said), readings, read(question))
    sayings = index_clauses(said, there)
    found = left_out = 0
    listed: list[UnsupportedValue] = []
    before: ValueStatement | None = None
    for statement in said:
        count, missing = judge(answer, statement, before, values, sayings, within=found < JUDGED)
        found += count
        room = LISTED - len(listed)
        listed += missing[:room]
        left_out += len(missing[room:])
        before = statement
    listed = with_swaps(listed)
    return ValueReport(found, tuple(listed), [_warning(value) for value in listed if value.hard], left_out)


def with_swaps(listed: Sequence[UnsupportedValue]) -> list[UnsupportedValue]:
    """Return values with those hard that were exchanged: two of one kind in a row, each said of something else."""
    found = list(listed)
    doubts = [place for place, value in enumerate(found) if value.why in _MOVED and not value.hard]
    for one, other in pairwise(doubts):
        first, second = found[one], found[other]
        near = second.start - first.end <= _NEARBY and first.why == second.why and first.text != second.text
        if near and first.kind == second.kind and (first.kind in _MEASURED or _are_large(first, second)):
            found[one], found[other] = replace(first, hard=True), replace(second, hard=True)
    return found


def _are_large(*values: UnsupportedValue) -> bool:
    return all(
        value.kind == NUMBER and value.text.isdecimal() and int(value.text[:_DIGITS]) > _FEW
        for value in values
    )


def index_clauses(said: Sequence[ValueStatement], there: Sequence[ValueStatement]) -> ClauseIndex | None:
    """Return the clauses of passages that an answer may contradict; None where neither holds a negation."""
    if not any(map(denies, chain(said, there))):
        return None
    sayings = ClauseIndex(clause for statement in said for clause in clauses(statement))
    for statement in there:
        sayings.add(statement)
    return sayings


def judge(
    answer: str,
    statement: ValueStatement,
    before: ValueStatement | None,
    values: ValueIndex,
    sayings: ClauseIndex | None,
    *,
    within: bool = True,
) -> tuple[int, list[UnsupportedValue]]:
    """Check the values of one statement against passages.

    Returns:
        The number of its values, and those that are unsupported, in text order.
    """
    found = sum(not value.implied for value in statement.given)
    said = clauses(statement) if sayings else ()
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


def _why(value: Bound, before: ValueStatement | None, index: ValueIndex) -> tuple[str, bool]:
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
    about = [
        other for other in equal if _is_about(value, words, other) and not _is_another_case(value, other)
    ]
    if not about or _is_of_another_noun(value, about, index):
        return SAID_OF_SOMETHING_ELSE, bool(about)
    return (SOURCES_DIFFER, True) if _exceeds(value, about) else _why_placed(value, words, about, index)


def _why_placed(
    value: Bound, words: frozenset[str], about: Iterable[Bound], index: ValueIndex
) -> tuple[str, bool]:
    rivals: Sequence[_Fit] | None = None
    hard = False
    for other in about:
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


def _exceeds(value: Bound, about: Iterable[Bound]) -> bool:
    """Tell whether a bound excludes the very value that passages give: "more than 46" where they say 46."""
    amount = value.value.amount
    if amount is None or not is_strict(value.value.bound) or value.value.kind == "duration":
        return False
    return not any(
        other.value.bound or other.value.ranged or other.value.keys.isdisjoint(amount.keys) for other in about
    )


def _is_of_another_noun(value: Bound, about: Iterable[Bound], index: ValueIndex) -> bool:
    """Tell whether a bare number counts something else in all passages: "46 students", where they have 46 courses."""
    amount, noun = value.value.amount, value.near[1]
    bare = amount is not None and not amount.readings and not amount.rate and amount.magnitude > _FEW
    if not bare or value.value.kind != "number" or not index.speaks_of(noun):
        return False
    return all(noun not in other.own and index.speaks_of(other.near[1]) for other in about)


def _rivals(value: Bound, words: frozenset[str], index: ValueIndex) -> list[_Fit]:
    return [_fit(words, rival) for rival in index.comparable(value, words)]


_FEW: Final = 12


def _merely_counts(value: Bound) -> bool:
    """Tell whether a value is a small number in letters, without a unit: "two ways", which may count what is listed."""
    amount = value.value.amount
    if amount is None:
        return any(key.startswith("ordinal ") for key in value.value.keys)
    bare = not amount.readings and not amount.rate and amount.magnitude <= _FEW
    return bare and value.end - value.start > 2


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
    same_form = alike(value.statement, other.statement)
    closeness = similarity(value, other, same_form=same_form)
    kinds = dimensions(value.value.keys)
    if value.near[0] in _IN and DATE in kinds:  # "in 2014" is a year
        kinds = frozenset((DATE,))
    if value.value.ranged:  # the first end of "10 to 12 minutes" is a bare number as well
        kinds = kinds - {NUMBER, VERSION} or kinds
    return any(
        not (
            rival.value.implied
            or (
                value.value.ranged
                and (rival.value.ranged and other.value.ranged and abs(rival.place - other.place) == 1)
            )
        )
        and similarity(value, rival, same_form=same_form) > closeness
        and differ(value, rival)
        and not kinds.isdisjoint(dimensions(rival.value.covers))
        and not _are_both_given(value, other, rival)
        for rival in other.statement.near(other)
    )


def _are_both_given(value: Bound, equal: Bound, rival: Bound) -> bool:
    """Tell whether the answer gives the rival too, and both values fit better as they stand than exchanged.

    So also where it gives another one that stands next to the equal value and not next to the rival: "25 % from 60
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
    """How well a value of a passage fits what the answer says of its value."""

    said: int  # of the answer's words, those in its statement
    own: int  # those that belong to it
    statement: ValueStatement


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


def differ(one: Bound, other: Bound) -> bool:
    """Tell whether two values exclude each other; "2024" and "May 2024" do not."""
    return one.value.keys.isdisjoint(other.value.covers) and other.value.keys.isdisjoint(one.value.covers)


def excluded(one: Bound, other: Bound) -> bool:
    """Tell whether equal values are opposite bounds: "at most 5" and "at least 5"."""
    return {one.value.bound[:1], other.value.bound[:1]} == {"<", ">"}


def alike(one: ValueStatement, other: ValueStatement) -> bool:
    """Tell whether two statements use nearly the same words, so that the places of their values compare."""
    common = len(one.words & other.words)
    return _ALIKE * (len(one.words) + len(other.words) - common) <= common


def similarity(one: Bound, other: Bound, *, same_form: bool) -> tuple[int, int]:
    """Return how much two values are about the same thing.

    Args:
        one: a value of the answer.
        other: a value of a passage.
        same_form: their statements are alike: what is right beside the values counts then too, and what
            `other` is bound to beyond `one`.
    """
    own = len(one.own & other.own)
    beside = sum(
        mine == yours and (same_form or mine in _DIRECTIONS)
        for mine, yours in zip(one.near, other.near, strict=True)
    )
    return _OWN_WEIGHT * own + beside, -len(other.own - one.own) if same_form else 0


def _first(lists: list[list[Bound]]) -> list[Bound]:
    """Return the entries of the shortest lists, those of the rarest words, each once; a bounded number."""
    found: dict[int, Bound] = {}
    for entries in sorted(lists, key=len):
        found.update(zip(map(id, entries), entries, strict=True))
        if len(found) >= 2 * _CANDIDATES:
            break
    spend(_COMPARED * sum(min(len(bound.statement.values), _BESIDE) + 1 for bound in found.values()))
    return list(found.values())


def _warning(value: UnsupportedValue) -> ReportWarning:
    text = value.text if len(value.text) <= _SHOWN else f"{value.text[: _SHOWN - 1]}\u2026"
    message = _MESSAGES[value.why].format(text=f'"{text}"') + "."
    details = {"kind": value.kind, "why": value.why, "start": value.start, "end": value.end}
    return ReportWarning(WarningType.UNSUPPORTED_VALUE, message, details)

"""The index of the values of passages, by what they say and by the words that belong to them.

Approximate values of an answer ("about 5 %", "almost 80", "more than 60 metres") also match a value of the passages
that rounds to them, or is on their side of the bound and near it.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain, dropwhile, islice, product, takewhile
from typing import Final

from groundwire.checks.reading.statements import Bound, Statement
from groundwire.checks.reading.units import (
    DATE,
    NUMBER,
    VERSION,
    Amount,
    TextValue,
    ValueToken,
    dimensions,
    shown,
)
from groundwire.text.lists import words_in
from groundwire.text.work import spend

BESIDE: Final = 20
"""Values of a statement that are looked at for what tells it from others."""
_COMPARED: Final = 3  # units of work that it takes to compare a value with another, and with each beside that
_CANDIDATES: Final = 24  # values of the passages that are compared per value and way of finding them
INDEXED: Final = 100_000
"""Values of passages that are kept; those beyond support nothing."""


class ValueQuery:
    """The words and values of an answer; a passage's statements without any of them are not indexed."""

    def __init__(self, statements: Iterable[Statement]) -> None:
        words: set[str] = set()
        keys: set[str] = set()
        for statement in statements:
            words |= statement.words
            for bound in statement.values:
                keys |= bound.value.keys
        self.words = frozenset(words)
        self.keys = frozenset(keys)

    def __contains__(self, statement: Statement) -> bool:
        return not statement.words.isdisjoint(self.words) or any(
            not value.covers.isdisjoint(self.keys) for value in statement.given
        )


class ValueIndex:
    """The values of passages that an answer may rest on; size and work of a look-up are bounded.

    A value of the question is given, as long as no passage gives another. Each part is built when it is first asked
    for; `functools.cached_property` would let one thread wait for another's.
    """

    def __init__(
        self,
        wanted: ValueQuery,
        there: Sequence[Sequence[Statement]],
        question: Iterable[Statement] = (),
    ) -> None:
        self._wanted = wanted
        asked = [bound for said in question for bound in said.values]
        self._asked = {key for bound in asked for key in bound.value.covers}
        self._topics = {
            (key, bound.near[1]) for bound in asked if bound.near[1] for key in bound.value.covers
        }
        self._statements = [*chain.from_iterable(there)]
        self._signatures: frozenset[int] | None = None
        self._words: frozenset[str] | None = None
        self._labels: dict[tuple[tuple[str, ...], ...], frozenset[str]] | None = None
        self._dates: frozenset[str] | None = None
        self._numbers: dict[str, set[Fraction]] | None = None  # they are rarely asked for
        self._covering: dict[str, list[Bound]] | None = None
        self._kinds: dict[str, list[Bound]] | None = None
        self._equal: dict[str, list[Bound]] = {}
        self._equal_about: dict[str, dict[str, list[Bound]]] = {}
        self._comparable: dict[str, dict[str, list[Bound]]] = {}

    def says(self, statement: Statement) -> bool:
        """Return whether a passage holds a statement word by word, under the same headings, by its hash."""
        if self._signatures is None:
            self._signatures = frozenset(hash(said.signature) for said in self._statements)
        return hash(statement.signature) in self._signatures

    def labels(self, heads: tuple[tuple[str, ...], ...]) -> frozenset[str]:
        """Return the words with which the rows under some heads begin."""
        if self._labels is None:
            self._labels = {}
            for row in self._statements:
                if label := label_of(row):
                    self._labels[row.heads] = self._labels.get(row.heads, frozenset()) | label
        return self._labels.get(heads, frozenset())

    def speaks_of(self, word: str) -> bool:
        if self._words is None:
            self._words = frozenset[str]().union(*(statement.words for statement in self._statements))
        return word in self._words

    def asks_of(self, value: Bound) -> bool:
        return not value.value.keys.isdisjoint(self._asked)

    def is_topic(self, value: Bound, behind: str) -> bool:
        """Return whether a value belongs to the name, `behind` it, of what was asked about: "a 2006 Chevy".

        Where a passage speaks of a 2005 Chevy instead, it does not.
        """
        name = value.near[1]
        named = value.value.kind == NUMBER and behind.lstrip()[:1].isupper()
        asked = named and any((key, name) in self._topics for key in value.value.keys)
        return asked and not self.comparable(value, (name,))

    def holds_part(self, value: Bound) -> bool:
        """Return whether a passage holds a value's number, one of them without a unit, or a date's month."""
        amount = value.value.amount
        given = (one for statement in self._statements for one in statement.given)
        if amount is None:
            if self._dates is None:  # a day of a month alone does not count
                dates = (one.keys for one in given if one.kind == "date" and not one.amount)
                self._dates = frozenset(key for key in chain.from_iterable(dates) if not key.endswith(".."))
            return not self._dates.isdisjoint(value.value.covers)
        if self._numbers is None:
            self._numbers = {form: set() for form in _OTHER_FORMS}
            for other in (one.amount for one in given if one.amount):
                self._numbers[_form(other)] |= {other.magnitude, Fraction(round(other.magnitude))}
        numbers = self._numbers
        return any(amount.magnitude in numbers[form] for form in _OTHER_FORMS[_form(amount)])

    def equal(self, value: Bound, words: Iterable[str]) -> list[Bound]:
        if self._covering is None:
            self._covering = {}
            for bound in self._values():
                for key in bound.value.covers:
                    self._covering.setdefault(key, []).append(bound)
        keys = sorted(value.value.keys)
        for key in keys:
            if key not in self._equal:
                found = self._covering.get(key, [])
                self._equal[key], self._equal_about[key] = found[:_CANDIDATES], self._by_word(found)
        lists = [self._equal_about[key].get(word, []) for key, word in product(keys, sorted(words))]
        return _first([*lists, *(self._equal[key] for key in keys)])

    def comparable(self, value: Bound, words: Iterable[str]) -> list[Bound]:
        if self._kinds is None:
            self._kinds = {}
            for bound in self._values():
                for kind in () if bound.value.implied else dimensions(bound.value.covers):
                    self._kinds.setdefault(kind, []).append(bound)
        kinds = sorted(dimensions(value.value.keys))
        for kind in kinds:
            if kind not in self._comparable:
                self._comparable[kind] = self._by_word(self._kinds.get(kind, ()))
        lists = [self._comparable[kind].get(word, []) for kind, word in product(kinds, sorted(words))]
        return [other for other in _first(lists) if differ(value, other)]

    def _values(self) -> Iterator[Bound]:
        said = (statement for statement in self._statements if statement in self._wanted)
        return islice(chain.from_iterable(statement.values for statement in said), INDEXED)

    def _by_word(self, values: Iterable[Bound]) -> dict[str, list[Bound]]:
        """Return the first values to which each word of the answer belongs: once for all words, whatever is asked."""
        found: dict[str, list[Bound]] = {}
        for bound in values:
            for word in bound.own & self._wanted.words:
                entries = found.setdefault(word, [])
                if len(entries) < _CANDIDATES:
                    entries.append(bound)
        return found


_OTHER_FORMS: Final = {"bare": ("bare", "unit", "rate"), "unit": ("bare",), "rate": ("bare", "unit")}


def _form(amount: Amount) -> str:
    return "rate" if amount.rate else "unit" if amount.readings else "bare"


def label_of(row: Statement) -> frozenset[str]:
    """Return the words of the first cell of a row of a table, less those of the heads."""
    if not row.heads:
        return frozenset()
    first = takewhile(lambda token: not token.mark, dropwhile(lambda token: token.mark, row.tokens))
    return frozenset(stem for token in first for stem in token.stems).difference(*row.heads)


def differ(one: Bound, other: Bound) -> bool:
    """Return whether two values exclude each other; "2024" and "May 2024" do not."""
    return one.value.keys.isdisjoint(other.value.covers) and other.value.keys.isdisjoint(one.value.covers)


def _first(lists: list[list[Bound]]) -> list[Bound]:
    found: dict[int, Bound] = {}
    for entries in sorted(lists, key=len):
        found.update(zip(map(id, entries), entries, strict=True))
        if len(found) >= 2 * _CANDIDATES:
            break
    spend(_COMPARED * sum(min(len(bound.statement.values), BESIDE) + 1 for bound in found.values()))
    return list(found.values())


_NUMBER: Final = re.compile(r"[0-9]{1,40}(?:\.([0-9]{1,40}))?")
_NEAR: Final = Fraction(1, 4)  # of a bound, that a value may be away from it
_ROUNDED: Final = Fraction(1, 20)  # of a value, that its rounding may be away from it
_HALF: Final = Fraction(1, 2)
_ADDED: Final = 8  # values of a statement that are added up
_DAYS: Final = (0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334)  # of a year, before each month
_COMPARING: Final = words_in(__package__, "comparing")
"""With one of these a value may be the sum, the difference or the share of two that are given."""
_NO_NUMBERS: Final = frozenset((DATE, VERSION))
"""What else a number may be read as, that is no nearer to another than any."""


def is_strict(bound: str) -> bool:
    return bound in {"<", ">"}


def resolved(said: Sequence[Statement], there: Iterable[Statement]) -> Sequence[Statement]:
    """Return statements of an answer whose values say what passages give in their place too.

    That is a value that rounds to it or lies on the side of its bound, or one of two of which it is sum or difference.
    """
    if not any(value.amount for statement in said for value in statement.given):
        return said
    given = _Given([*there])
    found: list[Statement] = []
    for statement in said:
        compares = not _COMPARING.isdisjoint(chain.from_iterable(map(str.split, statement.texts)))
        tokens = [_loose(token, given, compares=compares) for token in statement.tokens]
        if any(new is not token for new, token in zip(tokens, statement.tokens, strict=True)):
            says = statement.says.union(*(token.value.covers for token in tokens if token.value))
            found.append(replace(statement, tokens=tokens, says=says))
        else:
            found.append(statement)
    return found


class _Given:
    """The numbers of passages by dimension, in ascending order, and what two of one or two statements add up to."""

    def __init__(self, statements: Sequence[Statement]) -> None:
        numbers: dict[str, set[Fraction]] = {}
        self.derived: set[str] = set()
        before: list[tuple[str, Fraction, str]] = []
        for statement in statements:
            counted: list[tuple[str, Fraction, str]] = []
            for value in statement.given:
                for key in value.covers if value.amount or value.kind == NUMBER else ():
                    if (dimension := key.rpartition(" ")[0]) not in _NO_NUMBERS:
                        numbers.setdefault(dimension, set()).add(_number(key))
                counted += [] if value.implied or len(counted) >= _ADDED else [*_counted(value)]
            for at, one in enumerate(counted):
                self._derive(one, (*counted[:at], *before))
            before = counted
            spend(len(counted) * (len(counted) + _ADDED) // 4)
        self.converted: dict[str, str] = {}
        for scale, other, factor, zero in (
            ("°c", "°f", Fraction(9, 5), 32),
            ("°f", "°c", Fraction(5, 9), Fraction(-160, 9)),
        ):
            for degrees in numbers.get(scale, ()):
                self.converted[f"{other} {shown(degrees * factor + zero)}"] = f"{scale} {shown(degrees)}"
        self.numbers = {dimension: sorted(found) for dimension, found in numbers.items()}

    def _derive(self, one: tuple[str, Fraction, str], others: Iterable[tuple[str, Fraction, str]]) -> None:
        for dimension, number, _ in others:
            if dimension == one[0]:
                self.derived |= {
                    f"{dimension} {shown(result)}" for result in (abs(one[1] - number), one[1] + number)
                }
                low, high = sorted((abs(one[1]), abs(number)))
                if low:
                    self.derived |= {f"% {shown(100 * low / high)}", f"x {shown(high / low)}"}

    def keys_for(self, token: ValueToken, value: TextValue, key: str) -> Iterator[str]:
        dimension, own = key.rpartition(" ")[0], _number(key)
        numbers = self.numbers.get(dimension, [])
        at = bisect_left(numbers, own)
        spend(_COMPARED)
        for number in numbers[max(0, at - _CANDIDATES) : at + _CANDIDATES]:
            if _holds(token, value, own, number):
                yield f"{dimension} {shown(number)}"
        if converted := self.converted.get(key):
            yield converted


def _counted(value: TextValue) -> Iterator[tuple[str, Fraction, str]]:
    """Yield what may be added up: an amount in its dimension, the year of a date, the minutes of a time of day."""
    for key in sorted(value.keys):
        dimension, _, said = key.rpartition(" ")
        if value.amount and dimension not in _NO_NUMBERS:
            yield dimension, _number(key), key
        elif dimension == DATE:
            year, month, day = (int(part) if part.isdigit() else 0 for part in (*said.split("."), "", "")[:3])
            if year:
                yield "months", Fraction(12 * year + month), key
            if month and day:
                yield "time", Fraction(86400 * (365 * year + _DAYS[month - 1] + day)), key
        elif dimension == "clock" and said[:1].isdigit():
            hour, minute = said.split(":")
            yield "time", Fraction(3600 * int(hour) + 60 * int(minute)), key


def _loose(token: ValueToken, given: _Given, *, compares: bool) -> ValueToken:
    value = token.value
    if value is None or value.amount is None:
        return token
    keys = [key for key in value.keys if key.rpartition(" ")[0] not in _NO_NUMBERS]
    if any(_holds_exactly(given.numbers.get(key.rpartition(" ")[0], ()), _number(key)) for key in keys):
        return token  # it matches as it is
    found = frozenset(other for key in keys for other in given.keys_for(token, value, key))
    if not found and compares and any(key in given.derived for key in value.keys):
        return token._replace(value=value._replace(implied=True))
    if not found:
        return token
    return token._replace(value=value._replace(keys=value.keys | found, covers=value.covers | found))


def _holds_exactly(numbers: Sequence[Fraction], number: Fraction) -> bool:
    at = bisect_left(numbers, number)
    return at < len(numbers) and numbers[at] == number


def _number(key: str) -> Fraction:
    return Fraction(key.rpartition(" ")[2])


def _holds(token: ValueToken, value: TextValue, own: Fraction, given: Fraction) -> bool:
    if not value.bound:
        return _is_rounded(token, own, given)
    if value.bound == "~<" and given > own:
        return False
    if value.bound[0] == "~":
        digits = value.amount.literal.replace(".", "").rstrip("0") if value.amount else ""
        step = abs(own) / (int(digits) or 1) if digits.isdigit() else Fraction(0)  # of the last digit
        return abs(own - given) <= max(_ROUNDED * abs(given), min(_HALF * step, _NEAR * abs(given)))
    return (own < given if value.bound[0] == ">" else own > given) and abs(own - given) <= _NEAR * abs(own)


def _is_rounded(token: ValueToken, own: Fraction, given: Fraction) -> bool:
    """Return whether a value is another one, given with more digits, as it is rounded: "85.2 %" is 85.19 %."""
    written = _NUMBER.search(token.written.replace(",", ""))
    if written is None or not Fraction(written[0]) or abs(own - given) > _ROUNDED * abs(given):
        return False
    step = abs(own / Fraction(written[0])) / 10 ** len(written[1] or "")
    return bool(given % step) and abs(own - given) <= step / 2

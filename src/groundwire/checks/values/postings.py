"""The values of passages, by what they say and by the words that belong to them.

Each part is made when it is first asked for. (`functools.cached_property` would let one thread wait for another's.)
Values that an answer gives only about ("about 5 %", "almost 80", "more than 60 metres") say what the passages give in
their place: a value that rounds to them, or on their side of the bound and near it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain, islice
from typing import Final

from groundwire.checks.values.statements import Bound, ValueStatement
from groundwire.checks.values.units import DATE, VERSION, Amount, TextValue, ValueToken, dimensions

_Lists = dict[str, list[Bound]]

INDEXED: Final = 100_000
"""Values of passages that are kept; those beyond support nothing."""


class ValuePostings:
    """The values of the statements of passages; each list is in text order."""

    def __init__(
        self, statements: Sequence[ValueStatement], wanted: Callable[[ValueStatement], bool]
    ) -> None:
        self._statements = statements
        self._wanted = wanted  # of others no value is bound or found
        self._signatures: frozenset[int] | None = None
        self._words: frozenset[str] | None = None
        self._dates: frozenset[str] | None = None
        self._equal: _Lists | None = None
        self._kinds: _Lists | None = None

    def says(self, signature: str) -> bool:
        """Tell whether a statement has a signature, told by its hash."""
        if self._signatures is None:
            self._signatures = frozenset(hash(statement.signature) for statement in self._statements)
        return hash(signature) in self._signatures

    def speaks_of(self, word: str) -> bool:
        """Tell whether a statement holds a word."""
        if self._words is None:
            self._words = frozenset[str]().union(*(statement.words for statement in self._statements))
        return word in self._words

    def gives_date(self, keys: Iterable[str]) -> bool:
        """Tell whether a date has one of some keys; a day of a month alone does not count."""
        if self._dates is None:
            dates = (
                value.keys
                for statement in self._statements
                for value in statement.given
                if value.kind == "date" and not value.amount
            )
            self._dates = frozenset(key for key in chain.from_iterable(dates) if not key.endswith(".."))
        return not self._dates.isdisjoint(keys)

    def amounts(self) -> Iterator[Amount]:
        """Yield the amounts, as read."""
        return (value.amount for statement in self._statements for value in statement.given if value.amount)

    def equal(self, key: str) -> Sequence[Bound]:
        """Return the values that cover a key."""
        if self._equal is None:
            self._equal = _by(lambda bound: bound.value.covers, self._values())
        return self._equal.get(key, ())

    def comparable(self, kind: str) -> Sequence[Bound]:
        """Return the values of a dimension, without those that are only implied."""
        if self._kinds is None:
            stated = (bound for bound in self._values() if not bound.value.implied)
            self._kinds = _by(lambda bound: dimensions(bound.value.covers), stated)
        return self._kinds.get(kind, ())

    def _values(self) -> Iterator[Bound]:
        said = (statement for statement in self._statements if self._wanted(statement))
        return islice(chain.from_iterable(statement.values for statement in said), INDEXED)


def _by(keys_of: Callable[[Bound], Iterable[str]], values: Iterable[Bound]) -> _Lists:
    lists: _Lists = {}
    for bound in values:
        for key in keys_of(bound):
            if key in lists:
                lists[key].append(bound)
            else:
                lists[key] = [bound]
    return lists


_NEAR: Final = Fraction(1, 4)  # of a bound, that a value may be away from it
_ROUNDED: Final = Fraction(1, 20)  # of a value, that its rounding may be away from it
_HALF: Final = Fraction(1, 2)
_NO_NUMBERS: Final = frozenset((DATE, VERSION))
"""What else a number may be read as, that is no nearer to another than any."""


def is_strict(bound: str) -> bool:
    """Tell whether a bound excludes the value itself."""
    return bound in {"<", ">"}


def resolved(said: Sequence[ValueStatement], there: Iterable[ValueStatement]) -> Sequence[ValueStatement]:
    """Return statements of an answer whose approximate values say what passages give in their place too."""
    if not any(value.bound for statement in said for value in statement.given):
        return said
    given: dict[str, set[str]] = {}
    for statement in there:
        for value in statement.given:
            for key in value.covers if value.amount else ():
                given.setdefault(key.partition(" ")[0], set()).add(key)
    return [_resolved(statement, given) for statement in said]


def _resolved(statement: ValueStatement, given: dict[str, set[str]]) -> ValueStatement:
    tokens = [_loose(token, given) for token in statement.tokens]
    if all(new is token for new, token in zip(tokens, statement.tokens, strict=True)):
        return statement
    covers = [token.value.covers for token in tokens if token.value]
    return replace(statement, tokens=tokens, says=statement.says.union(*covers), _values=None, clauses=None)


def _loose(token: ValueToken, given: dict[str, set[str]]) -> ValueToken:
    value = token.value
    if value is None or value.amount is None or not value.bound:
        return token
    if any(key in given.get(key.partition(" ")[0], ()) for key in value.keys):
        return token  # as it stands
    keys = {
        other
        for key in value.keys
        for other in given.get(key.partition(" ")[0], ())
        if key.partition(" ")[0] not in _NO_NUMBERS and _holds(value, _number(key), _number(other))
    }
    if not keys:
        return token
    return token._replace(value=value._replace(keys=value.keys | keys, covers=value.covers | keys))


def _number(key: str) -> Fraction:
    return Fraction(key.partition(" ")[2])


def _holds(value: TextValue, own: Fraction, given: Fraction) -> bool:
    if value.bound == "~":
        digits = value.amount.literal.replace(".", "").rstrip("0") if value.amount else ""
        step = abs(own) / (int(digits) or 1) if digits.isdigit() else Fraction(0)  # of the last digit
        return abs(own - given) <= max(_ROUNDED * abs(given), min(_HALF * step, _NEAR * abs(given)))
    return (own < given if value.bound[0] == ">" else own > given) and abs(own - given) <= _NEAR * abs(own)

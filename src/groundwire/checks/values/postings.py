"""The values of passages, by what they say and by the words that belong to them.

Each part is made when it is first asked for. (`functools.cached_property` would let one thread wait for another's.)
"""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from groundwire.checks.values.units import dimensions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from groundwire.checks.values.statements import Bound, ValueStatement
    from groundwire.checks.values.units import Amount

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

"""The values of a text, by what they say and by the words that belong to them.

Nothing of it depends on an answer: several checks, and several answers, look values up in the same postings. Each
part is made when it is first asked for. (`functools.cached_property` would let one thread wait for another's text.)
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
"""Values of a text that are kept; those beyond support nothing."""


class ValuePostings:
    """The values of the statements of a text; each list is in text order."""

    def __init__(self, statements: Sequence[ValueStatement]) -> None:
        self._statements = statements
        self._signatures: frozenset[int] | None = None
        self._words: frozenset[str] | None = None
        self._dates: frozenset[str] | None = None
        self._equal: _Lists | None = None
        self._kinds: _Lists | None = None
        self._about: dict[str, _Lists] = {}
        self._comparable: dict[str, _Lists] = {}

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

    def equal_about(self, key: str, word: str) -> Sequence[Bound]:
        """Return those of them to which a word belongs."""
        if key not in self._about:
            self._about[key] = _by(lambda bound: bound.own, self.equal(key))
        return self._about[key].get(word, ())

    def comparable(self, kind: str, word: str) -> Sequence[Bound]:
        """Return the values of a dimension to which a word belongs, without those that are only implied."""
        if self._kinds is None:
            stated = (bound for bound in self._values() if not bound.value.implied)
            self._kinds = _by(lambda bound: dimensions(bound.value.covers), stated)
        if kind not in self._comparable:
            self._comparable[kind] = _by(lambda bound: bound.own, self._kinds.get(kind, ()))
        return self._comparable[kind].get(word, ())

    def _values(self) -> Iterator[Bound]:
        return islice(chain.from_iterable(statement.values for statement in self._statements), INDEXED)


def _by(keys_of: Callable[[Bound], Iterable[str]], values: Iterable[Bound]) -> _Lists:
    lists: _Lists = {}
    for bound in values:
        for key in keys_of(bound):
            if key in lists:
                lists[key].append(bound)
            else:
                lists[key] = [bound]
    return lists

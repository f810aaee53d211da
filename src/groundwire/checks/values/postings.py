"""The values of a text, by what they say and by the words that belong to them.

Nothing of it depends on an answer: several checks, and several answers, look values up in the same postings. Each
part is made when it is first asked for.
"""

from __future__ import annotations

from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from groundwire.checks.values.units import dimensions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from groundwire.checks.values.statements import Bound, ValueStatement
    from groundwire.checks.values.units import Amount

    _Lists = dict[str, list[Bound]]

INDEXED: Final = 100_000
"""Values of a text that are kept; those beyond support nothing."""


class ValuePostings:
    """The values of the statements of a text; each list is in text order."""

    def __init__(self, statements: Sequence[ValueStatement]) -> None:
        self._statements = statements
        self._about: dict[str, _Lists] = {}
        self._comparable: dict[str, _Lists] = {}

    @cached_property
    def signatures(self) -> frozenset[int]:
        """What tells a statement from those that say something else, by its hash."""
        return frozenset(hash(statement.signature) for statement in self._statements)

    @cached_property
    def words(self) -> frozenset[str]:
        """The words of all statements."""
        return frozenset[str]().union(*(statement.words for statement in self._statements))

    @cached_property
    def amounts(self) -> Sequence[Amount]:
        """The amounts, as read."""
        return [value.amount for statement in self._statements for value in statement.given if value.amount]

    @cached_property
    def dates(self) -> frozenset[str]:
        """The keys of dates, without those of a month alone."""
        dates = (
            value.keys
            for statement in self._statements
            for value in statement.given
            if value.kind == "date" and not value.amount
        )
        return frozenset(key for key in chain.from_iterable(dates) if not key.endswith(".."))

    def equal(self, key: str) -> Sequence[Bound]:
        """Return the values that cover a key."""
        return self._equal.get(key, ())

    def equal_about(self, key: str, word: str) -> Sequence[Bound]:
        """Return those of them to which a word belongs."""
        if key not in self._about:
            self._about[key] = _by(lambda bound: bound.own, self.equal(key))
        return self._about[key].get(word, ())

    def comparable(self, kind: str, word: str) -> Sequence[Bound]:
        """Return the values of a dimension to which a word belongs, without those that are only implied."""
        if kind not in self._comparable:
            self._comparable[kind] = _by(lambda bound: bound.own, self._kinds.get(kind, ()))
        return self._comparable[kind].get(word, ())

    @cached_property
    def _values(self) -> Sequence[Bound]:
        every = chain.from_iterable(statement.values for statement in self._statements)
        return [*islice(every, INDEXED)]

    @cached_property
    def _equal(self) -> Mapping[str, Sequence[Bound]]:
        return _by(lambda bound: bound.value.covers, self._values)

    @cached_property
    def _kinds(self) -> Mapping[str, Sequence[Bound]]:
        stated = [bound for bound in self._values if not bound.value.implied]
        return _by(lambda bound: dimensions(bound.value.covers), stated)


def _by(keys_of: Callable[[Bound], Iterable[str]], values: Iterable[Bound]) -> _Lists:
    lists: _Lists = {}
    for bound in values:
        for key in keys_of(bound):
            if key in lists:
                lists[key].append(bound)
            else:
                lists[key] = [bound]
    return lists

"""The values of the passages, found by what they say and by what they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from groundwire.checks.values_units import dimensions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from groundwire.checks.values_statements import Bound, Statement

_CANDIDATES: Final = 24
"""Values of the passages that are looked at per value and way of finding them, and kept per entry."""
_INDEXED: Final = 100_000
"""Values of the passages that are kept. What is beyond a bound supports nothing."""
_OWN_WEIGHT: Final = 4
_ALIKE: Final = 0.7
_DIRECTIONS: Final = frozenset(("from", "to", "before", "after", "until", "since"))

Score = tuple[int, int]


class ValueIndex:
    """Holds what passages say; its size and the work of every question are bounded."""

    def __init__(self) -> None:
        self._verbatim: set[int] = set()
        self._equal: dict[str, list[Bound]] = {}
        self._equal_about: dict[tuple[str, str], list[Bound]] = {}
        self._comparable: dict[tuple[str, str], list[Bound]] = {}
        self._kept = 0

    def add(self, statement: Statement) -> None:
        """Take in a statement of a passage."""
        self._verbatim.add(hash(statement.signature))
        for bound in statement.values:
            self._kept += 1
            if self._kept > _INDEXED:
                return
            for key in bound.value.covers:
                _keep(self._equal, key, bound)
                for word in bound.own:
                    _keep(self._equal_about, (key, word), bound)
            for dimension in () if bound.value.implied else dimensions(bound.value.covers):
                for word in bound.own:
                    _keep(self._comparable, (dimension, word), bound)

    def says(self, statement: Statement) -> bool:
        """Tell whether a passage holds a statement word by word, under the same headings."""
        return hash(statement.signature) in self._verbatim

    def equal(self, value: Bound, words: Iterable[str]) -> list[Bound]:
        """Return values of the passages that are equal to a value, those about the same words first."""
        keys = value.value.keys
        lists = [self._equal_about.get((key, word), ()) for key in keys for word in words]
        lists += [self._equal.get(key, ()) for key in keys]
        return list(_first(lists))

    def comparable(self, value: Bound, words: Iterable[str]) -> list[Bound]:
        """Return values of the passages that could stand in a value's place and differ from it."""
        found = [
            self._comparable.get((dimension, word), ())
            for dimension in dimensions(value.value.keys)
            for word in words
        ]
        return [other for other in _first(found) if differ(value, other)]


def differ(one: Bound, other: Bound) -> bool:
    """Tell whether two values exclude each other; "2024" and "May 2024" do not."""
    return one.value.keys.isdisjoint(other.value.covers) and other.value.keys.isdisjoint(one.value.covers)


def alike(one: Statement, other: Statement) -> bool:
    """Tell whether two statements use nearly the same words, so that the places of their values compare."""
    common = len(one.words & other.words)
    return _ALIKE * len(one.words | other.words) <= common


def similarity(one: Bound, other: Bound, *, same_form: bool) -> Score:
    """Return how much two values are about the same thing.

    Args:
        one: a value of the answer.
        other: a value of a passage.
        same_form: their statements are alike: what stands right beside the values counts then too, and what
            `other` is bound to beyond `one`.
    """
    own = len(one.own & other.own)
    beside = sum(
        mine == yours and (same_form or mine in _DIRECTIONS)
        for mine, yours in zip(one.near, other.near, strict=True)
    )
    return _OWN_WEIGHT * own + beside, -len(other.own - one.own) if same_form else 0


def _keep(index: dict[str, list[Bound]] | dict[tuple[str, str], list[Bound]], key: object, bound: Bound) -> None:
    entries: list[Bound] = index.setdefault(key, [])  # type: ignore[arg-type, call-overload]
    if len(entries) < _CANDIDATES:
        entries.append(bound)


def _first(lists: list[list[Bound] | tuple[()]]) -> Iterator[Bound]:
    """Yield the entries of the shortest lists, the rarest words, first; each once, a bounded number."""
    seen: set[int] = set()
    for entries in sorted(lists, key=len):
        for bound in entries:
            if id(bound) not in seen:
                seen.add(id(bound))
                yield bound
        if len(seen) >= 2 * _CANDIDATES:
            return

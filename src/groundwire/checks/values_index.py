"""The values of the passages, found by what they say and by what they are about."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from groundwire.checks.values_units import dimensions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from groundwire.checks.values_statements import Bound, Statement

_CANDIDATES: Final = 24
"""Values of the passages that are looked at per value and way of finding them, and kept per entry."""
_INDEXED: Final = 100_000
"""Values of the passages that are kept. What is beyond a bound supports nothing."""
_OWN_WEIGHT: Final = 4
_ALIKE: Final = 0.7
_DIRECTIONS: Final = frozenset(("from", "to", "before", "after", "until", "since"))

Score = tuple[int, int]


class Wanted:
    """What an answer asks about; the rest of the passages need not be kept."""

    def __init__(self, statements: Iterable[Statement]) -> None:
        """Take all statements of the answer."""
        words: set[str] = set()
        keys: set[str] = set()
        for statement in statements:
            words |= statement.words
            for bound in statement.values:
                keys |= bound.value.keys
        self.words = frozenset(words)
        self.keys = frozenset(keys)
        self.dimensions = dimensions(keys)

    def __contains__(self, statement: Statement) -> bool:
        """Tell whether a statement of a passage shares a word or a value with the answer."""
        return not statement.words.isdisjoint(self.words) or any(
            token.value and not token.value.covers.isdisjoint(self.keys) for token in statement.tokens
        )


class ValueIndex:
    """Holds what passages say of what is wanted; its size and the work of every question are bounded."""

    def __init__(self, wanted: Wanted) -> None:
        """Start empty.

        Args:
            wanted: what the answer asks about.
        """
        self._wanted = wanted
        self._verbatim: set[int] = set()
        self._equal: dict[str, list[Bound]] = {}
        self._equal_about: dict[tuple[str, str], list[Bound]] = {}
        self._comparable: dict[tuple[str, str], list[Bound]] = {}
        self._kept = 0

    def add(self, statement: Statement) -> None:
        """Take in a statement of a passage."""
        self._verbatim.add(hash(statement.signature))
        for bound in statement.values if statement in self._wanted else ():
            self._kept += 1
            if self._kept > _INDEXED:
                return
            words = bound.own & self._wanted.words
            for key in bound.value.covers & self._wanted.keys:
                _keep(self._equal.setdefault(key, []), bound)
                for word in words:
                    _keep(self._equal_about.setdefault((key, word), []), bound)
            kinds = dimensions(bound.value.covers) if not bound.value.implied else frozenset()
            for kind in kinds & self._wanted.dimensions:
                for word in words:
                    _keep(self._comparable.setdefault((kind, word), []), bound)

    def says(self, statement: Statement) -> bool:
        """Tell whether a passage holds a statement word by word, under the same headings."""
        return hash(statement.signature) in self._verbatim

    def equal(self, value: Bound, words: Iterable[str]) -> list[Bound]:
        """Return values of the passages that are equal to a value, those about the rarest words first."""
        keys = sorted(value.value.keys)
        lists = [self._equal_about.get((key, word), []) for key in keys for word in sorted(words)]
        return _first([*lists, *(self._equal.get(key, []) for key in keys)])

    def comparable(self, value: Bound, words: Iterable[str]) -> list[Bound]:
        """Return values of the passages that could stand in a value's place and differ from it."""
        kinds = sorted(dimensions(value.value.keys))
        found = _first([self._comparable.get((kind, word), []) for kind in kinds for word in sorted(words)])
        return [other for other in found if differ(value, other)]


def differ(one: Bound, other: Bound) -> bool:
    """Tell whether two values exclude each other; "2024" and "May 2024" do not."""
    return one.value.keys.isdisjoint(other.value.covers) and other.value.keys.isdisjoint(one.value.covers)


def excluded(one: Bound, other: Bound) -> bool:
    """Tell whether equal values are opposite bounds: "at most 5" and "at least 5"."""
    return {one.value.bound, other.value.bound} == {"<", ">"}


def alike(one: Statement, other: Statement) -> bool:
    """Tell whether two statements use nearly the same words, so that the places of their values compare."""
    common = len(one.words & other.words)
    return _ALIKE * (len(one.words) + len(other.words) - common) <= common


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


def _keep(entries: list[Bound], bound: Bound) -> None:
    if len(entries) < _CANDIDATES:
        entries.append(bound)


def _first(lists: list[list[Bound]]) -> list[Bound]:
    """Return the entries of the shortest lists, those of the rarest words, each once; a bounded number."""
    found: dict[int, Bound] = {}
    for entries in sorted(lists, key=len):
        found.update(zip(map(id, entries), entries, strict=True))
        if len(found) >= 2 * _CANDIDATES:
            break
    return list(found.values())

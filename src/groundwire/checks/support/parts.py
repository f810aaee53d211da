"""Parts of statements: from one mark, "and" or "which" to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from groundwire.checks.support.atoms import SAME
from groundwire.checks.values.binding import CLAUSE_ENDS
from groundwire.checks.values.units import ValueToken
from groundwire.text.stems import words_of

_ENDS: Final = CLAUSE_ENDS | words_of("( : if when unless which who whose where that as")


class Part(NamedTuple):
    """A part of a statement.

    Attributes:
        tokens: its words and values.
        keys: for each of them what it says, and what says the same; empty for function words.
        all: the same of all of them.
    """

    tokens: Sequence[ValueToken]
    keys: Sequence[frozenset[str]]
    all: frozenset[str]

    def text(self, at: int) -> str:
        """Return the word at a place in lower case; empty outside the part."""
        return self.tokens[at].text if 0 <= at < len(self.tokens) else ""


def parts(tokens: Iterable[ValueToken]) -> Iterator[Part]:
    """Yield the parts of a statement; one with a single word or value belongs to the one before it."""
    kept: list[list[ValueToken]] = [[]]
    for token in tokens:
        if token.value is None and token.text in _ENDS:
            if _size(kept[-1]) > 1:
                kept.append([])
        elif not token.mark:
            kept[-1].append(token)
    if len(kept) > 1 and _size(kept[-1]) < 2:
        last = kept.pop()
        kept[-1] += last
    for piece in kept:
        keys = [_keys(token) for token in piece]
        yield Part(piece, keys, frozenset().union(*keys))


def _size(tokens: Iterable[ValueToken]) -> int:
    return sum(bool(token.stems or token.value) for token in tokens)


def _keys(token: ValueToken) -> frozenset[str]:
    said = same(token.stems) if token.stems else _NOTHING
    return said | token.value.covers if token.value else said


_NOTHING: Final = frozenset[str]()


@lru_cache(1 << 13)
def same(stems: tuple[str, ...]) -> frozenset[str]:
    """Return the stems that stand for those of a word."""
    return _NOTHING.union(*(SAME.get(stem, (stem,)) for stem in stems))

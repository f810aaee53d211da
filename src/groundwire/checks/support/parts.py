"""Parts of statements: from one mark, "and" or "which" to the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Final, NamedTuple

from groundwire.checks.support.atoms import SAME
from groundwire.checks.values.binding import CLAUSE_ENDS
from groundwire.checks.values.units import ValueToken
from groundwire.text.stems import words_of

_OWNERS: Final = words_of("his her its their")
_OPENING: Final = 4  # words of a part that may name what it is about
_ENDS: Final = CLAUSE_ENDS | words_of("( : if when unless which who whose where that as")


Sides = tuple[frozenset[str], frozenset[str]]
"""What stands on the two sides of a word."""


class Part(NamedTuple):
    """A part of a statement.

    Attributes:
        tokens: its words and values.
        keys: for each of them what it says, and what says the same; empty for function words.
        all: the same of all of them.
        about: what the statement begins with, where the part is not its first and names nothing before its verb:
            "The study was led by Ada and paid for by Bea" says of the study, too, who paid.
    """

    tokens: Sequence[ValueToken]
    keys: Sequence[frozenset[str]]
    all: frozenset[str]
    about: frozenset[str] = frozenset()

    @property
    def opening(self) -> frozenset[str]:
        """What its first words say, as far as the first function word behind an article."""
        known = [at for at, keys in enumerate(self.keys[:_OPENING]) if keys]
        first = known[0] if known else 0
        run = takewhile(bool, self.keys[first : first + _OPENING - 1])
        return frozenset[str]().union(*run)

    @property
    def is_open(self) -> bool:
        """Whether it may begin with its verb: with no name, no function word, and nobody's brother."""
        begins = bool(self.keys and self.keys[0]) and not self.tokens[0].written[:1].isupper()
        return begins and _OWNERS.isdisjoint(token.text for token in self.tokens[1:2])

    def says(self, keys: frozenset[str]) -> bool:
        """Tell whether the part says one of some words, or is about it."""
        return not (keys.isdisjoint(self.all) and keys.isdisjoint(self.about))

    def text(self, at: int) -> str:
        """Return the word at a place in lower case; empty outside the part."""
        return self.tokens[at].text if 0 <= at < len(self.tokens) else ""


def parts(tokens: Iterable[ValueToken]) -> Iterator[Part]:
    """Yield the parts of a statement; one with a single word or value belongs to the one before it."""
    kept: list[list[ValueToken]] = [[]]
    for token in tokens:
        if token.value is None and token.text in _ENDS:
            named = token.text == "," and all(word.written[:1].isupper() for word in kept[-1])
            if _size(kept[-1]) > 1 and not named:  # "the captain, Ada Byron, commands": she does
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

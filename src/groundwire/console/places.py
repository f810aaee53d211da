"""Which place of some texts comes nearest to a phrase, for a reader to look at; nothing is decided by it.

Sentences are compared by the words that they share with the phrase, rare words counting for more. Work is in proportion
to the length of texts and phrases.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import log
from typing import Final, NamedTuple

from groundwire.text.sentences import sentences
from groundwire.text.stems import content_words
from groundwire.text.tokens import tokenize

_KEPT: Final = 256
"""Sentences that are remembered of a word: one that stands in more tells none apart."""
_LEAST: Final = 0.25
"""Share of a phrase that a place has to say; what says less is no place of it."""
_LENGTH: Final = 0.01
"""What each word of a sentence costs: of two that say as much the shorter one is nearer."""
_MOST_SENTENCES: Final = 8
"""Sentences of a phrase that are looked for side by side."""


class TextPlace(NamedTuple):
    """A run of sentences: `texts[text][start:end]`."""

    text: int
    start: int
    end: int


class Places:
    def __init__(self, texts: Sequence[str]) -> None:
        self._spans = [
            TextPlace(n, one.start, one.end) for n, text in enumerate(texts) for one in sentences(text)
        ]
        self._words = [_words(texts[place.text][place.start : place.end]) for place in self._spans]
        self._holding: dict[str, list[int]] = {}
        for at, words in enumerate(self._words):
            for word in sorted(words):
                held = self._holding.setdefault(word, [])
                if len(held) <= _KEPT:
                    held.append(at)

    def nearest(self, phrase: str, within: Collection[int] | None = None) -> TextPlace | None:
        """Return the place that says most of a phrase, as many sentences as it has; None where none says enough.

        Args:
            phrase: any text.
            within: numbers of the texts to look in; None: all.
        """
        weights = {word: self._weight(word) for word in sorted(_words(phrase))}
        shares: dict[int, float] = {}
        for word, weight in weights.items():
            held = self._holding.get(word, ())
            for at in held if len(held) <= _KEPT else ():
                shares[at] = shares.get(at, 0.0) + weight
        total = sum(weights.values())
        found = {
            at: share / total - _LENGTH * len(self._words[at])
            for at, share in shares.items()
            if share >= _LEAST * total / _run(phrase) and (within is None or self._spans[at].text in within)
        }
        if not found:
            return None
        best = min(found, key=lambda at: (-round(found[at], 4), at))
        return self._around(best, _run(phrase), shares)

    def _weight(self, word: str) -> float:
        return log(2 + len(self._spans) / (1 + len(self._holding.get(word, ()))))

    def _around(self, best: int, count: int, shares: dict[int, float]) -> TextPlace:
        """Return so many sentences side by side in one text, the best among them, that say most together."""
        text = self._spans[best].text
        runs = [
            range(first, first + count)
            for first in range(max(0, best - count + 1), best + 1)
            if first + count <= len(self._spans)
            and self._spans[first].text == self._spans[first + count - 1].text == text
        ] or [range(best, best + 1)]
        chosen = max(runs, key=lambda run: (sum(shares.get(at, 0.0) for at in run), -run[0]))
        return TextPlace(text, self._spans[chosen[0]].start, self._spans[chosen[-1]].end)


def _run(phrase: str) -> int:
    return min(max(1, len(sentences(phrase))), _MOST_SENTENCES)


def _words(text: str) -> frozenset[str]:
    """Return what a text says, word by word; a number or a sign without a stem is itself."""
    return frozenset(stem for token in tokenize(text) for stem in (content_words(token) or _counted(token)))


def _counted(token: str) -> tuple[str, ...]:
    return (token,) if any(char.isdigit() for char in token) else ()

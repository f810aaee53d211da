"""Whether a quote and the window that it nearly matches say the same (S1-29).

One character turns "30 s" into "80 s", three turn "hopeless" into "not hopeless": scores of 97. Numbers,
units and negations have to be the same, in the same order and at the same place.
"""

from __future__ import annotations

import re
from typing import Final, Literal, NamedTuple

from groundwire.checks.negations import negations
from groundwire.checks.quantities import quantities
from groundwire.checks.quote_fuzzy import Window
from groundwire.checks.tokens import tokenize

_WORD: Final = re.compile(r"\S+")
_REACH: Final = 100  # characters beyond the edge of a window in which the rest of a word is looked for
_CLAUSE_ENDS: Final = (".", ",", ";", ":", "!", "?")


class _Word(NamedTuple):
    text: str
    held: bool  # at least half of it stands in the quote too


def differs(quote: str, source: str, window: Window) -> Literal["number", "negation"] | None:
    """Return in what a quote and a window of the source differ materially, or None.

    What the quote has and the window has not may stand beside the window, so that much is read there too, and
    words that are cut are read whole. Words at the edges that the quote does not have do not count for
    numbers, nor, where they belong to another clause, for negations.

    Args:
        quote: In the form in which quotes are compared, as is the source.
        source: The source.
        window: One that the quote nearly matches.
    """
    missing = len(quote) - round(window.score * (len(quote) + window.end - window.start) / 2)
    around = _words(quote, _whole(source, window.start - missing, window.end + missing))
    within = _words(quote, _whole(source, window.start, window.end))
    lead, trail = _unheld(around), _unheld(around[::-1])
    own = tokenize(quote)
    numbers = quantities(own)
    if not any(
        numbers == quantities(_tokens(words)) for words in (within, around[lead : len(around) - trail])
    ):
        return "number"
    if not _same_negations(own, _tokens(_one_clause(around, lead, trail))):
        return "negation"
    return None


def _whole(source: str, start: int, end: int) -> str:
    """Return a part of the source with the words at its edges whole."""
    start = max(start, 0)
    start = max(source.rfind(" ", max(0, start - _REACH), start + 1) + 1, start - _REACH)
    stop = source.find(" ", max(end - 1, 0), end + _REACH)
    return source[start : stop if stop >= 0 else end + _REACH]


def _words(quote: str, text: str) -> list[_Word]:
    from rapidfuzz.distance import LCSseq  # noqa: PLC0415 - only fuzzy mode needs it

    held = bytearray(len(text))
    for block in LCSseq.editops(quote, text).as_matching_blocks():
        held[block.b : block.b + block.size] = b"\1" * block.size
    return [
        _Word(word.group(), 2 * sum(held[word.start() : word.end()]) >= len(word.group()))
        for word in _WORD.finditer(text)
    ]


def _unheld(words: list[_Word]) -> int:
    return next((count for count, word in enumerate(words) if word.held), 0)


def _one_clause(words: list[_Word], lead: int, trail: int) -> list[_Word]:
    """Leave out the words at the edges that the quote has not and that belong to another clause."""
    first, last = 0, len(words)
    for place in range(lead):
        if words[place].text.endswith(_CLAUSE_ENDS):
            first = place + 1
    for place in range(len(words) - trail, len(words)):
        if place and words[place - 1].text.endswith(_CLAUSE_ENDS):
            last = place
            break
    return words[first:last]


def _tokens(words: list[_Word]) -> list[str]:
    return tokenize(" ".join(word.text for word in words))


def _same_negations(own: list[str], other: list[str]) -> bool:
    from rapidfuzz.distance import LCSseq  # noqa: PLC0415 - only fuzzy mode needs it

    if negations(own) != negations(other):
        return False
    here = there = 0
    for block in LCSseq.editops(own, other).as_matching_blocks():  # the last one is empty, at both ends
        if negations(own[here : block.a]) != negations(other[there : block.b]):
            return False  # it stands elsewhere: "not fast but cheap" is no quote of "fast but not cheap"
        here, there = block.a + block.size, block.b + block.size
    return True

"""The places of a source at which a quote nearly stands (S1-25..S1-29, C-38).

The score of a window is that of `rapidfuzz.fuzz.partial_ratio`: twice what both share ÷ their lengths, over
all windows of the quote's length and the shorter ones at both ends of the source. One call of it on a long
source holds the interpreter for seconds, so the source is read in stretches: short quotes by calls of
`partial_ratio` on one stretch each, longer ones by halving each stretch that as a whole shares enough with
the quote. The best score found is that of one call on everything.

A high score does not mean the same statement (S1-29): one character turns "30 s" into "80 s", three turn "hopeless"
into "not hopeless", with scores of 97. `differs` asks whether numbers, units and negations are the same, in the same
order and at the same place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Literal, NamedTuple

from groundwire.text.negation import negations
from groundwire.text.quantities import quantities
from groundwire.text.tokens import tokenize
from groundwire.text.work import spend

SHORT: Final = 64  # characters of a quote that rapidfuzz compares as one machine word
LONGEST: Final = 10_000
"""Characters of a quote that are compared; no single comparison then takes longer than some 20 ms."""

_STRETCH: Final = 2000  # windows of a short quote in one call
_CALL: Final = 2500  # steps that a call costs whatever it compares
_WORD_STEPS: Final = 3  # that it costs to compare a character with 64 others
_SHORT_STEPS: Final = 12  # that a window of a short quote costs, on the whole
_EPSILON: Final = 1e-9
_ABSENT: Final = "\n"  # stands in no text in normal form


class OutOfSteps(Exception):
    """The work allowed for one source is used up."""


class Steps:
    """The work that one source may cost, in steps of about a nanosecond; a thousand are a unit of the whole budget.

    Counted, not timed, so that a decision never depends on the machine.
    """

    def __init__(self, allowed: int) -> None:
        self._left = allowed

    def spend(self, steps: int) -> None:
        """Take steps off. Raises: OutOfSteps before the first call that there are too few left for."""
        if steps > self._left:
            self._left = 0
            raise OutOfSteps
        self._left -= steps
        spend(steps // 1000)


class Window(NamedTuple):
    """A window of the source, and its score from 0 to 1."""

    score: float
    start: int
    end: int


def require_rapidfuzz() -> None:
    """Check that rapidfuzz is installed (S1-07). Raises: RuntimeError naming what to install."""
    try:
        import rapidfuzz  # noqa: F401, PLC0415 - only fuzzy mode needs it
    except ImportError:
        raise RuntimeError(
            'quote validation mode "fuzzy" needs rapidfuzz: pip install rapidfuzz, or use mode "substring"'
        ) from None


class _Pair:
    """A quote and the source in which it is looked for; windows are numbered from the first of one character.

    Window w ends after character w of the source; the last ones are cut by its end.
    """

    def __init__(self, quote: str, source: str, steps: Steps) -> None:
        from rapidfuzz.distance import LCSseq  # noqa: PLC0415 - only fuzzy mode needs it

        self.quote, self.source, self.steps = quote, source, steps
        self.length, self.size = len(quote), len(source)
        self.windows = self.length + self.size - 1
        self._shared = LCSseq.similarity
        self._words = _WORD_STEPS * (self.length // SHORT + 1)

    def span(self, first: int, last: int) -> tuple[int, int]:
        return max(0, first + 1 - self.length), min(self.size, last + 1)

    def most(self, first: int, beyond: int) -> float:
        """Return what the best of some windows can score: none shares more than all of them together."""
        start, end = self.span(first, beyond - 1)
        self.steps.spend(_CALL + (end - start) * self._words)
        shared = self._shared(self.quote, self.source[start:end])
        if first >= self.length - 1 and beyond <= self.size:
            return shared / self.length
        begin, stop = self.span(first, first), self.span(beyond - 1, beyond - 1)
        shortest = min(begin[1] - begin[0], stop[1] - stop[0])
        longest = (
            self.length if first < self.size and beyond >= self.length else max(begin[1], stop[1] - stop[0])
        )
        fit = min(max(shared, shortest), longest)  # the length at which sharing so much scores most
        return 2 * min(shared, fit) / (self.length + fit)


def best_windows(quote: str, source: str, least: float, steps: Steps) -> Iterator[Window]:
    """Yield windows that score at least so much, among them the best of the source.

    Of each stretch the best comes first; whoever asks on gets the best of what lies at least half a quote
    away from those before. The order is by stretches, not by score.

    Raises:
        OutOfSteps: The work allowed is used up.
    """
    pair = _Pair(quote, source, steps)
    stretch = _STRETCH if len(quote) <= SHORT else 2 * len(quote)
    for start in range(0, pair.windows, stretch):
        waiting = [(start, min(start + stretch, pair.windows))]
        while waiting:
            first, beyond = waiting.pop()
            found = _best(pair, first, beyond, least)
            if found is None:
                continue
            number, window = found
            yield window
            half = len(quote) // 2 + 1
            sides = ((first, number - half + 1), (number + half, beyond))
            waiting += [side for side in sides if side[0] < side[1]]
    if len(quote) == len(source):
        yield from _turned(pair, least)


def _best(pair: _Pair, first: int, beyond: int, least: float) -> tuple[int, Window] | None:
    if len(pair.quote) <= SHORT:
        return _best_of_short(pair, first, beyond, least)
    waiting = [(-pair.most(first, beyond), first, beyond)]
    heapify(waiting)
    while waiting and -waiting[0][0] >= least - _EPSILON:
        score, low, high = heappop(waiting)
        if high - low == 1:  # what it could score at most is what it scores, and no other can score more
            return low, Window(-score, *pair.span(low, low))
        middle = (low + high) // 2
        for part in ((low, middle), (middle, high)):
            most = pair.most(*part)
            if most >= least - _EPSILON:
                heappush(waiting, (-most, *part))
    return None


def _best_of_short(pair: _Pair, first: int, beyond: int, least: float) -> tuple[int, Window] | None:
    from rapidfuzz import fuzz  # noqa: PLC0415 - only fuzzy mode needs it

    length = len(pair.quote)
    start, end = pair.span(first, beyond - 1)
    # Inside the source no window is shorter than the quote: with these edges a shorter one never scores best.
    before = _ABSENT * length if first >= length - 1 else ""
    after = _ABSENT * length if beyond <= len(pair.source) else ""
    text = before + pair.source[start:end] + after
    pair.steps.spend(_CALL + len(text) * _SHORT_STEPS)
    found = fuzz.partial_ratio_alignment(pair.quote, text, score_cutoff=max(0.0, 100 * (least - _EPSILON)))
    if found is None:
        return None
    low = start - len(before) + found.dest_start
    high = low + found.dest_end - found.dest_start
    number = high - 1 if low == 0 and high < length else low + length - 1
    number = min(max(first, number), beyond - 1)
    if low < start or high > end:  # it takes in an edge: the window beside it shares as much
        low, high = pair.span(number, number)
    return number, Window(found.score / 100, low, high)


def _turned(pair: _Pair, least: float) -> Iterator[Window]:
    turned = _Pair(pair.source, pair.quote, pair.steps)
    found = _best(turned, 0, turned.windows, least)
    if found is not None:
        yield Window(found[1].score, 0, len(pair.source))


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

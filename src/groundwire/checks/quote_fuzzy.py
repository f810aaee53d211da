"""The places of a source at which a quote nearly stands (S1-25..S1-29).

The score of a window is that of `rapidfuzz.fuzz.partial_ratio`: twice what both share ÷ their lengths, over
all windows of the quote's length and the shorter ones at both ends of the source. One call of it on a long
source holds the interpreter for seconds, so the source is read in stretches: short quotes by calls of
`partial_ratio` on one stretch each, longer ones by halving each stretch that as a whole shares enough with
the quote. The best score found is that of one call on everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Final, NamedTuple

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
    """The work allowed for one source is done."""


class Steps:
    """The work that one source may cost, in steps of about a nanosecond.

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


class Window(NamedTuple):
    """A window of the source, and its score from 0 to 1."""

    score: float
    start: int
    end: int


def require_rapidfuzz() -> None:
    """Look whether fuzzy comparing can be done at all (S1-07). Raises: RuntimeError naming what to install."""
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
        """Return where in the source the windows from first to last lie."""
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

    Args:
        quote: Not empty, at most as long as the source (S1-28) and as `LONGEST`; in normal form.
        source: In normal form.
        least: From 0 to 1.
        steps: The work allowed.

    Raises:
        OutOfSteps: The work allowed is done.
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
    """Return number and window of the best among windows first to beyond, if it scores enough."""
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
    """Yield the whole source where a part of an equally long quote scores on it as partial_ratio would say."""
    turned = _Pair(pair.source, pair.quote, pair.steps)
    found = _best(turned, 0, turned.windows, least)
    if found is not None:
        yield Window(found[1].score, 0, len(pair.source))

"""How a quote is compared with its source (S1-08..S1-15, S1-25..S1-29, C-36, C-38).

The score of a window is that of `rapidfuzz.fuzz.partial_ratio`. One call of it on a long source holds the interpreter
for seconds, so the source is read in stretches. A high score does not mean the same statement: see `differs`.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Final, Literal, NamedTuple

from groundwire.arguments import takes
from groundwire.text.negation import negations
from groundwire.text.normalise import nfkc, opens
from groundwire.text.quantities import quantities
from groundwire.text.tokens import tokenize
from groundwire.text.visible import INVISIBLE
from groundwire.text.work import spend

_SMART: Final = {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'}  # U+00A0 is for NFKC
# Soft hyphen and word joiner are taken out only where it is asked for (S1-15); all else that shows nothing always is.
_SHOWS_NOTHING: Final = re.compile(f"(?![\u00ad\u2060])[{INVISIBLE}]")
_SOFT_TOO: Final = re.compile(f"[{INVISIBLE}]")

_TAG_LENGTH: Final = 40  # characters between the brackets of a tag, at most (C-39)
_BRACKET: Final = re.compile("[<>]")

# Digits in another position or frame, and the signs and letters among powers: what compatibility
# folding would join to the digits beside it.
_RAISED: Final = (
    "\u00b2\u00b3\u00b9\u00bc-\u00be\u2070\u2071\u2074-\u208e\u2150-\u215f\u2189"
    "\u2460-\u249b\u24ea\u3251-\u325f\u32b1-\u32bf\U0001f100-\U0001f10a"
)
_RAISED_RUN: Final = re.compile(f"[{_RAISED}]+")

_FEW: Final = 40  # different characters beyond ASCII, each of which is replaced by itself
_ASCII: Final = bytes(range(128))
_LOWER: Final = bytes(
    32 if chr(byte).isspace() and byte < 128 else byte for byte in bytes(range(256)).lower()
)
_CONTROLS: Final = bytes(code for code in range(128) if _SHOWS_NOTHING.match(chr(code)))
_TAGS: Final = 5_000  # that one call of the regular-expression engine takes out
_SIMPLE_TAG: Final = re.compile(rb"<[a-z/][^<> \x80-\xff]{0,39}>")

_WORD_EDGE: Final = re.compile(r"\b")
_PIECE: Final = 50_000  # characters that one call of the regular-expression engine looks at


@takes(text=str)
def normalize_for_quote_match(text: str, *, remove_soft: bool = False) -> str:
    """Return the form of a text in which a quote is looked for (S1-08).

    NFKC, straight quotes, no invisible characters, non-verbal tags as a space, single spaces, lower case.
    A tag begins with a letter or a slash right after ``<`` and holds at most 40 characters, so that
    ``latency < 5 ms and load > 3`` keeps its middle (S1-13, C-39). Applied to its own result it changes
    nothing (S1-12); the time it takes grows in proportion to the text.

    Args:
        text: Any text.
        remove_soft: Take soft hyphens (U+00AD) and word joiners (U+2060) out too (S1-15).

    Returns:
        The normal form; empty where nothing visible is left.
    """
    quick = _quick(text, remove_soft=remove_soft)
    return _without_tags(_fold(_visible(text, remove_soft=remove_soft))) if quick is None else quick


def comparison_form(text: str, *, remove_soft: bool = False) -> str:
    """Return the normal form but for raised digits beside digits: "10⁹ records" is no quote of "109 records" (C-40)."""
    quick = _quick(text, remove_soft=remove_soft, powers=True)
    if quick is not None:
        return quick
    visible = _visible(text, remove_soft=remove_soft)
    parts: list[str] = []
    start = 0
    for run in _RAISED_RUN.finditer(visible):
        # Kept as they are: they neither combine with nor reorder their neighbours.
        if (
            visible[run.start() - 1 : run.start()].isdecimal()
            or visible[run.end() : run.end() + 1].isdecimal()
        ):
            parts += [_fold(visible[start : run.start()]), run.group()]
            start = run.end()
    return _without_tags("".join([*parts, _fold(visible[start:])]))


def mark_words(text: str) -> str:
    r"""Return a text with a line feed at each end of each word: marked texts contain one another by whole words."""
    pieces: list[str] = []
    start = 0
    while start < len(text):
        end = text.find(" ", start + _PIECE)  # in front of a space both pieces mark the same ends
        piece = text[start:] if end < 0 else text[start:end]
        pieces.append(_WORD_EDGE.sub("\n", piece))
        start += len(piece)
    return "".join(pieces)


def _quick(text: str, *, remove_soft: bool, powers: bool = False) -> str | None:
    """Return the normal form of a text whose characters do not affect one another, as in most texts.

    It works on all of the text in UTF-8, which takes a tenth of the time. None where too much is not ASCII, and, with
    `powers`, where digits are raised.
    """
    strange = frozenset(_encoded(text).translate(None, _ASCII).decode("utf-8", "surrogatepass"))
    if len(strange) > _FEW or (powers and _RAISED_RUN.search("".join(strange))):
        return None
    for char in strange:
        alone = _alone(char, remove_soft=remove_soft)
        if alone is None:
            return None
        if alone != char:
            text = text.replace(char, alone)
    form = _encoded(text).translate(_LOWER, _CONTROLS)
    while b"  " in form:
        form = form.replace(b"  ", b" ")
    form = form.strip(b" ")
    if b"<" in form and b">" in form:
        # tags that hold neither a bracket nor a space are tags in any context
        parts: list[bytes] = []
        while len(split := _SIMPLE_TAG.split(form, _TAGS)) > 1:
            *between, form = split
            parts += between
        stripped = map(bytes.strip, (*parts, form))
        form = b" ".join([part for part in stripped if part])
    found = form.decode("utf-8", "surrogatepass")
    return _without_tags(found) if "<" in found and ">" in found else found


@lru_cache(1 << 12)
def _alone(char: str, *, remove_soft: bool) -> str | None:
    visible = _visible(char, remove_soft=remove_soft)
    form = _fold(visible)
    if visible and (not opens(char) or "\u03c3" in form or "\u03c2" in form):  # a last sigma is another one
        return None
    return " " if form.isspace() else form


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # a record can hold half a character


def _visible(text: str, *, remove_soft: bool) -> str:
    # Taken out before NFKC, which would not compose a letter and a mark with a joiner between them.
    return (_SOFT_TOO if remove_soft else _SHOWS_NOTHING).sub("", text)


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    composed = nfkc(text)
    for curly, straight in _SMART.items():  # ten times as quick as `translate`
        composed = composed.replace(curly, straight)
    # Lower case can take the normal form away: H with a line below has no composed form, h has one.
    return nfkc(composed.lower())


def _without_tags(text: str) -> str:
    """Replace each tag by a space and fold white space until neither is left, in one pass.

    A tag that appears only once an inner one is removed is one too: `kept` holds the output so far, `opened` where in
    it each bracket without its partner is, and how long its content is.
    """
    text = " ".join(text.split())
    kept: list[str] = []
    opened: list[list[int]] = []
    start = 0
    for bracket in _BRACKET.finditer(text):
        _append(kept, opened, text[start : bracket.start()])
        start = bracket.end()
        if bracket.group() == "<":
            opened.append([len(kept), 0])
            kept.append("<")
        elif opened and _is_tag(kept, opened[-1], text[start : start + 1]):
            del kept[opened.pop()[0] :]
            _append(kept, opened, " ")
        else:
            opened.clear()  # this one stays, so that no tag can reach across it
            kept.append(">")
    _append(kept, opened, text[start:])
    return "".join(kept).strip()


def _append(kept: list[str], opened: list[list[int]], text: str) -> None:
    if kept and kept[-1][-1] == " ":
        text = text.removeprefix(" ")
    if text:
        kept.append(text)
        if opened:
            opened[-1][1] += len(text)


def _is_tag(kept: list[str], bracket: list[int], after: str) -> bool:
    place, length = bracket
    if not 0 < length <= _TAG_LENGTH:
        return False
    content = "".join(kept[place + 1 :])
    if " " in content and after.isalnum() and place and kept[place - 1][-1].isalnum():
        return False  # "a<b and c>d" compares
    return content[0].isalpha() or content[0] == "/"


SEARCHES_WORTH: Final = 3000
"""Characters that a search reads in the time in which the machine of `_at_once` takes one step."""

_LETTERS: Final = 21  # bits of a code point


def standing(quotes: Iterable[str], source: str) -> Iterator[tuple[str, bool]]:
    """Yield each different quote and whether its source holds it (S1-16), in linear time for any number of quotes."""
    different = list(dict.fromkeys(quotes))
    size = len(source) + sum(map(len, different))
    if len(different) * len(source) > SEARCHES_WORTH * size:
        found = _at_once(different, source)
        yield from ((quote, quote in found) for quote in different)
    else:
        yield from ((quote, quote in source) for quote in different)


def _at_once(quotes: list[str], source: str) -> set[str]:
    steps: dict[int, int] = {}
    ends = [""]
    for quote in quotes:
        state = 0
        for char in map(ord, quote):
            following = steps.setdefault(state << _LETTERS | char, len(ends))
            if following == len(ends):
                ends.append("")
            state = following
        ends[state] = quote
    children: list[list[tuple[int, int]]] = [[] for _ in ends]
    for step, child in steps.items():
        children[step >> _LETTERS].append((step & (1 << _LETTERS) - 1, child))
    fallback = [0] * len(ends)
    order: list[int] = []
    waiting = deque([0])
    while waiting:
        state = waiting.popleft()
        order.append(state)
        for char, child in children[state]:
            waiting.append(child)
            suffix = fallback[state]
            while state and (back := steps.get(suffix << _LETTERS | char)) is None and suffix:
                suffix = fallback[suffix]
            fallback[child] = (back or 0) if state else 0
    seen = bytearray(len(ends))
    state = 0
    for char in map(ord, source):
        while (found := steps.get(state << _LETTERS | char)) is None and state:
            state = fallback[state]
        state = found or 0
        seen[state] = 1
    for state in reversed(order):  # the end of a longer match is a match too
        if seen[state]:
            seen[fallback[state]] = 1
    return {quote for state, quote in enumerate(ends) if quote and seen[state]}


SHORT: Final = 64  # characters of a quote that rapidfuzz compares as one machine word
LONGEST: Final = 10_000
"""Characters of a quote that are compared; no single comparison then takes longer than some 20 ms."""

_STRETCH: Final = 2000  # windows of a short quote in one call
_CALL: Final = 2500  # steps that a call costs whatever it compares
_WORD_STEPS: Final = 3  # that it costs to compare a character with 64 others
_SHORT_STEPS: Final = 12  # that a window of a short quote costs, on the whole
_EPSILON: Final = 1e-9
_ABSENT: Final = "\n"  # in no text in normal form


class OutOfSteps(Exception):
    """The work allowed for one source is used up."""


class Steps:
    """The work that one source may cost, in steps of about a nanosecond; a thousand are a unit of the whole budget.

    Counted, not timed, so that a decision never depends on the machine.
    """

    def __init__(self, allowed: int) -> None:
        self._left = allowed

    def spend(self, steps: int) -> None:
        """Take steps off. Raises: OutOfSteps before the first call that exceeds the budget."""
        if steps > self._left:
            self._left = 0
            raise OutOfSteps
        self._left -= steps
        spend(steps // 1000)


class Window(NamedTuple):
    score: float
    start: int
    end: int


def require_rapidfuzz() -> None:
    """Raise RuntimeError that names what to install where rapidfuzz is missing (S1-07)."""
    try:
        import rapidfuzz  # noqa: F401, PLC0415 - only fuzzy mode needs it
    except ImportError:
        raise RuntimeError(
            'quote validation mode "fuzzy" needs rapidfuzz: pip install rapidfuzz, or use mode "substring"'
        ) from None


class _Pair:
    """A quote and its source. Window w ends after character w of the source; the last ones are cut by its end."""

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
        """Return the most that any of some windows can score: none shares more than all of them together."""
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
    """Yield windows that score at least `least`, by stretches of the source, the best of a stretch first.

    Further ones of a stretch are at least half a quote away from those before. Raises: OutOfSteps.
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
        turned = _Pair(source, quote, steps)
        if found := _best(turned, 0, turned.windows, least):
            yield Window(found[1].score, 0, len(source))


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


_WORD: Final = re.compile(r"\S+")
_REACH: Final = 100  # characters beyond the edge of a window in which the rest of a word is looked for
_CLAUSE_ENDS: Final = (".", ",", ";", ":", "!", "?")


class _Word(NamedTuple):
    text: str
    held: bool  # the quote holds at least half of it


def differs(quote: str, source: str, window: Window) -> Literal["number", "negation"] | None:
    """Return in what a quote and a window of the source differ materially, or None.

    Text beside the window is read too, and words cut by its edges are read whole. Words at the edges that the quote
    does not have do not count for numbers, nor, where they belong to another clause, for negations.
    """
    from rapidfuzz.distance import LCSseq  # noqa: PLC0415 - only fuzzy mode needs it

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
    first, last = 0, len(around)
    for place in range(lead):
        if around[place].text.endswith(_CLAUSE_ENDS):
            first = place + 1
    for place in range(len(around) - trail, len(around)):
        if place and around[place - 1].text.endswith(_CLAUSE_ENDS):
            last = place
            break
    other = _tokens(around[first:last])
    if negations(own) != negations(other):
        return "negation"
    here = there = 0
    for block in LCSseq.editops(own, other).as_matching_blocks():  # the last one is empty, at both ends
        if negations(own[here : block.a]) != negations(other[there : block.b]):
            return "negation"  # elsewhere: "not fast but cheap" is no quote of "fast but not cheap"
        here, there = block.a + block.size, block.b + block.size
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


def _tokens(words: list[_Word]) -> list[str]:
    return tokenize(" ".join(word.text for word in words))

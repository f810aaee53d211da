"""Sentences of an answer, with their places: what a source tag, a value or a warning is bound to (S2-20).

A sentence never runs across a blank line, a list item, a heading, a table row or a code block. What is no end
of a sentence: the point of a number, a file name or a version, of an abbreviation ("e.g.", "Dr.", "Fig. 3"),
and whatever is in a code span. Marks of citation are taken out before (`checks.marks`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from groundwire.text.lists import words_in
from groundwire.text.stems import words_of
from groundwire.text.work import spend


class TextSpan(NamedTuple):
    """A sentence or a code block; `text` is exactly `original[start:end]`, in characters.

    The marker of a list item ("- ", "3. ") is not part of its sentence. `code` marks a fenced block, which is
    one span with its fences.
    """

    start: int
    end: int
    text: str
    code: bool = False


class _Line(NamedTuple):
    start: int  # less the white space at its ends
    end: int


_FENCE = re.compile(r"(?:(`{3,})[^`]*|(~{3,})(?!~).*)")
_ALONE = re.compile(r"#{1,6}\s|\||([-*_=])(?:\s*\1){2,}\s*$")  # a heading, a table row, a rule
_ITEM = re.compile(r"(?:[-*+\u2022\u2013]|\(?(?P<number>[0-9]{1,3})[.)]|\(?[a-zA-Z]\))[ \t]+(?=\S)")
_LABEL = re.compile(r"[`*\"]{0,3}[\w.-]{1,60}[`*\"]{0,3} ?[:=](?:[`*]{0,2}\s)")
_CAPITAL = re.compile(r"[*_\"'(\u201c\u2018]{0,4}([^\W\d_])")
_WRAP = 60  # columns: no text is wrapped at fewer

# A code span hides its points; a run of points, or of a script's own full stops, may end a sentence. A class comes
# first, by which the engine passes over all other characters quickly.
_STOP = re.compile(
    r"[`.!?\u2026\u3002\uff01\uff1f](?:(?<=`)[^`\n]*`|(?<=[.!?\u2026])[.!?\u2026]*|(?<=[^`.!?\u2026])[\u3002\uff01\uff1f]*)"
)
_CLOSERS = re.compile(r"[\"'\u201d\u2019\u00bb)\]}*_]*")
_SPACE = re.compile(r"\s*")
_SPACE_WITHIN = re.compile(r"\s")
_NEXT_WORD = re.compile(r"[*_\"'(\u201c\u2018]{0,4}([^\W\d_]+)")
_LAST_WORD = re.compile(r"(?<![\w.])[\w.]+$")
_SPAN = 10  # units of work that a sentence takes, beside those of its characters
_REACH = 16  # characters before a full stop in which an abbreviation is looked for


_ALWAYS = words_of("e.g eg i.e ie cf vs viz approx ca incl excl resp esp dr mr mrs ms prof w.r.t a.k.a")
_BEFORE_NUMBERS = words_in(__package__, "before_numbers")
# These may end a sentence too: then a word that opens one follows.
_EITHER = words_of("etc inc ltd co corp jr sr al a.m p.m u.s u.k dept est ph.d")
_OPENERS = words_in(__package__, "openers")


def sentences(text: str) -> list[TextSpan]:
    """Return the sentences and code blocks of a text, in text order and without overlaps.

    Everything but white space, list markers and rules of a page is part of one span. A code block that is
    never closed is read as prose, so that nothing hides behind an opening fence.
    """
    spend(len(text))
    found = []
    for start, end, code in _blocks(text):
        first = start
        for boundary in [end] if code else [*_boundaries(text, start, end), end]:
            if bare := text[first:boundary].strip():
                spend(_SPAN)
                first = text.index(bare[0], first)
                found.append(TextSpan(first, first + len(bare), bare, code))
            first = boundary
    return found


def _blocks(text: str) -> Iterator[tuple[int, int, bool]]:
    lines = []
    position = 0
    for written in text.split("\n"):
        bare = written.strip()
        start = position + (written.find(bare[0]) if bare else 0)
        lines.append(_Line(start, start + len(bare)))
        position += len(written) + 1
    closings = _closings(text, lines)
    paragraph: list[_Line] = []
    in_list = False
    number = 0
    while number < len(lines):
        line = lines[number]
        item = _ITEM.match(text, line.start, line.end)
        if item and item["number"] not in {None, "1"} and paragraph and not in_list:
            item = None  # "... is\n5. Then": a number that ends a sentence, not the fifth item of a list
        closing = closings.get(number)
        alone = _ALONE.match(text, line.start, line.end)
        if closing is not None or item or alone or line.start == line.end:
            yield from _stretches(text, paragraph)
            paragraph, in_list = [], item is not None and closing is None
        if closing is not None:
            yield line.start, lines[closing].end, True
            number = closing
        elif alone:
            if not alone[1]:
                yield line.start, line.end, False
        elif line.start < line.end:
            paragraph.append(_Line(item.end(), line.end) if item else line)
        number += 1
    yield from _stretches(text, paragraph)


def _closings(text: str, lines: list[_Line]) -> dict[int, int]:
    fences = [
        (number, match[1] or match[2], match.end() == match.end(match.lastindex or 0))
        for number, line in enumerate(lines)
        if text.startswith(("```", "~~~"), line.start) and (match := _FENCE.fullmatch(text, *line))
    ]
    # The longest fence that may close something, from each fence on: no search is made in vain.
    longest = {"`": 0, "~": 0}
    reach = []
    for _, fence, bare in reversed(fences):
        if bare:
            longest[fence[0]] = max(longest[fence[0]], len(fence))
        reach.append(dict(longest))
    reach.reverse()
    found: dict[int, int] = {}
    index = 0
    while index < len(fences) - 1:
        opening, fence, _ = fences[index]
        index += 1
        if reach[index][fence[0]] < len(fence):
            continue
        while not (fences[index][2] and fences[index][1].startswith(fence)):
            index += 1
        found[opening] = fences[index][0]
        index += 1
    return found


def _stretches(text: str, lines: list[_Line]) -> Iterator[tuple[int, int, bool]]:
    if not lines:
        return
    width = max(_WRAP, *(line.end - line.start for line in lines))
    start = lines[0].start
    for line, following in pairwise(lines):
        broken = _LABEL.match(text, *following) is not None
        capital = _CAPITAL.match(text, *following)
        if not broken and capital and capital[1].isupper() and text[line.end - 1] != ",":
            # its first word would have fitted into the line before
            room = max(0, width - (line.end - line.start) - 1)
            broken = following.end - following.start <= room or bool(
                _SPACE_WITHIN.search(text, following.start, following.start + room + 1)
            )
        if broken:
            yield start, line.end, False
            start = following.start
    yield start, lines[-1].end, False


def _boundaries(text: str, start: int, end: int) -> Iterator[int]:
    done = start
    for stop in _STOP.finditer(text, start, end):
        if stop[0][0] == "`" or stop.start() < done or stop.end() == end:
            continue  # the last one is left out
        closed = _end(_CLOSERS, text, stop.end(), end)
        free = not stop[0].isascii() or _SPACE.fullmatch(text[closed : closed + 1])
        if closed < end and free and _ends(text, done, stop, closed, end):
            done = closed
            yield closed


def _end(pattern: re.Pattern[str], text: str, position: int, end: int) -> int:
    found = pattern.match(text, position, end)
    return found.end() if found else position


def _ends(text: str, start: int, stop: re.Match[str], position: int, end: int) -> bool:
    after = _end(_SPACE, text, position, end)
    if stop[0] in {"...", "\u2026"}:
        return not text[after : after + 1].islower()
    before = _LAST_WORD.search(text, max(start, stop.start() - _REACH), stop.start())
    if stop[0] != "." or before is None:
        return True
    word, lower = before[0], before[0].lower()
    if lower in _EITHER or (len(word) == 1 and word.isupper()):
        following = _NEXT_WORD.match(text, after, end)
        return following is not None and following[1][0].isupper() and following[1].lower() in _OPENERS
    # "1. Open the file": a number that counts, not a sentence.
    counts = word.isdigit() and not text[start : before.start()].strip()
    numbered = lower in _BEFORE_NUMBERS and text[after : after + 1].isdigit()
    return not (counts or numbered or lower in _ALWAYS)

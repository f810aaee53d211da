"""What was retrieved, laid out file by file so that snippets and lines are looked up, not searched anew.

Two texts are the same passage if they are the same sequence of tokens: words, numbers, runs of operators,
other signs. White space, curly quotes and Unicode dashes make no difference, and nothing else is forgiven
(S2-05): a snippet matches whole tokens, so that "retries = 3" is not found in "max_retries = 30" or in
"retries = 3.5". Chunks of one file that overlap or follow one another are read as one passage.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from groundwire.checks.text import tidy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from groundwire.messages.responses import Chunk

_PASSAGE_COST = 200  # what looking at a passage costs beside its text
_NEWLINE = re.compile(r"\r\n|\r|\n")
_ALIKE = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201a\u201b", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | {"\0": "\ufffd"}  # the sign between tokens below
)
# A sign or a point before a number belongs to it, as do ".5" and ",000" within one: a number is never cut.
_OPERATORS = r"=<>!&|+*/%^~:?@$#\\.\-"
_TOKEN = re.compile(
    rf"[^\w\s{_OPERATORS}]|"
    r"(?:(?<![\w)\]])-(?=\.?[0-9]))?(?:(?<!\w)\.(?=[0-9]))?\w+(?:(?<=[0-9])(?:\.[0-9]\w*|,[0-9]{3}(?!\w)))*|"
    rf"[{_OPERATORS}]+"
)


def canonical_file(file: str) -> str:
    r"""Return the one spelling of a path: "./src//a.py" and "src\\a.py" are "src/a.py".

    Case counts, ".." is never resolved and a leading slash stays, so that no other file gains the name.
    """
    path = file.replace("\\", "/")
    parts = [part for part in path.split("/") if part not in {"", "."}]
    return "/" * path.startswith("/") + "/".join(parts)


def encode(text: str) -> str:
    """Return a text's tokens in a row, each followed by NUL; of two lines in a row, one after the other's."""
    plain = tidy(text).translate(_ALIKE)
    # One by one: a single call for a long text would hold the interpreter for too long.
    return "".join([found[0] + "\0" for found in _TOKEN.finditer(plain)])


class _Passage:
    """Chunks of one file and revision that overlap or follow one another, cut into pieces.

    A piece is a line, or the whole of a chunk whose text has not as many lines as it says.
    """

    def __init__(self, chunk: Chunk) -> None:
        self.tokens, self.by_line = _pieces(chunk)
        self.first: list[int] = []
        self.last: list[int] = []
        self._number(chunk, len(self.tokens), by_line=self.by_line)
        self._revision = chunk.revision

    def take(self, chunk: Chunk) -> bool:
        """Add a chunk that starts no earlier; False where it does not fit, or says otherwise."""
        known = self.last[-1] + 1 - chunk.start_line
        in_order = 0 < self.first[0] <= chunk.start_line <= chunk.end_line
        if not in_order or known < 0 or chunk.revision != self._revision:
            return False
        tokens, by_line = _pieces(chunk)
        if known:
            start = chunk.start_line - self.first[0]
            same = tokens[:known] == self.tokens[start : start + len(tokens)]
            if not (self.by_line and by_line and same):
                return False
        self.tokens += tokens[known:]
        self._number(chunk, len(tokens[known:]), by_line=by_line)
        self.by_line = self.by_line and by_line
        return True

    def _number(self, chunk: Chunk, count: int, *, by_line: bool) -> None:
        lines = range(chunk.end_line - count + 1, chunk.end_line + 1)
        self.first += lines if by_line else [chunk.start_line]
        self.last += lines if by_line else [chunk.end_line]


def _pieces(chunk: Chunk) -> tuple[list[str], bool]:
    """Return a chunk's lines, encoded, or the whole of it where its numbering is off, and which it is."""
    lines = _NEWLINE.split(chunk.content)
    count = chunk.end_line - chunk.start_line + 1
    if len(lines) == count + 1 and not lines[-1]:
        lines.pop()
    if chunk.start_line < 1 or len(lines) != count:
        return [encode(chunk.content)], False
    return [encode(line) if line else "" for line in lines], True


class FilePassages:
    """All that was retrieved of one file.

    Args:
        chunks: the file's chunks, in any order. One whose lines make no sense (start below 1, end before
            start) covers no line; its text counts all the same.
    """

    def __init__(self, chunks: Iterable[Chunk]) -> None:
        ordered = sorted(chunks, key=lambda chunk: (chunk.start_line, chunk.end_line))
        self._ranges = _union((c.start_line, c.end_line) for c in ordered if 0 < c.start_line <= c.end_line)
        self._passages: list[_Passage] = []
        for chunk in ordered:
            if not (self._passages and self._passages[-1].take(chunk)):
                self._passages.append(_Passage(chunk))
        self._text = "".join("\0" + "".join(passage.tokens) for passage in self._passages)
        self._offsets = list(_offsets(self._passages))

    @property
    def size(self) -> int:
        """What a search through the file costs, about a nanosecond a unit."""
        return len(self._text) + _PASSAGE_COST * len(self._passages)

    @cached_property
    def _pairs(self) -> set[tuple[str, str]]:
        return set(pairwise(self._text.split("\0")))

    def covers(self, start: int, end: int) -> bool:
        """Tell whether lines start to end, both included, were retrieved (S2-07)."""
        index = bisect_right(self._ranges, (start, float("inf"))) - 1
        return 0 < start <= end and index >= 0 and end <= self._ranges[index][1]

    def holds(self, tokens: str) -> bool:
        """Tell whether an encoded snippet stands in the file; a blank one does not."""
        return tokens != "" and "\0" + tokens in self._text

    def holds_within(self, tokens: str, start: int, end: int) -> bool:
        """Tell whether an encoded snippet stands in lines start to end, in any passage that has them.

        A chunk that has not as many lines as it says is looked at as a whole.
        """
        for passage, offsets in zip(self._passages, self._offsets, strict=True):
            low, high = bisect_left(passage.last, start), bisect_right(passage.first, end)
            if low < high and self._text.find("\0" + tokens, offsets[low] - 1, offsets[high]) >= 0:
                return True
        return False

    def similarity(self, tokens: str) -> float:
        """Return how near a snippet comes: the share, 0 to 1, of its pairs of neighbours that the file holds.

        A snippet with one word changed scores high, an invented one low (S2-44); 4 decimals.
        """
        pairs = list(pairwise(tokens.split("\0")[:-1]))
        return round(sum(pair in self._pairs for pair in pairs) / len(pairs), 4) if pairs else 0.0


def _offsets(passages: Iterable[_Passage]) -> Iterator[list[int]]:
    """Yield, for each passage, where its pieces start in the file's text, and where the last one ends."""
    position = 0
    for passage in passages:
        starts = list(accumulate(map(len, passage.tokens), initial=position + 1))
        position = starts[-1]
        yield starts


def _union(ranges: Iterable[tuple[int, int]]) -> list[tuple[float, float]]:
    """Join sorted ranges of lines that overlap or follow one another."""
    joined: list[tuple[float, float]] = []
    for start, end in ranges:
        if joined and start <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined

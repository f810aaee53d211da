"""What each value of a text is about: its statement, and in it the words that belong to the value.

A statement is a sentence, a list item, a table row or a line of code or configuration. A word belongs to the
value nearest to it in its clause; the other words of the statement, its heading and the keys above an indented
line are shared by all values of the statement. In a table the words of its column's heading belong to a value.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from groundwire.checks.sentences import sentences
from groundwire.checks.text import Reading, normalise
from groundwire.checks.values_binding import OWN, Binder
from groundwire.checks.values_scan import scan
from groundwire.checks.values_tokens import Token, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from groundwire.checks.values_negation import Clause

_LONGEST: Final = 4_000  # characters of a statement; longer ones are cut at a space
_SHARED: Final = 64  # words of a statement that count
_AROUND: Final = 12  # values of a statement, on each side, that compete with one
_DEPTH: Final = 12  # keys above a line that count

_EMPHASIS: Final = re.compile(r"[*`\u200b]|~~|(?<!\w)_++(?=[^\W_])|(?<=[^\W_])_++(?!\w)")
_HEADING: Final = re.compile(r"(?P<marks>#{1,6})\s+(?P<number>\d{1,3}(?:\.\d{1,3}){0,5}[.)]?(?=\s))?")
_STEP: Final = re.compile(
    r"\W{0,4}(?:(?:step|phase|part)\s+\d{1,3}\s*[:.)-]|\(?\d{1,3}[.)](?=\s))", re.IGNORECASE
)
_DASH: Final = re.compile("[\u2010-\u2013\u2212]")
_KEY_LINE: Final = re.compile(r"[\"']?[\w.\-/]{1,60}[\"']?\s{0,4}[:=]|[\[\]{}<]")
_CODE_END: Final = frozenset(";{}[],:")
_RULE: Final = re.compile(r"[|\s:=+-]+")
_GAP: Final = re.compile(r"\s|[,;|)}\]](?!\d)")
_RAISED: Final = {
    ord(char): 0x16A0 + number  # letters without case that no unit is written with
    for number, char in enumerate(
        "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079\u00bc\u00bd\u00be\u2153\u2154\u2155\u215b"
    )
}
_COLUMN: Final = re.compile(r"(?<!\\)\|")


@dataclass(slots=True)
class Statement:
    """A statement of a text; `words` are those of the statement and of what stands above it."""

    start: int
    end: int
    signature: str
    tokens: Sequence[Token]
    words: frozenset[str]
    reading: Reading
    heads: tuple[tuple[str, ...], ...]
    _values: list[Bound] | None = None
    clauses: list[Clause] | None = None  # once `values_negation.clauses` was asked for them
    denies: bool | None = None  # once `values_negation.denies` was asked

    @property
    def values(self) -> list[Bound]:
        """Its values with what they are bound to; found when they are first asked for."""
        if self._values is None:
            self._values = []
            binder = Binder(self.tokens, self.heads) if any(token.value for token in self.tokens) else None
            for place, token in enumerate(self.tokens if binder else ()):
                if binder and token.value:
                    own, near = binder.bind(place)
                    value = binder.named_unit(place, token.value)
                    first, last = self.span(token.start, token.end)
                    self._values.append(Bound(value, first, last, own, near, self, len(self._values)))
        return self._values

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Translate positions of its tokens to positions of the whole text."""
        first, last = self.reading.span(start, end)
        return self.start + first, self.start + last

    def near(self, bound: Bound) -> Sequence[Bound]:
        """Return the values around one of its values, a bounded number."""
        at = bound.place
        return self.values[max(0, at - _AROUND) : at + _AROUND + 1]


@dataclass(slots=True, eq=False)
class Bound:
    """A value with what it is bound to; positions are those of the whole text."""

    value: Value
    start: int
    end: int
    own: frozenset[str]
    near: tuple[str, str]
    statement: Statement
    place: int  # among the values of its statement


class _Line(NamedTuple):
    start: int
    text: str
    context: frozenset[str]
    heads: tuple[tuple[str, ...], ...] = ()  # of a table row: the words of each column's heading


Read = Callable[[str], Sequence[Statement]]
"""Reads a text's statements: `read_statements`, or that with a memory, where several checks read one text."""


def read_statements(text: str) -> list[Statement]:
    """Return the statements of a text with a letter for each raised digit and fraction.

    Folded, 10\u2079 would be 109, and 1\u00bd be 11/2.
    """
    return [*statements(text if text.isascii() else text.translate(_RAISED))]


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a text, in text order."""
    for line in _lines(text):
        blank = _EMPHASIS.sub(lambda match: " " * len(match[0]), line.text)
        for opener in (_HEADING, _STEP):
            if found := opener.match(blank):
                blank = " " * found.end() + blank[found.end() :]
        for start, piece in _pieces(blank):
            yield _statement(line, line.start + start, piece)


def _statement(line: _Line, start: int, piece: str) -> Statement:
    reading = normalise(_DASH.sub("-", piece))
    tokens = scan(reading.text)
    words: dict[str, None] = {}
    for token in tokens:
        if len(words) < _SHARED and not token.mark and token.value is None:
            for stem in token.stems:
                words[stem] = None
    signature = "\0".join([*sorted(line.context), "", *(token.text for token in tokens)])
    every = line.context.union(words, *line.heads)
    return Statement(start, start + len(piece), signature, tokens, every, reading, line.heads)


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Cut an endless statement where a word ends, if one does."""
    start = 0
    while len(text) - start > _LONGEST:
        end = start + _LONGEST
        cut = max((match.end() for match in _GAP.finditer(text, end - _LONGEST // 2, end)), default=end)
        yield start, text[start:cut]
        start = cut
    if start < len(text):
        yield start, text[start:]


class _Above:
    """What stands above a line: headings, and the keys of an indented block."""

    def __init__(self) -> None:
        self._headings: list[tuple[int, tuple[str, ...]]] = []
        self._keys: list[tuple[int, tuple[str, ...]]] = []

    def heading(self, level: int, words: tuple[str, ...]) -> None:
        _push(self._headings, level, words)
        self._keys.clear()

    def key(self, indent: int, words: tuple[str, ...]) -> None:
        _push(self._keys, indent, words)

    def words(self, indent: int) -> frozenset[str]:
        while self._keys and self._keys[-1][0] >= indent:
            self._keys.pop()
        return frozenset(word for _, words in (*self._headings, *self._keys) for word in words)


def _push(stack: list[tuple[int, tuple[str, ...]]], level: int, words: tuple[str, ...]) -> None:
    while stack and stack[-1][0] >= level:
        stack.pop()
    if len(stack) < _DEPTH:
        stack.append((level, words))


def _lines(text: str) -> Iterator[_Line]:
    """Yield sentences, list items, table rows and lines of code, with what stands above each."""
    above = _Above()
    breaks = [-1, *(match.start() for match in re.finditer("\n", text))]
    table: list[tuple[str, ...]] = []
    last_row = -1
    for start, piece in _cut(text):
        row = bisect_right(breaks, start) - 1
        begin = breaks[row] + 1
        lead = text[begin:start] if start - begin < 80 else ""
        indent = len(lead.expandtabs(4)) + bool(
            lead.strip()
        )  # a list item stands below its own line's indent
        if heading := _HEADING.match(piece):
            yield _Line(start, piece, above.words(0))
            above.heading(len(heading["marks"]), _line_words(piece))
            continue
        if piece.count("|", 0, _LONGEST) > 1 and "\n" not in piece:
            if _RULE.fullmatch(piece):
                last_row = row
                continue
            if row != last_row + 1 or not table:
                table = [_line_words(cell) for cell in _COLUMN.split(piece[:_LONGEST])]
            last_row = row
            yield _Line(start, piece, above.words(indent), tuple(table))
            continue
        table = []
        yield _Line(start, piece, above.words(indent))
        if piece[-1] in ":{[" or (piece[0] == "[" and piece[-1] == "]"):
            above.key(indent - (piece[0] == "["), _line_words(piece))


def _cut(text: str) -> Iterator[tuple[int, str]]:
    """Yield sentences with their places; code and configuration line by line, without fences."""
    for span in sentences(text):
        first = last = span.start  # of the piece, of its last line
        for end in (*(match.start() for match in re.finditer("\n", span.text)), len(span.text)):
            stop = span.start + end
            line = text[last:stop].strip()
            following = text[stop : stop + _DEPTH * 8].strip()
            if stop == span.end or span.code or line[-1:] in _CODE_END or _KEY_LINE.match(following):
                piece = text[first:stop]
                bare = piece.strip()
                if bare and not (span.code and bare.startswith(("```", "~~~"))):
                    yield first + len(piece) - len(piece.lstrip()), bare
                first = stop + 1
            last = stop + 1


def _line_words(text: str) -> tuple[str, ...]:
    words = (word for token in scan(text[:400]) if not token.mark for word in token.stems)
    return tuple(dict.fromkeys(words))[:OWN]

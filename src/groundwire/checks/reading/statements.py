"""Splits a text into statements, each with its values and the words that belong to them.

A statement is a sentence, a list item, a table row or a line of code or configuration. A word belongs to the value
nearest to it in its clause; the other words, the heading and the keys above an indented line are shared. In a table the
words of its column's heading belong to a value.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple
from unicodedata import normalize

from groundwire.checks.reading.adjuncts import EXCEPTIONS, Adjunct, AdjunctKind, adjuncts
from groundwire.checks.reading.binding import OWN, Binder, bound_of
from groundwire.checks.reading.numbers import clock, day_of, iso, named, number, quarter, slash, version, word
from groundwire.checks.reading.polarity import PolarClause, clauses, denies
from groundwire.checks.reading.units import (
    RAISED,
    Amount,
    Cut,
    TextValue,
    UnitReading,
    ValueToken,
    cut,
    shown,
    unit_readings,
)
from groundwire.text.negation import negations
from groundwire.text.normalise import NormalisedText, normalise
from groundwire.text.sentences import sentences
from groundwire.text.stems import PARTICLES
from groundwire.text.visible import is_plain, seen
from groundwire.text.work import spend

_BETWEEN: Final = frozenset(("between", "from", "of"))
_RANGE_LINKS: Final = frozenset(("-", "to", "and", "or"))


def scan(text: str) -> list[ValueToken]:
    return _scan(text)[0]


def _scan(text: str) -> tuple[list[ValueToken], list[int]]:
    raw = cut(text)
    if not raw.special:  # as often: words alone
        return raw.tokens, []
    tokens: list[ValueToken] = []
    valued: list[int] = []
    done = 0
    for place in raw.special:
        if place < done:
            continue  # it belongs to the value before it
        tokens += raw.tokens[done:place]
        token, done = raw.tokens[place], place + 1
        if token.text in PARTICLES and not token.mark:
            if tokens and (stems := tokens[-1].stems):
                tokens[-1] = tokens[-1]._replace(stems=(*stems, stems[-1] + token.text))
        else:
            match = raw.matches.get(place)
            token, done = _READERS[match.lastgroup or "" if match else "word"](raw, place, tokens)
        if token.value:
            valued.append(len(tokens))
            if not token.value.implied and (bound := bound_of(tokens, token.value.kind)):
                token = token._replace(value=token.value._replace(bound=bound))
        tokens.append(token)
    tokens += raw.tokens[done:]
    _join(tokens, valued)
    for (
        place
    ) in valued:  # the first number of "5-10 s" or "between 5 and 10 seconds" has the unit of the second
        if place + 2 >= len(tokens):
            break
        low, link, high = tokens[place : place + 3]
        if not (low.value and high.value) or link.text not in _RANGE_LINKS:
            continue
        one, other = low.value.amount, high.value.amount
        bare = one and not (one.readings or other) and low.text.isdecimal()
        if bare and (dated := day_of(low.text, high.value)):  # "4 to 6 July"
            tokens[place] = low._replace(value=dated)
        if one and other and not one.readings and not one.rate and (other.readings or other.rate):
            keys = low.value.keys | one._replace(readings=other.readings, rate=other.rate).keys
            tokens[place] = low._replace(value=low.value._replace(keys=keys, covers=keys))
        spans = link.text != "and" or (place > 0 and tokens[place - 1].text in _BETWEEN)
        if spans and one and other and one.magnitude < other.magnitude:
            for end in (place, place + 2):
                if value := tokens[end].value:
                    tokens[end] = tokens[end]._replace(value=value._replace(ranged=True))
    return tokens, valued


def _join(tokens: list[ValueToken], valued: Sequence[int]) -> None:
    """Read "1 hour 30 minutes" as one duration, and "one in four" as a share; the second value only supports."""
    for place in valued:
        one = tokens[place].value
        link = tokens[place + 1].text if place + 1 < len(tokens) else ""
        at = place + 2 if link in {"and", ",", "in"} else place + 1
        other = tokens[at].value if at < len(tokens) else None
        if not (one and other and one.amount and other.amount) or one.implied:
            continue
        whole, part = one.amount, other.amount
        keys = frozenset[str]()
        if link == "in":
            if not (whole.readings or part.readings) and 0 < whole.magnitude < part.magnitude <= 100:
                share = Amount(100 * whole.magnitude / part.magnitude, "", unit_readings("percent")[0])
                keys = one.keys | share.keys
        else:
            keys = frozenset(
                f"{kind} {shown(whole.magnitude * size + part.magnitude * small)}"
                for kind, size in whole.readings
                for same, small in part.readings
                if kind == same and part.magnitude * small < size
            )
        if keys:
            tokens[place] = tokens[place]._replace(value=one._replace(keys=keys, covers=keys))
            tokens[at] = tokens[at]._replace(value=other._replace(implied=True))


_READERS: Final[dict[str, Callable[[Cut, int, Sequence[ValueToken]], UnitReading]]] = {
    "word": word,
    "number": number,
    "named": named,
    "iso": iso,
    "slash": slash,
    "clock": clock,
    "version": version,
    "quarter": quarter,
}


_PIECE: Final = 12  # units of work that reading a statement takes, beside those of its tokens
_TOKEN: Final = 6
_VALUE: Final = 18
_LONGEST: Final = 4_000  # characters of a statement; longer ones are cut at a space
_SHARED: Final = 64  # words of a statement that count
_AROUND: Final = 12  # values of a statement, on each side, that compete with one
_DEPTH: Final = 12  # keys above a line that count

_MAY_STRESS: Final = re.compile("[*`~_\u200b]")
_EMPHASIS: Final = re.compile(r"[*`\u200b]|~~|(?<!\w)_++(?=[^\W_])|(?<=[^\W_])_++(?!\w)")
_HEADING: Final = re.compile(r"(?P<marks>#{1,6})\s+(?P<number>\d{1,3}(?:\.\d{1,3}){0,5}[.)]?(?=\s))?")
_STEP: Final = re.compile(
    r"\W{0,4}(?:(?:step|phase|part)\s+\d{1,3}\s*[:.)-]|\(?\d{1,3}[.)](?=\s))", re.IGNORECASE
)
_DASH: Final = re.compile("[\u2010-\u2013\u2212]")
_KEY_LINE: Final = re.compile(r"[\"']?[\w.\-/]{1,60}[\"']?\s{0,4}[:=]|[\[\]{}<]")
_CODE_END: Final = frozenset(";{}[],:")
_RULE: Final = re.compile(r"[|\s:=+-]+")
_LETTERS: Final[dict[int, str]] = {
    ord(char): base
    for char in map(chr, range(0xC0, 0x250))
    if (
        base := {"ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d", "Đ": "D"}.get(
            char, normalize("NFKD", char)[0]
        )
    )
    < "\x80"
}
"""Letters with a mark -> those without: "Élodie" is told as "Elodie"."""
_GAP: Final = re.compile(r"\s|[,;|)}\]](?!\d)")
_COLUMN: Final = re.compile(r"(?<!\\)\|")


class Exempted(NamedTuple):
    """What a sentence does not hold for, or on which condition it does, and how often it is denied."""

    excepts: bool
    odd: bool  # an odd number of negations
    words: frozenset[str]  # from the exception, or else the condition, on


@dataclass
class Statement:
    """A statement of a text.

    `valued` are the places of tokens with a value, `words` what its words and those above it say, a bounded number, and
    `says` all of that, and what its values cover.
    """

    start: int
    end: int
    signature: str
    tokens: Sequence[ValueToken]
    valued: Sequence[int]
    texts: Sequence[str]
    words: frozenset[str]
    says: frozenset[str]
    reading: NormalisedText
    heads: tuple[tuple[str, ...], ...]
    shown: tuple[int, Sequence[int], Sequence[int]] | None = None
    """Where it starts in what a reader sees, and where in the text each character of that starts and ends."""

    @property
    def given(self) -> Iterator[TextValue]:
        return (value for place in self.valued if (value := self.tokens[place].value))

    @cached_property
    def values(self) -> Sequence[Bound]:
        """Its values with what they are bound to."""
        if not self.valued:
            return ()
        binder = Binder(self.tokens, self.texts, self.valued, self.heads)
        found: list[Bound] = []
        for place in self.valued:
            token = self.tokens[place]
            if token.value:
                own, near = binder.bind(place)
                value = binder.named_unit(place, token.value)
                first, last = self.span(token.start, token.end)
                found.append(Bound(value, first, last, own, near, self, len(found)))
        return found

    @cached_property
    def adjuncts(self) -> Sequence[Adjunct]:
        return [*adjuncts(self.texts)]

    @cached_property
    def exempted(self) -> Exempted:
        texts, found = self.texts, self.adjuncts
        excepted = next((one.link for one in found if one.kind in EXCEPTIONS), None)
        depends = (one.link for one in found if one.kind is AdjunctKind.WHEN or texts[one.link] == "if")
        at = next(depends, len(texts)) if excepted is None else excepted
        words = frozenset(stem for token in self.tokens[at:] for stem in token.stems)
        odd = (len(negations(texts)) + (texts[at : at + 1] == ["save"])) % 2 == 1
        return Exempted(excepted is not None, odd, words)

    @cached_property
    def denies(self) -> bool:
        """Whether a word of it denies, whatever that reaches."""
        return denies(self.texts)

    @cached_property
    def clauses(self) -> Sequence[PolarClause]:
        return [*clauses(self)]

    def span(self, start: int, end: int) -> tuple[int, int]:
        first, last = self.reading.span(start, end)
        if self.shown is None:
            return self.start + first, self.start + last
        at, starts, ends = self.shown
        return starts[at + first], ends[at + last - 1]

    def near(self, bound: Bound) -> Sequence[Bound]:
        at = bound.place
        return self.values[max(0, at - _AROUND) : at + _AROUND + 1]


@dataclass(slots=True, eq=False)
class Bound:
    value: TextValue
    start: int
    end: int
    own: frozenset[str]
    near: tuple[str, str]
    statement: Statement
    place: int  # among the values of its statement


class _ListLine(NamedTuple):
    start: int
    text: str
    context: frozenset[str]
    heads: tuple[tuple[str, ...], ...] = ()  # of a table row: the words of each column's heading


StatementReader = Callable[[str], Sequence[Statement]]
"""Reads a text's statements: `read_statements`, or a caching wrapper where several checks read one text."""


def read_statements(text: str) -> list[Statement]:
    """Return the statements of a text as a reader sees it, with a letter for each raised digit and fraction.

    Folded, 10\u2079 would be 109, and 1\u00bd be 11/2. Positions are those of the original text.
    """
    if text.isascii() and is_plain(text):
        return [*statements(text)]
    shown, starts, ends = seen(text)
    found = [*statements(shown.translate(RAISED))]
    if shown == text:
        return found
    return [
        replace(one, start=starts[one.start], end=ends[one.end - 1], shown=(one.start, starts, ends))
        for one in found
    ]


def statements(text: str) -> Iterator[Statement]:
    for line in _lines(text):
        blank = line.text
        if _MAY_STRESS.search(blank):
            blank = _EMPHASIS.sub(lambda match: " " * len(match[0]), blank)
        for opener in (_HEADING, _STEP):
            if found := opener.match(blank):
                blank = " " * found.end() + blank[found.end() :]
        for offset, piece in _pieces(blank):
            reading = normalise(piece if piece.isascii() else _DASH.sub("-", piece).translate(_LETTERS))
            tokens, valued = _scan(reading.text)
            spend(_PIECE + _TOKEN * len(tokens) + _VALUE * len(valued) + len(line.context) + len(line.heads))
            texts = [token.text for token in tokens]
            stems = [stem for token in tokens for stem in token.stems]
            signature = "\0".join([*sorted(line.context), "", *texts])
            few = len(stems) <= _SHARED
            every = line.context.union(stems if few else _shared(tokens), *line.heads)
            covers = [value.covers for at in valued if (value := tokens[at].value)]
            says = every.union(*covers) if few else every.union(stems, *covers)
            start = line.start + offset
            end = start + len(piece)
            yield Statement(start, end, signature, tokens, valued, texts, every, says, reading, line.heads)


def _shared(tokens: Iterable[ValueToken]) -> set[str]:
    words: set[str] = set()
    for token in tokens:
        if len(words) < _SHARED:
            words.update(token.stems)
    return words


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    while len(text) - start > _LONGEST:
        end = start + _LONGEST
        cut = max((match.end() for match in _GAP.finditer(text, end - _LONGEST // 2, end)), default=end)
        yield start, text[start:cut]
        start = cut
    if start < len(text):
        yield start, text[start:]


class _Above:
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
        found = frozenset(word for _, words in (*self._headings, *self._keys) for word in words)
        spend(len(found))
        return found


def _push(stack: list[tuple[int, tuple[str, ...]]], level: int, words: tuple[str, ...]) -> None:
    while stack and stack[-1][0] >= level:
        stack.pop()
    if len(stack) < _DEPTH:
        stack.append((level, words))


def _lines(text: str) -> Iterator[_ListLine]:
    above = _Above()
    breaks = [-1, *(match.start() for match in re.finditer("\n", text))]
    table: list[tuple[str, ...]] = []
    last_row = -1
    for start, piece in _cut(text):
        row = bisect_right(breaks, start) - 1
        begin = breaks[row] + 1
        lead = text[begin:start] if start - begin < 80 else ""
        # a list item counts as deeper than the indent of its line
        indent = len(lead.expandtabs(4)) + bool(lead.strip())
        if heading := _HEADING.match(piece):
            yield _ListLine(start, piece, above.words(0))
            above.heading(len(heading["marks"]), _line_words(piece))
            continue
        if piece.count("|", 0, _LONGEST) > 1 and "\n" not in piece:
            if _RULE.fullmatch(piece):
                last_row = row
                continue
            if row != last_row + 1 or not table:
                table = [_line_words(cell) for cell in _COLUMN.split(piece[:_LONGEST])]
            last_row = row
            yield _ListLine(start, piece, above.words(indent), tuple(table))
            continue
        table = []
        yield _ListLine(start, piece, above.words(indent))
        if piece[-1] in ":{[" or (piece[0] == "[" and piece[-1] == "]"):
            above.key(indent - (piece[0] == "["), _line_words(piece))


def _cut(text: str) -> Iterator[tuple[int, str]]:
    """Yield sentences with their places; code and configuration line by line, without fences."""
    for span in sentences(text):
        if "\n" not in span.text and not span.code:  # as most: its white space is off already
            yield span.start, span.text
            continue
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
    tokens = scan(text[:400])
    spend(_PIECE + _TOKEN * len(tokens))
    said = (
        token.value.keys if token.value and not token.value.implied else token.stems
        for token in tokens
        if not token.mark
    )
    return tuple(dict.fromkeys(word for words in said for word in sorted(words)))[:OWN]

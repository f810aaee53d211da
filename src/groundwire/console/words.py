"""Texts that pages show: codes, numbers and times as words; marks, differences and nearest places of texts."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from math import log
from typing import Any, Final, NamedTuple

from rapidfuzz.distance import Indel

from groundwire.messages.base import parse_time
from groundwire.text.sentences import sentences
from groundwire.text.stems import content_words
from groundwire.text.tokens import tokenize
from groundwire.text.visible import invisible_places

_PARTS: Final = re.compile(r"\s+|\w+|[^\w\s]")
"""Runs of white space, words, and single signs: together they are the whole text."""
NONE: Final = "\u2013"  # shown where there is no value

_TEXTS: Final[dict[str, dict[str, str]]] = tomllib.loads(
    files("groundwire.console").joinpath("labels.toml").read_text("utf-8")
)
_LABELS: Final = {**_TEXTS["faults"], **_TEXTS["checks"], **_TEXTS["reasons"], **_TEXTS["others"]}
_WAITS: Final = _TEXTS["waits"]
LEVERS: Final = _TEXTS["levers"]
"""By reason code, the policy keys or the command that change how much is held for it."""


def label(code: object) -> str:
    """Return the text for a code; an unknown code stays as it is, but for underscores."""
    if code is None:
        return NONE
    text = str(code)
    return _LABELS.get(text, text.replace("_", " "))


def waits_for(dependency: str) -> str:
    return _WAITS.get(dependency, "The worker waits, and this console does not know why.")


def measured(value: float | None) -> str:
    """Return a count that a worker reported; a missing count is never a 0."""
    return "not measured" if value is None else number(round(value))


def number(value: int | None) -> str:
    return NONE if value is None else f"{value:,}".replace(",", "\u202f")


def age(seconds: float) -> str:
    for size, unit in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {unit}{'s' if count != 1 else ''} ago"
    return "just now"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return NONE
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def moment(time: str | None) -> str:
    return parse_time(time).strftime("%Y-%m-%d %H:%M UTC") if time else NONE


@dataclass(frozen=True, slots=True, order=True)
class TextMark:
    """A span of a text; `kind` is the class of the mark, such as `hedge-block` or `quote`."""

    start: int
    end: int
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of characters under the same marks; the outermost, that is the longest, first."""

    text: str
    marks: tuple[TextMark, ...] = ()

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(mark.kind for mark in self.marks))

    def shown(self, hidden: str = "") -> dict[str, Any]:
        """Return what a page shows of it, as JSON values; marks of the kind `hidden` are left out."""
        marks = [mark for mark in self.marks if mark.kind != hidden]
        titles = "; ".join(dict.fromkeys(mark.title for mark in marks))
        return {"text": self.text, "kinds": list(dict.fromkeys(mark.kind for mark in marks)), "title": titles}


def segments(text: str, marks: Iterable[TextMark]) -> list[Segment]:
    """Cut a text where marks begin and end; the segments joined give the text again.

    Positions are code points of the original text. The part of a mark outside the text is left out: positions come from
    records, and may belong to another text.
    """
    spans = [
        TextMark(max(0, mark.start), min(len(text), mark.end), mark.kind, mark.title)
        for mark in marks
        if max(0, mark.start) < min(len(text), mark.end)
    ]
    cuts = sorted({0, len(text), *(span.start for span in spans), *(span.end for span in spans)})
    opening = sorted(spans)
    active: list[TextMark] = []
    found = []
    for start, end in pairwise(cuts):
        active = [span for span in active if span.end > start]
        while opening and opening[0].start <= start:
            active.append(opening.pop(0))
        order = sorted(active, key=lambda span: (span.start - span.end, span.start, span.kind))
        found.append(Segment(text[start:end], tuple(order)))
    return found


def marked_parts(text: str, marks: Iterable[TextMark]) -> list[dict[str, Any]]:
    return [part.shown() for part in segments(text, marks)]


_BREAKS: Final = re.compile("[\\r\\v\\f\\x85\\u2028\\u2029]")
_MOST_HIDDEN: Final = 500


def hidden_marks(text: str) -> list[TextMark]:
    """Mark the first characters that show nothing, and those that break a line where none is seen to."""
    places = sorted({*invisible_places(text), *(found.start() for found in _BREAKS.finditer(text))})
    return [TextMark(at, at + 1, "hidden", f"U+{ord(text[at]):04X}") for at in places[:_MOST_HIDDEN]]


def quote_marks(text: str, quotes: Sequence[str]) -> list[TextMark]:
    """Return marks where quotes stand in the text, letter for letter; each at its first place."""
    places = [(text.find(quote), quote) for quote in dict.fromkeys(quotes) if quote]
    return [TextMark(at, at + len(quote), "quote", "quote") for at, quote in places if at >= 0]


def word_diff(old: str, new: str) -> list[dict[str, str]]:
    """Return the word changes from `old` to `new`; of a replacement the deleted text comes first.

    The changes that are not `insert`, joined, give `old`; those that are not `delete` give `new`. Of texts of
    20,000 characters it takes some milliseconds: the common subsequence is found bit-parallel.
    """
    before, after = _PARTS.findall(old), _PARTS.findall(new)
    changes: list[tuple[str, str]] = []
    taken = put = ""
    for code in Indel.opcodes(before, after):
        between = (
            (taken or put) and code.src_end < len(before) and "".join(before[code.src_start : code.src_end])
        )
        if code.tag != "equal" or (between and between.isspace()):  # words that go together stay together
            taken += "".join(before[code.src_start : code.src_end])
            put += "".join(after[code.dest_start : code.dest_end])
            continue
        kept = "".join(before[code.src_start : code.src_end])
        changes += [("delete", taken), ("insert", put), ("equal", kept)]
        taken = put = ""
    changes += [("delete", taken), ("insert", put)]
    return [{"operation": operation, "text": text} for operation, text in changes if text]


_KEPT: Final = 256  # sentences kept for a word: a word in more of them distinguishes none
_LEAST: Final = 0.25  # share of a phrase that a place has to say; what says less is no place of it
_LENGTH: Final = 0.01  # what each word of a sentence costs: of two that say as much the shorter one is nearer
_MOST_SENTENCES: Final = 8  # sentences of a phrase that are looked for side by side


class TextPlace(NamedTuple):
    """A run of sentences: `texts[text][start:end]`."""

    text: int
    start: int
    end: int


class Places:
    """Finds the place of some texts nearest to a phrase, for a reader to look at; nothing is decided by it.

    Sentences are compared by the words that they share with the phrase, rare words counting for more.
    """

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

    def holding(self, text: int, at: int) -> TextPlace | None:
        """Return the sentence in which a character of a text stands."""
        return next((one for one in self._spans if one.text == text and one.start <= at < one.end), None)

    def nearest(self, phrase: str, within: Collection[int] | None = None) -> TextPlace | None:
        """Return the place that says most of a phrase, as many sentences as it has; None where none says enough.

        `within` numbers the texts to look in; None: all. Work is in proportion to the length of texts and phrases.
        """
        every, wanted = len(self._spans), min(max(1, len(sentences(phrase))), _MOST_SENTENCES)
        weights = {
            word: log(2 + every / (1 + len(self._holding.get(word, ())))) for word in sorted(_words(phrase))
        }
        shares: dict[int, float] = {}
        for word, weight in weights.items():
            held = self._holding.get(word, ())
            for at in held if len(held) <= _KEPT else ():
                shares[at] = shares.get(at, 0.0) + weight
        total = sum(weights.values())
        found = {
            at: share / total - _LENGTH * len(self._words[at])
            for at, share in shares.items()
            if share >= _LEAST * total / wanted and (within is None or self._spans[at].text in within)
        }
        if not found:
            return None
        best = min(found, key=lambda at: (-round(found[at], 4), at))
        # so many sentences side by side in one text, the best among them, that say most together
        text = self._spans[best].text
        runs = [
            range(first, first + wanted)
            for first in range(max(0, best - wanted + 1), best + 1)
            if first + wanted <= every
            and self._spans[first].text == self._spans[first + wanted - 1].text == text
        ] or [range(best, best + 1)]
        chosen = max(runs, key=lambda run: (sum(shares.get(at, 0.0) for at in run), -run[0]))
        return TextPlace(text, self._spans[chosen[0]].start, self._spans[chosen[-1]].end)


def _words(text: str) -> frozenset[str]:
    found: set[str] = set()
    for token in tokenize(text):
        found.update(content_words(token) or ([token] if any(char.isdigit() for char in token) else ()))
    return frozenset(found)

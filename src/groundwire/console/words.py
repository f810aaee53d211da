"""Texts that pages show: codes, numbers and times as words, marks and differences of texts."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import pairwise
from typing import Final, Literal

from rapidfuzz.distance import Indel

from groundwire.messages.base import parse_time
from groundwire.text.visible import invisible_places

Operation = Literal["equal", "insert", "delete"]
_PARTS: Final = re.compile(r"\s+|\w+|[^\w\s]")
"""Runs of white space, words, and single signs: together they are the whole text."""
NONE: Final = "\u2013"
"""Shown where there is no value."""

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
    return _WAITS.get(dependency, "It waits for something that this console does not know.")


def measured(value: float | None) -> str:
    """Return a count that a worker told; one that none told is never a 0."""
    return "not measured" if value is None else number(round(value))


def number(value: int | None) -> str:
    return NONE if value is None else f"{value:,}".replace(",", "\u202f")


def age(seconds: float) -> str:
    if seconds < 60:
        return "just now"
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
    """A span of the text with the kind of what is marked there.

    Attributes:
        start: first character.
        end: one past the last character.
        kind: what it is: `hedge-block`, `hedge-review`, `citation-verified`, ..., `quote`.
        title: a word or two about it, for a person.
    """

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

    @property
    def title(self) -> str:
        return "; ".join(dict.fromkeys(mark.title for mark in self.marks))


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


@dataclass(frozen=True, slots=True)
class DiffRun:
    operation: Operation
    text: str


def word_diff(old: str, new: str) -> list[DiffRun]:
    """Return the word changes from `old` to `new`; of a replacement the deleted text comes first.

    The changes that are not `insert`, joined, give `old`; those that are not `delete` give `new`. Of texts of
    20,000 characters it takes some milliseconds: the common subsequence is found bit-parallel.
    """
    before, after = _PARTS.findall(old), _PARTS.findall(new)
    changes: list[DiffRun] = []
    taken = put = ""
    for code in Indel.opcodes(before, after):
        if code.tag != "equal":
            taken += "".join(before[code.src_start : code.src_end])
            put += "".join(after[code.dest_start : code.dest_end])
            continue
        changes += [DiffRun("delete", taken), DiffRun("insert", put)]
        changes.append(DiffRun("equal", "".join(before[code.src_start : code.src_end])))
        taken = put = ""
    changes += [DiffRun("delete", taken), DiffRun("insert", put)]
    return [change for change in changes if change.text]

"""Marks over a text: hedges, citations and quotes in their places, overlaps included.

Positions are characters (code points) of the original text. Marking never loses, adds or changes one: the
segments joined give the text again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True, order=True)
class Mark:
    """A span of the text and what stands there.

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
    marks: tuple[Mark, ...] = ()

    @property
    def kinds(self) -> list[str]:
        """The kinds of its marks, once each."""
        return list(dict.fromkeys(mark.kind for mark in self.marks))

    @property
    def title(self) -> str:
        """What its marks say, once each."""
        return "; ".join(dict.fromkeys(mark.title for mark in self.marks))


def segments(text: str, marks: Iterable[Mark]) -> list[Segment]:
    """Cut a text where marks begin and end.

    What of a mark lies outside the text is left out: positions come from records, and may be of another text.
    """
    spans = [
        Mark(max(0, mark.start), min(len(text), mark.end), mark.kind, mark.title)
        for mark in marks
        if max(0, mark.start) < min(len(text), mark.end)
    ]
    cuts = sorted({0, len(text), *(span.start for span in spans), *(span.end for span in spans)})
    opening = sorted(spans)
    active: list[Mark] = []
    found = []
    for start, end in pairwise(cuts):
        active = [span for span in active if span.end > start]
        while opening and opening[0].start <= start:
            active.append(opening.pop(0))
        order = sorted(active, key=lambda span: (span.start - span.end, span.start, span.kind))
        found.append(Segment(text[start:end], tuple(order)))
    return found


def quote_marks(text: str, quotes: Sequence[str]) -> list[Mark]:
    """Return marks where quotes stand in the text, letter for letter; each at its first place."""
    places = [(text.find(quote), quote) for quote in dict.fromkeys(quotes) if quote]
    return [Mark(at, at + len(quote), "quote", "quote") for at, quote in places if at >= 0]

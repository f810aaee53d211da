"""NFKC in time that grows with the text, whatever it holds.

`unicodedata.normalize` sorts a run of combining marks in quadratic time, and lets no other thread run meanwhile:
20,000 marks hold the interpreter for seconds.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import Final
from unicodedata import category, combining, normalize

_CROWD: Final = 32  # characters in a row that may be combining marks, and are put into order here
_MANY: Final = re.compile(rf"[^\x00-\x7f]{{{_CROWD},}}")
_HIDDEN_MARKS: Final = frozenset("\u0f73\u0f75\u0f81\uff9e\uff9f")  # no marks, but they decompose to marks
_PIECE: Final = 10_000  # characters that one call composes: one of them may become 18


def nfkc(text: str) -> str:
    """Return the text in NFKC, lone surrogates included."""
    if text.isascii():
        return text
    ordered = _MANY.sub(_in_order, text)
    pieces: list[str] = []
    start = 0
    while start < len(ordered):
        end = start + _PIECE
        while end < len(ordered) and not opens(ordered[end]):
            end += 1
        pieces.append(normalize("NFKC", ordered[start:end]))
        start = end
    return "".join(pieces)


def opens(char: str) -> bool:
    """Tell whether a character never combines with what stands before it."""
    first = normalize("NFKD", char)[0]
    return category(first)[0] != "M" and not "\u1160" <= first <= "\u11ff"  # vowels and finals of Hangul


def _in_order(run: re.Match[str]) -> str:
    """Put a crowd of combining marks into canonical order: `normalize` does it in quadratic time."""
    text = run.group()
    if not any(map(combining, text)) and _HIDDEN_MARKS.isdisjoint(text):
        return text
    ordered: list[str] = []
    marks: list[str] = []
    for char in chain.from_iterable(normalize("NFKD", char) for char in text):
        if combining(char):
            marks.append(char)
        else:
            ordered += [*sorted(marks, key=combining), char]
            marks.clear()
    return "".join([*ordered, *sorted(marks, key=combining)])

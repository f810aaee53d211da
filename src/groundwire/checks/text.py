"""One normal form for text that people and models wrote, with the way back to the original positions.

A check that compares words must not be fooled by a curly apostrophe, a doubled space, a zero-width character
or a letter from another block of Unicode (S0-97, S0-102), yet it must report positions of the text as it was
received. `normalise` gives both.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from unicodedata import combining, is_normalized, normalize

from groundwire.checks.nfkc import nfkc

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Characters without width that may stand where a space would: zero-width spaces and joiners, direction marks,
# Hangul fillers, invisible operators. Taken out, or read as a space (`split=True`).
_GAPS = "\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
# Characters without width that only ever stand inside a word: soft hyphen, variation selectors, tags.
_INNER = "\u00ad\u034f\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0000-\U000e0fff"
_GAP = re.compile(f"[{_GAPS}]")
_ZERO_WIDTH = re.compile(f"[{_GAPS}{_INNER}]")

_APOSTROPHE = re.compile("[\u2018\u2019\u201b\u2032\u02b9\u02bb\u02bc\u02bd\u00b4\ua78c]")
_OTHER_SPACE = re.compile(r"[^\S ]")
_OGHAM_SPACE = "\u1680"  # the only white space that lies in the midst of a range of letters
_SPACED = {code: " " for code in range(128) if chr(code).isspace()}
_SPACES = re.compile("  +")
_CACHED_CHARACTERS = 1 << 12
_OTHER = re.compile(r"[^\x00-\x7f]+")


class Reading(NamedTuple):
    """A normalised text; character i of it was read from `starts[i]:ends[i]` of the original."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Translate a non-empty span of the reading to positions of the original text."""
        return self.starts[start], self.ends[end - 1]


def normalise(text: str, *, split: bool = False) -> Reading:
    """Read a text in normal form: NFKC, straight apostrophes, one space for each run of white space.

    Args:
        text: any string, lone surrogates included.
        split: read a zero-width character that can stand between words as a space; by default it is left out.

    Returns:
        The reading. It is idempotent: normalising its text again changes nothing.
    """
    if text.isascii() or _is_plain(text):
        straight = text if text.isascii() else _APOSTROPHE.sub("'", text)
        return _fold(Reading(straight, range(len(text)), range(1, len(text) + 1)))
    visible = _GAP.sub(" ", text) if split else text
    kept = _positions(visible)
    composed = _compose(_APOSTROPHE.sub("'", _ZERO_WIDTH.sub("", visible)))
    folded = _fold(composed)
    if isinstance(kept, range):
        return folded
    # A zero-width character after a cluster is not part of it: ends follow the characters that were kept.
    return Reading(folded.text, [kept[i] for i in folded.starts], [kept[i - 1] + 1 for i in folded.ends])


def tidy(text: str, *, split: bool = False) -> str:
    """Return the text as written, less zero-width characters and superfluous white space."""
    if not text.isascii():
        text = _ZERO_WIDTH.sub("", _GAP.sub(" ", text) if split else text)
    return " ".join(text.split())


def has_gaps(text: str) -> bool:
    """Tell whether `normalise(text, split=True)` may differ from `normalise(text)`."""
    return not text.isascii() and _GAP.search(text) is not None


def plain(text: str) -> str:
    """Return a text's normal form without positions, for a look whether `normalise` is worth its price.

    It holds the same words of Latin letters; white space stays as written, but for what lies among the letters.
    """
    if text.isascii():
        return text
    # twice, as `normalise`: NFKC takes an acute accent apart, and brings forth an apostrophe
    straight = _APOSTROPHE.sub("'", nfkc(_APOSTROPHE.sub("'", _ZERO_WIDTH.sub("", text))))
    return straight.replace(_OGHAM_SPACE, " ")


def _is_plain(text: str) -> bool:
    """Tell whether each character stands for itself."""
    if not is_normalized("NFKC", text) or _ZERO_WIDTH.search(text):
        return False
    return not _is_unfolded(text) or not any(map(_combines, set(text)))


def _is_unfolded(text: str) -> bool:
    """Tell whether there is white space that is not one space at a time; a single expression for it is slow."""
    return "  " in text or (not text.isprintable() and _OTHER_SPACE.search(text) is not None)


def _positions(text: str) -> Sequence[int]:
    kept: list[int] = []
    last = 0
    for found in _ZERO_WIDTH.finditer(text):
        kept.extend(range(last, found.start()))
        last = found.end()
    if not last:
        return range(len(text))
    kept.extend(range(last, len(text)))
    return kept


def _compose(text: str) -> Reading:
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for first, last, plain_ascii in _runs(text):
        run = text[first:last]
        one_by_one = run if plain_ascii else _one_by_one(run)
        if one_by_one:
            pieces.append(one_by_one)
            starts.extend(range(first, last))
            ends.extend(range(first + 1, last + 1))
            continue
        for start, end in _clusters(text, first, last):
            piece = nfkc(text[start:end])
            pieces.append(piece)
            starts.extend([start] * len(piece))
            ends.extend([end] * len(piece))
    # Again: NFKC itself can bring forth an apostrophe (U+0149).
    return Reading(_APOSTROPHE.sub("'", "".join(pieces)), starts, ends)


def _runs(text: str) -> Iterator[tuple[int, int, bool]]:
    """Cut a text into ASCII, which never changes under NFKC, and other text.

    The last ASCII character before other text may carry a combining mark: it goes with that.
    """
    done = 0
    for other in _OTHER.finditer(text):
        first = max(done, other.start() - 1)
        if done < first:
            yield done, first, True
        done = other.end()
        yield first, done, False
    if done < len(text):
        yield done, len(text), True


def _clusters(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut text[start:end] before each character that does not combine with the one in front of it."""
    for position in range(start + 1, end):
        if not _combines(text[position]):
            yield start, position
            start = position
    yield start, end


def _one_by_one(run: str) -> str:
    """Return the normal form of a run where each of its characters gives one, else an empty text."""
    if any(map(_combines, run)):
        return ""
    forms = list(map(_alone, run))
    return "".join(forms) if len(max(forms, key=len)) == 1 else ""


@lru_cache(_CACHED_CHARACTERS)
def _combines(char: str) -> bool:
    # What counts is the first character of the decomposition: U+FF9E combines only once decomposed.
    return char > "\x7f" and combining(normalize("NFKD", char)[0]) > 0


_alone = lru_cache(_CACHED_CHARACTERS)(nfkc)


def _fold(reading: Reading) -> Reading:
    text = reading.text
    if not text.isprintable():
        text = text.translate(_SPACED) if text.isascii() else _OTHER_SPACE.sub(" ", text)
    if "  " not in text:
        return reading._replace(text=text)
    starts: list[int] = []
    ends: list[int] = []
    done = 0
    for found in _SPACES.finditer(text):
        first, last = found.span()
        starts += reading.starts[done : first + 1]
        ends += [*reading.ends[done:first], reading.ends[last - 1]]
        done = last
    starts += reading.starts[done:]
    ends += reading.ends[done:]
    return Reading(_SPACES.sub(" ", text), starts, ends)

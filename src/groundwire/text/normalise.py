"""One normal form for text that people and models wrote, with the way back to the original positions.

No curly apostrophe, doubled space, zero-width character or letter of another block of Unicode hides a word from a check
(S0-97, S0-102). `nfkc` is the normal form of Unicode alone, in time that grows with the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, pairwise
from typing import Final, NamedTuple
from unicodedata import category, combining, is_normalized, normalize

from groundwire.text.visible import INVISIBLE, has_markup, is_shown_ascii, marked, replaced

_MANY: Final = re.compile(r"[^\x00-\x7f]{32,}")  # of these the combining marks are put into order here
_HIDDEN_MARKS: Final = frozenset("\u0f73\u0f75\u0f81\uff9e\uff9f")  # no marks, but they decompose to marks
_PIECE: Final = 10_000  # characters that one call composes: one of them may become 18

_INVISIBLE = re.compile(f"[{INVISIBLE}]")
_APOSTROPHE = re.compile("[\u2018\u2019\u201b\u2032\u02b9\u02bb\u02bc\u02bd\u00b4\ua78c]")
_OTHER_SPACE = re.compile(r"[^\S ]")
_OGHAM_SPACE = "\u1680"  # the only white space that lies in the midst of a range of letters
_SPACED = {code: " " for code in range(128) if chr(code).isspace()}
_SPACES = re.compile("  +")
_CACHED_CHARACTERS = 1 << 12
_OTHER = re.compile(r"[^\x00-\x7f]+")


def nfkc(text: str) -> str:
    """Return the text in NFKC, lone surrogates included.

    `unicodedata.normalize` sorts a run of combining marks in quadratic time and lets no other thread run meanwhile:
    20,000 marks would hold the interpreter for seconds. Here such runs are sorted before it is called.
    """
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


class NormalisedText(NamedTuple):
    """A normalised text; character i of it was read from `starts[i]:ends[i]` of the original."""

    text: str
    starts: Sequence[int]
    ends: Sequence[int]

    def span(self, start: int, end: int) -> tuple[int, int]:
        return self.starts[start], self.ends[end - 1]


def normalise(text: str, *, split: bool = False) -> NormalisedText:
    """Read a text in normal form: NFKC, straight apostrophes, one space for each run of white space; idempotent."""
    if is_shown_ascii(text) or _is_plain(text):
        straight = text if text.isascii() else _APOSTROPHE.sub("'", text)
        return _fold(NormalisedText(straight, range(len(text)), range(1, len(text) + 1)))
    blanked = _INVISIBLE.sub(" ", text) if split else text
    shown, kept, _ = replaced(_INVISIBLE, lambda _: "", blanked)
    folded = _fold(_compose(_APOSTROPHE.sub("'", shown)))
    if len(shown) == len(blanked):
        return folded
    # A zero-width character after a cluster is not part of it: ends follow the characters that were kept.
    return NormalisedText(
        folded.text, [kept[i] for i in folded.starts], [kept[i - 1] + 1 for i in folded.ends]
    )


def tidy(text: str, *, split: bool = False) -> str:
    """Return the text as written, less zero-width characters and superfluous white space."""
    return " ".join((text if text.isascii() else _INVISIBLE.sub(" " if split else "", text)).split())


def read(text: str, *, split: bool = False) -> NormalisedText:
    """Read a text as its reader does: without markup (`groundwire.text.visible`), then in normal form."""
    if not has_markup(text):
        return normalise(text, split=split)
    shown, starts, ends = marked(text)
    form = normalise(shown, split=split)
    return NormalisedText(form.text, [starts[i] for i in form.starts], [ends[i - 1] for i in form.ends])


def plain(text: str) -> str:
    """Return a text's normal form without positions, to tell cheaply whether `normalise` is needed.

    It holds the same words of Latin letters; white space stays as written, but for what lies among the letters.
    """
    if is_shown_ascii(text):
        return text
    # twice, as `normalise`: NFKC takes an acute accent apart, and brings forth an apostrophe
    straight = _APOSTROPHE.sub("'", nfkc(_APOSTROPHE.sub("'", _INVISIBLE.sub("", text))))
    return straight.replace(_OGHAM_SPACE, " ")


def _is_plain(text: str) -> bool:
    if not is_normalized("NFKC", text) or _INVISIBLE.search(text):
        return False
    return not (
        "  " in text or (not text.isprintable() and _OTHER_SPACE.search(text) is not None)
    ) or not any(map(_combines, set(text)))


def _compose(text: str) -> NormalisedText:
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for first, last, plain_ascii in _runs(text):
        run = text[first:last]
        forms = [run] if plain_ascii else [] if any(map(_combines, run)) else list(map(_alone, run))
        if plain_ascii or (forms and len(max(forms, key=len)) == 1):
            pieces += forms
            starts.extend(range(first, last))
            ends.extend(range(first + 1, last + 1))
            continue
        bounds = [first, *(at for at in range(first + 1, last) if not _combines(text[at])), last]
        for start, end in pairwise(bounds):
            piece = nfkc(text[start:end])
            pieces.append(piece)
            starts.extend([start] * len(piece))
            ends.extend([end] * len(piece))
    # Again: NFKC itself can bring forth an apostrophe (U+0149).
    return NormalisedText(_APOSTROPHE.sub("'", "".join(pieces)), starts, ends)


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


@lru_cache(_CACHED_CHARACTERS)
def _combines(char: str) -> bool:
    # What counts is the first character of the decomposition: U+FF9E combines only once decomposed.
    return char > "\x7f" and combining(normalize("NFKD", char)[0]) > 0


_alone = lru_cache(_CACHED_CHARACTERS)(nfkc)


def _fold(reading: NormalisedText) -> NormalisedText:
    text = reading.text
    if not text.isprintable():
        text = text.translate(_SPACED) if text.isascii() else _OTHER_SPACE.sub(" ", text)
    if "  " not in text:
        return reading if text is reading.text else reading._replace(text=text)
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
    return NormalisedText(_SPACES.sub(" ", text), starts, ends)


def escape_controls(
    text: str, escape: Callable[[str], str] = lambda char: char.encode("unicode_escape").decode()
) -> str:
    r"""Write out what has no shape of its own (controls, escapes, direction marks), as `\x1b` or `\u202e`.

    A terminal would obey it, and headers of dead letters are read with console consumers.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or category(char) == "Zs" else escape(char) for char in text)

"""What a reader sees of a text: without markup and without the characters that show nothing.

Hedges, tokens, citations and quotes are looked for in this one reading, so that a tag, an entity or an invisible
character neither hides a word nor makes one. An invisible character counts for nothing inside a word and for a blank
between words; which of the two it is cannot be determined, so a check may read a text both ways.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence
from html import unescape
from typing import Final

INVISIBLE: Final = (
    # Cc, less the white space among them
    "\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f"
    # Default_Ignorable_Code_Point of Unicode, and Cf
    "\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000110bd\U000110cd\U00013430-\U0001343f"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    # glyphs that are blank: of Braille, and the null notehead
    "\u2800\U0001d159"
)
"""The characters that show nothing, as the inside of a class of a regular expression."""

_SHOWING_NOTHING: Final = ("Cf", "Cn", "Co", "Cs")
"""Categories of Unicode."""
_INVISIBLE: Final = re.compile(f"[{INVISIBLE}]")
_BETWEEN: Final = re.compile(rf"(?<=[^\W_{INVISIBLE}])[{INVISIBLE}]+(?=[^\W_])")
# Scripts that need no joiner to be spelt: in a word of theirs an invisible character has no business.
_L: Final = "[0-9A-Za-z\u00c0-\u052f\u1e00-\u1fff\uff10-\uff5a]"
# An emoji is joined by two; the flags of regions are spelt in tags behind a black one.
_HIDDEN: Final = re.compile(
    f"[\u202d\u202e]|(?<={_L})(?<![{INVISIBLE}])[{INVISIBLE}]+(?={_L})|"
    f"(?<![{INVISIBLE}\U0001f3f4])[{INVISIBLE}]{{3,}}"
)

_INLINE: Final = (
    "a|abbr|b|bdi|big|cite|del|dfn|em|font|i|ins|label|mark|s|small|span|strike|strong|sub|sup|u|var|wbr"
)
_BLOCK: Final = "br|dd|div|dl|dt|h[1-6]|hr|li|ol|p|table|tbody|td|th|thead|tr|ul"
_MARKUP: Final = re.compile(
    # attributes hold no "<": a search looks at each character of a text once
    rf"<!--(?P<comment>[^<>]*)-->|</?(?:(?P<inline>{_INLINE})|(?P<block>{_BLOCK})|(?P<code>code|kbd|samp|tt)|"
    r"(?P<quote>q))(?:\s[^<>]*)?/?>|"
    r"&(?:#[0-9]{1,7};?|#[xX][0-9a-fA-F]{1,6};?|[A-Za-z][A-Za-z0-9]{1,30};)|"
    # Emphasis in a word, "may**be**": in pairs, so that a product is none.
    r"(?<![^\s(\"'])(?P<before>[A-Za-z]{0,30})(?P<mark>\*{1,3})(?P<within>[A-Za-z]{1,30})(?P=mark)(?P<after>[A-Za-z]{0,30})",
    re.IGNORECASE,
)
_SHOWN: Final = {"inline": "", "comment": "", "block": " ", "code": "`", "quote": '"'}


def has_markup(text: str) -> bool:
    return "<" in text or "&" in text or "*" in text


def is_plain(text: str) -> bool:
    return is_shown_ascii(text) and not has_markup(text)


def is_shown_ascii(text: str) -> bool:
    # to look for the class takes thirty times as long
    return text.isascii() and (text.replace("\n", "").isprintable() or not _INVISIBLE.search(text))


def without_markup(text: str) -> str:
    return _MARKUP.sub(_shown, text) if has_markup(text) else text


def visible(text: str, *, split: bool = False) -> str:
    return text if is_plain(text) else _INVISIBLE.sub(" " if split else "", without_markup(text))


def marked(text: str) -> tuple[str, Sequence[int], Sequence[int]]:
    """Return a text without markup, and where in `text` each of its characters starts and ends."""
    if not has_markup(text):
        return text, range(len(text)), range(1, len(text) + 1)
    return replaced(_MARKUP, _shown, text)


def seen(text: str, *, split: bool = False) -> tuple[str, Sequence[int], Sequence[int]]:
    """Return `visible` of a text, and where in `text` each of its characters starts and ends."""
    if is_plain(text):
        return text, range(len(text)), range(1, len(text) + 1)
    read, starts, ends = marked(text)
    if not _INVISIBLE.search(read):
        return read, starts, ends
    blank = " " if split else ""
    shown, first, last = replaced(_INVISIBLE, lambda _: blank, read)
    return shown, [starts[at] for at in first], [ends[at - 1] for at in last]


def invisible_places(text: str) -> list[int]:
    """Return the places of characters that show nothing: `INVISIBLE`, and what Unicode assigns to nobody.

    The selector behind an emoji, which asks for its picture, shows.
    """
    return [
        at
        for at, char in enumerate(text)
        if (_INVISIBLE.match(char) or unicodedata.category(char) in _SHOWING_NOTHING)
        and not (char == "\ufe0f" and at and unicodedata.category(text[at - 1]) in ("So", "Sk"))
    ]


def is_blank(text: str) -> bool:
    """Return whether a text shows nothing: only markup, white space, invisible and unassigned characters."""
    if text[:1].isascii() and text[:1].isalnum():  # as nearly always
        return False
    return all(char.isspace() or unicodedata.category(char) in _SHOWING_NOTHING for char in visible(text))


def splits_words(text: str) -> bool:
    """Return whether an invisible character is between two characters of words: it may be a blank or nothing."""
    return not is_plain(text) and _BETWEEN.search(without_markup(text)) is not None


def hidden(text: str) -> list[str]:
    """Return the characters that hide text from a reader, as "U+202E", in text order, once each.

    These are overrides of the direction, which show letters in another order than the text has, invisible characters
    inside words of scripts that need none, and three or more in a row, which spell what only machines read. As entities
    they hide as much. A text that shows nothing hides all that it holds.
    """
    if is_blank(text):
        return list(dict.fromkeys(f"U+{ord(char):04X}" for char in text))
    if is_plain(text):
        return []
    found = "".join(_HIDDEN.findall(without_markup(text)))
    return list(dict.fromkeys(f"U+{ord(char):04X}" for char in found))


def _shown(match: re.Match[str]) -> str:
    if match["mark"]:
        return match["before"] + match["within"] + match["after"]
    kind = match.lastgroup
    return _SHOWN[kind] if kind else unescape(match.group())


def replaced(
    pattern: re.Pattern[str], shown: Callable[[re.Match[str]], str], text: str
) -> tuple[str, list[int], list[int]]:
    """Replace what matches; return where in `text` each character of the result starts and ends, too."""
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    done = 0
    for match in pattern.finditer(text):
        first, last = match.span()
        new = shown(match)
        pieces += [text[done:first], new]
        starts += [*range(done, first), *[first] * len(new)]
        ends += [*range(done + 1, first + 1), *[last] * len(new)]
        done = last
    pieces.append(text[done:])
    starts += range(done, len(text))
    ends += range(done + 1, len(text) + 1)
    return "".join(pieces), starts, ends

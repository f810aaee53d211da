"""The normal form in which quotes and their source are compared (S1-08..S1-15).

Conservative: it folds what copying changes (case, width, white space, curly quotes, invisible characters) and
leaves out non-verbal tags such as ``<laughter>``. It knows nothing of meaning.
"""

from __future__ import annotations

import re
from typing import Final

from groundwire.checks.nfkc import nfkc

_SMART: Final = {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"'}  # U+00A0 is for NFKC
_ZERO_WIDTH: Final = re.compile("[\u200b\u200c\u200d\ufeff]")
_SOFT_TOO: Final = re.compile("[\u200b\u200c\u200d\ufeff\u00ad\u2060]")

_TAG_LENGTH: Final = 40  # characters between the brackets of a tag, at most (C-39)
_BRACKET: Final = re.compile("[<>]")

# Digits in another position or frame, and the signs and letters that stand among powers: what compatibility
# folding would join to the digits beside it.
_RAISED: Final = (
    "\u00b2\u00b3\u00b9\u00bc-\u00be\u2070\u2071\u2074-\u208e\u2150-\u215f\u2189"
    "\u2460-\u249b\u24ea\u3251-\u325f\u32b1-\u32bf\U0001f100-\U0001f10a"
)
_RAISED_RUN: Final = re.compile(f"[{_RAISED}]+")

_WORD_EDGE: Final = re.compile(r"\b")
_PIECE: Final = 50_000  # characters that one call of the regular-expression engine looks at


def normalize_for_quote_match(text: str, *, remove_soft: bool = False) -> str:
    """Return the form of a text in which a quote is looked for (S1-08).

    NFKC, straight quotes, no zero-width characters, non-verbal tags as a space, single spaces, lower case.
    A tag begins with a letter or a slash right after ``<`` and holds at most 40 characters, so that
    ``latency < 5 ms and load > 3`` keeps its middle (S1-13, C-39). Applied to its own result it changes
    nothing (S1-12); the time it takes grows in proportion to the text.

    Args:
        text: Any text.
        remove_soft: Take soft hyphens (U+00AD) and word joiners (U+2060) out too (S1-15).

    Returns:
        The normal form; empty where nothing visible is left.
    """
    return _without_tags(_fold(_visible(text, remove_soft=remove_soft)))


def comparison_form(text: str, *, remove_soft: bool = False) -> str:
    """Return the normal form with raised digits beside digits kept as they are (S1-14, C-40).

    Quotes are compared in this form: "10⁹ records" is no quote of "109 records", nor the other way round.
    Where no such digits stand it is the normal form.
    """
    visible = _visible(text, remove_soft=remove_soft)
    if visible.isascii():
        return _without_tags(visible.lower())
    parts: list[str] = []
    start = 0
    for run in _RAISED_RUN.finditer(visible):
        # Kept as they are: they neither combine with nor reorder what stands around them.
        if (
            visible[run.start() - 1 : run.start()].isdecimal()
            or visible[run.end() : run.end() + 1].isdecimal()
        ):
            parts += [_fold(visible[start : run.start()]), run.group()]
            start = run.end()
    return _without_tags("".join([*parts, _fold(visible[start:])]))


def mark_words(text: str) -> str:
    r"""Return a text with a line feed at each end of each word: marked texts contain one another by whole words.

    Args:
        text: In normal form, which holds no line feed.
    """
    pieces: list[str] = []
    start = 0
    while start < len(text):
        end = text.find(" ", start + _PIECE)  # in front of a space both pieces mark the same ends
        piece = text[start:] if end < 0 else text[start:end]
        pieces.append(_WORD_EDGE.sub("\n", piece))
        start += len(piece)
    return "".join(pieces)


def _visible(text: str, *, remove_soft: bool) -> str:
    # Taken out before NFKC, which would not compose a letter and a mark with a joiner between them.
    return text if text.isascii() else (_SOFT_TOO if remove_soft else _ZERO_WIDTH).sub("", text)


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    composed = nfkc(text)
    for curly, straight in _SMART.items():  # ten times as quick as `translate`
        composed = composed.replace(curly, straight)
    # Lower case can take the normal form away: H with a line below has no composed form, h has one.
    return nfkc(composed.lower())


def _without_tags(text: str) -> str:
    """Replace each tag by a space and fold white space, until neither is left, in one pass.

    A tag that comes to light only once an inner one is gone is one too: what is kept so far stands in `kept`,
    and `opened` holds where in it each bracket without its partner stands, and how long its content is.
    """
    text = " ".join(text.split())
    kept: list[str] = []
    opened: list[list[int]] = []
    start = 0
    for bracket in _BRACKET.finditer(text):
        _append(kept, opened, text[start : bracket.start()])
        start = bracket.end()
        if bracket.group() == "<":
            opened.append([len(kept), 0])
            kept.append("<")
        elif opened and _is_tag(kept, opened[-1], text[start : start + 1]):
            del kept[opened.pop()[0] :]
            _append(kept, opened, " ")
        else:
            opened.clear()  # this one stays, so that no tag can reach across it
            kept.append(">")
    _append(kept, opened, text[start:])
    return "".join(kept).strip()


def _append(kept: list[str], opened: list[list[int]], text: str) -> None:
    if kept and kept[-1][-1] == " ":
        text = text.removeprefix(" ")
    if text:
        kept.append(text)
        if opened:
            opened[-1][1] += len(text)


def _is_tag(kept: list[str], bracket: list[int], after: str) -> bool:
    place, length = bracket
    if not 0 < length <= _TAG_LENGTH:
        return False
    content = "".join(kept[place + 1 :])
    if " " in content and after.isalnum() and place and kept[place - 1][-1].isalnum():
        return False  # "a<b and c>d" compares
    return content[0].isalpha() or content[0] == "/"

"""What a reader of Markdown with HTML sees of a text: the page that CommonMark makes of it, less what is hidden there.

Comments, attributes, alternative texts, link definitions, scripts, fallbacks and text that is struck out, transparent,
tiny, off the page or of little contrast are not seen. The address of a link is, where the link has a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from colorsys import hls_to_rgb
from functools import cache
from html import unescape
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from groundwire.text.stems import words_of

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

_UNSEEN_TAGS: Final = words_of(
    "applet audio canvas datalist del dialog head iframe math metadata noembed noframes noscript object rp s script "
    "select strike style svg template title video"
)
_VOID: Final = words_of("area base br col embed frame hr img input link meta param source track wbr")
_TAG: Final = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9-]*)")
_ATTRIBUTE: Final = re.compile(r"\s([A-Za-z_:][\w:.-]*)(?:\s*=\s*(\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+))?")
_UNFINISHED: Final = re.compile(r"<[A-Za-z/!?][^>]*>?")
"""In a block of HTML: what a browser takes for a tag, and CommonMark does not."""
_FOOTNOTE: Final = re.compile(r"^( {0,3})\[\^", re.MULTILINE)
"""No definition of a link, which only CommonMark without footnotes makes of it."""
_ZERO: Final = re.compile(r"-?0*\.?0*(?:[a-z]{1,4}|%)?")
_COLOURS: Final = {
    "black": "#000", "blue": "#00f", "brown": "#a52a2a", "darkblue": "#00008b", "darkgreen": "#006400",
    "darkred": "#8b0000", "gray": "#808080", "green": "#008000", "grey": "#808080", "maroon": "#800000",
    "navy": "#000080", "orange": "#ffa500", "purple": "#800080", "red": "#f00", "teal": "#008080",
    "white": "#fff", "yellow": "#ff0",
}  # fmt: skip
_CONTRAST: Final = 0.3  # least difference in lightness by which a reader sees text on its background
_FAR: Final = re.compile(r"-\d{3,}(?:\.\d*)?[a-z]{1,4}")


def unseen(text: str, places: Sequence[int]) -> set[int]:
    """Return which of the places, in ascending order, hold a character that no reader sees."""
    if not places or not any(mark in text for mark in ("<", "~~", "```", "![", "](", "]:")):
        return set()
    # a character of private use before each place, which a page shows where it shows the place
    kept = set(text)
    marks = [
        mark for mark in map(chr, range(0x100000, 0x100000 + 2 * len(places) + len(kept))) if mark not in kept
    ]
    bounds = [0, *places, len(text)]
    pieces = [text[first:end] for first, end in pairwise(bounds)]
    marked = pieces[0] + "".join(mark + piece for mark, piece in zip(marks, pieces[1:], strict=False))
    shown = set("".join(_page(_FOOTNOTE.sub(r"\1\\[^", marked))))
    return {place for place, mark in zip(places, marks, strict=False) if mark not in shown}


def _page(text: str) -> Iterator[str]:
    """Yield the texts that a page shows, and the addresses of its links."""
    document, _ = _parsers()
    hidden: list[str] = []  # the element that hides, and those of its name that are open in it
    address = ""
    for token in _inline(document.parse(text)):
        match token.type:
            case "text" | "code_inline" | "code_block" | "fence" if not hidden:
                yield token.content
                if token.content.strip():
                    yield address
                    address = ""
            case "link_open":
                address = str(token.attrs.get("href", ""))
            case "link_close":
                address = ""
            case "s_open" if hidden[:1] in ([], ["s"]):
                hidden.append("s")
            case "s_close" if hidden[:1] == ["s"]:
                hidden.pop()
            case "html_inline" if tag := _TAG.match(token.content):
                name = tag[2].lower()
                if name in hidden[:1]:
                    hidden.pop() if tag[1] else hidden.append(name)
                elif not (hidden or tag[1] or name in _VOID) and _hides(name, token.content):
                    hidden.append(name)


def _inline(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield texts and tags; a block of HTML is read as HTML alone."""
    _, html = _parsers()
    for token in tokens:
        if token.type == "html_block":
            # a comment that nobody closes goes on to the end
            for part in html.parseInline(f"{token.content}-->")[0].children or ():
                part.content = _UNFINISHED.sub("", part.content) if part.type == "text" else part.content
                yield part
        elif token.type == "inline":
            yield from token.children or ()
        else:
            yield token


@cache
def _parsers() -> tuple[MarkdownIt, MarkdownIt]:
    """Return the parser of a text, and that of a block of HTML in it; imported once a text needs them."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - 30 ms, and few texts need it

    document = MarkdownIt("commonmark").enable("strikethrough")
    document.validateLink = lambda url: True  # type: ignore[method-assign]  # noqa: ARG005 - called by name
    document.normalizeLink = lambda url: url  # type: ignore[method-assign]
    html = MarkdownIt("zero", {"html": True}).enable("html_inline")
    return document, html


def _hides(name: str, tag: str) -> bool:
    attributes = {
        found[1].lower(): unescape(found[2] or "").strip("\"'").lower() for found in _ATTRIBUTE.finditer(tag)
    }
    written = attributes.get("style", "")
    if name in _UNSEEN_TAGS or "hidden" in attributes or "\\" in written or "/*" in written:
        return True
    declared = (part.partition(":") for part in written.split(";"))
    style = {key.strip(): "".join(value.split()).removesuffix("!important") for key, _, value in declared}
    colour = style.get("color", attributes.get("color", ""))
    ground = style.get("background-color", style.get("background", attributes.get("bgcolor", "")))
    return (
        style.get("display") == "none"
        or style.get("visibility") in {"hidden", "collapse"}
        or style.get("content-visibility") == "hidden"
        or any(
            _ZERO.fullmatch(style[key]) for key in ("opacity", "font-size", "font", "zoom") if style.get(key)
        )
        or any(
            _ZERO.fullmatch(style[key])
            for key in ("height", "max-height", "width", "max-width")
            if style.get(key)
        )
        or any(
            _FAR.fullmatch(style[key])
            for key in ("left", "top", "right", "bottom", "text-indent")
            if key in style
        )
        or "clip" in style
        or "clip-path" in style
        or "scale(0" in style.get("transform", "")
        or (bool(colour or ground) and not _contrasts(colour or "black", ground or "white"))
    )


def _contrasts(colour: str, ground: str) -> bool:
    """Return whether text is seen on its background; False where a colour is translucent or cannot be read."""
    one, other = _lightness(colour), _lightness(ground)
    return one is not None and other is not None and abs(one - other) >= _CONTRAST


def _lightness(colour: str) -> float | None:
    """Return how light a CSS colour is, 0..1: the luma of ITU-R BT.601."""
    colour = _COLOURS.get(colour, colour)
    if re.fullmatch(r"#(?:[0-9a-f]{3}|[0-9a-f]{6})", colour):
        digits = colour[1:] if len(colour) > len("#rgb") else "".join(digit * 2 for digit in colour[1:])
        red, green, blue = (each / 255 for each in bytes.fromhex(digits))
    elif found := re.fullmatch(r"rgb\((\d{1,3}),(\d{1,3}),(\d{1,3})\)", colour):
        red, green, blue = (int(each) / 255 for each in found.groups())
    elif found := re.fullmatch(r"hsl\((\d{1,3})(?:deg)?,(\d{1,3})%,(\d{1,3})%\)", colour):
        hue, saturation, lightness = map(int, found.groups())
        red, green, blue = hls_to_rgb(hue / 360, lightness / 100, saturation / 100)
    else:
        return None
    return 0.299 * red + 0.587 * green + 0.114 * blue

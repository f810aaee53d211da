"""The Markdown of an answer as blocks, read by markdown-it: tags of `_TAGS`, and places of the answer between them.

Nothing of the answer becomes markup. HTML, links, images and entities stay the text they are written as. Where a word
of the answer, or a mark, would not be shown, there are no blocks: the answer is shown as it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

_MOST: Final = 30_000  # characters
_NAMES: Final = ("p", "ul", "ol", "li", "blockquote", "pre", "code", "strong", "em", "s", "hr", "br")
_CELLS: Final = ("thead", "tbody", "tr", "th", "td")
_TAGS: Final = {
    **{name: (Markup("<{}>").format(name), Markup("</{}>").format(name)) for name in (*_NAMES, *_CELLS)},
    **{f"h{n}": (Markup('<p class="heading">'), Markup("</p>")) for n in range(1, 7)},
    "table": (Markup('<div class="table"><table>'), Markup("</table></div>")),
}
_LINE: Final = Markup("\n")
_AS_WRITTEN: Final = (
    "html_block",
    "html_inline",
    "link",
    "image",
    "autolink",
    "entity",
    "reference",
    "text_join",
)
_PLAIN: Final = frozenset(("paragraph_open", "paragraph_close", "inline", "text", "softbreak"))
_PARSER: Final = (
    MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable(_AS_WRITTEN)
)


_OF_PEOPLE: Final = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
_PART: Final = 2  # levels by which headings sink, below those of the page


def to_html(text: str) -> Markup:
    """Render Markdown of those who run the console, without HTML and images."""
    tokens = _OF_PEOPLE.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1:]) + _PART)}"
        for child in token.children or ():
            if child.type == "link_open":
                child.attrSet("rel", "noopener noreferrer")
                child.attrSet("target", "_blank")
    return Markup(_OF_PEOPLE.renderer.render(tokens, _OF_PEOPLE.options, {}))  # noqa: S704 - of a parser without HTML


class Block(NamedTuple):
    """A tag or white space, else characters of the answer."""

    tag: Markup | None
    start: int = 0
    end: int = 0


class _Uncovered(ValueError):
    """A text of the parser does not stand in the answer letter for letter."""


def blocks(answer: str, marks: Iterable[tuple[int, int]]) -> list[Block] | None:
    """Return the blocks of an answer; None where it has no markup, or would not be shown whole with its marks."""
    if len(answer) > _MOST:
        return None
    tokens = _PARSER.parse(answer)
    if all(one.type in _PLAIN for token in tokens for one in (token, *(token.children or ()))):
        return None
    try:
        found = list(_read(tokens, answer))
    except _Uncovered:
        return None
    covered = bytearray(len(answer))
    for one in found:
        covered[one.start : one.end] = b"\1" * (one.end - one.start)
    shown = all(covered[at] or not char.isalnum() for at, char in enumerate(answer))
    return found if shown and all(any(covered[start:end]) for start, end in marks) else None


def _read(tokens: Iterable[Token], answer: str) -> Iterator[Block]:
    at = 0

    def place(text: str) -> Iterator[Block]:
        nonlocal at
        for number, line in enumerate(text.split("\n")):
            if number:
                yield Block(_LINE)
            start = answer.find(line, at)
            if start < 0:
                raise _Uncovered
            at = start + len(line)
            yield Block(None, start, at)

    def leaf(token: Token) -> Iterator[Block]:
        if token.tag:
            yield _tag(token, opens=token.nesting >= 0)
        if token.info.strip() and token.type in ("fence", "list_item_open"):
            yield from place(f"{token.info.strip()}{token.markup if token.type == 'list_item_open' else ''}")
            yield Block(_LINE)
        if token.type == "softbreak":
            yield Block(_LINE)
        elif token.nesting == 0 and token.content:
            yield from place(token.content.removesuffix("\n"))
        if token.nesting == 0 and token.tag not in ("", "hr", "br"):
            yield _tag(token, opens=False)

    for token in tokens:
        if token.type == "inline":
            for child in token.children or ():
                yield from leaf(child)
        elif not token.hidden:
            yield from leaf(token)


def _tag(token: Token, *, opens: bool) -> Block:
    name = "pre" if token.type in ("fence", "code_block") else token.tag
    if name not in _TAGS:
        raise _Uncovered
    return Block(_TAGS[name][0 if opens else 1])

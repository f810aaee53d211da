"""Which parts of a text its markup takes back or does not show: a citation there gives no credit.

These are struck-out text ("~~...~~", `<del>`, `<s>`, `<strike>`), elements that are not displayed, comments, and tags
themselves, whose attributes may hold anything.
"""

from __future__ import annotations

import re
from typing import Final

UNSHOWN: Final = "struck out or not shown"
"""Why a citation in such a part gives no credit."""

_STRUCK: Final = re.compile(r"~~[^~]{1,500}~~|<!--[^<>]*-->")
_TAG: Final = re.compile(r"<(?P<close>/?)(?P<name>[a-z][a-z0-9]{0,9})(?P<attributes>[^<>]*)>", re.IGNORECASE)
_DELETED: Final = frozenset(("del", "s", "strike", "template", "script", "style"))
_CONCEALED: Final = re.compile(
    r"display\s?:\s?none|visibility\s?:\s?hidden|opacity\s?:\s?0(?![.\d])|font-size\s?:\s?0(?![.\d])|\shidden(?![\w-])",
    re.IGNORECASE,
)


def tags_of(text: str) -> list[tuple[int, int]]:
    """Return where the tags and comments of a text start and end."""
    if "<" not in text:
        return []
    return [
        found.span() for pattern in (_STRUCK, _TAG) for found in pattern.finditer(text) if found[0][0] == "<"
    ]


def unshown(text: str) -> list[tuple[int, int]]:
    """Return where the parts of a text start and end that are struck out or not shown; linear in time."""
    if "<" not in text and "~~" not in text:
        return []
    parts = [found.span() for found in _STRUCK.finditer(text)]
    name, start, depth = "", 0, 0
    for tag in _TAG.finditer(text):
        of = tag["name"].lower()
        if not name and not tag["close"] and (of in _DELETED or _CONCEALED.search(tag["attributes"])):
            name, start, depth = of, tag.start(), 1
        elif name == of:
            depth += -1 if tag["close"] else 1
            if not depth:
                parts.append((start, tag.end()))
                name = ""
    return [*parts, (start, len(text))] if name else parts

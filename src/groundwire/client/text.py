"""Making text from records harmless to a terminal: nothing in it moves the cursor, colours or hides."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size


def visible(text: str) -> str:
    r"""Write out what has no shape of its own (controls, escapes, direction marks) as `\x1b` or `\u202e`."""
    if text.isprintable():
        return text
    return "".join(char if _harmless(char) else char.encode("unicode_escape").decode() for char in text)


def visible_json(text: str) -> str:
    """Do the same inside the strings of one-line JSON, by JSON's own escapes: it still means the same."""
    if text.isprintable():
        return text
    return "".join(char if _harmless(char) else _json_escape(char) for char in text)


def cut(text: str, width: int) -> str:
    """Cut text to a number of terminal cells, with `…` where something is missing."""
    text = visible(text[: 4 * width])  # a cell holds a letter; combining marks come on top
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lay rows of equal length out in aligned columns."""
    safe = [[visible(cell) for cell in row] for row in rows]
    widths = [max(cell_len(row[index]) for row in safe) for index in range(len(safe[0]))] if safe else []
    return ["  ".join(map(set_cell_size, row, widths)).rstrip() for row in safe]


def _harmless(char: str) -> bool:
    return char.isprintable() or unicodedata.category(char) == "Zs"


def _json_escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else json.dumps(char)[1:-1]

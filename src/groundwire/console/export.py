"""A list as a file: CSV for a spreadsheet, JSON lines for a program; streamed page by page, however long it is."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from starlette.responses import StreamingResponse

from groundwire.console.lists import FINAL_LISTS
from groundwire.console.queue import QUEUE, board_query, list_row, view_of
from groundwire.console.site import Call
from groundwire.review.model import MAX_PAGE, Page, Query, Row
from groundwire.text.visible import visible

_FIELDS: Final = (
    *("id", "revision", "tenant_id", "user_id", "kind", "subject_id", "verdict", "reason_code", "risk"),
    *("source", "memory_type", "decided_at", "excerpt"),
)
_FORMULA: Final = tuple("=+-@")
"""With which a spreadsheet takes a cell for a formula, full width too: such a text gets an apostrophe before it."""
_CELLS: Final = re.compile(r"([;|\t\r\n])")
"""What ends a cell where the spreadsheet takes no comma for it."""
_UTF8: Final = "\ufeff"
"""By which a spreadsheet knows how the file is encoded; without it letters beyond ASCII are others."""
FORMS: Final = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}
EXPORTED: Final = (QUEUE, *FINAL_LISTS)


async def export(call: Call, listed: str, form: str) -> StreamingResponse:
    """Return the rows of one of `EXPORTED`, under its filters, order and search, as a file of a form of `FORMS`.

    Raises:
        HTTPException: 400, naming a filter at fault.
    """
    query = board_query(view_of(call).model_copy(update={"cursor": None}), MAX_PAGE)
    rows = (_fields(call, row) for row in _rows(call, listed, query))
    lines = _csv(rows) if form == "csv" else (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    headers = {"content-disposition": f'attachment; filename="{listed}.{form}"'}
    return StreamingResponse(lines, media_type=FORMS[form], headers=headers)


def _rows(call: Call, listed: str, query: Query) -> Iterator[Row]:
    def page(cursor: str | None) -> Page[Row]:
        board = call.site.board
        if listed == QUEUE:
            return board.pending(call.scope, replace(query, cursor=cursor))
        return board.not_pending(call.scope, FINAL_LISTS[listed].topic, MAX_PAGE, cursor, query.text)

    found = page(None)
    while True:
        yield from found.rows
        if found.next is None:
            return
        found = page(found.next)


def _fields(call: Call, row: Row) -> dict[str, Any]:
    more = {"revision": row.revision, "verdict": str(row.verdict), "memory_type": row.memory_type}
    # not what lists show of an answer: that depends on who looked at them before
    found = {**list_row(call, row), **more, "risk": row.risk.level, "excerpt": row.excerpt}
    return {name: found[name] for name in _FIELDS}


def _csv(rows: Iterator[dict[str, Any]]) -> Iterator[str]:
    yield _UTF8 + _line(_FIELDS)
    for row in rows:
        yield _line([_harmless(row[name]) for name in _FIELDS])


def _harmless(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = "".join(
        f"'{cell}" if unicodedata.normalize("NFKC", visible(cell)).lstrip().startswith(_FORMULA) else cell
        for cell in _CELLS.split(value)
    )
    return f"'{text}" if text.startswith(("\t", "\r")) else text


def _line(values: Any) -> str:  # noqa: ANN401 - as csv takes them
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue()

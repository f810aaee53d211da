"""Lists: approved, blocked, responses in review, dead letters; and a list as a file, streamed page by page."""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.responses import StreamingResponse

from groundwire.console import queue
from groundwire.console.site import Call, PageAnswer
from groundwire.console.words import NONE
from groundwire.messages.base import format_time
from groundwire.messages.topics import TopicName
from groundwire.review.model import MAX_PAGE, ListedTopic, Page, Row
from groundwire.text.visible import visible


class ListPage(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    cursor: Annotated[Annotated[str, Field(max_length=queue.MAX_CURSOR)] | None, queue.Blank] = None


class SearchedPage(ListPage):
    search: queue.Search = None


FINAL: Final[dict[str, ListedTopic]] = {
    "responses": TopicName.REVIEW,
    "approved": TopicName.APPROVED,
    "blocked": TopicName.BLOCKED,
}


async def responses(call: Call) -> PageAnswer:
    """Responses that are in review and final."""
    about = (
        "Answers that a check found doubtful. By policy the program that asked deals with them, and nobody decides them"
        " here; responses that wait for a person are in the queue."
    )
    return await _final_list(call, "responses", "Responses in review", about)


async def approved(call: Call) -> PageAnswer:
    """What the gate or a person approved; a retraction starts here."""
    return await _final_list(call, "approved", "Approved", "Approved by the gate or a person, newest first.")


async def blocked(call: Call) -> PageAnswer:
    """What the gate or a person blocked."""
    return await _final_list(call, "blocked", "Blocked", "Blocked by the gate or a person, newest first.")


async def _final_list(call: Call, name: str, title: str, about: str) -> PageAnswer:
    asked = call.asked(SearchedPage)
    board, text, topic = call.site.board, asked.search or "", FINAL[name]
    place = queue.ListOrigin(name, asked.cursor or "", text)
    try:
        page = board.not_pending(call.scope, topic, cursor=asked.cursor, text=text)
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from None
    await queue.fetch_excerpts(call, page.rows)
    data = {
        "rows": [{**queue.list_row(call, row), "verdict": str(row.verdict)} for row in page.rows],
        **_paging(place, page),
        "search": text,
        "in_all": board.not_pending(call.scope, topic, 1).total if text else page.total,
        "query": queue.with_query("", place.query),
        "exported": queue.with_query("", urlencode({"search": text}) if text else ""),
        "listed": name,
        "title": title,
        "about": about,
    }
    return PageAnswer(data, "rows.html")


async def dead_letters(call: Call) -> PageAnswer:
    """Records that could not be decided."""
    cursor = call.asked(ListPage).cursor
    try:
        page = call.site.board.dead_letters(call.scope, cursor=cursor)
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from None
    rows = []
    for letter in page.rows:
        partition, offset = (NONE if one is None else one for one in (letter.partition, letter.offset))
        place = f"{letter.topic or NONE}, partition {partition}, offset {offset}"
        names = ("name", "code", "message", "tenant_id", "user_id", "excerpt")
        copied = {name: getattr(letter, name) for name in names}
        rows.append({**copied, "place": place, "at": format_time(letter.at)})
    data = {
        "rows": rows,
        **_paging(queue.ListOrigin("dead-letters", cursor or ""), page),
        "title": "Dead letters",
    }
    return PageAnswer(data, "dead_letters.html")


def _paging(place: queue.ListOrigin, page: Page[Any]) -> dict[str, Any]:
    return {
        "total": page.total,
        "older": replace(place, cursor=page.next).address if page.next else None,
        "newer": replace(place, cursor="").address if place.cursor else None,
    }


_FIELDS: Final = (
    *("id", "revision", "tenant_id", "user_id", "kind", "subject_id", "verdict", "reason_code", "risk"),
    *("source", "memory_type", "decided_at", "excerpt"),
)
_FORMULA: Final = tuple("=+-@")
"""With which a spreadsheet takes a cell for a formula, full width too: such a text gets an apostrophe before it."""
_CELLS: Final = re.compile(r"([;|\t\r\n])")  # what ends a cell where the spreadsheet takes no comma for it
_UTF8: Final = "\ufeff"
"""By which a spreadsheet knows how the file is encoded; without it letters beyond ASCII are others."""
FORMS: Final = {"csv": "text/csv; charset=utf-8", "jsonl": "application/x-ndjson"}
EXPORTED: Final = (queue.QUEUE, *FINAL)


async def export(call: Call, listed: str, form: str) -> StreamingResponse:
    """Return the rows of one of `EXPORTED`, under its filters, order and search, as a file of a form of `FORMS`.

    Raises: HTTPException 400, naming a filter at fault.
    """
    query = queue.board_query(queue.view_of(call).model_copy(update={"cursor": None}), MAX_PAGE)

    def page(cursor: str | None) -> Page[Row]:
        board = call.site.board
        if listed == queue.QUEUE:
            return board.pending(call.scope, replace(query, cursor=cursor))
        return board.not_pending(call.scope, FINAL[listed], MAX_PAGE, cursor, query.text)

    def rows() -> Iterator[dict[str, Any]]:
        found = page(None)
        while True:
            for row in found.rows:
                more = {"revision": row.revision, "verdict": str(row.verdict), "memory_type": row.memory_type}
                # not what lists show of an answer: that depends on who looked at them before
                given = {**queue.list_row(call, row), **more, "risk": row.risk.level, "excerpt": row.excerpt}
                yield {name: given[name] for name in _FIELDS}
            if found.next is None:
                return
            found = page(found.next)

    def table() -> Iterator[str]:
        yield _UTF8 + _line(_FIELDS)
        for row in rows():
            yield _line([_harmless(row[name]) for name in _FIELDS])

    lines = table() if form == "csv" else (json.dumps(row, ensure_ascii=False) + "\n" for row in rows())
    headers = {"content-disposition": f'attachment; filename="{listed}.{form}"'}
    return StreamingResponse(lines, media_type=FORMS[form], headers=headers)


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

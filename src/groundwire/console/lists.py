"""What is not pending: approved, blocked, responses in review, dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from groundwire.console.queue import (
    MAX_CURSOR,
    Blank,
    ListOrigin,
    Search,
    fetch_excerpts,
    list_row,
    with_query,
)
from groundwire.console.site import Call, PageAnswer, problems
from groundwire.console.words import NONE
from groundwire.messages.base import format_time
from groundwire.messages.topics import TopicName
from groundwire.review.model import DeadLetterRow, ListedTopic, Page

P = TypeVar("P", bound="ListPage")


class ListPage(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    cursor: Annotated[Annotated[str, Field(max_length=MAX_CURSOR)] | None, Blank] = None


class SearchedPage(ListPage):
    search: Search = None


@dataclass(frozen=True, slots=True)
class FinalList:
    """A list of what is on a topic and not pending, at `/name`; `about` explains it on the page."""

    name: str
    topic: ListedTopic
    title: str
    about: str
    nothing: str


_RESPONSES: Final = FinalList(
    "responses",
    TopicName.REVIEW,
    "Responses in review",
    "Answers of assistants that a check found doubtful. The policy leaves what to do with them to the program that"
    " asked, so nobody decides them here; responses that wait for a person stand in the queue.",
    "No response is in review.",
)
_APPROVED: Final = FinalList(
    "approved",
    TopicName.APPROVED,
    "Approved",
    "What the gate or a person approved, claims and responses, newest first.",
    "Nothing was approved lately.",
)
_BLOCKED: Final = FinalList(
    "blocked",
    TopicName.BLOCKED,
    "Blocked",
    "What the gate or a person turned down, newest first.",
    "Nothing was blocked lately.",
)


FINAL_LISTS: Final = {one.name: one for one in (_RESPONSES, _APPROVED, _BLOCKED)}
"""Lists of what is not pending, by the last part of their address."""


async def responses(call: Call) -> PageAnswer:
    """Responses that are in review and final."""
    return await _show_list(call, _RESPONSES)


async def approved(call: Call) -> PageAnswer:
    """What the gate or a person approved: here a retraction finds its item."""
    return await _show_list(call, _APPROVED)


async def blocked(call: Call) -> PageAnswer:
    """What the gate or a person blocked."""
    return await _show_list(call, _BLOCKED)


async def dead_letters(call: Call) -> PageAnswer:
    """Records that could not be decided."""
    cursor = _read(ListPage, call.request.query_params).cursor
    try:
        page = call.site.board.dead_letters(call.scope, cursor=cursor)
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from None
    rows = [_letter(letter) for letter in page.rows]
    data = {"rows": rows, **_paging(ListOrigin("dead-letters", cursor or ""), page), "title": "Dead letters"}
    return PageAnswer(data, "dead_letters.html")


async def _show_list(call: Call, shown: FinalList) -> PageAnswer:
    asked = _read(SearchedPage, call.request.query_params)
    return PageAnswer(await _rows(call, shown, asked), "rows.html")


async def _rows(call: Call, shown: FinalList, asked: SearchedPage) -> dict[str, Any]:
    board, text, place = (
        call.site.board,
        asked.search or "",
        ListOrigin(shown.name, asked.cursor or "", asked.search or ""),
    )
    try:
        page = board.not_pending(call.scope, shown.topic, cursor=asked.cursor, text=text)
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from None
    await fetch_excerpts(call, page.rows)
    return {
        "rows": [{**list_row(call, row), "verdict": str(row.verdict)} for row in page.rows],
        **_paging(place, page),
        "search": text,
        "in_all": board.not_pending(call.scope, shown.topic, 1).total if text else page.total,
        "query": with_query("", place.query),
        "exported": with_query("", urlencode({"search": asked.search}) if asked.search else ""),
        "listed": shown.name,
        "title": shown.title,
        "about": shown.about,
        "nothing": shown.nothing,
    }


def _letter(letter: DeadLetterRow) -> dict[str, Any]:
    return {
        "name": letter.name,
        "code": letter.code,
        "message": letter.message,
        "place": f"{letter.topic or NONE}, partition {_or_none(letter.partition)}, offset {_or_none(letter.offset)}",
        "tenant_id": letter.tenant_id,
        "user_id": letter.user_id,
        "at": format_time(letter.at),
        "excerpt": letter.excerpt,
    }


def _or_none(value: int | None) -> str:
    return NONE if value is None else str(value)


def _read(asked: type[P], query: Mapping[str, str]) -> P:
    """Read which page is asked for. Raises: HTTPException 400, naming what is no parameter."""
    try:
        return asked.model_validate(dict(query))
    except ValidationError as exc:
        raise HTTPException(400, problems(exc, asked)) from None


def _paging(place: ListOrigin, page: Page[Any]) -> dict[str, Any]:
    return {
        "total": page.total,
        "older": replace(place, cursor=page.next).address if page.next else None,
        "newer": replace(place, cursor="").address if place.cursor else None,
    }

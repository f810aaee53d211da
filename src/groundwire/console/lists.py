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
from groundwire.review.model import ListedTopic, Page

P = TypeVar("P", bound="ListPage")


class ListPage(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    cursor: Annotated[Annotated[str, Field(max_length=MAX_CURSOR)] | None, Blank] = None


class SearchedPage(ListPage):
    search: Search = None


@dataclass(frozen=True, slots=True)
class FinalList:
    """A list of items of a topic that are not pending, at `/name`; `about` explains it on the page."""

    name: str
    topic: ListedTopic
    title: str
    about: str

    async def show(self, call: Call) -> PageAnswer:
        asked = _read(SearchedPage, call.request.query_params)
        board, text = call.site.board, asked.search or ""
        place = ListOrigin(self.name, asked.cursor or "", text)
        try:
            page = board.not_pending(call.scope, self.topic, cursor=asked.cursor, text=text)
        except ValueError as exc:
            raise HTTPException(400, str(exc)) from None
        await fetch_excerpts(call, page.rows)
        data = {
            "rows": [{**list_row(call, row), "verdict": str(row.verdict)} for row in page.rows],
            **_paging(place, page),
            "search": text,
            "in_all": board.not_pending(call.scope, self.topic, 1).total if text else page.total,
            "query": with_query("", place.query),
            "exported": with_query("", urlencode({"search": text}) if text else ""),
            "listed": self.name,
            "title": self.title,
            "about": self.about,
        }
        return PageAnswer(data, "rows.html")


_LISTS: Final = (
    FinalList(
        "responses",
        TopicName.REVIEW,
        "Responses in review",
        "Answers that a check found doubtful. By policy the program that asked deals with them, and nobody decides them"
        " here; responses that wait for a person are in the queue.",
    ),
    FinalList("approved", TopicName.APPROVED, "Approved", "Approved by the gate or a person, newest first."),
    FinalList("blocked", TopicName.BLOCKED, "Blocked", "Blocked by the gate or a person, newest first."),
)
FINAL_LISTS: Final = {one.name: one for one in _LISTS}


async def responses(call: Call) -> PageAnswer:
    """Responses that are in review and final."""
    return await FINAL_LISTS["responses"].show(call)


async def approved(call: Call) -> PageAnswer:
    """What the gate or a person approved; a retraction starts here."""
    return await FINAL_LISTS["approved"].show(call)


async def blocked(call: Call) -> PageAnswer:
    """What the gate or a person blocked."""
    return await FINAL_LISTS["blocked"].show(call)


async def dead_letters(call: Call) -> PageAnswer:
    """Records that could not be decided."""
    cursor = _read(ListPage, call.request.query_params).cursor
    try:
        page = call.site.board.dead_letters(call.scope, cursor=cursor)
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from None
    rows = []
    for letter in page.rows:
        partition, offset = (NONE if one is None else one for one in (letter.partition, letter.offset))
        place = f"{letter.topic or NONE}, partition {partition}, offset {offset}"
        copied = {name: getattr(letter, name) for name in _COPIED}
        rows.append({**copied, "place": place, "at": format_time(letter.at)})
    data = {"rows": rows, **_paging(ListOrigin("dead-letters", cursor or ""), page), "title": "Dead letters"}
    return PageAnswer(data, "dead_letters.html")


_COPIED: Final = ("name", "code", "message", "tenant_id", "user_id", "excerpt")


def _read(asked: type[P], query: Mapping[str, str]) -> P:
    """Read the query of a list's address. Raises: HTTPException 400, naming unknown parameters."""
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

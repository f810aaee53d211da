"""What is not pending: approved, blocked, responses in review, dead letters; and the blind sample."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal, TypeVar
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from groundwire.console.item import NO_ITEM
from groundwire.console.queue import (
    MAX_CURSOR,
    Blank,
    EncryptedSearch,
    ListOrigin,
    SearchFields,
    fetch_excerpts,
    list_row,
    with_query,
)
from groundwire.console.site import Call, PageAnswer, problems
from groundwire.console.words import NONE
from groundwire.messages.base import format_time
from groundwire.messages.topics import TopicName
from groundwire.review.model import MAX_PAGE, DeadLetterRow, ListedTopic, Page

P = TypeVar("P", bound="ListPage")


class ListPage(BaseModel):
    """Which page of a list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cursor: Annotated[Annotated[str, Field(max_length=MAX_CURSOR)] | None, Blank] = None


class SearchedPage(ListPage):
    """Which page of what a search finds in a list."""

    search: EncryptedSearch = None


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


async def search_responses(call: Call) -> PageAnswer:
    """Search them by id and by what they are in review for."""
    return await _search_list(call, _RESPONSES)


async def approved(call: Call) -> PageAnswer:
    """What the gate or a person approved: here a retraction finds its item."""
    return await _show_list(call, _APPROVED)


async def search_approved(call: Call) -> PageAnswer:
    """Search the texts of what was approved, as one searches the queue."""
    return await _search_list(call, _APPROVED)


async def blocked(call: Call) -> PageAnswer:
    """What the gate or a person blocked."""
    return await _show_list(call, _BLOCKED)


async def search_blocked(call: Call) -> PageAnswer:
    """Search the texts of what was blocked, as one searches the queue."""
    return await _search_list(call, _BLOCKED)


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


async def _search_list(call: Call, shown: FinalList) -> PageAnswer:
    """Search a list: a browser is led to the address of what is found; a token gets the answer at once."""
    fields = call.fields(SearchFields)
    cursor = None if call.identity.ambient else _read(SearchedPage, dict(parse_qsl(fields.back))).cursor
    asked = SearchedPage(cursor=cursor, search=call.site.search_cipher.encrypt(fields.search.strip()))
    return PageAnswer(await _rows(call, shown, asked), location=_place(shown, asked).address)


def _place(shown: FinalList, asked: SearchedPage) -> ListOrigin:
    return ListOrigin(shown.name, asked.cursor or "", asked.search or "")


async def _rows(call: Call, shown: FinalList, asked: SearchedPage) -> dict[str, Any]:
    board, text, place = call.site.board, call.site.search_cipher.decrypt(asked.search), _place(shown, asked)
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


class OpinionFields(BaseModel):
    """What a person thinks of a sampled item before they see the verdict."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    opinion: Literal["approve", "reject"]


async def sample(call: Call) -> PageAnswer:
    """Claims that the gate decided by itself, verdict hidden; none where the share is 0."""
    share = call.site.settings.audit_share
    found = call.site.board.sample(call.scope, share, 20) if share else []
    rows = [
        {
            "id": row.decision_id,
            "subject_id": row.subject_id,
            "tenant_id": row.tenant_id,
            "user_id": row.user_id,
            "source": row.source,
            "memory_type": row.memory_type,
            "text": row.text,
        }
        for row in found
    ]
    return PageAnswer({"rows": rows, "share": share}, "sample.html")


async def judge(call: Call) -> PageAnswer:
    """Keep an opinion on a sampled item, and tell what the gate had decided."""
    fields = call.fields(OpinionFields)
    decision_id = call.request.path_params["decision_id"]
    share = call.site.settings.audit_share
    drawn = call.site.board.sample(call.scope, share, MAX_PAGE) if share else []
    if decision_id not in {row.decision_id for row in drawn}:
        raise HTTPException(404, NO_ITEM)
    found = call.site.board.record_opinion(call.scope, decision_id, fields.opinion)
    if found is None:
        raise HTTPException(404, NO_ITEM)
    data = {
        "id": found.decision_id,
        "opinion": found.opinion,
        "verdict": str(found.verdict),
        "reason_code": found.reason_code,
        "agrees": found.agrees,
    }
    return PageAnswer(data, "revealed.html")

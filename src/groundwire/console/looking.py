"""What is over: approved and blocked, responses in review, dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import parse_qsl, urlencode

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.exceptions import HTTPException

from groundwire.console.call import Answer, Call, problems
from groundwire.console.rows import glance
from groundwire.console.searching import SearchFields, clear_search, keep_search, search_of
from groundwire.console.views import MAX_CURSOR, Blank, Origin, with_query
from groundwire.console.words import NONE
from groundwire.messages.base import format_time
from groundwire.messages.topics import TopicName
from groundwire.review.model import DeadLetter, LookedUp, Page


class Turn(BaseModel):
    """Which page of a list."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    cursor: Annotated[Annotated[str, Field(max_length=MAX_CURSOR)] | None, Blank] = None


@dataclass(frozen=True, slots=True)
class _List:
    """What left on a topic and is not pending, at `/name`; `about` says what that is."""

    name: str
    topic: LookedUp
    title: str
    about: str
    nothing: str


_RESPONSES: Final = _List(
    "responses",
    TopicName.REVIEW,
    "Responses in review",
    "Answers of assistants that a check found doubtful. The policy leaves what to do with them to the program that"
    " asked, so nobody decides them here; responses that wait for a person stand in the queue.",
    "No response is in review.",
)
_APPROVED: Final = _List(
    "approved",
    TopicName.APPROVED,
    "Approved",
    "What the gate or a person approved, newest first. Open a claim to retract it.",
    "Nothing was approved lately.",
)
_BLOCKED: Final = _List(
    "blocked",
    TopicName.BLOCKED,
    "Blocked",
    "What the gate or a person turned down, newest first.",
    "Nothing was blocked lately.",
)


async def responses(call: Call) -> Answer:
    """Responses that are in review and final."""
    return _show(call, _RESPONSES)


async def search_responses(call: Call) -> Answer:
    """Search them by id and by what they are in review for."""
    return _search(call, _RESPONSES)


async def approved(call: Call) -> Answer:
    """What the gate or a person approved: here a retraction finds its item."""
    return _show(call, _APPROVED)


async def search_approved(call: Call) -> Answer:
    """Search the texts of what was approved, as one searches the queue."""
    return _search(call, _APPROVED)


async def blocked(call: Call) -> Answer:
    """What the gate or a person blocked."""
    return _show(call, _BLOCKED)


async def search_blocked(call: Call) -> Answer:
    """Search the texts of what was blocked, as one searches the queue."""
    return _search(call, _BLOCKED)


async def dead_letters(call: Call) -> Answer:
    """Records that could not be decided."""
    cursor = _turn(call.request.query_params).cursor
    try:
        page = call.site.board.dead_letters(call.scope, cursor=cursor)
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from None
    rows = [_letter(letter) for letter in page.rows]
    data = {"rows": rows, **_turns("/dead-letters", page, cursor), "title": "Dead letters"}
    return Answer(data, "dead_letters.html")


def _show(call: Call, shown: _List) -> Answer:
    clear_search(call, shown.name)
    cursor = _turn(call.request.query_params).cursor
    return Answer(_rows(call, shown, search_of(call, shown.name), cursor), "rows.html")


def _search(call: Call, shown: _List) -> Answer:
    """Search a list: a browser's session keeps what is searched for; a token gets the answer at once."""
    fields = call.fields(SearchFields)
    text = fields.search.strip()
    keep_search(call, text, shown.name)
    cursor = None if call.identity.ambient else _turn(dict(parse_qsl(fields.back))).cursor
    return Answer(_rows(call, shown, text, cursor), location=f"/{shown.name}")


def _rows(call: Call, shown: _List, text: str, cursor: str | None) -> dict[str, Any]:
    board = call.site.board
    try:
        page = board.looked_up(call.scope, shown.topic, cursor=cursor, text=text)
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from None
    return {
        "rows": [{**glance(call, row), "verdict": str(row.verdict)} for row in page.rows],
        **_turns(f"/{shown.name}", page, cursor),
        "search": text,
        "in_all": board.looked_up(call.scope, shown.topic, 1).total if text else page.total,
        "query": with_query("", Origin(shown.name, cursor or "").query),
        "listed": shown.name,
        "title": shown.title,
        "about": shown.about,
        "nothing": shown.nothing,
    }


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "name": letter.name,
        "code": letter.code,
        "message": letter.message,
        "place": f"{letter.topic or NONE}, partition {letter.partition}, offset {letter.offset}",
        "tenant_id": letter.tenant_id,
        "user_id": letter.user_id,
        "at": format_time(letter.at),
        "excerpt": letter.excerpt,
    }


def _turn(query: Mapping[str, str]) -> Turn:
    """Read which page is asked for. Raises: HTTPException 400, naming what is no parameter."""
    try:
        return Turn.model_validate({name: value for name, value in query.items() if name != "all"})
    except ValidationError as exc:
        raise HTTPException(400, problems(exc, Turn)) from None


def _turns(path: str, page: Page[Any], cursor: str | None) -> dict[str, Any]:
    return {
        "total": page.total,
        "older": with_query(path, urlencode({"cursor": page.next})) if page.next else None,
        "newer": path if cursor else None,
    }

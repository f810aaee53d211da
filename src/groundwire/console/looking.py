"""What is over: approved and blocked, responses in review, dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from starlette.exceptions import HTTPException

from groundwire.console.call import Answer, Call
from groundwire.console.rows import glance
from groundwire.console.words import NONE
from groundwire.messages.base import format_time
from groundwire.messages.topics import TopicName
from groundwire.review.model import DeadLetter, LookedUp, Page


@dataclass(frozen=True, slots=True)
class _List:
    """A page of what left on a topic and is not pending; `about` says what that is."""

    topic: LookedUp
    title: str
    about: str
    nothing: str


_RESPONSES: Final = _List(
    TopicName.REVIEW,
    "Responses in review",
    "Answers of assistants that a check found doubtful. The policy leaves what to do with them to the program that"
    " asked, so nobody decides them here; responses that wait for a person stand in the queue.",
    "No response is in review.",
)
_APPROVED: Final = _List(
    TopicName.APPROVED,
    "Approved",
    "What the gate or a person approved, newest first. Open a claim to retract it.",
    "Nothing was approved lately.",
)
_BLOCKED: Final = _List(
    TopicName.BLOCKED,
    "Blocked",
    "What the gate or a person turned down, newest first.",
    "Nothing was blocked lately.",
)


async def responses(call: Call) -> Answer:
    """Responses that are in review and final."""
    return _rows(call, _RESPONSES)


async def approved(call: Call) -> Answer:
    """What the gate or a person approved: here a retraction finds its item."""
    return _rows(call, _APPROVED)


async def blocked(call: Call) -> Answer:
    """What the gate or a person blocked."""
    return _rows(call, _BLOCKED)


async def dead_letters(call: Call) -> Answer:
    """Records that could not be decided."""
    try:
        page = call.site.board.dead_letters(call.scope, cursor=_cursor(call))
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from None
    data = {"rows": [_letter(letter) for letter in page.rows], **_turns(call, page), "title": "Dead letters"}
    return Answer(data, "dead_letters.html")


def _rows(call: Call, shown: _List) -> Answer:
    try:
        page = call.site.board.looked_up(call.scope, shown.topic, cursor=_cursor(call))
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from None
    rows = [{**glance(call, row), "verdict": str(row.verdict)} for row in page.rows]
    listed = call.request.url.path.rpartition("/")[2]
    told = {"listed": listed, "title": shown.title, "about": shown.about, "nothing": shown.nothing}
    return Answer({"rows": rows, **_turns(call, page), **told}, "rows.html")


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "code": letter.code,
        "message": letter.message,
        "place": f"{letter.topic or NONE}, partition {letter.partition}, offset {letter.offset}",
        "tenant_id": letter.tenant_id,
        "user_id": letter.user_id,
        "at": format_time(letter.at),
        "excerpt": letter.excerpt,
    }


def _cursor(call: Call) -> str | None:
    return call.request.query_params.get("cursor") or None


def _turns(call: Call, page: Page[Any]) -> dict[str, Any]:
    path = call.request.url.path.removeprefix("/api")
    return {
        "total": page.total,
        "older": f"{path}?cursor={page.next}" if page.next else None,
        "newer": path if _cursor(call) else None,
    }

"""What can only be looked at here: responses in review, what is blocked, dead letters."""

from __future__ import annotations

from typing import Any, Literal

from starlette.exceptions import HTTPException

from groundwire.console.call import Answer, Call
from groundwire.console.words import NONE
from groundwire.messages.base import format_time
from groundwire.messages.topics import TopicName
from groundwire.review.model import DeadLetter, Page, Row


async def responses(call: Call) -> Answer:
    """Responses that are in review and final."""
    return _rows(call, TopicName.REVIEW, "Responses in review", "No response is in review.")


async def blocked(call: Call) -> Answer:
    """What the gate or a person blocked."""
    return _rows(call, TopicName.BLOCKED, "Blocked", "Nothing was blocked lately.")


async def dead_letters(call: Call) -> Answer:
    """Records that could not be decided."""
    try:
        page = call.site.board.dead_letters(call.scope, cursor=_cursor(call))
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from None
    data = {"rows": [_letter(letter) for letter in page.rows], **_turns(call, page), "title": "Dead letters"}
    return Answer(data, "dead_letters.html")


def _rows(
    call: Call, topic: Literal[TopicName.BLOCKED, TopicName.REVIEW], title: str, nothing: str
) -> Answer:
    try:
        page = call.site.board.looked_up(call.scope, topic, cursor=_cursor(call))
    except ValueError as exc:
        raise HTTPException(400, str(exc)) from None
    rows = [_row(call, row) for row in page.rows]
    return Answer({"rows": rows, **_turns(call, page), "title": title, "nothing": nothing}, "rows.html")


def _row(call: Call, row: Row) -> dict[str, Any]:
    return {
        "id": row.decision_id,
        "tenant_id": row.tenant_id,
        "user_id": row.user_id,
        "kind": str(row.kind),
        "subject_id": row.subject_id,
        "verdict": str(row.verdict),
        "reason_code": row.reason_code,
        "source": row.source,
        "excerpt": row.excerpt,
        "decided_at": format_time(row.since),
        "age_seconds": max(0, round((call.site.clock() - row.since).total_seconds())),
    }


def _letter(letter: DeadLetter) -> dict[str, Any]:
    return {
        "code": letter.code,
        "message": letter.message,
        "place": f"{letter.topic or NONE} {letter.partition} {letter.offset}",
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

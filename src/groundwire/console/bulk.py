"""Decisions on several items at once: those selected, or all that match a query.

A page lists what it will decide before anything is done; above twenty items their number has to be typed. A request for
all that match only lists them; a second request names them by id.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

from groundwire.console.actions import Chosen, Note, Reason, all_chosen, order, put
from groundwire.console.item import is_free
from groundwire.console.outbox import ReviewOrder
from groundwire.console.queue import (
    MAX_QUERY,
    MOST_AT_ONCE,
    OwnPage,
    board_query,
    is_whole,
    memories_of,
    own_page,
    selected_by,
    view_of,
    with_query,
)
from groundwire.console.site import Call, PageAnswer
from groundwire.review.actions import RejectReason
from groundwire.review.model import LEVELS, MAX_PAGE, Nearest, Standing

_TYPED_ABOVE: Final = 20
_NAMED: Final = 100
"""Items that the confirming page lists at once; the others are folded."""
_SLICE: Final = 50
"""Orders made before other requests get a turn."""


class BulkFields(BaseModel):
    """An action on several items.

    Attributes:
        ids: which ones; not needed with `all`.
        all: list every item that matches the query.
        query: filters, order and search of the list, to which a browser returns.
        confirm: repeats the number of items where there are more than twenty.
        sure: sent by the page that lists what will be decided.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ids: Annotated[list[Chosen], BeforeValidator(all_chosen), Field(max_length=MOST_AT_ONCE)] = []
    all: Literal["", "yes"] = ""
    query: Annotated[str, Field(max_length=MAX_QUERY)] = ""
    action: Literal["approve", "reject"]
    reason: Reason = None
    note: Note = None
    confirm: Annotated[str, BeforeValidator(lambda v: str(v).strip()), Field(max_length=10)] = ""
    sure: Literal["", "yes"] = ""

    @property
    def answered(self) -> bool:
        return bool(self.sure or self.confirm)


@dataclass(frozen=True, slots=True)
class _CheckedItem:
    """A chosen item as it is now; `state` is why it cannot be decided with others, `why` details `own_page`."""

    chosen: Chosen
    item: Standing | None
    state: Literal["not_found", "conflict", "own_page", "partly_shown"] | None = None
    why: OwnPage | None = None
    memories: Sequence[Nearest] = ()

    def as_json(self) -> dict[str, Any]:
        row = self.item.current if self.item else None
        subject_id = row.subject_id if row else None
        return {"id": str(self.chosen.id), "state": self.state, "why": self.why, "subject_id": subject_id}


async def act_on_many(call: Call) -> PageAnswer:
    """Accept the actions; items that cannot be decided are reported one by one."""
    fields = call.fields(BulkFields)
    checked = await _checked(call, fields)
    if not call.page and fields.action == "reject" and fields.reason is None:
        raise HTTPException(400, f"reason: needed to reject; one of {', '.join(RejectReason)}")
    problem = _missing(call, fields, sum(1 for one in checked if not one.state))
    if problem is not None:
        return PageAnswer(
            _question(call, fields, checked, problem), "confirm.html", 400 if fields.answered else 409
        )
    batch = str(uuid.uuid4())
    made: list[ReviewOrder] = []
    for one in checked:
        if one.item and not one.state:
            given = {"reason": fields.reason, "note": fields.note, "batch": batch}
            made.append(order(call, one.item, fields.action, **given))
        if len(made) % _SLICE == 0:
            await asyncio.sleep(0)
    busy = {
        one.decision_id for one in made if call.site.outbox.on(one.decision_id)
    }  # since they were checked
    checked = [replace(one, state="conflict") if str(one.chosen.id) in busy else one for one in checked]
    orders = [one for one in made if one.decision_id not in busy]
    put(call, orders)
    sent = {one.decision_id: {"state": "held", "action_id": one.action_id} for one in orders}
    data = {
        "action": fields.action,
        "batch": batch if orders else None,
        "results": [one.as_json() | sent.get(str(one.chosen.id), {}) for one in checked],
    }
    refused = [one.as_json() for one in checked if one.state]
    back = with_query("/", view_of(call).encoded())
    if refused:
        return PageAnswer({**data, "refused": refused, "taken": len(orders), "back": back}, "bulk.html", 207)
    return PageAnswer(data, status=202, location=back)


async def _checked(call: Call, fields: BulkFields) -> list[_CheckedItem]:
    """Look the items up, without blocking other requests. Raises: HTTPException 400, no item or no query."""
    if fields.all and "query" not in fields.model_fields_set:
        raise HTTPException(400, "query: needed with all; an empty one means every item")
    chosen = (
        await _matching(call, fields.query)
        if fields.all
        else list({one.id: one for one in fields.ids}.values())
    )
    if not chosen:
        raise HTTPException(400, "ids: needed, one or more")
    ids = [str(one.id) for one in chosen]
    found = await asyncio.to_thread(call.site.board.standings, call.scope, ids)
    compared = await memories_of(call, list(found))
    return [
        _check(call, fields, one, found.get(str(one.id)), compared.get(str(one.id), ())) for one in chosen
    ]


async def _matching(call: Call, query_text: str) -> list[Chosen]:
    view, found = selected_by(query_text).model_copy(update={"cursor": None}), []
    query = board_query(view, MAX_PAGE)
    while True:
        page = await asyncio.to_thread(call.site.board.pending, call.scope, query)
        found += [Chosen(id=uuid.UUID(row.decision_id), revision=row.revision) for row in page.rows]
        if page.next is None or len(found) >= MOST_AT_ONCE:
            return found[:MOST_AT_ONCE]
        query = replace(query, cursor=page.next)


def _check(
    call: Call, fields: BulkFields, chosen: Chosen, item: Standing | None, memories: Sequence[Nearest]
) -> _CheckedItem:
    if item is None:
        return _CheckedItem(chosen, None, "not_found")
    if not is_free(call, item, fields.action, chosen.revision):
        return _CheckedItem(chosen, item, "conflict")
    why = own_page(item.current, memories)
    if why is not None:
        return _CheckedItem(chosen, item, "own_page", why)
    unread = fields.action == "approve" and not is_whole(item.current)
    return _CheckedItem(chosen, item, "partly_shown" if unread else None, memories=memories)


def _missing(call: Call, fields: BulkFields, count: int) -> str | None:
    if fields.action == "reject" and fields.reason is None:
        return "Choose a reason first."
    if fields.all:
        return f"Check these {count}, and send their ids."
    if count > _TYPED_ABOVE and fields.confirm != str(count):
        return f"Type {count} to confirm."
    if call.page and fields.action == "approve" and not fields.answered:
        return "Check what will be approved."
    return None


def _question(call: Call, fields: BulkFields, checked: list[_CheckedItem], problem: str) -> dict[str, Any]:
    ready = [one for one in checked if not one.state]
    listed = [_listed(one) for one in ready]
    reasons, risks = (Counter(one[name] for one in listed) for name in ("reason_code", "risk"))
    query = view_of(call).encoded()
    return {
        "error": "confirmation_required",
        "message": f"confirm: {problem}",
        "problem": problem if fields.answered else None,
        "action": fields.action,
        "count": len(ready),
        "items": listed[:_NAMED],
        "others": listed[_NAMED:],
        "more": max(0, len(ready) - _NAMED),
        "by_reason": [{"reason_code": code, "count": count} for code, count in sorted(reasons.items())],
        "by_risk": [{"risk": level, "count": risks[level]} for level in LEVELS if risks[level]],
        "sent": " ".join(f"{one.chosen.id}:{one.chosen.revision}" for one in ready),
        "left_out": [one.as_json() for one in checked if one.state],
        "reasons": [str(reason) for reason in RejectReason],
        "chosen": fields.reason,
        "note": fields.note or "",
        "typed": len(ready) > _TYPED_ABOVE,
        "undo_seconds": round(call.site.settings.undo_seconds),
        "back": with_query("/", query),
        "query_text": query,
    }


def _listed(checked: _CheckedItem) -> dict[str, Any]:
    row = checked.item.current if checked.item else None
    return {
        **checked.as_json(),
        "excerpt": row.excerpt if row else "",
        "reason_code": row.reason_code if row else None,
        "risk": row.risk.level if row else None,
        "risk_why": row.risk.why if row else None,
        "user_id": row.user_id if row else "",
        "differs": [
            {"subject_id": one.subject_id, "state": one.state, "difference": one.difference}
            for one in checked.memories
            if one.difference != "none"
        ],
    }

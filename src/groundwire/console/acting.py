"""Approve, reject, edit, retract, undo: taken only for the revision that the person saw."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

from groundwire.console.call import Answer, Call
from groundwire.console.desk import Busy, Full, Order
from groundwire.console.evidence import text_of
from groundwire.console.item import allowed, describe, find
from groundwire.console.progress import shown, shown_actions
from groundwire.console.queue import Blank, subject_of, view_of
from groundwire.errors import UsageError
from groundwire.messages.base import format_time
from groundwire.messages.reviews import Action
from groundwire.review.actions import RejectReason, Target, review_decision
from groundwire.review.model import Item

_NO_ACTION: Final = "There is no such action of yours."


def _whole(value: object) -> object:
    """Read the whole number of a form; JSON sends one."""
    return (
        int(value)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10
        else value
    )


def _without_nul(value: object) -> object:
    if isinstance(value, str) and "\x00" in value:
        raise ValueError("must not hold a NUL character")
    return value


Number = Annotated[int, BeforeValidator(_whole), Field(strict=True, ge=1)]
Note = Annotated[Annotated[str, Field(max_length=2_000)] | None, Blank, BeforeValidator(_without_nul)]
Reason = Annotated[RejectReason | None, Blank]


class ActionFields(BaseModel):
    """An action on one item; `next`, `back` and `query` say where a browser goes after it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["approve", "reject", "edit", "retract"]
    revision: Number
    reason: Reason = None
    note: Note = None
    content: Annotated[
        Annotated[str, Field(min_length=1, max_length=20_000)] | None, BeforeValidator(_without_nul)
    ] = None
    next: Annotated[uuid.UUID | None, Blank] = None
    back: Literal["", "queue"] = ""
    query: Annotated[str, Field(max_length=2_000)] = ""


async def act(call: Call) -> Answer:
    """Take an action in; it is published once it cannot be undone any more."""
    fields = call.fields(ActionFields)
    item = find(call, call.request.path_params["decision_id"])
    problem = conflict(call, item, fields.action, fields.revision)
    if problem is None:
        return await _take(call, item, fields)
    newest = (
        item
        if item.current.decision_id == item.decision["decision_id"]
        else find(call, item.current.decision_id)
    )
    data = {"error": "conflict", **await describe(call, newest, problem)}
    return Answer(data, "item.html", 409)


def conflict(call: Call, item: Item, action: Action, revision: int) -> dict[str, Any] | None:
    """Return what stands against an action: another revision, another action on its way, nothing to decide."""
    row = item.current
    if row.decision_id != item.decision["decision_id"] or row.revision != revision:
        return {
            "title": "It changed meanwhile.",
            "text": "This is how it stands now.",
            "changes": _changes(item, revision),
        }
    entry = call.site.desk.on(row.decision_id)
    if entry is not None:
        who = entry.order.person.name
        return {"title": "An action is on its way.", "text": f"{who} was first.", "changes": []}
    if action not in allowed(item, None):
        return {"title": "That cannot be done with it.", "text": "See how it stands.", "changes": []}
    return None


def order(call: Call, item: Item, action: Action, **given: Any) -> Order:  # noqa: ANN401
    """Return the order for an item. Raises: HTTPException 400 naming the field that is wrong."""
    person, batch = call.identity.person, given.pop("batch", None)
    if action == "retract" and given.get("reason") is None:
        raise HTTPException(400, f"reason: needed to retract; one of {', '.join(RejectReason)}")
    try:
        record = review_decision(Target.of(item.current), action, person.name, **given)
    except UsageError as exc:
        raise HTTPException(400, str(exc)) from None
    return Order(person, item.current.decision_id, record, batch)


async def undo(call: Call) -> Answer:
    """Take an action back while it is held; too late is 409."""
    person, action_id = call.identity.person, call.request.path_params["action_id"]
    entry = call.site.desk.find(person, action_id)
    if entry is None:
        raise HTTPException(404, _NO_ACTION)
    undone = call.site.desk.undo(person, action_id)
    if not undone:
        raise HTTPException(409, "It is published already and cannot be undone.")
    one = len(undone) == 1
    return Answer(shown(undone), location=f"/items/{entry.order.decision_id}" if one else "/")


async def show(call: Call) -> Answer:
    """What became of one action."""
    entry = call.site.desk.find(call.identity.person, call.request.path_params["action_id"])
    if entry is None:
        raise HTTPException(404, _NO_ACTION)
    return Answer(shown([entry]))


async def mine(call: Call) -> Answer:
    """A person's last actions."""
    return Answer({"actions": shown_actions(call.site, call.identity.person)})


def put(call: Call, orders: list[Order]) -> None:
    """Hand orders to the desk. Raises: HTTPException 409, 503."""
    try:
        call.site.desk.put(orders)
    except Busy:
        raise HTTPException(409, "An action on it is on its way.") from None
    except Full:
        raise HTTPException(503, "Too many actions are on their way; try again in a moment.") from None


async def _take(call: Call, item: Item, fields: ActionFields) -> Answer:
    action: Action = fields.action
    content = fields.content
    if action == "edit" and content is not None and content == _as_sent(text_of(item.decision)):
        action, content = "approve", None  # an edit that changes nothing
    given = order(call, item, action, reason=fields.reason, note=fields.note, content=content)
    put(call, [given])
    await call.site.locks.release(subject_of(item.current), call.identity.person.name)
    entry = call.site.desk.find(call.identity.person, given.action_id)
    query = view_of(call).encoded()
    after = f"?{query}" if query else ""
    location = f"/items/{fields.next}{after}" if fields.next else f"/{after}"
    return Answer(shown([entry] if entry else []), status=202, location=location)


def _as_sent(text: str | None) -> str | None:
    """Return a text as a browser's form sends it back when nobody touched it."""
    return None if text is None else text.replace("\r\n", "\n").replace("\r", "\n")


def _changes(item: Item, revision: int) -> list[dict[str, str]]:
    row = item.current
    before = next((step for step in item.history if step.revision == revision), None)
    latest = next((step for step in item.history if step.revision == row.revision), None)
    changes = [{"what": "revision", "was": str(revision), "now": str(row.revision)}]
    if before is not None:
        changes.append({"what": "verdict", "was": str(before.verdict), "now": str(row.verdict)})
        changes.append({"what": "reason", "was": before.reason_code, "now": row.reason_code})
    if latest is not None:
        who = latest.reviewer or "the gate"
        changes.append({"what": "decided", "was": "", "now": f"by {who}, {format_time(latest.decided_at)}"})
    return changes

"""Approve, reject, edit, retract, undo: taken only for the revision that the person saw."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

from groundwire.console.call import Answer, Call
from groundwire.console.desk import Busy, Full
from groundwire.console.evidence import text_of
from groundwire.console.item import describe, find
from groundwire.console.kept import typed
from groundwire.console.orders import Order
from groundwire.console.progress import last_actions, shown
from groundwire.console.rows import subject_of
from groundwire.console.standing import Problem, conflict, is_current, problem, speculation
from groundwire.console.views import Blank, Origin, came_from, view_of, with_query
from groundwire.errors import UsageError
from groundwire.messages.reviews import Action
from groundwire.review.actions import RejectReason, Target, review_decision
from groundwire.review.model import Item

_NO_ACTION: Final = "There is no such action of yours."
_READABLE: Final = {"reason": "Choose a reason first."}
"""What is told at a form of a field at fault, where programs are told more."""


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
    """Take an action in; it is published once it cannot be undone any more.

    A browser gets back what was typed, with the reason, where the action is not taken.
    """
    item = find(call, call.request.path_params["decision_id"])
    try:
        return await _act(call, item, call.fields(ActionFields))
    except HTTPException as exc:
        if not call.page:
            raise
        told = problem("Nothing was done.", _READABLE.get(exc.detail.partition(":")[0], exc.detail))
        return await _given_back(call, item, told, exc.status_code)


async def _act(call: Call, item: Item, fields: ActionFields) -> Answer:
    against, status = conflict(call, item, fields.action, fields.revision), 409
    if against is None and fields.action == "edit" and fields.content is not None:
        against, status = speculation(fields.content, call.site.policy), 422
    if against is None:
        return await _take(call, item, fields)
    newest = item if is_current(item) else find(call, item.current.decision_id)
    return await _given_back(call, newest, against, status, fields.revision)


async def _given_back(
    call: Call, item: Item, against: Problem, status: int, seen: int | None = None
) -> Answer:
    """Return an item's page with what was typed for it; `seen` is the revision that the person saw.

    The page is told an address at which it can be looked at again.
    """
    draft = typed(call.sent)
    data = await describe(call, item, against, draft)
    opened = {"do": draft["action"]} if draft["action"] in data["allowed"] else {}
    if seen is not None and seen != item.current.revision:
        opened["seen"] = str(seen)
    query = "&".join(part for part in (urlencode(opened), data["query_text"]) if part)
    address = with_query(f"/items/{data['id']}", query)
    told = {"error": against["code"], "message": f"{against['title']} {against['text']}"}
    return Answer({**told, **data, "address": address}, "item.html", status)


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
    location = f"/items/{entry.order.decision_id}" if one else "/"
    return Answer(shown(undone, call.site.clock()), location=location)


async def dismiss(call: Call) -> Answer:
    """Say that one has read what became of an action."""
    person, action_id = call.identity.person, call.request.path_params["action_id"]
    entry = call.site.desk.find(person, action_id)
    if entry is None:
        raise HTTPException(404, _NO_ACTION)
    call.site.desk.dismiss(person, action_id)
    return Answer(shown([entry], call.site.clock()), location=f"/items/{entry.order.decision_id}")


async def show(call: Call) -> Answer:
    """What became of one action."""
    entry = call.site.desk.find(call.identity.person, call.request.path_params["action_id"])
    if entry is None:
        raise HTTPException(404, _NO_ACTION)
    return Answer(shown([entry], call.site.clock()))


async def mine(call: Call) -> Answer:
    """A person's last actions since the console started, newest first; `shown`: whether a page still tells of it."""
    return Answer({"actions": last_actions(call.site, call.identity.person)})


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
    location = _after(call, fields)
    data = shown([entry] if entry else [], call.site.clock())
    return Answer(data, status=202, location=location)


def _after(call: Call, fields: ActionFields) -> str:
    """Return where a browser goes: back to the list that the item was opened from, else on in the queue."""
    listed = came_from(call) or (Origin("approved") if fields.action == "retract" else None)
    if listed is not None:
        return listed.address
    return with_query(f"/items/{fields.next}" if fields.next else "/", view_of(call).encoded())


def _as_sent(text: str | None) -> str | None:
    """Return a text as a browser's form sends it back when nobody touched it."""
    return None if text is None else text.replace("\r\n", "\n").replace("\r", "\n")

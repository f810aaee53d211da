"""Approve, reject, edit, retract, undo: accepted only for the revision that the person saw."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

from groundwire.console.evidence import text_of
from groundwire.console.item import (
    NO_ITEM,
    Problem,
    conflict,
    describe,
    find,
    problem,
    speculation,
    typed_fields,
)
from groundwire.console.memories import conflicts, memory_rows
from groundwire.console.outbox import ItemBusy, OutboxEntry, OutboxFull, ReviewOrder, action_row, last_actions
from groundwire.console.queue import (
    MAX_QUERY,
    QUEUE,
    Blank,
    ListOrigin,
    OwnPage,
    came_from,
    own_page,
    subject_of,
    view_of,
    with_query,
)
from groundwire.console.site import Call, PageAnswer
from groundwire.errors import UsageError
from groundwire.messages.decisions import Kind, Verdict
from groundwire.messages.records import Action
from groundwire.review.actions import ActionTarget, RejectReason, review_decision
from groundwire.review.model import Item, Standing

_READABLE: Final = {"reason": "Choose a reason first."}
"""Messages of a page for a field at fault; the API gets the whole message."""
_LOOK_FIRST: Final[Mapping[OwnPage, str]] = {
    "high_risk": "Its risk is high: look at it first.",
    "contradicts": "It contradicts a memory: look at both first.",
}
Reason = Annotated[RejectReason | None, Blank]


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


class Chosen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    id: uuid.UUID
    revision: Number


def _chosen(value: object) -> object:
    """Read a form's `id:revision`; JSON sends an object."""
    return (
        dict(zip(("id", "revision"), value.split(":", 1), strict=False)) if isinstance(value, str) else value
    )


def all_chosen(value: object) -> object:
    """Read several: a list, or in one text with spaces between."""
    several = value.split() if isinstance(value, str) else value
    return [_chosen(one) for one in several] if isinstance(several, list) else several


class ActionFields(BaseModel):
    """An action on one item; `next`, `back` and `query` say where a browser goes after it.

    Attributes:
        replaces: the approved memory whose place the item takes, with the action replace.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["approve", "reject", "edit", "retract", "replace"]
    revision: Number
    reason: Reason = None
    note: Note = None
    content: Annotated[
        Annotated[str, Field(min_length=1, max_length=20_000)] | None, BeforeValidator(_without_nul)
    ] = None
    replaces: Annotated[Chosen | None, BeforeValidator(_chosen), Blank] = None
    next: Annotated[uuid.UUID | None, Blank] = None
    back: Literal["", "queue"] = ""
    query: Annotated[str, Field(max_length=MAX_QUERY)] = ""


async def act(call: Call) -> PageAnswer:
    """Take an action in; it is published once it cannot be undone any more.

    A browser gets back what was typed, with the reason, where the action is not taken.
    """
    item = find(call, call.request.path_params["decision_id"])
    try:
        return await _act(call, item, call.fields(ActionFields))
    except HTTPException as exc:
        if not call.page:
            raise
        refused = problem("Nothing was done.", _READABLE.get(exc.detail.partition(":")[0], exc.detail))
        return await _refusal(call, item, refused, exc.status_code)


async def _act(call: Call, item: Item, fields: ActionFields) -> PageAnswer:
    against, status = conflict(call, item, fields.action, fields.revision), 409
    if against is None and fields.action == "edit" and fields.content is not None:
        against, status = speculation(fields.content, call.site.policy), 422
    if against is None and fields.back == QUEUE:
        against = await _own_page_only(call, item)
    if against is None and fields.action == "replace":
        against = _unreplaceable(call, item, fields)
    if against is None:
        return await _take(call, item, fields)
    newest = item if item.is_current else find(call, item.current.decision_id)
    return await _refusal(call, newest, against, status, fields.revision)


async def _own_page_only(call: Call, item: Item) -> Problem | None:
    """Return why an item cannot be decided from the list; what its page shows below the gate's rule counts here."""
    near = await memory_rows(call, item, text_of(item.decision))
    why = "contradicts" if conflicts(near) else own_page(item.current, item.memories)
    return problem("It is not decided from the list.", _LOOK_FIRST[why]) if why else None


def _unreplaceable(call: Call, item: Item, fields: ActionFields) -> Problem | None:
    """Return why a memory cannot be replaced by an item. Raises: HTTPException 400, 404."""
    if fields.replaces is None:
        raise HTTPException(400, "replaces: needed to replace; the id and revision of an approved memory")
    memory = find(call, str(fields.replaces.id)).current
    if (memory.tenant_id, memory.user_id) != (item.current.tenant_id, item.current.user_id):
        raise HTTPException(404, NO_ITEM)
    approved = memory.decision_id == str(fields.replaces.id) and memory.verdict == Verdict.APPROVED
    if approved and memory.revision == fields.replaces.revision and memory.kind == Kind.CLAIM:
        busy = call.site.outbox.on(memory.decision_id) is not None
        return problem("An action on the memory is on its way.", "See how it stands.") if busy else None
    return problem("The memory changed meanwhile.", "See how it stands, and decide again.")


async def _refusal(
    call: Call, item: Item, against: Problem, status: int, seen: int | None = None
) -> PageAnswer:
    """Return an item's page with what was typed for it; `seen` is the revision that the person saw.

    The page gets an address under which it can be loaded again.
    """
    draft = typed_fields(call.sent)
    data = await describe(call, item, against, draft)
    opened = {"do": draft["action"]} if draft["action"] in data["allowed"] else {}
    if seen is not None and seen != item.current.revision:
        opened["seen"] = str(seen)
    query = "&".join(part for part in (urlencode(opened), data["query_text"]) if part)
    address = with_query(f"/items/{data['id']}", query)
    error = {"error": against["code"], "message": f"{against['title']} {against['text']}"}
    return PageAnswer({**error, **data, "address": address}, "item.html", status)


def order(call: Call, item: Standing, action: Action, **given: Any) -> ReviewOrder:  # noqa: ANN401
    """Return the order for an item. Raises: HTTPException 400 naming the field that is wrong."""
    person, batch, after = call.identity.person, given.pop("batch", None), given.pop("after", None)
    listed = came_from(call)
    query = listed.query if listed else view_of(call).encoded()
    if action == "retract" and given.get("reason") is None:
        raise HTTPException(400, f"reason: needed to retract; one of {', '.join(RejectReason)}")
    try:
        record = review_decision(ActionTarget.of(item.current), action, person.name, **given)
    except UsageError as exc:
        raise HTTPException(400, str(exc)) from None
    return ReviewOrder(person, item.current.decision_id, record, batch, after, query)


async def undo(call: Call) -> PageAnswer:
    """Take an action back while it is held; too late is 409."""
    entry = _own_entry(call)
    undone = call.site.outbox.undo(call.identity.person, entry.order.action_id)
    if not undone:
        raise HTTPException(409, "It is published already and cannot be undone.")
    one = len(undone) == 1 or entry.order.after or any(each.order.after for each in undone)
    first = next((each.order for each in undone if not each.order.after), entry.order)
    location = with_query(f"/items/{first.decision_id}" if one else "/", first.query)
    return PageAnswer(action_row(undone, call.site.clock()), location=location)


async def dismiss(call: Call) -> PageAnswer:
    """Say that one has read what became of an action."""
    entry = _own_entry(call)
    call.site.outbox.dismiss(call.identity.person, entry.order.action_id)
    return PageAnswer(action_row([entry], call.site.clock()), location=f"/items/{entry.order.decision_id}")


async def show(call: Call) -> PageAnswer:
    """What became of one action."""
    return PageAnswer(action_row([_own_entry(call)], call.site.clock()))


async def mine(call: Call) -> PageAnswer:
    """A person's last actions since the console started, newest first; `shown`: whether a page still tells of it."""
    return PageAnswer({"actions": last_actions(call.site.outbox, call.identity.person, call.site.clock())})


def _own_entry(call: Call) -> OutboxEntry:
    """Return the person's action of the address. Raises: HTTPException 404."""
    entry = call.site.outbox.find(call.identity.person, call.request.path_params["action_id"])
    if entry is None:
        raise HTTPException(404, "There is no such action of yours.")
    return entry


def put(call: Call, orders: list[ReviewOrder]) -> None:
    """Put orders into the outbox. Raises: HTTPException 409, 503."""
    try:
        call.site.outbox.put(orders)
    except ItemBusy:
        raise HTTPException(409, "An action on it is on its way.") from None
    except OutboxFull:
        raise HTTPException(503, "Too many actions are on their way; try again in a moment.") from None


async def _take(call: Call, item: Item, fields: ActionFields) -> PageAnswer:
    if fields.action == "replace":
        return await _replace(call, item, fields)
    action: Action = fields.action
    content = fields.content
    if action == "edit" and content is not None and content == _as_sent(text_of(item.decision)):
        action, content = "approve", None  # an edit that changes nothing
    given = order(call, item, action, reason=fields.reason, note=fields.note, content=content)
    return await _put_all(call, item, fields, [given])


async def _replace(call: Call, item: Item, fields: ActionFields) -> PageAnswer:
    """Approve an item and retract the memory whose place it takes: undone together, sent one behind the other."""
    memory = find(call, str(fields.replaces.id if fields.replaces else ""))
    batch = str(uuid.uuid4())
    new = order(call, item, "approve", note=fields.note, batch=batch)
    given = {"reason": fields.reason, "note": fields.note, "batch": batch, "after": new.action_id}
    return await _put_all(call, item, fields, [new, order(call, memory, "retract", **given)])


async def _put_all(call: Call, item: Item, fields: ActionFields, orders: list[ReviewOrder]) -> PageAnswer:
    put(call, orders)
    person = call.identity.person
    await call.site.locks.release(subject_of(item.current), person.name)
    entries = [entry for one in orders if (entry := call.site.outbox.find(person, one.action_id))]
    data = action_row(entries, call.site.clock())
    return PageAnswer(data, status=202, location=_next_page(call, fields))


def _next_page(call: Call, fields: ActionFields) -> str:
    """Return where a browser goes: back to the list that the item was opened from, else on in the queue."""
    listed = came_from(call) or (ListOrigin("approved") if fields.action == "retract" else None)
    if listed is not None:
        return listed.address
    return with_query(f"/items/{fields.next}" if fields.next else "/", view_of(call).encoded())


def _as_sent(text: str | None) -> str | None:
    return None if text is None else text.replace("\r\n", "\n").replace("\r", "\n")

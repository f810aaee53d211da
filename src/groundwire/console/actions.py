"""Approve, reject, edit, retract, undo: accepted only for the revision that the person saw; one item or several.

Several are those selected, or all that match a query. A page lists what it will decide before anything is done; above
twenty items their number has to be typed. A request for all that match only lists them; a second request names them by
id.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal
from urllib.parse import urlencode

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

from groundwire.console import queue
from groundwire.console.evidence import text_of
from groundwire.console.item import (
    NO_ITEM,
    Problem,
    conflict,
    conflicts,
    describe,
    find,
    is_free,
    memory_rows,
    problem,
    speculation,
    typed_fields,
)
from groundwire.console.outbox import ItemBusy, OutboxEntry, OutboxFull, ReviewOrder, action_row, last_actions
from groundwire.console.site import Call, PageAnswer
from groundwire.errors import UsageError
from groundwire.messages.decisions import Kind, Verdict
from groundwire.messages.records import Action
from groundwire.review.actions import ActionTarget, RejectReason, review_decision
from groundwire.review.model import LEVELS, MAX_PAGE, Item, Nearest, Standing

_TYPED_ABOVE: Final = 20
_NAMED: Final = 100  # items that the confirming page lists at once; the others are folded
_SLICE: Final = 50  # orders made before other requests get a turn
_NO_REASON: Final = "Choose a reason first."
Reason = Annotated[RejectReason | None, queue.Blank]


def _without_nul(value: object) -> object:
    if isinstance(value, str) and "\x00" in value:
        raise ValueError("must not hold a NUL character")
    return value


def _revision(value: object) -> object:
    digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10
    return int(str(value)) if digits else value


Number = Annotated[int, BeforeValidator(_revision), Field(strict=True, ge=1)]
Note = Annotated[Annotated[str, Field(max_length=2_000)] | None, queue.Blank, BeforeValidator(_without_nul)]


class Chosen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    id: uuid.UUID
    revision: Number


def _chosen(value: object) -> object:
    parts = value.split(":", 1) if isinstance(value, str) else None
    return dict(zip(("id", "revision"), parts, strict=False)) if parts else value


def all_chosen(value: object) -> object:
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list):
        return several
    # the box of a group holds the ids of all of its items
    return [_chosen(one) for part in several for one in (part.split() if isinstance(part, str) else [part])]


class ActionFields(BaseModel):
    """An action on one item; `next`, `back` and `query` say where a browser goes after it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["approve", "reject", "edit", "retract", "replace", "overrule", "comment", "pass"]
    revision: Number
    reason: Reason = None
    note: Note = None
    content: Annotated[
        Annotated[str, Field(min_length=1, max_length=20_000)] | None, BeforeValidator(_without_nul)
    ] = None
    replaces: Annotated[
        Chosen | None,
        BeforeValidator(_chosen),
        queue.Blank,
        Field(description="With the action `replace`: the approved memory whose place the item takes."),
    ] = None
    next: Annotated[uuid.UUID | None, queue.Blank] = None
    back: Literal["", "queue"] = ""
    query: Annotated[str, Field(max_length=queue.MAX_QUERY)] = ""


async def act(call: Call) -> PageAnswer:
    """Take an action in; it is published once it cannot be undone any more.

    A browser gets back what was typed, with the reason, where the action is not taken.
    """
    item = find(call, call.request.path_params["decision_id"])
    try:
        fields = call.fields(ActionFields)
        against, status = conflict(call, item, fields.action, fields.revision), 409
        if against is None and fields.action == "edit" and fields.content is not None:
            against, status = speculation(fields.content, call.site.policy), 422
        if against is None and fields.back == queue.QUEUE:
            # what its page shows below the gate's threshold counts here
            near = await memory_rows(call, item, text_of(item.decision))
            why = "contradicts" if conflicts(near) else queue.own_page(item.current, item.memories)
            first = {
                "high_risk": "Its risk is high: look at it first.",
                "contradicts": "It contradicts a memory: look at both first.",
            }
            against = problem("Open this item to decide it.", first[why]) if why else None
        if against is None and fields.action == "replace":
            against = unreplaceable(call, item, fields)
        if against is None:
            return await take(call, item, fields)
        newest = item if item.is_current else find(call, item.current.decision_id)
        return await _refusal(call, newest, against, status, fields.revision)
    except HTTPException as exc:
        if not call.page:
            raise
        said = _NO_REASON if exc.detail.startswith("reason:") else exc.detail
        return await _refusal(call, item, problem("Nothing was done.", said), exc.status_code)


def unreplaceable(call: Call, item: Item, fields: ActionFields) -> Problem | None:
    """Return why a memory cannot be replaced by an item. Raises: HTTPException 400, 404."""
    if fields.replaces is None:
        raise HTTPException(400, "replaces: needed to replace; the id and revision of an approved memory")
    memory = find(call, str(fields.replaces.id)).current
    if (memory.tenant_id, memory.user_id) != (item.current.tenant_id, item.current.user_id):
        raise HTTPException(404, NO_ITEM)
    approved = memory.decision_id == str(fields.replaces.id) and memory.verdict == Verdict.APPROVED
    if approved and memory.revision == fields.replaces.revision and memory.kind == Kind.CLAIM:
        busy = call.site.outbox.on(memory.decision_id) is not None
        return problem("Somebody is deciding that memory now.", "Open it to see its state.") if busy else None
    return problem("The memory changed meanwhile.", "Open it, and decide again.")


async def _refusal(
    call: Call, item: Item, against: Problem, status: int, seen: int | None = None
) -> PageAnswer:
    """Return an item's page with what was typed for it, and an address that shows it again; `seen` is a revision."""
    draft = typed_fields(call.sent)
    data = await describe(call, item, against, draft)
    opened = {"do": draft["action"]} if draft["action"] in data["allowed"] else {}
    if seen is not None and seen != item.current.revision:
        opened["seen"] = str(seen)
    query = "&".join(part for part in (urlencode(opened), data["query_text"]) if part)
    address = queue.with_query(f"/items/{data['id']}", query)
    error = {"error": against["code"], "message": f"{against['title']} {against['text']}"}
    return PageAnswer({**error, **data, "address": address}, "item.html", status)


def order(call: Call, item: Standing, action: Action, **given: Any) -> ReviewOrder:  # noqa: ANN401
    person, batch, after = call.identity.person, given.pop("batch", None), given.pop("after", None)
    if action == "retract" and given.get("reason") is None:
        raise HTTPException(400, f"reason: needed to retract; one of {', '.join(RejectReason)}")
    try:
        record = review_decision(ActionTarget.of(item.current), action, person.name, **given)
    except UsageError as exc:
        raise HTTPException(400, str(exc)) from None
    back = queue.query_back(str(call.sent.get("query", "")))
    return ReviewOrder(person, item.current.decision_id, record, batch, after, back)


async def undo(call: Call) -> PageAnswer:
    """Take an action back while it is held; too late is 409."""
    entry = _own_entry(call)
    undone = call.site.outbox.undo(call.identity.person, entry.order.action_id)
    if not undone:
        raise HTTPException(409, "It is published already and cannot be undone.")
    one = len(undone) == 1 or entry.order.after or any(each.order.after for each in undone)
    first = next((each.order for each in undone if not each.order.after), entry.order)
    location = queue.with_query(f"/items/{first.decision_id}" if one else "/", first.query)
    return PageAnswer(action_row(undone, call.site.clock()), location=location)


async def dismiss(call: Call) -> PageAnswer:
    """Hide an action whose result was read."""
    entry = _own_entry(call)
    call.site.outbox.dismiss(call.identity.person, entry.order.action_id)
    return PageAnswer(action_row([entry], call.site.clock()), location=f"/items/{entry.order.decision_id}")


async def show(call: Call) -> PageAnswer:
    """The result of one action."""
    return PageAnswer(action_row([_own_entry(call)], call.site.clock()))


async def mine(call: Call) -> PageAnswer:
    """A person's last actions since the console started, newest first; `shown`: whether pages still show it."""
    return PageAnswer({"actions": last_actions(call.site.outbox, call.identity.person, call.site.clock())})


def _own_entry(call: Call) -> OutboxEntry:
    entry = call.site.outbox.find(call.identity.person, call.request.path_params["action_id"])
    if entry is None:
        raise HTTPException(404, "There is no such action of yours.")
    return entry


def put(call: Call, orders: list[ReviewOrder]) -> None:
    try:
        call.site.outbox.put(orders)
    except ItemBusy:
        raise HTTPException(409, "Somebody is deciding this item now.") from None
    except OutboxFull:
        raise HTTPException(
            503, "The console is sending too many decisions; try again in a moment."
        ) from None


async def take(call: Call, item: Item, fields: ActionFields) -> PageAnswer:
    if fields.action == "replace":
        # the memory whose place it takes is retracted: undone together, sent one behind the other
        memory = find(call, str(fields.replaces.id if fields.replaces else ""))
        batch = str(uuid.uuid4())
        new = order(call, item, "approve", note=fields.note, batch=batch)
        given = {"reason": fields.reason, "note": fields.note, "batch": batch, "after": new.action_id}
        orders = [new, order(call, memory, "retract", **given)]
    else:
        action: Action = fields.action
        content, before = fields.content, text_of(item.decision)
        before = None if before is None else before.replace("\r\n", "\n").replace("\r", "\n")
        if action == "edit" and content is not None and content == before:
            action, content = "approve", None  # an edit that changes nothing
        orders = [order(call, item, action, reason=fields.reason, note=fields.note, content=content)]
    put(call, orders)
    person = call.identity.person
    await call.site.locks.release(queue.subject_of(item.current), person.name)
    entries = [entry for one in orders if (entry := call.site.outbox.find(person, one.action_id))]
    data = action_row(entries, call.site.clock())
    # back to the list that the item was opened from, else on in the queue
    listed = queue.came_from(call) or (queue.ListOrigin("approved") if fields.action == "retract" else None)
    onward = queue.with_query(f"/items/{fields.next}" if fields.next else "/", queue.view_of(call).encoded())
    if fields.action == "comment":  # the item still waits for this person
        onward, listed = (
            queue.with_query(f"/items/{item.current.decision_id}", queue.view_of(call).encoded()),
            None,
        )
    return PageAnswer(data, status=202, location=listed.address if listed else onward)


class BulkFields(BaseModel):
    """An action on several items: `ids`, or with `all` every item that matches the query.

    `confirm` repeats their number where there are more than twenty; the page that lists them sends `sure`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ids: Annotated[list[Chosen], BeforeValidator(all_chosen), Field(max_length=queue.MOST_AT_ONCE)] = []
    all: Literal["", "yes"] = ""
    query: Annotated[str, Field(max_length=queue.MAX_QUERY)] = ""
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
    memories: Sequence[Nearest]
    state: Literal["not_found", "conflict", "own_page", "partly_shown"] | None = None
    why: queue.OwnPage | None = None

    def as_json(self) -> dict[str, Any]:
        row = self.item.current if self.item else None
        subject_id = row.subject_id if row else None
        return {"id": str(self.chosen.id), "state": self.state, "why": self.why, "subject_id": subject_id}


async def act_on_many(call: Call) -> PageAnswer:
    """Accept the actions; items that cannot be decided are reported one by one."""
    fields = call.fields(BulkFields)
    checked = await check(call, fields)
    if not call.page and fields.action == "reject" and fields.reason is None:
        raise HTTPException(400, f"reason: needed to reject; one of {', '.join(RejectReason)}")
    count, missing = sum(1 for one in checked if not one.state), None
    if fields.action == "reject" and fields.reason is None:
        missing = _NO_REASON
    elif fields.all:
        missing = f"Check these {count}, and send their ids."
    elif count > _TYPED_ABOVE and fields.confirm != str(count):
        missing = f"Type {count} to confirm."
    elif call.page and fields.action == "approve" and not fields.answered:
        missing = "Check what will be approved."
    if missing is not None:
        asked = question(call, fields, checked, missing)
        return PageAnswer(asked, "confirm.html", 400 if fields.answered else 409)
    batch = str(uuid.uuid4())
    made: list[ReviewOrder] = []
    for one in checked:
        if one.item and not one.state:
            given = {"reason": fields.reason, "note": fields.note, "batch": batch}
            made.append(order(call, one.item, fields.action, **given))
        if len(made) % _SLICE == 0:
            await asyncio.sleep(0)
    # since they were checked
    busy = {one.decision_id for one in made if call.site.outbox.on(one.decision_id)}
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
    back = queue.with_query("/", queue.view_of(call).encoded())
    if refused:
        return PageAnswer({**data, "refused": refused, "taken": len(orders), "back": back}, "bulk.html", 207)
    return PageAnswer(data, status=202, location=back)


async def check(call: Call, fields: BulkFields) -> list[_CheckedItem]:
    """Look the items up, without blocking other requests. Raises: HTTPException 400, no item or no query."""
    if fields.all and "query" not in fields.model_fields_set:
        raise HTTPException(400, "query: needed with all; an empty one means every item")
    chosen = list({one.id: one for one in fields.ids}.values())
    if fields.all:
        chosen = await matching(call, fields.query)
    if not chosen:
        raise HTTPException(400, "ids: needed, one or more")
    ids = [str(one.id) for one in chosen]
    found = await asyncio.to_thread(call.site.board.standings, call.scope, ids)
    compared = await queue.memories_of(call, list(found))
    checked = []
    for one in chosen:
        item, memories = found.get(str(one.id)), compared.get(str(one.id), ())
        row = _CheckedItem(one, item, memories)
        why = queue.own_page(item.current, memories) if item else None
        if item is None:
            row = replace(row, state="not_found")
        elif not is_free(call, item, fields.action, one.revision):
            row = replace(row, state="conflict")
        elif why is not None:
            row = replace(row, state="own_page", why=why)
        elif fields.action == "approve" and not queue.is_whole(item.current):
            row = replace(row, state="partly_shown")
        checked.append(row)
    return checked


async def matching(call: Call, query_text: str) -> list[Chosen]:
    view, found = queue.selected_by(query_text).model_copy(update={"cursor": None}), []
    query = queue.board_query(view, MAX_PAGE)
    while True:
        page = await asyncio.to_thread(call.site.board.pending, call.scope, query)
        found += [Chosen(id=uuid.UUID(row.decision_id), revision=row.revision) for row in page.rows]
        if page.next is None or len(found) >= queue.MOST_AT_ONCE:
            return found[: queue.MOST_AT_ONCE]
        query = replace(query, cursor=page.next)


def question(call: Call, fields: BulkFields, checked: list[_CheckedItem], missing: str) -> dict[str, Any]:
    ready = [one for one in checked if not one.state]
    listed = [listed_row(one) for one in ready]
    reasons, risks = (Counter(one[name] for one in listed) for name in ("headline", "risk"))
    query = queue.view_of(call).encoded()
    return {
        "error": "confirmation_required",
        "message": f"confirm: {missing}",
        "problem": missing if fields.answered else None,
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
        "back": queue.with_query("/", query),
        "query_text": query,
    }


def listed_row(checked: _CheckedItem) -> dict[str, Any]:
    row = checked.item.current if checked.item else None
    return {
        **checked.as_json(),
        "excerpt": row.excerpt if row else "",
        "reason_code": row.reason_code if row else None,
        "headline": row.headline if row else None,
        "risk": row.risk.level if row else None,
        "risk_why": row.risk.why if row else None,
        "user_id": row.user_id if row else "",
        "differs": [
            {"subject_id": one.subject_id, "state": one.state, "difference": one.difference}
            for one in checked.memories
            if one.difference != "none"
        ],
    }

"""Several items at once: those that were selected, or all that match. They are decided, or given to somebody.

What is decided is listed before anything is done, with one ReviewDecision each; above twenty their number has to be
typed. All that match are decided by programs only with the digest of what was listed.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

from groundwire.console.actions import Chosen, Note, Number, Reason, all_chosen, order, put
from groundwire.console.item import NO_ITEM, is_free
from groundwire.console.outbox import ReviewOrder
from groundwire.console.queue import (
    MAX_QUERY,
    MOST_AT_ONCE,
    Blank,
    OwnPage,
    board_query,
    is_whole,
    memories_of,
    own_page,
    selected_by,
    subject_of,
    view_of,
    with_query,
)
from groundwire.console.site import Call, PageAnswer
from groundwire.messages.base import ShortId
from groundwire.messages.decisions import Verdict
from groundwire.review.actions import RejectReason
from groundwire.review.model import LEVELS, MAX_PAGE, Nearest, Row, Standing

TYPED_ABOVE: Final = 20
_NAMED: Final = 100
"""Of these, how many the page that asks names at once; the others are opened."""
_SLICE: Final = 50
"""Orders that are made before others are answered."""
_AWAY: Final = "Redis does not answer, so nothing was assigned; try again in a moment."
Several = Annotated[list[Chosen], BeforeValidator(all_chosen), Field(max_length=MOST_AT_ONCE)]


class SeveralFields(BaseModel):
    """Several items.

    Attributes:
        ids: which ones; not asked with `all`.
        all: every item that matches the query, in its order.
        query: filters, order and search of the list, which it leads back to.
        expected: how many match `all`, as the list showed it; where others do by now, nothing is done.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    ids: Several = []
    all: Literal["", "yes"] = ""
    query: Annotated[str, Field(max_length=MAX_QUERY)] = ""
    expected: Annotated[Number | None, Blank] = None


class BulkFields(SeveralFields):
    """An action on several items.

    Attributes:
        confirm: repeats how many, where they are more than twenty, or with `all`.
        digest: repeats with `all` which ones, as the answer that asks told it.
        sure: sent by the page that lists what will be decided.
    """

    action: Literal["approve", "reject"]
    reason: Reason = None
    note: Note = None
    confirm: Annotated[str, BeforeValidator(lambda v: str(v).strip()), Field(max_length=10)] = ""
    digest: Annotated[str, Field(max_length=64)] = ""
    sure: Literal["", "yes"] = ""

    @property
    def answered(self) -> bool:
        """Whether it comes from the page that asks."""
        return bool(self.sure or self.confirm)


@dataclass(frozen=True, slots=True)
class _CheckedItem:
    """A chosen item as it is now, and the memories that it was compared with.

    `state` says why it cannot be decided with others, None: it can; `why`, what it needs its own page for.
    """

    chosen: Chosen
    item: Standing | None
    state: Literal["not_found", "conflict", "own_page", "partly_shown"] | None
    why: OwnPage | None = None
    memories: Sequence[Nearest] = ()

    def as_json(self) -> dict[str, Any]:
        row = self.item.current if self.item else None
        return {
            "id": str(self.chosen.id),
            "state": self.state,
            "why": self.why,
            "subject_id": row.subject_id if row else None,
        }


async def act_on_many(call: Call) -> PageAnswer:
    """Take the actions in; what cannot be done is told item by item."""
    fields = call.fields(BulkFields)
    checked = await _checked(call, fields)
    if not call.page and fields.action == "reject" and fields.reason is None:
        raise HTTPException(400, f"reason: needed to reject; one of {', '.join(RejectReason)}")
    problem = _missing(call, fields, [one for one in checked if not one.state])
    if problem is not None:
        data = _question(call, fields, checked, problem)
        return PageAnswer(data, "confirm.html", 400 if fields.answered else 409)
    batch = str(uuid.uuid4())
    made = await _orders(call, fields, checked, batch)
    busy = {
        one.decision_id for one in made if call.site.outbox.on(one.decision_id)
    }  # since they were checked
    checked = [replace(one, state="conflict") if str(one.chosen.id) in busy else one for one in checked]
    orders = [one for one in made if one.decision_id not in busy]
    put(call, orders)
    data = {
        "action": fields.action,
        "batch": batch if orders else None,
        "results": _results(checked, orders),
    }
    refused = [one.as_json() for one in checked if one.state]
    if refused:
        back = with_query("/", view_of(call).encoded())
        return PageAnswer({**data, "refused": refused, "taken": len(orders), "back": back}, "bulk.html", 207)
    return PageAnswer(data, status=202, location=with_query("/", view_of(call).encoded()))


async def _orders(
    call: Call, fields: BulkFields, checked: Sequence[_CheckedItem], batch: str
) -> list[ReviewOrder]:
    """Return the orders for what can be decided; others are answered meanwhile."""
    given = {"reason": fields.reason, "note": fields.note, "batch": batch}
    orders: list[ReviewOrder] = []
    for one in checked:
        if one.item and not one.state:
            orders.append(order(call, one.item, fields.action, **given))
        if len(orders) % _SLICE == 0:
            await asyncio.sleep(0)
    return orders


async def _checked(call: Call, fields: BulkFields) -> list[_CheckedItem]:
    chosen = await _chosen(call, fields)
    found = await _standings(call, chosen)
    compared = await memories_of(call, list(found))
    return [
        _check(call, fields, one, found.get(str(one.id)), compared.get(str(one.id), ())) for one in chosen
    ]


async def _standings(call: Call, chosen: Sequence[Chosen]) -> dict[str, Standing]:
    """Return where items stand; others are answered meanwhile."""
    return await asyncio.to_thread(call.site.board.standings, call.scope, [str(one.id) for one in chosen])


async def _chosen(call: Call, fields: SeveralFields) -> list[Chosen]:
    """Return the items, as many as are decided at once. Raises: HTTPException 400: no filter, or no item; 409, 503."""
    if fields.all and "query" not in fields.model_fields_set:
        raise HTTPException(400, "query: needed with all; an empty one means every item")
    chosen, total = await _matching(call, fields.query) if fields.all else (fields.ids, 0)
    asks = call.page and isinstance(fields, BulkFields)  # and tells how many there are now
    if fields.all and fields.expected not in {None, total, len(chosen)} and not asks:
        raise HTTPException(409, f"expected: {total} match by now; look at the list again")
    if not chosen:
        raise HTTPException(400, "ids: needed, one or more")
    return list({one.id: one for one in chosen}.values())


async def _matching(call: Call, query_text: str) -> tuple[list[Chosen], int]:
    """Return what matches, as far as it is decided at once, and how many there are in all."""
    view, found = selected_by(query_text).model_copy(update={"cursor": None}), []
    query = await board_query(call, view, MAX_PAGE, selects=True)
    while True:
        page = await asyncio.to_thread(call.site.board.pending, call.scope, query)
        found += [Chosen(id=uuid.UUID(row.decision_id), revision=row.revision) for row in page.rows]
        if page.next is None or len(found) >= MOST_AT_ONCE:
            return found[:MOST_AT_ONCE], page.total
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


def _missing(call: Call, fields: BulkFields, ready: Sequence[_CheckedItem]) -> str | None:
    """Return what has to be said before anything is done."""
    count = len(ready)
    if fields.action == "reject" and fields.reason is None:
        return "Choose a reason first."
    if fields.all and count and (fields.confirm, fields.digest) != (str(count), _digest(ready)):
        return f"Look at these {count}, and send their count as confirm and their digest."
    if count > TYPED_ABOVE and fields.confirm != str(count):
        return f"Type {count} to confirm."
    if call.page and fields.action == "approve" and not fields.answered:
        return "Look at what will be approved."
    return None


def _recounted(fields: BulkFields, count: int) -> str | None:
    """Return that not as many match as the list counted."""
    if not fields.all or fields.expected in {None, count}:
        return None
    return f"{count} match by now; when you looked at the list there were {fields.expected}."


def _digest(ready: Sequence[_CheckedItem]) -> str:
    """Return what stands for these items at these revisions, in any order."""
    named = sorted(f"{one.chosen.id}:{one.chosen.revision}" for one in ready)
    return hashlib.sha256(" ".join(named).encode()).hexdigest()[:32]


def _results(checked: list[_CheckedItem], orders: list[ReviewOrder]) -> list[dict[str, Any]]:
    taken = {one.decision_id: one.action_id for one in orders}
    return [
        one.as_json()
        if one.state
        else {**one.as_json(), "state": "held", "action_id": taken[str(one.chosen.id)]}
        for one in checked
    ]


def _question(call: Call, fields: BulkFields, checked: list[_CheckedItem], problem: str) -> dict[str, Any]:
    ready = [one for one in checked if not one.state]
    listed = [_listed(one) for one in ready]
    return {
        "error": "confirmation_required",
        "message": f"confirm: {problem}",
        "problem": problem if fields.answered else _recounted(fields, len(checked)),
        "action": fields.action,
        "count": len(ready),
        "digest": _digest(ready),
        "items": listed[:_NAMED],
        "others": listed[_NAMED:],
        "more": max(0, len(ready) - _NAMED),
        **_sums(listed),
        "sent": " ".join(f"{one.chosen.id}:{one.chosen.revision}" for one in ready),
        "left_out": [one.as_json() for one in checked if one.state],
        "reasons": [str(reason) for reason in RejectReason],
        "chosen": fields.reason,
        "note": fields.note or "",
        "typed": len(ready) > TYPED_ABOVE,
        "undo_seconds": round(call.site.settings.undo_seconds),
        "back": with_query("/", view_of(call).encoded()),
        "query_text": view_of(call).encoded(),
    }


def _sums(listed: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return how many there are of each reason and of each risk, over all of them."""
    reasons, risks = (Counter(one[name] for one in listed) for name in ("reason_code", "risk"))
    return {
        "by_reason": [{"reason_code": code, "count": count} for code, count in sorted(reasons.items())],
        "by_risk": [{"risk": level, "count": risks[level]} for level in LEVELS if risks[level]],
    }


def _differences(memories: Sequence[Nearest]) -> list[dict[str, str]]:
    """Return the memories that say something else than an item, each with the difference."""
    return [
        {"subject_id": one.subject_id, "state": one.state, "difference": one.difference}
        for one in memories
        if one.difference != "none"
    ]


def _listed(checked: _CheckedItem) -> dict[str, Any]:
    row = checked.item.current if checked.item else None
    return {
        **checked.as_json(),
        "excerpt": row.excerpt if row else "",
        "reason_code": row.reason_code if row else None,
        "risk": row.risk.level if row else None,
        "risk_why": row.risk.why if row else None,
        "differs": _differences(checked.memories),
        "user_id": row.user_id if row else "",
    }


class AssignFields(SeveralFields):
    """Who takes items; `to`: a person's name, empty: nobody any more; `back`: where a browser goes."""

    to: ShortId | Literal[""] = ""
    back: Literal["queue", "item"] = "queue"


async def _own(call: Call, rows: Sequence[Row]) -> list[Row]:
    """Return what the person has taken: all that match are given back by nobody else."""
    taken = await call.site.assignments.read_all()
    if taken is None:
        raise HTTPException(503, _AWAY)
    return [row for row in rows if taken.get(subject_of(row)) == call.identity.person.name]


async def assign(call: Call) -> PageAnswer:
    """Claim items, assign them to somebody who may decide them, or give them back; it keeps nobody from acting."""
    fields = call.fields(AssignFields)
    chosen = await _chosen(call, fields)
    found = await _standings(call, chosen)
    if len(found) < len(chosen):
        raise HTTPException(404, NO_ITEM)
    items = [found[str(one.id)] for one in chosen]
    if fields.all and fields.to and fields.expected is None and not call.page:
        raise HTTPException(400, "expected: needed to assign all; how many match, as the list says")
    rows = [item.current for item in items]
    if fields.to and not all(item.is_current and item.current.verdict == Verdict.REVIEW for item in items):
        raise HTTPException(409, "ids: only what waits for a decision, at its newest revision, is taken")
    if fields.all and not fields.to:
        rows = await _own(call, rows)
    for tenant_id, user_id in {(row.tenant_id, row.user_id) for row in rows}:
        if fields.to and fields.to not in call.site.permissions.deciders(call.scope, tenant_id, user_id):
            raise HTTPException(400, "to: must be somebody who may decide it")
    if not await call.site.assignments.give([subject_of(row) for row in rows], fields.to):
        raise HTTPException(503, _AWAY)
    call.site.tell()
    path = "/" if fields.back == "queue" or not rows else f"/items/{rows[0].decision_id}"
    data = {"assigned": fields.to or None, "count": len(rows)}
    return PageAnswer(data, location=with_query(path, view_of(call).encoded()))

"""Several items at once: one ReviewDecision each, and above twenty the number typed by hand."""

from __future__ import annotations

import uuid
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from groundwire.console.acting import Note, Number, Reason, conflict, order, put
from groundwire.console.call import Answer, Call
from groundwire.console.desk import Order
from groundwire.review.actions import RejectReason

TYPED_ABOVE: Final = 20
_MOST: Final = 200


class Chosen(BaseModel):
    """An item at the revision that the person saw."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: uuid.UUID
    revision: Number


def _chosen(value: object) -> object:
    """Read a form's `id:revision`; JSON sends objects."""
    values = value if isinstance(value, list) else [value]
    return [
        dict(zip(("id", "revision"), one.split(":", 1), strict=False)) if isinstance(one, str) else one
        for one in values
    ]


class BulkFields(BaseModel):
    """An action on several items; `confirm` repeats how many, where they are more than twenty."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["approve", "reject"]
    ids: Annotated[list[Chosen], BeforeValidator(_chosen), Field(min_length=1, max_length=_MOST)]
    reason: Reason = None
    note: Note = None
    confirm: Annotated[str, BeforeValidator(lambda v: str(v).strip()), Field(max_length=10)] = ""


async def act(call: Call) -> Answer:
    """Take the actions in; what cannot be done any more is told item by item."""
    fields = call.fields(BulkFields)
    chosen = list({one.id: one for one in fields.ids}.values())
    problem = _missing(fields, len(chosen))
    if problem is not None:
        return Answer(
            _question(call, fields, chosen, problem), "confirm.html", 400 if fields.confirm else 409
        )
    orders: list[Order] = []
    results = [_one(call, fields, one, orders, str(uuid.uuid4())) for one in chosen]
    put(call, orders)
    data = {"action": fields.action, "batch": orders[0].batch if orders else None, "results": results}
    refused = [result for result in results if result["state"] != "held"]
    if refused:
        return Answer({**data, "refused": refused, "taken": len(orders)}, "bulk.html", 207)
    return Answer(data, status=202, location="/")


def _missing(fields: BulkFields, count: int) -> str | None:
    """Return what has to be said before anything is done."""
    if fields.action == "reject" and fields.reason is None:
        return "Say why."
    if count > TYPED_ABOVE and fields.confirm != str(count):
        return f"Type {count} to confirm."
    return None


def _question(call: Call, fields: BulkFields, chosen: list[Chosen], problem: str) -> dict[str, Any]:
    return {
        "error": "confirmation_required",
        "problem": problem if fields.confirm else None,
        "action": fields.action,
        "count": len(chosen),
        "ids": [f"{one.id}:{one.revision}" for one in chosen],
        "reasons": [str(reason) for reason in RejectReason],
        "chosen": fields.reason,
        "note": fields.note or "",
        "typed": len(chosen) > TYPED_ABOVE,
        "undo_seconds": round(call.site.settings.undo_seconds),
    }


def _one(call: Call, fields: BulkFields, chosen: Chosen, orders: list[Order], batch: str) -> dict[str, Any]:
    decision_id = str(chosen.id)
    item = call.site.board.item(call.scope, decision_id)
    if item is None:
        return {"id": decision_id, "state": "not_found", "subject_id": None}
    found = {"id": decision_id, "subject_id": item.current.subject_id}
    if conflict(call, item, fields.action, chosen.revision) is not None:
        return {**found, "state": "conflict"}
    shared = orders[0].batch if orders else batch
    orders.append(order(call, item, fields.action, reason=fields.reason, note=fields.note, batch=shared))
    return {**found, "state": "held", "action_id": orders[-1].action_id}

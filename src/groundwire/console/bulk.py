"""Several items at once: listed before anything is done, one ReviewDecision each, above twenty the number typed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.exceptions import HTTPException

from groundwire.console.acting import Note, Number, Reason, order, put
from groundwire.console.call import Answer, Call
from groundwire.console.orders import Order
from groundwire.console.rows import is_whole
from groundwire.console.standing import conflict
from groundwire.review.actions import RejectReason
from groundwire.review.model import Item

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
    """An action on several items.

    Attributes:
        confirm: repeats how many, where they are more than twenty.
        sure: sent by the page that lists what will be decided.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    action: Literal["approve", "reject"]
    ids: Annotated[list[Chosen], BeforeValidator(_chosen), Field(min_length=1, max_length=_MOST)]
    reason: Reason = None
    note: Note = None
    confirm: Annotated[str, BeforeValidator(lambda v: str(v).strip()), Field(max_length=10)] = ""
    sure: Literal["", "yes"] = ""

    @property
    def answered(self) -> bool:
        """Whether it comes from the page that asks."""
        return bool(self.sure or self.confirm)


@dataclass(frozen=True, slots=True)
class _Looked:
    """A chosen item as it stands; `state` says why it cannot be decided with others, None: it can."""

    chosen: Chosen
    item: Item | None
    state: Literal["not_found", "conflict", "partly_shown"] | None

    def told(self) -> dict[str, Any]:
        row = self.item.current if self.item else None
        return {
            "id": str(self.chosen.id),
            "state": self.state,
            "subject_id": row.subject_id if row else None,
        }


async def act(call: Call) -> Answer:
    """Take the actions in; what cannot be done is told item by item."""
    fields = call.fields(BulkFields)
    looked = [_look(call, fields, one) for one in {one.id: one for one in fields.ids}.values()]
    if not call.page and fields.action == "reject" and fields.reason is None:
        raise HTTPException(400, f"reason: needed to reject; one of {', '.join(RejectReason)}")
    problem = _missing(call, fields, len(looked))
    if problem is not None:
        data = _question(call, fields, looked, problem)
        return Answer(data, "confirm.html", 400 if fields.answered else 409)
    batch = str(uuid.uuid4())
    given = {"reason": fields.reason, "note": fields.note, "batch": batch}
    orders = [order(call, one.item, fields.action, **given) for one in looked if one.item and not one.state]
    put(call, orders)
    data = {
        "action": fields.action,
        "batch": batch if orders else None,
        "results": _results(looked, orders),
    }
    refused = [one.told() for one in looked if one.state]
    if refused:
        return Answer({**data, "refused": refused, "taken": len(orders)}, "bulk.html", 207)
    return Answer(data, status=202, location="/")


def _look(call: Call, fields: BulkFields, chosen: Chosen) -> _Looked:
    item = call.site.board.item(call.scope, str(chosen.id))
    if item is None:
        return _Looked(chosen, None, "not_found")
    if conflict(call, item, fields.action, chosen.revision) is not None:
        return _Looked(chosen, item, "conflict")
    unread = fields.action == "approve" and not is_whole(item.current)
    return _Looked(chosen, item, "partly_shown" if unread else None)


def _missing(call: Call, fields: BulkFields, count: int) -> str | None:
    """Return what has to be said before anything is done."""
    if fields.action == "reject" and fields.reason is None:
        return "Choose a reason first."
    if count > TYPED_ABOVE and fields.confirm != str(count):
        return f"Type {count} to confirm."
    if call.page and fields.action == "approve" and not fields.answered:
        return "Look at what will be approved."
    return None


def _results(looked: list[_Looked], orders: list[Order]) -> list[dict[str, Any]]:
    taken = {one.decision_id: one.action_id for one in orders}
    return [
        one.told() if one.state else {**one.told(), "state": "held", "action_id": taken[str(one.chosen.id)]}
        for one in looked
    ]


def _question(call: Call, fields: BulkFields, looked: list[_Looked], problem: str) -> dict[str, Any]:
    ready = [one for one in looked if not one.state]
    return {
        "error": "confirmation_required",
        "message": f"confirm: {problem}",
        "problem": problem if fields.answered else None,
        "action": fields.action,
        "count": len(ready),
        "items": [_listed(one) for one in ready],
        "left_out": [one.told() for one in looked if one.state],
        "reasons": [str(reason) for reason in RejectReason],
        "chosen": fields.reason,
        "note": fields.note or "",
        "typed": len(ready) > TYPED_ABOVE,
        "undo_seconds": round(call.site.settings.undo_seconds),
    }


def _listed(looked: _Looked) -> dict[str, Any]:
    row = looked.item.current if looked.item else None
    return {
        **looked.told(),
        "sent": f"{looked.chosen.id}:{looked.chosen.revision}",
        "excerpt": row.excerpt if row else "",
        "user_id": row.user_id if row else "",
    }

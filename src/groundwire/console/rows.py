"""Rows of lists: an item at a glance, and what is being done with it."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from groundwire.console.call import Call
from groundwire.console.orders import Entry, State
from groundwire.messages.base import format_time
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject
from groundwire.review.model import Row

_DONE: Final = {"approve": "approved", "reject": "rejected", "edit": "edited", "retract": "retracted"}
_UNSEEN: Final = ("Cc", "Cf", "Co", "Cn", "Cs")


def subject_of(row: Row) -> Subject:
    """Return whose state a row shows."""
    return Subject(row.tenant_id, row.user_id, row.kind, row.subject_id)


def is_whole(row: Row) -> bool:
    """Say whether the list shows all of a text: what it does not show cannot be approved from there."""
    visible = not any(unicodedata.category(char) in _UNSEEN for char in row.excerpt)
    return row.kind == Kind.CLAIM and visible and not row.excerpt.endswith("…")


def doing(entry: Entry | None) -> str | None:
    """Return, of an item with an action on its way, what is being done and by whom."""
    if entry is None:
        return None
    done = f"{_DONE[entry.order.record.action]} by {entry.order.person.name}"
    return done if entry.state is State.HELD else f"{done}; waiting for the gate"


def undo_left(entry: Entry | None, now: datetime) -> int | None:
    """Return for how many seconds an action can still be undone; None where it cannot."""
    if entry is None or entry.state is not State.HELD:
        return None
    return max(0, math.ceil((entry.due - now).total_seconds()))


def glance(call: Call, row: Row) -> dict[str, Any]:
    """Return what every list tells of an item."""
    return {
        "id": row.decision_id,
        "tenant_id": row.tenant_id,
        "user_id": row.user_id,
        "kind": str(row.kind),
        "subject_id": row.subject_id,
        "excerpt": row.excerpt,
        "reason_code": row.reason_code,
        "source": row.source,
        "decided_at": format_time(row.since),
        "age_seconds": max(0, round((call.site.clock() - row.since).total_seconds())),
    }


async def queued(call: Call, rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows of the queue, each with who looks at it and what is being done with it."""
    holders = await call.site.locks.holders([subject_of(row) for row in rows])
    me = call.identity.person.name
    return [
        _queued(call, row, holder if holder != me else None)
        for row, holder in zip(rows, holders, strict=True)
    ]


def _queued(call: Call, row: Row, reviewing: str | None) -> dict[str, Any]:
    entry = call.site.desk.on(row.decision_id)
    return {
        **glance(call, row),
        "revision": row.revision,
        "whole": is_whole(row),
        "risk": row.risk.level,
        "risk_why": row.risk.why,
        "memory_type": row.memory_type,
        "reviewing": reviewing,
        "doing": doing(entry),
        "undo_left": undo_left(entry, call.site.clock()),
    }

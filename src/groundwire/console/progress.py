"""A person's own actions, as pages and the API tell of them; those of one batch as one."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from groundwire.console.orders import Entry, State
from groundwire.console.rows import undo_left
from groundwire.console.site import Site
from groundwire.messages.base import format_time
from groundwire.review.people import Person

_ON_A_PAGE: Final = 5
_LAST: Final = 50
_DONE: Final = {
    "approve": "Approved",
    "reject": "Rejected",
    "edit": "Edited and approved",
    "retract": "Retracted",
}
_SAID: Final = {
    State.HELD: "{done}",
    State.SENT: "{done}; waiting for the gate",
    State.APPLIED: "{done}",
    State.UNDONE: "Undone",
    State.REFUSED: "Refused by the gate",
    State.STALE: "Not done, it changed meanwhile",
    State.FAILED: "Not sent, try again",
    State.UNANSWERED: "Sent, the gate has not answered",
}


def shown_actions(site: Site, person: Person) -> list[dict[str, Any]]:
    """Return what a page shows of a person's last actions, newest first."""
    return _together(site, site.desk.of(person))[:_ON_A_PAGE]


def last_actions(site: Site, person: Person) -> list[dict[str, Any]]:
    """Return a person's last actions, newest first, those of which nothing is shown any more too."""
    return _together(site, site.desk.of(person, over=True))[:_LAST]


def _together(site: Site, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    groups = groupby(entries, key=lambda entry: (entry.order.batch or entry.order.action_id, entry.state))
    return [shown(list(group), site.clock()) for _, group in groups]


def shown(entries: Sequence[Entry], now: datetime) -> dict[str, Any]:
    """Return what is told at a time of an action, or of the actions of one batch that stand alike."""
    first = entries[0]
    order, record, outcome = first.order, first.order.record, first.outcome
    return {
        "action_id": order.action_id,
        "batch": order.batch,
        "count": len(entries),
        "decision_id": order.decision_id,
        "subject_id": record.subject_id,
        "action": record.action,
        "state": str(first.state),
        "outcome": outcome.code if outcome else None,
        "sentence": outcome.sentence if outcome else None,
        "shown": any(entry.is_shown(now) for entry in entries),
        "text": _SAID[first.state].format(done=_DONE[record.action]),
        "undo_left": undo_left(first, now),
        "undo_until": format_time(first.due) if first.state is State.HELD else None,
    }

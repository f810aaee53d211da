"""What a person wants done with an item, and where that stands."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from groundwire.messages.reviews import ReviewDecision
from groundwire.review.outcomes import Outcome
from groundwire.review.people import Person

SHOWN: Final = timedelta(seconds=10)
"""How long it is shown to whom it belongs that an action was done, or undone."""
SHOWN_TROUBLE: Final = timedelta(seconds=60)
"""The same of one that was not done."""


class State(StrEnum):
    """Where an action stands."""

    HELD = "held"
    SENT = "sent"
    APPLIED = "applied"
    REFUSED = "refused"
    STALE = "stale"
    UNDONE = "undone"
    FAILED = "failed"
    UNANSWERED = "unanswered"


OPEN: Final = frozenset({State.HELD, State.SENT})
"""On its way: nothing else can be done with the item meanwhile."""
CAME_TO_NOTHING: Final = frozenset({State.REFUSED, State.STALE, State.UNDONE, State.FAILED, State.UNANSWERED})
"""What its person typed is theirs again."""


@dataclass(frozen=True, slots=True)
class Order:
    """What a person wants done with one item; `batch` names what was asked for at once."""

    person: Person
    decision_id: str
    record: ReviewDecision
    batch: str | None = None

    @property
    def action_id(self) -> str:
        """The id of the action."""
        return self.record.action_id


@dataclass(frozen=True, slots=True)
class Entry:
    """An order and where it stands; `outcome` is what the gate answered, `read`: its person knows."""

    order: Order
    state: State
    changed: datetime
    due: datetime
    outcome: Outcome | None = None
    read: bool = False

    def is_shown(self, now: datetime) -> bool:
        """Say whether it is still of interest to its person."""
        done = self.state in (State.APPLIED, State.UNDONE)
        since = now - self.changed
        return self.state in OPEN or (not self.read and since <= (SHOWN if done else SHOWN_TROUBLE))

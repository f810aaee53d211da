"""Actions on their way: held for a few seconds in which they can be undone, then signed and published.

Nothing of an action leaves this process before it is due. A process that is killed meanwhile forgets what it held, and
the item stays pending; one that is asked to stop publishes it first.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import groupby
from typing import Any, Final, Protocol

import structlog

from groundwire.messages.base import format_time
from groundwire.messages.decisions import ReasonCode
from groundwire.messages.records import ReviewDecision
from groundwire.review.actions import ActionOutcome
from groundwire.review.permissions import Person

logger = structlog.get_logger(__name__)

SHOWN: Final = timedelta(seconds=10)  # how long a page shows its person that an action was done, or undone
SHOWN_TROUBLE: Final = timedelta(seconds=60)  # the same of an action that was not done
ANSWER_SECONDS: Final = 300.0  # how long to wait for the gate's outcome before the item may be acted on again
_AT_ONCE: Final = 50
"""Actions that are signed and published at the same time: others are answered between them."""
_MAX_ENTRIES: Final = 20_000
_DONE: Final = {
    "approve": "approved",
    "reject": "rejected",
    "edit": "edited",
    "retract": "retracted",
    "overrule": "put back for review",
    "comment": "commented on",
    "pass": "passed on",
}


class OrderState(StrEnum):
    HELD = "held"
    SENT = "sent"
    APPLIED = "applied"
    REFUSED = "refused"
    STALE = "stale"
    UNDONE = "undone"
    FAILED = "failed"
    UNANSWERED = "unanswered"
    DROPPED = "dropped"


OPEN: Final = frozenset({OrderState.HELD, OrderState.SENT})
"""On its way: no other action on the item is accepted."""
NOT_DONE: Final = frozenset({*OrderState} - {OrderState.HELD, OrderState.SENT, OrderState.APPLIED})
"""Not carried out: its person gets back what they typed."""


@dataclass(frozen=True, slots=True)
class ReviewOrder:
    person: Person
    decision_id: str
    record: ReviewDecision
    batch: str | None = None  # names what was asked for at once
    after: str | None = None  # the action that has to have approved something before this one is sent
    query: str = ""  # filters and order of the list to which an undo leads back

    @property
    def action_id(self) -> str:
        return self.record.action_id


@dataclass(frozen=True, slots=True)
class OutboxEntry:
    """An order and its state; `outcome` is what the gate answered, `read`: its person dismissed it."""

    order: ReviewOrder
    state: OrderState
    changed: datetime
    due: datetime
    outcome: ActionOutcome | None = None
    read: bool = False

    def is_shown(self, now: datetime) -> bool:
        done = self.state in (OrderState.APPLIED, OrderState.UNDONE)
        since = now - self.changed
        return self.state in OPEN or (not self.read and since <= (SHOWN if done else SHOWN_TROUBLE))


class ReviewSender(Protocol):
    """Where actions go: `groundwire.review.actions.Actions`."""

    async def send(self, decision: ReviewDecision) -> None:
        """Sign and publish."""

    async def outcome(self, decision: ReviewDecision, timeout: float) -> ActionOutcome | None:  # noqa: ASYNC109 - its name there
        """Wait for the outcome; None where there is none in time (seconds)."""


class ItemBusy(Exception):
    """An item has an action on its way already."""


class OutboxFull(Exception):
    """More actions are on their way than one process holds."""


class Outbox:
    """Holds actions, sends them when they are due, and remembers their outcomes.

    `unchanged` returns, of orders, the action ids of those whose item is still as the order assumes; it is asked right
    before they are sent. `hold` is how long an order can be undone.
    """

    def __init__(
        self,
        reviews: ReviewSender,
        unchanged: Callable[[Sequence[ReviewOrder]], set[str]],
        hold: timedelta,
        clock: Callable[[], datetime],
    ) -> None:
        self._reviews = reviews
        self._unchanged = unchanged
        self._hold = hold
        self._clock = clock
        self._entries: OrderedDict[str, OutboxEntry] = OrderedDict()
        self._open: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._sending = asyncio.Semaphore(_AT_ONCE)
        self.version = 0

    def put(self, orders: Sequence[ReviewOrder]) -> None:
        """Accept orders, all or none. Raises: ItemBusy, OutboxFull."""
        if any(order.decision_id in self._open for order in orders):
            raise ItemBusy
        if len(self._open) + len(orders) > _MAX_ENTRIES:
            raise OutboxFull
        over = [action_id for action_id, entry in self._entries.items() if entry.state not in OPEN]
        for action_id in over[: max(0, len(self._entries) + len(orders) - _MAX_ENTRIES)]:
            del self._entries[action_id]
        now = self._clock()
        for order in orders:
            self._set(OutboxEntry(order, OrderState.HELD, now, now + self._hold))
            logger.info("action_held", action_id=order.action_id, action=order.record.action)

    def undo(self, person: Person, action_id: str) -> list[OutboxEntry]:
        """Undo an action and all of its batch, if it is this person's; return what was still held."""
        entry = self.find(person, action_id)
        if entry is None:
            return []
        batch = entry.order.batch
        same = [entry] if batch is None else [e for e in self._in(OrderState.HELD) if e.order.batch == batch]
        held = [one for one in same if one.state is OrderState.HELD]
        for one in held:
            logger.info("action_undone", action_id=one.order.action_id)
        return [self._become(one, OrderState.UNDONE) for one in held]

    def on(self, decision_id: str) -> OutboxEntry | None:
        action_id = self._open.get(decision_id)
        return self._entries[action_id] if action_id else None

    @property
    def open_ids(self) -> frozenset[str]:
        return frozenset(self._open)

    def of(self, person: Person, *, over: bool = False) -> list[OutboxEntry]:
        """Return a person's last actions that pages still show, newest first; `over`: the others too."""
        now = self._clock()
        return [
            entry
            for entry in reversed(self._entries.values())
            if entry.order.person.name == person.name and (over or entry.is_shown(now))
        ]

    def find(self, person: Person, action_id: str) -> OutboxEntry | None:
        entry = self._entries.get(action_id)
        return entry if entry is not None and entry.order.person.name == person.name else None

    def last(self, person: Person, decision_id: str) -> OutboxEntry | None:
        theirs = self.of(person, over=True)
        return next((entry for entry in theirs if entry.order.decision_id == decision_id), None)

    def dismiss(self, person: Person, action_id: str) -> None:
        entry = self.find(person, action_id)
        if entry is None or entry.state in OPEN:
            return
        batch, state = entry.order.batch, entry.state
        alike = [one for one in self.of(person) if one.order.batch == batch and one.state is state]
        for one in [entry] if batch is None else alike:
            self._entries[one.order.action_id] = replace(one, read=True)

    def release(self, *, everything: bool = False) -> None:
        """Begin to send what is due; `everything`: what is held, due or not."""
        now, held = self._clock(), list(self._in(OrderState.HELD))
        due = [one for one in held if not one.order.after and (everything or one.due <= now)]
        if not due:
            return
        behind = {one.order.after: one for one in held if one.order.after}
        unchanged = self._unchanged([one.order for one in due])
        for entry in due:
            next_one = behind.get(entry.order.action_id)
            if entry.order.action_id not in unchanged:
                self._become(entry, OrderState.STALE)
                if next_one is not None:
                    self._become(next_one, OrderState.DROPPED)
                continue
            # from here it cannot be undone: an action that is being published counts as sent
            sent = [self._become(one, OrderState.SENT) for one in (entry, next_one) if one is not None]
            task = asyncio.create_task(self._deliver_all(*sent))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def delivered(self, seconds: float | None = None) -> None:
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)

    async def close(self) -> None:
        self.release(everything=True)
        await self.delivered(5)
        for task in set(self._tasks):
            task.cancel()

    async def _deliver_all(self, entry: OutboxEntry, next_one: OutboxEntry | None = None) -> None:
        """Deliver an order, and the one behind it only once this one has approved its item."""
        done = await self._deliver(entry)
        if next_one is None:
            return
        if done.outcome is None or not done.outcome.applied or done.outcome.code != ReasonCode.HUMAN_APPROVED:
            self._become(next_one, OrderState.DROPPED)
        elif not self._unchanged([next_one.order]):
            self._become(next_one, OrderState.STALE)
        else:
            await self._deliver(next_one)

    async def _deliver(self, entry: OutboxEntry) -> OutboxEntry:
        record = entry.order.record
        try:
            async with self._sending:
                await self._reviews.send(record)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the person has to see it
            logger.warning("action_failed", action_id=record.action_id, error=type(exc).__name__)
            return self._become(entry, OrderState.FAILED)
        try:
            outcome = await self._reviews.outcome(record, ANSWER_SECONDS)
        except Exception as exc:  # noqa: BLE001 - it was sent: its outcome shows on the item
            logger.warning("outcome_unknown", action_id=record.action_id, error=type(exc).__name__)
            outcome = None
        if outcome is None:
            return self._become(entry, OrderState.UNANSWERED)
        return self._become(entry, OrderState.APPLIED if outcome.applied else OrderState.REFUSED, outcome)

    def _in(self, state: OrderState) -> Iterator[OutboxEntry]:
        return (entry for key in self._open.values() if (entry := self._entries[key]).state is state)

    def _become(
        self, entry: OutboxEntry, state: OrderState, outcome: ActionOutcome | None = None
    ) -> OutboxEntry:
        return self._set(replace(entry, state=state, outcome=outcome, changed=self._clock()))

    def _set(self, entry: OutboxEntry) -> OutboxEntry:
        order = entry.order
        self._entries[order.action_id] = entry
        if entry.state in OPEN:
            self._open[order.decision_id] = order.action_id
        elif self._open.get(order.decision_id) == order.action_id:
            del self._open[order.decision_id]
        self.version += 1
        return entry


_STATE_TEXTS: Final = {
    OrderState.HELD: "{done}",
    OrderState.SENT: "{done}; waiting for the gate",
    OrderState.APPLIED: "{done}",
    OrderState.UNDONE: "Undone",
    OrderState.REFUSED: "Refused by the gate",
    OrderState.STALE: "Not done: the item changed first",
    OrderState.FAILED: "Not sent: try again",
    OrderState.UNANSWERED: "Sent: the gate has not answered",
    OrderState.DROPPED: "Not retracted: the new claim was not approved",
}


def shown_actions(outbox: Outbox, person: Person, now: datetime) -> list[dict[str, Any]]:
    return _by_batch(outbox.of(person), now)[:5]


def last_actions(outbox: Outbox, person: Person, now: datetime) -> list[dict[str, Any]]:
    """Return a person's last actions, newest first, with those that pages do not show any more."""
    return _by_batch(outbox.of(person, over=True), now)[:50]


def _by_batch(entries: Sequence[OutboxEntry], now: datetime) -> list[dict[str, Any]]:
    groups = groupby(entries, key=lambda entry: (entry.order.batch or entry.order.action_id, entry.state))
    return [action_row(list(group), now) for _, group in groups]


def action_row(entries: Sequence[OutboxEntry], now: datetime) -> dict[str, Any]:
    replaced = next((entry.order.record.subject_id for entry in entries if entry.order.after), None)
    first = next((entry for entry in entries if not entry.order.after), entries[0])
    order, record, outcome = first.order, first.order.record, first.outcome
    replacing = replaced is not None and len(entries) > 1
    done = "Edited and approved" if record.action == "edit" else _DONE[record.action].capitalize()
    text = _STATE_TEXTS[first.state].format(done="Replaced" if replacing else done)
    if order.after and first.state in NOT_DONE - {OrderState.UNDONE, OrderState.DROPPED}:
        text = f"The new claim is approved, and the old one too: {text}"
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
        "replaces": replaced if replacing else None,
        "text": text,
        "undo_left": undo_left(first, now),
        "undo_until": format_time(first.due) if first.state is OrderState.HELD else None,
    }


def undo_left(entry: OutboxEntry | None, now: datetime) -> int | None:
    if entry is None or entry.state is not OrderState.HELD:
        return None
    return max(0, math.ceil((entry.due - now).total_seconds()))


def done_to(entry: OutboxEntry) -> str:
    return _DONE[entry.order.record.action]


def doing(entry: OutboxEntry | None) -> str | None:
    if entry is None:
        return None
    done = f"{done_to(entry)} by {entry.order.person.name}"
    return done if entry.state is OrderState.HELD else f"{done}; waiting for the gate"

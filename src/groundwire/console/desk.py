"""Actions on their way: held for a few seconds in which they can be undone, then signed and published.

Nothing of an action leaves this process before its time is up. A process that is killed meanwhile forgets what
it held, and the item stays pending; one that is asked to stop publishes it first.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Protocol

import structlog

from groundwire.console.orders import OPEN, Entry, Order, State
from groundwire.messages.reviews import ReviewDecision
from groundwire.review.outcomes import Outcome
from groundwire.review.people import Person

logger = structlog.get_logger(__name__)

ANSWER_SECONDS: Final = 300.0
"""How long an answer of the gate is waited for before the item may be acted on again."""
_MOST: Final = 20_000


class Reviews(Protocol):
    """Where actions go: `groundwire.review.actions.Actions`."""

    async def send(self, decision: ReviewDecision) -> None:
        """Sign and publish."""

    async def outcome(self, decision: ReviewDecision, timeout: float) -> Outcome | None:  # noqa: ASYNC109 - its name there
        """Wait for what becomes of it."""


class Busy(Exception):
    """An item has an action on its way; `entry` says which."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.order.decision_id)
        self.entry = entry


class Full(Exception):
    """More actions are on their way than one process keeps."""


class Desk:
    """Holds actions, sends them when their time has come, and remembers what became of them.

    Args:
        reviews: signs and publishes.
        stands: whether an item is still as the order takes it to be; asked right before it is sent.
        hold: how long an order can be undone.
        clock: what the time is.
    """

    def __init__(
        self,
        reviews: Reviews,
        stands: Callable[[Order], bool],
        hold: timedelta,
        clock: Callable[[], datetime],
    ) -> None:
        self._reviews = reviews
        self._stands = stands
        self._hold = hold
        self._clock = clock
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._open: dict[str, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.version = 0

    def put(self, orders: Sequence[Order]) -> None:
        """Take orders in, all or none.

        Raises:
            Busy: an item has an action on its way already.
            Full: no room.
        """
        for order in orders:
            entry = self.on(order.decision_id)
            if entry is not None:
                raise Busy(entry)
        self._make_room(len(orders))
        now = self._clock()
        for order in orders:
            self._set(Entry(order, State.HELD, now, now + self._hold))
            logger.info("action_held", action_id=order.action_id, action=order.record.action)

    def undo(self, person: Person, action_id: str) -> list[Entry]:
        """Take an action back, with all of its batch, if it is this person's; return what was still held."""
        asked = self.find(person, action_id)
        if asked is None:
            return []
        batch = asked.order.batch
        same = [asked] if batch is None else [e for e in self._in(State.HELD) if e.order.batch == batch]
        held = [entry for entry in same if entry.state is State.HELD]
        for entry in held:
            logger.info("action_undone", action_id=entry.order.action_id)
        return [self._become(entry, State.UNDONE) for entry in held]

    def on(self, decision_id: str) -> Entry | None:
        """Return the action that is on its way for an item, whoever it is by."""
        action_id = self._open.get(decision_id)
        return self._entries[action_id] if action_id else None

    def of(self, person: Person, *, over: bool = False) -> list[Entry]:
        """Return a person's last actions that are still of interest, newest first; `over`: the others too."""
        now = self._clock()
        return [
            entry
            for entry in reversed(self._entries.values())
            if entry.order.person.name == person.name and (over or entry.is_shown(now))
        ]

    def find(self, person: Person, action_id: str) -> Entry | None:
        """Return a person's action, None where there is none."""
        entry = self._entries.get(action_id)
        return entry if entry is not None and entry.order.person.name == person.name else None

    def last(self, person: Person, decision_id: str) -> Entry | None:
        """Return what a person last did with an item, whatever became of it."""
        theirs = (
            entry for entry in reversed(self._entries.values()) if entry.order.person.name == person.name
        )
        return next((entry for entry in theirs if entry.order.decision_id == decision_id), None)

    def dismiss(self, person: Person, action_id: str) -> None:
        """Tell a person no more of an action of theirs that is over, nor of those of its batch that ended alike."""
        asked = self.find(person, action_id)
        if asked is None or asked.state in OPEN:
            return
        batch, state = asked.order.batch, asked.state
        alike = [entry for entry in self.of(person) if entry.order.batch == batch and entry.state is state]
        for entry in [asked] if batch is None else alike:
            self._entries[entry.order.action_id] = replace(entry, read=True)

    def release(self, *, everything: bool = False) -> None:
        """Begin to send what is due; `everything`: what is held, due or not."""
        now = self._clock()
        for entry in list(self._in(State.HELD)):
            if not (everything or entry.due <= now):
                continue
            if not self._stands(entry.order):
                self._become(entry, State.STALE)
                continue
            # from here it cannot be undone: while it is being published it counts as sent
            task = asyncio.create_task(self._deliver(self._become(entry, State.SENT)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def delivered(self, seconds: float | None = None) -> None:
        """Wait until nothing is on its way any more, or for so many seconds."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=seconds)

    async def close(self) -> None:
        """Send what is held, and forget what is still unanswered after a moment."""
        self.release(everything=True)
        await self.delivered(5)
        for task in set(self._tasks):
            task.cancel()

    async def _deliver(self, entry: Entry) -> None:
        record = entry.order.record
        try:
            await self._reviews.send(record)
        except Exception as exc:  # noqa: BLE001 - whatever it is, the person must hear of it
            logger.warning("action_failed", action_id=record.action_id, error=type(exc).__name__)
            self._become(entry, State.FAILED)
            return
        try:
            outcome = await self._reviews.outcome(record, ANSWER_SECONDS)
        except Exception as exc:  # noqa: BLE001 - it was sent: what came of it shows on the item
            logger.warning("outcome_unknown", action_id=record.action_id, error=type(exc).__name__)
            outcome = None
        if outcome is None:
            self._become(entry, State.UNANSWERED)
        else:
            self._become(entry, State.APPLIED if outcome.applied else State.REFUSED, outcome)

    def _in(self, state: State) -> Iterator[Entry]:
        return (entry for key in self._open.values() if (entry := self._entries[key]).state is state)

    def _become(self, entry: Entry, state: State, outcome: Outcome | None = None) -> Entry:
        return self._set(replace(entry, state=state, outcome=outcome, changed=self._clock()))

    def _set(self, entry: Entry) -> Entry:
        order = entry.order
        self._entries[order.action_id] = entry
        if entry.state in OPEN:
            self._open[order.decision_id] = order.action_id
        elif self._open.get(order.decision_id) == order.action_id:
            del self._open[order.decision_id]
        self.version += 1
        return entry

    def _make_room(self, count: int) -> None:
        if len(self._open) + count > _MOST:
            raise Full
        for action_id, entry in list(self._entries.items()):
            if len(self._entries) + count <= _MOST:
                break
            if entry.state not in OPEN:
                del self._entries[action_id]

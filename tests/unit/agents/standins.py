"""A loop whose state, broker and gate fail as the test says."""

# ruff: noqa: ARG002 - stand-ins take what the real parts take

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from faust.types import TP

from agents.app import ROLES
from agents.crash_marks import CrashMarks
from agents.health import Health
from agents.hooks import Decider
from agents.lease import LeaseLost, PartitionLease
from agents.loop import PartitionLoop, Services
from agents.observability import BatchMetrics, InternalErrors
from agents.outputs import Output
from agents.partitions import Partitions
from groundwire.errors import ErrorCode, RecordError
from groundwire.gate.gate import decode_record
from groundwire.gate.types import DeadLetter, Decided, Provisional
from groundwire.messages.headers import InboundRecord
from groundwire.messages.topics import partition_of
from groundwire.state.model import InFlightMark


class InstantLease(PartitionLease):
    """Pauses take no time; they are recorded, and may change whether state answers."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self.on_pause: Callable[[], None] = lambda: None

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.on_pause()
        await asyncio.sleep(0)
        if self.over:
            raise LeaseLost


class InstantLoop(PartitionLoop):
    """A loop with an instant lease, which looks at records that wait for a time whenever nothing else happens."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lease = InstantLease()

    async def _wait_for_change(self, seconds: float | None) -> None:
        if seconds is None or self._changed.is_set():
            await self._changed.wait()
            return
        for _ in range(200):
            await asyncio.sleep(0)
            if self._changed.is_set():
                return
        self.lease.on_pause()
        await asyncio.sleep(0)


async def turns(count: int = 200) -> None:
    """Let everything run as far as it does."""
    for _ in range(count):
        await asyncio.sleep(0)


class Bench:
    """A loop over stand-ins; an error in a list is raised by the next call, `None` is a success."""

    def __init__(self, role: str = "claims", grace: float | None = 10.0, **options: Any) -> None:
        self.now = self.slow = 0.0
        self.state_errors: list[Exception | None] = []
        self.publish_errors: list[Exception | None] = []
        self.prepare_errors: list[Exception | None] = []
        self.asked = self.prepared = self.recovered = self.reasserted = 0
        self.fresh: list[bool] = []
        self.published: list[list[Output]] = []
        self.left: InFlightMark | None = None
        self.marked: list[InFlightMark | None] = []
        self.outcome_held = False
        self.concerned: list[set[int]] = []
        self.is_cluster = False
        self.server = self
        self.health = Health(lambda: self.now)
        hooks = [
            self.health,
            InternalErrors(self.health),
            BatchMetrics(ROLES[role].topic),
            CrashMarks(self),
        ]  # type: ignore[arg-type]
        by = {name: options.pop(name) for name in ("look_up", "ask_model") if name in options}
        options = {"partitions_of": lambda _topic: 0, "clock": lambda: self.now, **options}
        decider, parts = Decider(self, grace, **by), (self,) * 4  # type: ignore[arg-type]
        self.services = Services(ROLES[role], decider, *parts, self.health, hooks, **options)  # type: ignore[arg-type]
        self.partitions = Partitions(self.services)
        self.rooms = 0
        self.take_partition()

    def take_partition(self) -> None:
        """Begin the lease of a partition that nothing is read of."""
        self.loop = InstantLoop(TP("t", 0), self.partitions.new_book(), self.services, room=self._note_room)
        self.lease = self.loop.lease
        self.task: asyncio.Task[None] | None = None

    def _note_room(self) -> None:
        self.rooms += 1

    async def prepare(self, records):
        self.prepared += 1
        _raise_next(self.prepare_errors)
        return [
            DeadLetter(one, RecordError(ErrorCode.INVALID_JSON, "no")) if one.value == b"bad" else _entry(one)
            for one in records
        ]

    async def apply_step(self, batch, *, deferred):
        self.asked += 1
        self.now += self.slow
        _raise_next(self.state_errors)
        fresh = self.fresh.pop(0) if self.fresh else True
        return [
            Decided(one.record, _decision(one.record), fresh) if hasattr(one, "subject") else one
            for one in batch
        ]

    async def abandon(self, record, give_up):
        return await give_up(decode_record(record).subject)

    def provisional(self, batch):
        return [Provisional(one.record, _decision(one.record)) for one in batch]

    async def publish(self, outputs):
        _raise_next(self.publish_errors)
        self.published.append(list(outputs))
        return []

    async def recover(self, lease):
        self.recovered += 1

    async def before_step(self, partitions, lease):
        self.concerned.append(partitions)
        self.reasserted += 1

    def failed(self, partitions):
        pass

    def partition_of(self, tenant_id, user_id):
        return partition_of(tenant_id, user_id, 8)

    async def marks(self, topic, partition):
        return self.left

    async def mark(self, topic, partition, mark, *, answered):
        self.marked.append(mark)

    async def give_up(self, subject):
        return not self.outcome_held

    async def begin(self, *records: InboundRecord) -> None:
        """Have records fetched, and let them come as far as they do."""
        self.loop.book.add(records, records[-1].offset + 1)
        if self.task is None:
            self.task = asyncio.create_task(self.loop.run())
        self.loop.wake()
        await turns()

    async def run(self, *records: InboundRecord) -> None:
        """Have records fetched, and wait until all of the partition are done, or its lease has ended."""
        await self.begin(*records)
        await self.finish()

    async def finish(self) -> None:
        async with asyncio.timeout(60):
            while self.loop.book.undone and not self.loop.lease.over:  # noqa: ASYNC110 - the book sends no event
                await asyncio.sleep(0)
            if self.loop.lease.over and self.task is not None:
                await asyncio.gather(*self.loop.running)
                await self.task
        await turns(3)

    @property
    def offsets(self) -> list[list[int]]:
        """The offsets of records published together."""
        return [[result.record.offset for result in batch] for batch in self.published]


def _raise_next(errors: list[Exception | None]) -> None:
    error = errors.pop(0) if errors else None
    if error is not None:
        raise error


def _entry(record: InboundRecord) -> SimpleNamespace:
    tenant, _, user = (record.key or b"t:nobody").decode().removeprefix("wrong ").partition(":")
    return SimpleNamespace(record=record, subject=SimpleNamespace(tenant_id=tenant, user_id=user))


def _decision(record: InboundRecord) -> Any:
    reason = "internal_error" if record.value == b"internal" else "grounded"
    checks = {"checks_passed": [], "checks_failed": [], "checks_skipped": [], "report": None}
    names = {"kind": "claim", "tier": "tier_1", "tenant_id": "t", "user_id": "u"}
    return SimpleNamespace(decision_id=f"d{record.offset}", reason_code=reason, **names, **checks)


def record(offset: int = 0, user: str = "u", value: bytes = b"{}", **changes: Any) -> InboundRecord:
    return InboundRecord("t", 0, offset, 0, f"t:{user}".encode(), value, **changes)

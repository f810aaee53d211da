"""The partitions of a worker: their leases, the order of their batches, records that crash it, and its health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Final, TypeVar

import structlog

from groundwire import metrics
from groundwire.errors import StateError
from groundwire.logs import report_fault
from groundwire.messages.headers import InboundRecord
from groundwire.state.model import InFlightMark
from groundwire.state.redis import RedisState

log = structlog.get_logger()

ALONE: Final = 2
GIVEN_UP: Final = 3

_MARK_SECONDS: Final = 0.25
"""How long a mark is waited for: one that is not sent, or that state does not take, costs one more crash."""

_HEALTH_POLL: Final = 5.0

_T = TypeVar("_T")

Portion = tuple[Sequence[InboundRecord], int]
"""Records that run together, and how many crashes they have survived."""


class CrashGuard:
    """Marks in state what is in flight of a partition, and isolates what was when its last worker died.

    Records in flight at two crashes run alone, at a third they become dead letters. A guard belongs to one lease: a
    fetch may bring less than what was in flight, so that several batches go by until the last of it was seen.
    """

    def __init__(self, state: RedisState, topic: str, partition: int) -> None:
        self._state = state
        self._topic = topic
        self._partition = partition
        self._left: InFlightMark | None = None
        self._sending: set[asyncio.Task[None]] = set()

    async def load(self) -> None:
        """Read what the partition's last worker left in flight; state out of reach counts as nothing."""
        try:
            left = await self._state.marks(self._topic, self._partition)
        except StateError:
            left = None
        if left is not None:
            self._left = InFlightMark(left.first, left.last, left.crashes + 1)
            log.warning(
                "crash.found",
                topic=self._topic,
                partition=self._partition,
                first=left.first,
                last=left.last,
                crashes=self._left.crashes,
            )

    def portions(self, records: Sequence[InboundRecord]) -> list[Portion]:
        """Cut a batch into portions, in its order; suspects run alone from their second crash on."""
        left = self._left
        if left is None or records[0].offset > left.last:
            self._left = None
            return [(records, 0)]
        if left.crashes < ALONE:
            return [(records, left.crashes)]
        portions: list[tuple[list[InboundRecord], int]] = []
        together = False
        for record in records:
            suspect = left.first <= record.offset <= left.last
            if together and not suspect:
                portions[-1][0].append(record)
            else:
                portions.append(([record], left.crashes if suspect else 0))
            together = not suspect
        return list(portions)

    async def mark(self, records: Sequence[InboundRecord], crashes: int) -> None:
        """Mark records as in flight, before anything is done with them.

        The mark is on its way once the operating system has it: whatever kills the process then, state gets it. So
        the answer is waited for only where a worker died over these records before.
        """
        written = asyncio.get_running_loop().create_future()
        sending = self._send(InFlightMark(records[0].offset, records[-1].offset, crashes), written)
        await asyncio.wait([sending if crashes else written], timeout=_MARK_SECONDS)

    def unmark(self) -> None:
        """Take the mark away: the batch is done."""
        self._send(None)

    async def unmark_now(self) -> None:
        """Take the mark away before the next holder looks: the worker gives the batch up alive."""
        await asyncio.wait([self._send(None)], timeout=_MARK_SECONDS)

    def _send(
        self, mark: InFlightMark | None, written: asyncio.Future[None] | None = None
    ) -> asyncio.Task[None]:
        sending = asyncio.create_task(self._write(mark, written))
        self._sending.add(sending)  # the event loop holds no reference to it
        sending.add_done_callback(self._sending.discard)
        return sending

    async def _write(self, mark: InFlightMark | None, written: asyncio.Future[None] | None) -> None:
        def note_written() -> None:
            if written is not None and not written.done():
                written.set_result(None)

        try:
            if mark is None:
                await self._state.unmark(self._topic, self._partition)
            else:
                await self._state.mark(self._topic, self._partition, mark, written=note_written)
        except StateError:
            log.debug("crash.mark_not_kept", topic=self._topic, partition=self._partition)
        finally:
            note_written()


LARGE: Final = 50_000
"""Bytes of a record that others of its batch do not wait for: its checks may take up to two seconds."""


def small_first(records: Sequence[InboundRecord]) -> Iterator[Sequence[InboundRecord]]:
    """Yield the records that wait for no large one, together, then the others, one by one.

    Records of one key, and those without any, keep their order: what follows a large one of its key stays behind it.
    """
    held: set[bytes | None] = set()
    small: list[InboundRecord] = []
    behind: list[InboundRecord] = []
    for record in records:
        if len(record.value or b"") >= LARGE:
            held.add(record.key)
        (behind if record.key in held or (held and record.key is None) else small).append(record)
    if small:
        yield small
    yield from ([record] for record in behind)


class LeaseLost(Exception):
    """The partition is being given away, or the worker stops: what waits for something is left to its next holder."""


class PartitionLease:
    """The time for which a partition is held; what waits for something waits no longer than that."""

    def __init__(self) -> None:
        self._over = asyncio.Event()
        self.guard: CrashGuard | None = None
        self.broken = False

    @property
    def over(self) -> bool:
        """Whether the partition is being given away."""
        return self._over.is_set()

    def end(self) -> None:
        """Call off whatever waits under this lease."""
        self._over.set()

    def insist_held(self) -> None:
        """Refuse to begin a batch where the partition is being given away, or an earlier batch was left unfinished.

        A batch that has not begun is quicker read again than waited for by the whole group. Raises: LeaseLost.
        """
        if self.broken or self.over:
            raise LeaseLost

    async def wait_for(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await work of which nothing is lost when it is cancelled. Raises: LeaseLost when the lease ends meanwhile."""
        if self.over:
            work.close()
            raise LeaseLost
        doing, over = asyncio.create_task(work), asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait([doing, over], return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise LeaseLost
            return doing.result()
        finally:
            for task in (doing, over):
                task.cancel()
            await asyncio.gather(doing, over, return_exceptions=True)

    async def pause(self, seconds: float) -> None:
        """Wait, for instance for a dependency to come back. Raises: LeaseLost when the lease ends meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return
        raise LeaseLost


STATE_SECONDS: Final = 5.0
"""Time without an answer of state after which a worker is not ready; it is asked every second."""


class Health:
    """What the worker waits for, and when it last got on: the basis of liveness and readiness.

    A dependency that is waited for is shown as a gauge, and logged once when that begins and ends.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._current: set[str] = set()
        self._progressed = clock()
        self.loop_ticked = clock()
        self.partitions: int | None = None
        self.under_way = 0
        self._state_answered: float | None = None

    @property
    def current(self) -> frozenset[str]:
        """The dependencies that are waited for right now."""
        return frozenset(self._current)

    def begin(self, dependency: str) -> None:
        """Note that the worker waits for a dependency."""
        if dependency not in self._current:
            self._current.add(dependency)
            metrics.PAUSED.labels(dependency).set(1)
            log.warning("paused", dependency=dependency)

    def end(self, dependency: str) -> None:
        """Note that it waits no longer."""
        if dependency in self._current:
            self._current.remove(dependency)
            metrics.PAUSED.labels(dependency).set(0)
            log.info("resumed", dependency=dependency)

    @property
    def waits_for(self) -> frozenset[str]:
        """What `ready` waits for: the dependencies, the group, and an answer of state within the last seconds."""
        answered = self._state_answered
        silent = answered is None or self._clock() - answered > STATE_SECONDS
        return self.current | {"state"} if silent else self.current

    def state_answered(self) -> None:
        """Note that state answers."""
        self._state_answered = self._clock()

    def tick(self) -> None:
        """Note that the event loop runs."""
        self.loop_ticked = self._clock()

    def start_batch(self) -> None:
        """Note that a batch is under way; where none was, the time without progress begins now."""
        if not self.under_way:
            self.progress()
        self.under_way += 1

    def progress(self) -> None:
        """Note that something was done."""
        self._progressed = self._clock()

    def alive(self, seconds: float) -> bool:
        """Return whether, within so many seconds, the event loop ran and work got on or waits for a dependency."""
        now = self._clock()
        if now - self.loop_ticked > seconds:
            return False
        return not self.under_way or bool(self._current) or now - self._progressed < seconds

    def ready(self) -> bool:
        """Return whether the worker has joined its group, state answers, and nothing is waited for."""
        return self.partitions is not None and not self.waits_for


class PartitionWorkers:
    """Processes the batches of each partition one after the other, those of other partitions beside them.

    Args:
        process_batch: raises LeaseLost where the batch is left to the partition's next holder, anything else where
            the process cannot go on.
        health: told how many batches are under way.
    """

    def __init__(
        self,
        process_batch: Callable[[Sequence[InboundRecord], PartitionLease], Awaitable[None]],
        health: Health,
    ) -> None:
        self._process_batch = process_batch
        self._health = health
        self._leases: dict[tuple[str, int], PartitionLease] = {}
        self._last: dict[tuple[str, int], asyncio.Task[None]] = {}
        self._stopped = False

    def take_over(self, _tps: object = None) -> None:
        """Begin new leases after a rebalance."""
        self._leases = {}

    def submit(self, event: Any) -> None:  # noqa: ANN401 - Faust's event
        """Put a batch behind those of its partition that are not done yet."""
        tp = (event.message.topic, event.message.partition)
        lease = self._leases.setdefault(tp, PartitionLease())
        if self._stopped:
            lease.end()
        self._health.start_batch()
        self._last[tp] = asyncio.create_task(self._run(self._last.get(tp), event, lease))

    def release(self, _tps: object = None) -> None:
        """Call off what waits for a dependency or has not begun; work in progress goes on to its end."""
        for lease in self._leases.values():
            lease.end()

    def stop(self) -> None:
        """Release everything, for good."""
        self._stopped = True
        self.release()

    async def _run(self, before: asyncio.Task[None] | None, event: Any, lease: PartitionLease) -> None:  # noqa: ANN401
        message, consumer = event.message, event.app.consumer
        if before is not None:
            await asyncio.wait([before])
        try:
            lease.insist_held()
            await self._process_batch(event.value, lease)
        except LeaseLost:
            lease.broken = True  # later batches of this lease must not commit past this one
            consumer.give_back(message)
        except asyncio.CancelledError:
            lease.broken = True
            consumer.give_back(message)
            raise
        except Exception as exc:  # noqa: BLE001 - crash: the partition's next owner reads the batch again
            lease.broken = True
            consumer.give_back(message)
            report_fault("partition.failed", exc, topic=message.topic, partition=message.partition)
            await event.app.crash(exc)
        else:
            consumer.mark_done(message)
        finally:
            self._health.under_way -= 1

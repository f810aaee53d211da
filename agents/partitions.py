"""The partitions of a worker: their leases, the order of their batches, records that crash it, and its health."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import structlog

from agents.aside import Aside, split
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
        self._in_flight: dict[int, InFlightMark] = {}
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

    @property
    def suspects(self) -> bool:
        """Whether more of what was in flight at a crash may come: then nothing runs beside anything else."""
        return self._left is not None

    @property
    def isolates(self) -> bool:
        """Whether some of it has to run alone: then nothing is set aside, to go on beside it."""
        return self._left is not None and self._left.crashes >= ALONE

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
        first = records[0].offset
        self._in_flight[first] = InFlightMark(first, records[-1].offset, crashes)
        await asyncio.wait([self._send(answered=bool(crashes))], timeout=_MARK_SECONDS)

    def unmark(self, records: Sequence[InboundRecord]) -> None:
        """Take the mark of records away: they are done."""
        self._in_flight.pop(records[0].offset, None)
        self._send()

    async def unmark_now(self, records: Sequence[InboundRecord]) -> None:
        """Take their mark away before the next holder looks: the worker gives them up alive."""
        self._in_flight.pop(records[0].offset, None)
        await asyncio.wait([self._send(answered=True)], timeout=_MARK_SECONDS)

    def _send(self, *, answered: bool = False) -> asyncio.Task[None]:
        """Write one mark over all that is in flight; what lies between is decided again, and alone, after crashes."""
        marks = self._in_flight.values()
        mark = (
            InFlightMark(
                min(one.first for one in marks),
                max(one.last for one in marks),
                max(one.crashes for one in marks),
            )
            if marks
            else None
        )
        sending = asyncio.create_task(self._write(mark, answered=answered))
        self._sending.add(sending)  # the event loop holds no reference to it
        sending.add_done_callback(self._sending.discard)
        return sending

    async def _write(self, mark: InFlightMark | None, *, answered: bool) -> None:
        try:
            answer = await self._state.mark(self._topic, self._partition, mark)
            if answered:
                await answer
        except StateError:
            log.debug("crash.mark_not_kept", topic=self._topic, partition=self._partition)


LARGE: Final = 50_000
"""Bytes of a record that others of its partition do not wait for: its checks may take up to two seconds."""


def small_first(
    records: Sequence[InboundRecord], most: int | None = None, held: Collection[bytes | None] = ()
) -> tuple[list[InboundRecord], list[InboundRecord]]:
    """Split a batch into the records that wait for no large one, and those behind; both in their order.

    Records of one key, and those without any, keep their order: what follows one behind of its key stays behind it.

    Args:
        records: of one partition, in the order of their offsets.
        most: bytes of the first in all, the smallest of the batch; None: as many as are not large.
        held: keys of records of earlier batches that are behind and not done.
    """
    left = float("inf") if most is None else most
    fitting: set[int] = set()
    for record in sorted(records, key=_size):
        left -= _size(record)
        if left < 0 or _size(record) >= LARGE:
            break
        fitting.add(record.offset)
    return split(records, set(held), lambda record: record.offset not in fitting)


def parts_of(records: Sequence[InboundRecord], most: int | None) -> Iterator[list[InboundRecord]]:
    """Cut what is behind into parts that run together: of `most` bytes at most, without a limit each record alone."""
    part: list[InboundRecord] = []
    for record in records:
        if part and sum(map(_size, part)) + _size(record) > (most or 0):
            yield part
            part = []
        part.append(record)
    if part:
        yield part


def _size(record: InboundRecord) -> int:
    return len(record.value or b"")


class LeaseLost(Exception):
    """The partition is being given away, or the worker stops: what waits for something is left to its next holder."""


class PartitionLease:
    """The time for which a partition is held; what waits for something waits no longer than that.

    Its batches run one after the other, but what is behind in one (`small_first`) runs beside the first of the next.

    Attributes:
        held: keys of the records that are behind and not done.
        aside: those of them that wait for a part of state.
    """

    def __init__(self, earlier: Collection[asyncio.Task[None]] = ()) -> None:
        """Begin a lease; `earlier`, batches of the one before, are waited for."""
        self._over = asyncio.Event()
        self._earlier = earlier
        self._first, self._behind = asyncio.Lock(), asyncio.Lock()  # both let in whoever came first
        self.held: Counter[bytes | None] = Counter()
        self.aside = Aside()
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

    @asynccontextmanager
    async def first(self) -> AsyncIterator[None]:
        """Wait for the first of all batches before. Raises: LeaseLost."""
        async with self._first:
            if self._earlier:
                await asyncio.wait(self._earlier)
                self._earlier = ()
            self.insist_held()
            yield

    @asynccontextmanager
    async def behind(self) -> AsyncIterator[None]:
        """Wait for what is behind of all batches before; entered as soon as `first` of the batch is left, or within it.

        Raises: LeaseLost.
        """
        async with self._behind:
            self.insist_held()
            yield

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
    """Processes the batches of each partition in the order that their lease gives, those of other partitions beside.

    Args:
        process_batch: is given the records of a batch, the lease, and what to call once the partition may be read on
            though the batch is not done; raises LeaseLost where the batch is left to the partition's next holder,
            anything else where the process cannot go on.
        health: told how many batches are under way.
    """

    def __init__(
        self,
        process_batch: Callable[
            [Sequence[InboundRecord], PartitionLease, Callable[[], None]], Awaitable[None]
        ],
        health: Health,
    ) -> None:
        self._process_batch = process_batch
        self._health = health
        self._leases: dict[tuple[str, int], PartitionLease] = {}
        self._under_way: defaultdict[tuple[str, int], set[asyncio.Task[None]]] = defaultdict(set)
        self._stopped = False

    def take_over(self, _tps: object = None) -> None:
        """Begin new leases after a rebalance."""
        self._leases = {}

    def submit(self, event: Any) -> None:  # noqa: ANN401 - Faust's event
        """Put a batch behind those of its partition that are not done yet."""
        tp = (event.message.topic, event.message.partition)
        under_way = self._under_way[tp]
        if tp not in self._leases:
            self._leases[tp] = PartitionLease(frozenset(under_way))
        lease = self._leases[tp]
        if self._stopped:
            lease.end()
        self._health.start_batch()
        task = asyncio.create_task(self._run(event, lease))
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    def release(self, _tps: object = None) -> None:
        """Call off what waits for a dependency or has not begun; work in progress goes on to its end."""
        for lease in self._leases.values():
            lease.end()

    def stop(self) -> None:
        """Release everything, for good."""
        self._stopped = True
        self.release()

    async def _run(self, event: Any, lease: PartitionLease) -> None:  # noqa: ANN401 - Faust's event
        message, consumer = event.message, event.app.consumer
        try:
            await self._process_batch(event.value, lease, partial(consumer.read_on, message))
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

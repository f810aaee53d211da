"""Partitions of a worker: leases, the order of batches, records that crash workers, and health."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import asynccontextmanager
from functools import partial
from operator import attrgetter
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
"""How long a mark is waited for; a lost one costs one more crash."""

_HEALTH_POLL: Final = 5.0

_T = TypeVar("_T")


class CrashGuard:
    """Marks in-flight records in state, and isolates those that were in flight when the last worker died.

    Records in flight at two crashes run alone; at the third they become dead letters. A guard lives as long as a lease:
    several batches may pass until the last suspect was seen.
    """

    def __init__(self, state: RedisState, topic: str, partition: int) -> None:
        self._state = state
        self._topic = topic
        self._partition = partition
        self._left: InFlightMark | None = None
        self._in_flight: dict[int, InFlightMark] = {}
        self._sending: set[asyncio.Task[None]] = set()

    async def load(self) -> None:
        """Read the mark of the last worker; unreachable state counts as none."""
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
        """Whether more suspects may come: batches then run exclusively."""
        return self._left is not None

    @property
    def isolates(self) -> bool:
        """Whether suspects run alone: nothing is then set aside."""
        return self._left is not None and self._left.crashes >= ALONE

    def portions(self, records: Sequence[InboundRecord]) -> list[tuple[Sequence[InboundRecord], int]]:
        """Split a batch into portions that run together, each with the crashes it has survived."""
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
        """Mark records as in flight, before they are processed.

        A mark survives this process once the operating system has it, so its answer is waited for only after a crash.
        """
        first = records[0].offset
        self._in_flight[first] = InFlightMark(first, records[-1].offset, crashes)
        await asyncio.wait([self._send(answered=bool(crashes))], timeout=_MARK_SECONDS)

    def unmark(self, records: Sequence[InboundRecord]) -> None:
        """Clear the mark: the records are done."""
        self._in_flight.pop(records[0].offset, None)
        self._send()

    async def unmark_now(self, records: Sequence[InboundRecord]) -> None:
        """Clear the mark before the next holder reads it: the worker exits cleanly."""
        self._in_flight.pop(records[0].offset, None)
        await asyncio.wait([self._send(answered=True)], timeout=_MARK_SECONDS)

    def _send(self, *, answered: bool = False) -> asyncio.Task[None]:
        """Write one mark over all in-flight records; after a crash what lies between is isolated too."""
        mark = None
        if marks := self._in_flight.values():
            mark = InFlightMark(
                min(one.first for one in marks),
                max(one.last for one in marks),
                max(one.crashes for one in marks),
            )

        async def write() -> None:
            try:
                answer = await self._state.mark(self._topic, self._partition, mark)
                if answered:
                    await answer
            except StateError:
                log.debug("crash.mark_not_kept", topic=self._topic, partition=self._partition)

        sending = asyncio.create_task(write())
        self._sending.add(sending)  # the event loop holds no reference to it
        sending.add_done_callback(self._sending.discard)
        return sending


LARGE: Final = 50_000
"""Bytes of a record that others of its partition do not wait for: checking it takes up to two seconds."""


def small_first(
    records: Sequence[InboundRecord], most: int | None = None, held: Collection[bytes | None] = ()
) -> tuple[list[InboundRecord], list[InboundRecord]]:
    """Split a batch into small records that run first, and those behind; those of one key or none keep their order.

    At most `most` bytes run first, or all that are not large; `held`: keys of unfinished records of earlier batches.
    """
    left = float("inf") if most is None else most
    fitting: set[int] = set()
    for record in sorted(records, key=_size):
        left -= _size(record)
        if left < 0 or _size(record) >= LARGE:
            break
        fitting.add(record.offset)
    return split(records, set(held), lambda record: record.offset not in fitting)


def parts_of(records: Sequence[InboundRecord], most: int) -> Iterator[list[InboundRecord]]:
    """Split large records into sub-batches of at most `most` bytes, or of one record."""
    part: list[InboundRecord] = []
    for record in records:
        if part and sum(map(_size, part)) + _size(record) > most:
            yield part
            part = []
        part.append(record)
    if part:
        yield part


def _size(record: InboundRecord) -> int:
    return len(record.value or b"")


def keys_of(records: Iterable[InboundRecord]) -> Counter[bytes | None]:
    return Counter(record.key for record in records)


def split(
    items: Iterable[_T],
    keys: set[bytes | None],
    waits: Callable[[_T], bool],
    key_of: Callable[[Any], bytes | None] = attrgetter("key"),
) -> tuple[list[_T], list[_T]]:
    """Split items into free ones, and those that wait or follow a waiting one in their key; `keys` wait already.

    Items without a key follow whichever waits.
    """
    free: list[_T] = []
    follow: list[_T] = []
    for item in items:
        key = key_of(item)
        if key in keys or (keys and key is None) or waits(item):
            keys.add(key)
            follow.append(item)
        else:
            free.append(item)
    return free, follow


class Aside:
    """The records that are set aside, with those that follow them in their key.

    Attributes:
        buckets: of state that a record depends on, by offset, once known.
    """

    def __init__(self) -> None:
        self.buckets: dict[int, set[int]] = {}
        self._keys: dict[int, bytes | None] = {}

    def split(self, records: Sequence[InboundRecord]) -> tuple[list[InboundRecord], list[InboundRecord]]:
        """Split records into free ones, and those that follow a set-aside one in their key."""
        return split(records, set(self._keys.values()), lambda _record: False)

    def add(self, records: Iterable[InboundRecord]) -> None:
        self._keys |= {record.offset: record.key for record in records}

    def ready(
        self, records: Sequence[InboundRecord], waits: Callable[[set[int]], bool]
    ) -> list[InboundRecord]:
        """Return the records that neither wait nor follow a waiting one or one of an earlier batch."""

        def wait(record: InboundRecord) -> bool:
            return waits(self.buckets.get(record.offset, set()))

        if all(map(wait, records)):
            return []
        first = records[0].offset
        earlier = {key for offset, key in self._keys.items() if offset < first}
        return split(records, earlier, wait)[0]

    def remove(self, records: Iterable[InboundRecord]) -> None:
        for record in records:
            self._keys.pop(record.offset, None)
            self.buckets.pop(record.offset, None)


class LeaseLost(Exception):
    """The partition is revoked or the worker stops; waiting work is left to the next holder."""


class PartitionLease:
    """The time for which a partition is held; nothing waits longer.

    Batches run one after the other, but large records of one (`small_first`) run beside small ones of the next.

    Attributes:
        held: keys of unfinished records that are behind.
        aside: those of them that depend on an unreachable shard.
        guard: set by the first batch.
    """

    guard: CrashGuard

    def __init__(self, earlier: Collection[asyncio.Task[None]] = ()) -> None:
        self._over = asyncio.Event()
        self._earlier = earlier  # the unfinished batches of the lease before
        self._first, self._behind = asyncio.Lock(), asyncio.Lock()  # both are fair
        self.held: Counter[bytes | None] = Counter()
        self.aside = Aside()
        self.broken = False

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def end(self) -> None:
        self._over.set()

    def insist_held(self) -> None:
        """Raise LeaseLost if the partition is revoked or an earlier batch was left unfinished."""
        if self.broken or self.over:
            raise LeaseLost

    @asynccontextmanager
    async def first(self) -> AsyncIterator[None]:
        """Wait for the first part of all earlier batches. Raises: LeaseLost."""
        async with self._first:
            if self._earlier:
                await asyncio.wait(self._earlier)
                self._earlier = ()
            self.insist_held()
            yield

    @asynccontextmanager
    async def behind(self) -> AsyncIterator[None]:
        """Wait for the rest of all earlier batches; entered within `first` or right after it. Raises: LeaseLost."""
        async with self._behind:
            self.insist_held()
            yield

    async def wait_for(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await work that may be cancelled. Raises: LeaseLost if the lease ends meanwhile."""
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
        """Sleep. Raises: LeaseLost if the lease ends meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return
        raise LeaseLost


STATE_SECONDS: Final = 5.0
"""Seconds without an answer of state after which a worker is not ready; it is asked every second."""


class Health:
    """What the worker waits for, and when it last made progress: liveness and readiness. Logged once per change."""

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
        """The dependencies that batches wait for."""
        return frozenset(self._current)

    def begin(self, dependency: str) -> None:
        if dependency not in self._current:
            self._current.add(dependency)
            metrics.PAUSED.labels(dependency).set(1)
            log.warning("paused", dependency=dependency)

    def end(self, dependency: str) -> None:
        if dependency in self._current:
            self._current.remove(dependency)
            metrics.PAUSED.labels(dependency).set(0)
            log.info("resumed", dependency=dependency)

    @property
    def waits_for(self) -> frozenset[str]:
        """The dependencies waited for, state included if it was silent for too long."""
        answered = self._state_answered
        silent = answered is None or self._clock() - answered > STATE_SECONDS
        return self.current | {"state"} if silent else self.current

    def state_answered(self) -> None:
        self._state_answered = self._clock()

    def tick(self) -> None:
        self.loop_ticked = self._clock()

    def start_batch(self) -> None:
        if not self.under_way:
            self.progress()
        self.under_way += 1

    def progress(self) -> None:
        self._progressed = self._clock()

    def alive(self, seconds: float) -> bool:
        """Return whether, within `seconds`, the event loop ran and work progressed or waits for a dependency."""
        now = self._clock()
        if now - self.loop_ticked > seconds:
            return False
        return not self.under_way or bool(self._current) or now - self._progressed < seconds

    def ready(self) -> bool:
        """Return whether the worker has joined its group, state answers, and nothing is waited for."""
        return self.partitions is not None and not self.waits_for


class PartitionWorkers:
    """Processes the batches of each partition in order, and partitions concurrently.

    `process_batch` raises LeaseLost to leave a batch to the partition's next holder, anything else to end the process.
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
        """Queue a batch behind the unfinished ones of its partition."""
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
        """Revoke all leases: waiting and queued batches end, work in progress finishes."""
        for lease in self._leases.values():
            lease.end()

    def stop(self) -> None:
        self._stopped = True
        self.release()

    async def _run(self, event: Any, lease: PartitionLease) -> None:  # noqa: ANN401 - Faust's event
        message, consumer = event.message, event.app.consumer
        try:
            await self._process_batch(event.value, lease, partial(consumer.read_on, message))
        except BaseException as exc:
            lease.broken = True  # later batches must not commit past this one; the next holder reads it again
            consumer.give_back(message)
            if not isinstance(exc, Exception):
                raise
            if not isinstance(exc, LeaseLost):
                report_fault("partition.failed", exc, topic=message.topic, partition=message.partition)
                await event.app.crash(exc)
        else:
            consumer.mark_done(message)
        finally:
            self._health.under_way -= 1

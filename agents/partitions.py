"""Partitions of a worker: leases, the loop that starts what may start, crash marks, and health."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import structlog
from faust.types import TP

from agents.book import Entry, PartitionBook
from groundwire import metrics
from groundwire.errors import StateError
from groundwire.logs import report_fault
from groundwire.state.model import InFlightMark
from groundwire.state.redis import RedisState

log = structlog.get_logger()

GIVEN_UP: Final = 3
"""Crashes at which a record becomes a dead letter."""

_MARK_SECONDS: Final = 0.25
"""How long a mark is waited for; a lost one costs one more crash."""

_DUE_POLL: Final = 0.5
"""Seconds between two looks at records that wait for a time."""

_HEALTH_POLL: Final = 5.0

_T = TypeVar("_T")


class CrashMarks:
    """Writes the mark of a partition's running records, and reads the one that a dead worker left."""

    def __init__(self, state: RedisState, topic: str, partition: int) -> None:
        self._state = state
        self._topic = topic
        self._partition = partition
        self._sending: set[asyncio.Task[None]] = set()

    async def left(self) -> InFlightMark | None:
        """Return the mark of the last worker with this crash counted; unreachable state counts as none."""
        try:
            left = await self._state.marks(self._topic, self._partition)
        except StateError:
            return None
        if left is None:
            return None
        found = InFlightMark(left.first, left.last, left.crashes + 1)
        log.warning(
            "crash.found",
            topic=self._topic,
            partition=self._partition,
            first=found.first,
            last=found.last,
            crashes=found.crashes,
        )
        return found

    async def write(self, mark: InFlightMark | None, *, answered: bool = False) -> None:
        """Write a mark before its records are processed.

        It survives this process once the operating system has it, so its answer is waited for only if asked to be.
        """
        await asyncio.wait([self.send(mark, answered=answered)], timeout=_MARK_SECONDS)

    def send(self, mark: InFlightMark | None, *, answered: bool = False) -> asyncio.Task[None]:
        sending = asyncio.create_task(self._send(mark, answered=answered))
        self._sending.add(sending)  # the event loop holds no reference to it
        sending.add_done_callback(self._sending.discard)
        return sending

    async def _send(self, mark: InFlightMark | None, *, answered: bool) -> None:
        try:
            answer = await self._state.mark(self._topic, self._partition, mark)
            if answered:
                await answer
        except StateError:
            log.debug("crash.mark_not_kept", topic=self._topic, partition=self._partition)


class LeaseLost(Exception):
    """The partition is revoked or the worker stops; waiting work is left to the next holder."""


class PartitionLease:
    """The time for which a partition is held; nothing waits longer."""

    def __init__(self) -> None:
        self._over = asyncio.Event()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def end(self) -> None:
        self._over.set()

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

    async def changed(self, event: asyncio.Event, seconds: float | None) -> None:
        """Wait for an event, or so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await event.wait()

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


class PartitionLoop:
    """Starts what may start of a partition: one portion of small records and one of large ones at a time.

    Args:
        book: the partition's records.
        process: takes a portion to its end; raises LeaseLost to leave it to the next holder, anything else to end the
            process.
        earlier: the portions that run of the lease before.
        alone: tells whether records are tried one at a time.
        room: called when the partition may be read on.
    """

    def __init__(
        self,
        book: PartitionBook,
        process: Callable[[list[Entry], PartitionLoop], Awaitable[None]],
        marks: CrashMarks,
        health: Health,
        *,
        earlier: Collection[asyncio.Task[None]] = (),
        alone: Callable[[], bool] = lambda: False,
        room: Callable[[], None] = lambda: None,
    ) -> None:
        self.book = book
        self.lease = PartitionLease()
        self.marks = marks
        self.running: set[asyncio.Task[None]] = set(earlier)
        self.error: Exception | None = None
        self._process = process
        self._health = health
        self._alone = alone
        self._room = room
        self._changed = asyncio.Event()
        self._busy: dict[bool, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Look again at what may start."""
        self._changed.set()

    def end(self) -> None:
        """End the lease: what waits is left to the next holder, what runs is finished."""
        self.lease.end()
        self.wake()

    async def run(self) -> None:
        """Run until the lease ends, and finish what runs then. Raises: whatever `process` raises but LeaseLost."""
        if self.running:
            await asyncio.wait(self.running)
        self.book.isolate(await self.marks.left())
        while not self.lease.over:
            self._changed.clear()
            for large in (False, True):
                if large not in self._busy:
                    self._start(large=large)
            if self.book.has_room:
                self._room()
            await self.lease.changed(self._changed, _DUE_POLL if self.book.waits else None)
        if self.running:
            await asyncio.wait(self.running)
        if self.error is not None:
            raise self.error

    def _start(self, *, large: bool) -> None:
        portion = self.book.take(large=large, most=1 if self._alone() else None)
        if not portion:
            return
        self._health.start_batch()
        task = asyncio.create_task(self._run(portion, large=large))
        self._busy[large] = task
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def _run(self, portion: list[Entry], *, large: bool) -> None:
        try:
            await self._process(portion, self)
        except LeaseLost:
            pass
        except Exception as exc:  # noqa: BLE001 - the loop raises it
            self.error = exc
            self.end()
        finally:
            self._health.under_way -= 1
            del self._busy[large]
            self.wake()


class PartitionWorkers:
    """The loops of the assigned partitions.

    Args:
        begin: makes the loop of a partition from its book, the portions of the last lease that still run, and what to
            call when it may be read on.
    """

    def __init__(
        self,
        begin: Callable[
            [TP, PartitionBook, Collection[asyncio.Task[None]], Callable[[], None]], PartitionLoop
        ],
    ) -> None:
        self._begin = begin
        self._loops: dict[TP, PartitionLoop] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._before: dict[TP, set[asyncio.Task[None]]] = {}
        self._stopped = False

    def take_over(self, _tps: object = None) -> None:
        """Begin new leases after a rebalance."""
        for tp, loop in self._loops.items():
            loop.end()
            self._before.setdefault(tp, set()).update(loop.running)
        self._loops = {}

    def submit(self, event: Any) -> None:  # noqa: ANN401 - Faust's event
        """Wake the loop of the partition of which records were fetched."""
        message, consumer = event.message, event.app.consumer
        consumer.release(message)
        book = consumer.books.get(message.tp)
        if book is None or self._stopped:  # an earlier assignment's
            return
        loop = self._loops.get(message.tp)
        if loop is None:
            before = self._before.pop(message.tp, set())
            loop = self._begin(message.tp, book, before, partial(consumer.note_room, message.tp))
            self._loops[message.tp] = loop
            task = asyncio.create_task(self._run(loop, event.app, message.tp))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        loop.wake()

    def release(self, _tps: object = None) -> None:
        """End all leases: what waits is left to the next holder, what runs is finished."""
        for loop in self._loops.values():
            loop.end()

    def stop(self) -> None:
        self._stopped = True
        self.release()

    async def finish(self) -> None:
        """Wait for what runs."""
        running = {task for loop in self._loops.values() for task in loop.running}
        if running:
            await asyncio.wait(running)

    async def _run(self, loop: PartitionLoop, app: Any, tp: TP) -> None:  # noqa: ANN401 - Faust's app
        try:
            await loop.run()
        except Exception as exc:  # noqa: BLE001 - the next owner reads the records again
            report_fault("partition.failed", exc, topic=tp.topic, partition=tp.partition)
            await app.crash(exc)

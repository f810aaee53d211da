"""What Groundwire replaces in Faust and aiokafka: a fetch is one event, and offsets are tracked here.

Stock Faust passes every record through conductor, channel, event and stream, and its offset tracking commits past an
unfinished event. Here `getmany` yields **one** message per fetched partition: its value is the list of records, its
offset the last one read, transaction markers included. Offsets are committed up to the first undone one of the book.

This holds for the versions below. Before upgrading, read `faust/transport/consumer.py` again and run
`tests/stream/test_batches.py`; docs/develop/faust.md lists what else Faust would lose, duplicate or delay.
"""

# ruff: noqa: SLF001 - bound to the internals of these versions

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from types import MappingProxyType
from typing import Any, ClassVar, Final

import faust
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import ConsumerStoppedError, UnsupportedCodecError
from aiokafka.structs import OffsetAndMetadata
from faust.tables.manager import TableManager
from faust.transport.drivers import aiokafka as driver
from faust.types import TP, TopicT
from faust.utils import venusian
from mode.utils.futures import maybe_async

from agents.book import PartitionBook
from groundwire.errors import UsageError
from groundwire.kafka.connection import ISOLATION, back_off, codec_missing, inbound

VERSIONS: Final = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1", "aiokafka": "0.14.0"}

FETCH_WAIT: Final = 100
"""Milliseconds that the broker may hold a fetch.

aiokafka keeps one fetch per broker in flight, for partitions without buffered records; with Faust's 1.5 s a busy
partition beside silent ones got one batch in 1.5 s.
"""

_SHORT_WAIT: Final = 10
"""The same for a fetch without a partition whose records are still buffered."""

_SHORT_FOR: Final = 1.0
"""Seconds for which buffered records shorten fetches."""

_PREFETCH_PAUSE: Final = 0.005
"""Seconds for which buffered records delay fetching other partitions without theirs.

With aiokafka's 0.1 s, half of the records beside a busy partition were 50 ms old when they were read.
"""

# Faust's bookkeeping for a scan that no worker makes would read the sources of all modules
venusian.attach = lambda *_noted, **_options: None


def check_versions() -> None:
    """Refuse versions of Faust that this file was not written for. Raises: UsageError."""
    for package, expected in VERSIONS.items():
        found = version(package)
        if found != expected:
            raise UsageError(
                f"{package} is {found}, workers need {expected}: install groundwire[worker] as locked"
            )
    try:
        from faust._cython.streams import StreamIterator  # noqa: F401, PLC0415 - only its presence matters
    except ImportError:
        raise UsageError(
            "Faust's compiled extension is missing, and without it records are acked differently: "
            "install a wheel of faust-streaming, without NO_CYTHON"
        ) from None


class RawSchema(faust.Schema[Any, Any]):
    """Passes keys and values through: the gate decodes them, so that a bad record is a dead letter."""

    def loads_key(self, app: Any, message: Any, **_options: Any) -> Any:  # noqa: ANN401, ARG002 - Faust's signature
        return message.key

    def loads_value(self, app: Any, message: Any, **_options: Any) -> Any:  # noqa: ANN401, ARG002
        return message.value


def raw_topic(app: faust.App, name: str) -> TopicT:
    """Return an existing topic to read raw batches from."""
    return app.topic(name, schema=RawSchema(), allow_empty=True, internal=False)


class NoTables(TableManager):
    """Subscribes as soon as all agents know their topics; no worker has a table.

    Faust sleeps for a second instead, and subscribes agents that come later after 45 s.
    """

    async def on_start(self) -> None:
        def agents_read() -> bool:
            read = {name for topic in self.app.topics for name in topic.topics}
            return all(read.issuperset(agent.get_topic_names()) for agent in self.app.agents.values())

        while not self.should_stop and not agents_read():
            await self.sleep(0.01)  # ends when the worker does
        if not self.should_stop:
            await self._update_channels()
            await self.recovery.start()


class LoopConsumer(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread without the thread: fetches return soon, and it stops without a broker too.

    Between threads, fetches, commits and waits compete with the pipeline for the GIL, and handing over a batch took
    milliseconds. Nothing in the pipeline blocks the event loop for long.

    On stop, aiokafka leaves the group and cancels its fetches; one that backs off from an unreachable broker passes the
    cancellation on to the caller.
    """

    seals: Mapping[TP, tuple[int, str]] = MappingProxyType({})
    """End offset and hash of the last seal of each partition."""

    def __init__(self, consumer: Any, *, loop: Any, beacon: Any) -> None:  # noqa: ANN401 - Faust's own arguments
        super().__init__(consumer, loop=loop, thread_loop=loop, beacon=beacon)

    async def start(self) -> None:
        self._thread_started.set()
        await self._default_start()

    async def call_thread(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as Faust
        return await maybe_async(fun(*args, **kwargs))

    async def on_stop(self) -> None:
        """Stop the consumer; if that is cancelled, close its connections."""
        try:
            if self._consumer is not None:
                await self._consumer.stop()
        except asyncio.CancelledError:
            await self._ensure_consumer()._client.close()
        self.set_shutdown()

    async def _stop_futures(self) -> None:
        await self._default_stop_futures()

    def _create_worker_consumer(self, transport: Any) -> Any:  # noqa: ANN401 - Faust's transport, aiokafka's consumer
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT  # Faust has no setting for it
        consumer._isolation_level = ISOLATION  # Faust ties it to transactions of its own
        worker_consumer: Any = consumer  # mypy guards methods
        commit: Any = consumer.commit

        async def commit_sealed(offsets: Mapping[Any, OffsetAndMetadata]) -> None:
            """Commit offsets with the hash of the seal that ends there as metadata, which Faust leaves empty."""
            seals = {(*tp, end): seal for tp, (end, seal) in self.seals.items()}
            await commit(
                {tp: OffsetAndMetadata(at, seals.get((*tp, at), "")) for tp, (at, _) in offsets.items()}
            )

        worker_consumer.commit = commit_sealed
        return back_off(consumer)

    async def on_start(self) -> None:
        """Start aiokafka's consumer, with fetches that wait for no busy partition."""
        await super().on_start()
        fetcher: Any = self._ensure_consumer()._fetcher
        fetcher._prefetch_backoff = _PREFETCH_PAUSE
        actions, update = fetcher._get_actions_per_node, fetcher._update_fetch_positions

        def hurry(assignment: Any) -> Any:  # noqa: ANN401 - aiokafka's
            """Shorten the wait of fetches while records are buffered, then do as aiokafka."""
            since = time.monotonic() - _SHORT_FOR
            in_hurry = any(waiting._created > since for waiting in fetcher._records.values())
            fetcher._fetch_max_wait_ms = _SHORT_WAIT if in_hurry else FETCH_WAIT
            return actions(assignment)

        async def note_starts(assignment: Any, node: int, tps: Sequence[TopicPartition]) -> bool:  # noqa: ANN401
            """Record the start positions of partitions, and what they were committed with, before anything is read."""
            consumer: Any = self.consumer
            for tp in tps:
                state = assignment.state_value(tp)
                state.fetch_committed = partial(_noted, state, consumer.starts, TP(*tp))
            updated: bool = await update(assignment, node, tps)
            consumer.positions |= _positions(assignment, tps)
            return updated

        fetcher._get_actions_per_node, fetcher._update_fetch_positions = hurry, note_starts

    def wake(self) -> None:
        """Wake a waiting fetch: a partition that it left out has room now."""
        if self._consumer is not None:
            fetcher: Any = self._consumer._fetcher
            for waiter in fetcher._fetch_waiters:
                fetcher._notify(waiter)


async def _noted(state: Any, starts: dict[TP, OffsetAndMetadata], tp: TP) -> OffsetAndMetadata:  # noqa: ANN401 - aiokafka's
    starts[tp] = await type(state).fetch_committed(state)
    return starts[tp]


def _positions(assignment: Any, tps: Iterable[tuple[str, int]]) -> dict[TP, int]:  # noqa: ANN401 - aiokafka's
    """Return the next offset to read of each partition, if known."""
    states = {TP(*tp): assignment.state_value(tp) for tp in tps}
    return {tp: state.position for tp, state in states.items() if state and state.has_valid_position}


class _NoOffsetsRead(defaultdict[Any, Any]):
    """Disables Faust's memory of read offsets: it drops records that a rebalance reads again."""

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: ANN401 - a partition and an offset
        """Forget."""


class BatchConsumer(driver.Consumer):
    """Yields batches, and commits up to the first one that is not done."""

    app: Any

    def _new_consumer_thread(self) -> LoopConsumer:
        return LoopConsumer(self, loop=self.loop, beacon=self.beacon)

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Faust's own arguments
        super().__init__(*args, **kwargs)
        self._read_offset = _NoOffsetsRead(lambda: None)
        self._held = False
        #: Fetchable partitions; the fetch in flight sees changes.
        self._ready: set[TP] = set()
        self._freed = asyncio.Event()
        #: Next offsets to read.
        self.positions: dict[TP, int] = {}
        #: What was committed when the assignment began, offset -1 for nothing; who holds a partition next commits more.
        self.starts: dict[TP, OffsetAndMetadata] = {}
        self._forget()

    def _forget(self) -> None:
        #: Every record that is fetched and not done, by partition.
        self.books: dict[TP, PartitionBook] = {}

    def _book(self, tp: TP) -> PartitionBook:
        if tp not in self.books:
            self.books[tp] = self.app.new_book()
        return self.books[tp]

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:  # noqa: ASYNC109 - Faust's signature
        """Fetch once, and yield one message per partition with records.

        Fetched records are dropped only when partitions are assigned anew; a rebalance may come between any two awaits.
        """
        assignment, records = await self._fetch(timeout)
        if assignment and assignment.active and self._held:  # else the positions are those of an earlier one
            before = self.positions
            self.positions = before | _positions(assignment, self._ready)
            for tp in self._ready - records.keys():
                if self.positions.get(tp, 0) > before.get(tp, math.inf):  # markers, aborted records
                    self._book(tp).pass_over(self.positions[tp], first=before[tp])
        for tp, fetched in records.items():
            if not self.flow_active:
                await self.wait_first(self.can_resume_flow.wait())
            if self.should_stop or not assignment.active:
                return
            message: Any = self._to_message(tp, fetched[-1])
            message.offset = max(message.offset, self.positions.get(tp, 0) - 1)
            message.value = [inbound(record) for record in fetched]
            self._book(tp).add(message.value, message.offset + 1)
            yield tp, message

    async def _drain_messages(self, fetcher: Any) -> None:  # noqa: ANN401 - Faust's
        """Hand on fetched batches until the worker ends; Faust creates four tasks per message for that."""
        try:
            while not (self.should_stop or fetcher.should_stop):
                async for _, message in self.getmany(timeout=1.0):
                    await self.callback(message)
                await asyncio.sleep(0)
        except (asyncio.CancelledError, ConsumerStoppedError):
            if not self.transport.app.should_stop:
                raise
        except UnsupportedCodecError as exc:
            self.app.give_up(codec_missing(exc))  # no retry installs it

    async def _fetch(self, timeout: float) -> tuple[Any, Mapping[TP, list[Any]]]:  # noqa: ASYNC109
        if not self.flow_active:
            await self.wait_first(self.can_resume_flow.wait())
        self._ready = {tp for tp in self._get_active_partitions() if self._has_room(tp)}
        self._freed.clear()
        if not self._ready or self.should_stop:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.1):
                    await self._freed.wait()
            return None, {}
        consumer, ready = self._thread._ensure_consumer(), self._ready
        limit = consumer._max_poll_records
        records = await self._thread._fetch_records(consumer, ready, timeout=timeout, max_records=limit)
        # the assignment that it was for: nothing is awaited in between
        return consumer._subscription.subscription.assignment, records

    def _has_room(self, tp: TP) -> bool:
        return tp not in self.books or self.books[tp].has_room

    def note_room(self, tp: TP) -> None:
        """Mark the partition fetchable, for the fetch in flight too."""
        if tp not in self._ready and self._held and self._has_room(tp):
            self._ready.add(tp)
            self._freed.set()
            thread: Any = self._thread
            thread.wake()

    def release(self, message: Any) -> None:  # noqa: ANN401 - Faust's message
        """Have Faust forget a message: the book keeps its records."""
        message.acked = True
        self._unacked_messages.discard(message)

    def partitions_of(self, topic: str) -> int:
        """Return the number of a topic's partitions, as of the last metadata; 0 if it is unknown."""
        return len(self._thread._ensure_consumer().partitions_for_topic(topic) or ())

    def backlog(self) -> tuple[int, float]:
        """Return the undone records of the assigned partitions, and the age of the oldest fetch in seconds.

        Ends of partitions are as of the last fetch; records in open transactions do not count.
        """
        assignment = (
            self._thread._ensure_consumer()._subscription.subscription.assignment if self._held else None
        )
        records, fetched_at = 0, [entry.fetched_at for book in self.books.values() for entry in book.undone]
        for tp, book in self.books.items():
            state = assignment and assignment.state_value(tp)
            if state is not None and state.lso is not None and book.committable is not None:
                records += max(0, state.lso - book.committable)
        return records, time.monotonic() - min(fetched_at) if fetched_at else 0.0

    def ack(self, message: Any) -> bool:  # noqa: ANN401, ARG002
        return False

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:  # noqa: ANN401, ARG002, FBT001, FBT002 - Faust's
        """Commit what is done of each partition, sealed first; what cannot be sealed is tried at the next commit."""
        ends = {tp: (book.committable, book.first_offset or 0) for tp, book in self.books.items()}
        offsets = {
            tp: end
            for tp, (end, begin) in ends.items()
            if end is not None and end > max(begin, self._committed_offset.get(tp) or 0)
        }
        if offsets and self.app.seal is not None:
            thread: Any = self._thread
            thread.seals = await self.app.seal(offsets)
            offsets = {tp: end for tp, (end, _) in thread.seals.items()}
        return bool(offsets) and await self._commit_offsets(offsets)

    async def wait_empty(self) -> None:
        """Wait until nothing runs, and commit what is done.

        Faust's commit does nothing if another one is running, which may have begun too early.
        """
        await self.app.finish_running()
        await self.maybe_wait_for_commit_to_finish()
        await self.commit()

    async def perform_seek(self) -> None:
        """Do nothing: aiokafka starts each assignment at the committed offsets.

        Faust seeks again before it resumes; records of the new assignment already handed out would be read twice.
        """

    def resume_flow(self) -> None:
        """Resume unless partitions are being revoked: a late resumption of an earlier assignment is ignored."""
        if self._held:
            super().resume_flow()

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Finish and commit what is in flight, then forget the partitions; Faust forgets first."""
        self._held = False
        self.app.before_revocation(set(revoked))
        self.stop_flow()
        self.app.flow_control.suspend()
        self.app.flow_control.clear()
        await self.wait_empty()
        await super().on_partitions_revoked(revoked)
        self.positions, self.starts = {}, {}  # not at assignment: reading may begin before that callback
        self._forget()

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Take over partitions; everything read before the rebalance is forgotten."""
        self._forget()
        self._held = True
        self.app.before_assignment(set(assigned))
        await super().on_partitions_assigned(assigned, generation_id)
        for tp in assigned:
            self.note_room(tp)
        self.app.after_assignment(set(assigned))


class PatientProducer(AIOKafkaProducer):
    """Keeps batches however long a partition has no leader; `Publisher` decides how long to wait.

    aiokafka drops them after the request timeout, with their sequence numbers, and the broker refuses all that follow.
    """

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[no-untyped-call]  # aiokafka's
        self._message_accumulator._batch_ttl = math.inf
        back_off(self)


class IdempotentProducer(driver.Producer):
    """An idempotent producer, which Faust only has with its transactions."""

    @property
    def _producer_type(self) -> type[AIOKafkaProducer]:
        return PatientProducer

    def _settings_extra(self) -> dict[str, Any]:
        return {"acks": "all", "enable_idempotence": True, "linger_ms": 0}


class BatchTransport(driver.Transport):
    Consumer: ClassVar[Any] = BatchConsumer
    Producer: ClassVar[Any] = IdempotentProducer


class BatchApp(faust.App):
    """A Faust app over BatchTransport.

    Attributes:
        new_book: makes the book of an assigned partition.
        finish_running: waits until no record is being processed.
        before_revocation: called before partitions are revoked, to end waiting work.
        before_assignment: called with all partitions, before any record.
        after_assignment: called with all partitions, once they can be read.
        give_up: called with the error that keeps the worker from reading on.
        seal: seals offsets to commit, and returns those that may be committed with their hashes; None: no seals.
    """

    new_book: Callable[[], PartitionBook]
    finish_running: Callable[[], Awaitable[None]]
    before_revocation: Callable[[set[TP]], None]
    before_assignment: Callable[[set[TP]], None]
    after_assignment: Callable[[set[TP]], None]
    give_up: Callable[[UsageError], None]
    seal: Callable[[Mapping[TP, int]], Awaitable[Mapping[TP, tuple[int, str]]]] | None = None

    def _create_directories(self) -> None:
        """Create none: the file system may be read-only."""

    def _new_transport(self) -> Any:  # noqa: ANN401
        return BatchTransport(self.conf.broker_consumer, self)

    def _new_producer_transport(self) -> Any:  # noqa: ANN401
        return BatchTransport(self.conf.broker_producer, self)

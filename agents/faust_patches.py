"""What Groundwire replaces in Faust and aiokafka: a fetch travels as one event, and offsets are counted here.

Stock Faust pays its conductor, channel, event and stream for every record, and its offset bookkeeping commits
past an event that is not finished. Here `getmany` yields, for each partition fetched, **one** message: its value is
the list of records and its offset the last one that was read, markers of transactions included. A message counts once
`mark_done` is called, in the order of its partition; only then may the offset behind it be committed.

This holds for the versions below. Whoever upgrades them reads `faust/transport/consumer.py` again and runs
`tests/stream/test_batches.py`, which fails when Faust changes what this file relies on. docs/develop/faust.md
lists what else Faust's behaviour would lose, double or delay.
"""

# ruff: noqa: SLF001 - this file stands inside Faust and aiokafka, and is bound to their versions for that

from __future__ import annotations

import asyncio
import math
import time
from collections import defaultdict, deque
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
from faust.types import TP
from mode.utils.futures import maybe_async

from groundwire.errors import UsageError
from groundwire.kafka.connection import ISOLATION, back_off, codec_missing, inbound
from groundwire.messages.headers import InboundRecord

VERSIONS: Final = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1", "aiokafka": "0.14.0"}

FETCH_WAIT: Final = 100
"""Milliseconds that a fetch may wait at the broker for records; an idle worker asks each broker that often.

aiokafka has one fetch under way to each broker, for the partitions of which it holds no records at that time; others
wait until it returns. With Faust's 1.5 s, a busy partition beside silent ones gave one batch in 1.5 s.
"""

_SHORT_WAIT: Final = 10
"""The same of a fetch that leaves out a partition, because records of it still wait here to be taken."""

_SHORT_FOR: Final = 1.0
"""Seconds for which records that wait here have fetches return soon; one whose batches take longer is in no hurry."""

_PREFETCH_PAUSE: Final = 0.005
"""Seconds for which records may wait here before the other partitions are fetched without theirs.

aiokafka's 0.1 s kept every partition of a broker waiting where one of them had two batches in work: half of the records
were 50 ms old when they were read.
"""

_FULL_POLL: Final = 0.1
"""Seconds after which room is looked for again where every partition has its batches; one that is done ends that."""

_FETCH_SECONDS: Final = 1.0
"""Seconds after which a fetch without records looks which partitions there are."""

_OBJECT: Final = 500
"""Bytes of a record that waits, besides its key and value."""

_TABLES_POLL: Final = 0.01
_NOTHING: Final = OffsetAndMetadata(-1, "")


def check_versions() -> None:
    """Refuse to run on a Faust that this file was not written for. Raises: UsageError."""
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


class NoTables(TableManager):
    """Lets the consumer subscribe as soon as all agents read their topics; no worker has a table.

    Faust's own sleeps for a second and takes the agents to be ready by then: a later one is subscribed after 45 s.
    """

    async def on_start(self) -> None:
        """Wait until the topics of all agents are known, then subscribe."""
        while not self.should_stop and not self._agents_read():
            await self.sleep(_TABLES_POLL)  # ends when the worker does
        if not self.should_stop:
            await self._update_channels()
            await self.recovery.start()

    def _agents_read(self) -> bool:
        read = {name for topic in self.app.topics for name in topic.topics}
        return all(read.issuperset(agent.get_topic_names()) for agent in self.app.agents.values())


class LoopConsumer(driver.AIOKafkaConsumerThread):
    """Faust's consumer thread without the thread: fetches return soon, and it ends in good order without a broker too.

    Between two threads each fetch, each commit and each wait of aiokafka fought with the pipeline for the interpreter,
    and to hand a batch over took up to some milliseconds. Nothing in the pipeline holds up the event loop for long.

    aiokafka's consumer leaves its group, and then cancels what it still fetches. A fetch that waits to ask an
    unreachable broker again passes the cancellation on to whoever stops the consumer.
    """

    seals: Mapping[TP, tuple[int, str]] = MappingProxyType({})
    """The offset behind the last seal of each partition, and the hash of that seal."""

    def __init__(self, consumer: Any, *, loop: Any, beacon: Any) -> None:  # noqa: ANN401 - Faust's own arguments
        super().__init__(consumer, loop=loop, thread_loop=loop, beacon=beacon)

    async def start(self) -> None:
        """Start in the event loop of the app."""
        self._thread_started.set()
        await self._default_start()

    async def call_thread(self, fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as Faust
        """Call what Faust would have its thread do."""
        return await maybe_async(fun(*args, **kwargs))

    async def on_stop(self) -> None:
        """Stop the consumer; where that is cut short, only its connections are left to close."""
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
        self._replace_commit(consumer)
        return back_off(consumer)

    async def on_start(self) -> None:
        """Start aiokafka's consumer, and have its fetches wait for no partition that has its batches."""
        await super().on_start()
        fetcher: Any = self._ensure_consumer()._fetcher
        fetcher._prefetch_backoff = _PREFETCH_PAUSE
        fetcher._get_actions_per_node = partial(_actions, fetcher, fetcher._get_actions_per_node)
        fetcher._update_fetch_positions = partial(self._note_starts, fetcher._update_fetch_positions)

    async def _note_starts(
        self,
        update: Callable[[Any, int, Sequence[TopicPartition]], Awaitable[bool]],
        assignment: Any,  # noqa: ANN401 - aiokafka's
        node: int,
        tps: Sequence[TopicPartition],
    ) -> bool:
        """Have aiokafka find where partitions are read from, and note it before anything is read."""
        updated = await update(assignment, node, tps)
        consumer: Any = self.consumer
        consumer.positions |= _positions(assignment, tps)
        return updated

    def wake(self) -> None:
        """Have a fetch that waits look again at what is there: a partition that it left out has room now."""
        if self._consumer is not None:
            fetcher: Any = self._consumer._fetcher
            for waiter in fetcher._fetch_waiters:
                fetcher._notify(waiter)

    def _replace_commit(self, consumer: Any) -> None:  # noqa: ANN401 - aiokafka's, whose methods mypy guards
        consumer.commit = partial(self._commit_sealed, consumer.commit)

    async def _commit_sealed(
        self, commit: Callable[..., Awaitable[None]], offsets: Mapping[Any, OffsetAndMetadata]
    ) -> None:
        """Commit, and beside each offset the hash of the seal that ends there: Faust leaves the metadata empty."""
        seals = {(*tp, end): seal for tp, (end, seal) in self.seals.items()}
        await commit({tp: OffsetAndMetadata(at, seals.get((*tp, at), "")) for tp, (at, _) in offsets.items()})

    async def committed(self, tps: Sequence[TP]) -> dict[TP, OffsetAndMetadata]:
        """Read what the group has committed, with its metadata. Raises: KafkaError."""
        coordinator: Any = self._ensure_consumer()._coordinator
        found = await coordinator.fetch_committed_offsets([TopicPartition(*tp) for tp in tps])
        return {tp: found.get(TopicPartition(*tp), _NOTHING) for tp in tps}


def _size(record: InboundRecord) -> int:
    """Return the bytes that a record takes while it waits, about."""
    return _OBJECT + len(record.key or b"") + len(record.value or b"")


def _positions(assignment: Any, tps: Iterable[tuple[str, int]]) -> dict[TP, int]:  # noqa: ANN401 - aiokafka's
    """Return the next offset to read of those partitions of which it is known."""
    states = {TP(*tp): assignment.state_value(tp) for tp in tps}
    return {tp: state.position for tp, state in states.items() if state and state.has_valid_position}


def _actions(fetcher: Any, actions: Callable[[Any], Any], assignment: Any) -> Any:  # noqa: ANN401 - aiokafka's
    """Return what aiokafka's fetcher asks brokers for, and for how long each of them may wait for records."""
    since = time.monotonic() - _SHORT_FOR
    in_hurry = any(waiting._created > since for waiting in fetcher._records.values())
    fetcher._fetch_max_wait_ms = _SHORT_WAIT if in_hurry else FETCH_WAIT
    return actions(assignment)


class _NoOffsetsRead(defaultdict[Any, Any]):
    """Faust's notes of the offsets it has read: it drops what lies below them, even what a rebalance read again."""

    def __setitem__(self, key: Any, value: Any) -> None:  # noqa: ANN401 - a partition and an offset
        """Forget at once."""


class BatchConsumer(driver.Consumer):
    """Yields batches, and commits behind those that are done, never beyond."""

    app: Any

    #: Batches of one partition that may be on their way at a time, besides those that are read past.
    depth: ClassVar[int] = 1

    #: Bytes of one partition's batches that are not done, from which on it is not read past them.
    read_ahead: ClassVar[int] = 16_000_000

    def _new_consumer_thread(self) -> LoopConsumer:
        return LoopConsumer(self, loop=self.loop, beacon=self.beacon)

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Faust's own arguments
        super().__init__(*args, **kwargs)
        self._read_offset = _NoOffsetsRead(lambda: None)
        self._held = False
        #: Partitions of which batches may be taken; the fetch that is under way looks into it too.
        self._ready: set[TP] = set()
        self._freed = asyncio.Event()
        #: The next offset to read of partitions.
        self.positions: dict[TP, int] = {}
        self._forget()

    def _forget(self) -> None:
        #: Batches that were handed out and may not be committed yet, in the order of their partition.
        self._under_way: defaultdict[TP, deque[Any]] = defaultdict(deque)
        #: Those of them that are not done: while one takes for hours, those behind it that are done are many.
        self._undone: defaultdict[TP, dict[int, Any]] = defaultdict(dict)
        #: Those that are read past: what they still have to do goes on beside the next.
        self._passed: set[int] = set()
        #: The offset behind what is done.
        self._done_until: dict[TP, int] = {}

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:  # noqa: ASYNC109 - Faust's signature
        """Fetch once, and yield one message for each partition that brought records.

        What was fetched is not fetched again unless partitions are assigned anew: then, and only then, it is
        dropped. A rebalance may begin or end while we wait for the records, or while they are taken from us.
        """
        assignment, records = await self._fetch(timeout)
        before = self.positions
        self.positions = before | _positions(assignment, self._ready) if assignment else before
        for tp in self._ready - records.keys():
            if self.positions.get(tp, 0) > before.get(tp, math.inf):
                self._pass_over(tp)
        for tp, fetched in records.items():
            if not self.flow_active:
                await self.wait_first(self.can_resume_flow.wait())
            if self.should_stop or not assignment.active:
                return
            message: Any = self._to_message(tp, fetched[-1])
            message.offset = max(message.offset, self.positions.get(tp, 0) - 1)
            message.value = [inbound(record) for record in fetched]
            message.serialized_value_size = sum(map(_size, message.value))
            message.time_in = time.monotonic()
            self._under_way[tp].append(message)
            self._undone[tp][id(message)] = message
            yield tp, message

    async def _drain_messages(self, fetcher: Any) -> None:  # noqa: ANN401 - Faust's
        """Hand on what is fetched until the worker ends; Faust makes four tasks of each message for that."""
        try:
            while not (self.should_stop or fetcher.should_stop):
                async for _, message in self.getmany(timeout=_FETCH_SECONDS):
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
                async with asyncio.timeout(_FULL_POLL):
                    await self._freed.wait()
            return None, {}
        return await self._fetch_for(self._ready, timeout)

    async def _fetch_for(self, tps: set[TP], timeout: float) -> tuple[Any, Mapping[TP, list[Any]]]:  # noqa: ASYNC109
        """Fetch, and say for which assignment; nothing is awaited in between."""
        consumer = self._thread._ensure_consumer()
        limit = consumer._max_poll_records
        records = await self._thread._fetch_records(consumer, tps, timeout=timeout, max_records=limit)
        return consumer._subscription.subscription.assignment, records

    def _has_room(self, tp: TP) -> bool:
        waiting = self._undone[tp].values()
        if sum(message.serialized_value_size for message in waiting) >= self.read_ahead:
            return len(waiting) < self.depth
        return sum(id(message) not in self._passed for message in waiting) < self.depth

    def read_on(self, message: Any) -> None:  # noqa: ANN401 - Faust's message
        """Read past a batch that is not done; its offset is committed no sooner for that."""
        if id(message) in self._undone[message.tp]:
            self._passed.add(id(message))
            self._note_room(message.tp)

    def _note_room(self, tp: TP) -> None:
        """Have a partition read on, also by the fetch that is under way."""
        if tp not in self._ready and self._has_room(tp):
            self._ready.add(tp)
            self._freed.set()
            thread: Any = self._thread
            thread.wake()

    def _pass_over(self, tp: TP) -> None:
        """Commit, in its turn, behind what was read of a partition and is no record, such as a transaction's marker."""
        if waiting := self._under_way[tp]:
            waiting[-1].offset = self.positions[tp] - 1
        else:
            self._note_done(tp, self.positions[tp])

    def _note_done(self, tp: TP, end: int) -> None:
        self._done_until[tp] = end
        self._acked[tp] = [end - 1]  # tells `force_commit` that this partition has something

    def mark_done(self, message: Any) -> None:  # noqa: ANN401 - Faust's message
        """Let go of a batch whose results the broker has acknowledged.

        Its offset may be committed once all batches before it are done. One of an assignment that is over
        counts for nothing: its partition has been read again from what was committed.
        """
        tp = message.tp
        waiting, undone = self._under_way[tp], self._undone[tp]
        if undone.pop(id(message), None) is not None and message is not waiting[0]:
            message.value = ()  # it may wait for long
        self._passed.discard(id(message))
        while waiting and id(waiting[0]) not in undone:
            self._note_done(tp, waiting.popleft().offset + 1)
        self.give_back(message)
        self._note_room(tp)

    def give_back(self, message: Any) -> None:  # noqa: ANN401
        """Let go of a batch; one that is not done is read again by whoever holds its partition next."""
        message.acked = True
        self._unacked_messages.discard(message)
        waiting = self._waiting_for_ack
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def backlog(self) -> tuple[int, float]:
        """Return how many records of partitions read from are not done, and the seconds since the oldest batch began.

        The end of a partition is as the last fetch has told: while nothing is fetched, more may be there. What an open
        transaction holds back cannot be read yet, and does not count.
        """
        assignment = (
            self._thread._ensure_consumer()._subscription.subscription.assignment if self._held else None
        )
        records, taken = 0, [waiting[0].time_in for waiting in self._under_way.values() if waiting]
        for tp in {*self._under_way, *self._done_until}:
            waiting, state = self._under_way[tp], assignment and assignment.state_value(tp)
            done = self._done_until.get(tp, waiting[0].value[0].offset if waiting else None)
            if state is not None and state.lso is not None and done is not None:
                records += max(0, state.lso - done)
        return records, time.monotonic() - min(taken) if taken else 0.0

    def ack(self, message: Any) -> bool:  # noqa: ANN401, ARG002
        """Ignore Faust's own acks: `mark_done` is the only way."""
        return False

    def _new_offset(self, tp: TP) -> int | None:
        return self._done_until.get(tp)

    async def _commit_offsets(self, offsets: Mapping[TP, int], start_new_transaction: bool = True) -> bool:  # noqa: FBT001, FBT002 - Faust's
        """Commit offsets, once what came of the records before them is sealed; others are tried at the next commit."""
        if self.app.seal is not None:
            thread: Any = self._thread
            thread.seals = await self.app.seal(offsets)
            offsets = {tp: end for tp, (end, _) in thread.seals.items()}
        for tp, end in offsets.items():
            if self._done_until.get(tp) == end:
                self._acked.pop(tp, None)
        return bool(offsets) and await super()._commit_offsets(offsets, start_new_transaction)

    async def committed(self, tps: Sequence[TP]) -> dict[TP, OffsetAndMetadata]:
        """Read what the group has committed of partitions, with its metadata. Raises: KafkaError."""
        thread: Any = self._thread
        found: dict[TP, OffsetAndMetadata] = await thread.call_thread(thread.committed, tps)
        return found

    async def wait_empty(self) -> None:
        """Wait until nothing is under way any more, and commit all of it.

        Faust's last commit does nothing where another one is on its way, which may have begun too early.
        """
        await super().wait_empty()
        await self.commit()

    async def perform_seek(self) -> None:
        """Leave the positions alone: aiokafka itself begins each assignment at what was committed.

        Faust goes back there once more before it resumes. By then a fetch that was begun before the rebalance may
        have brought records of the new assignment: they are handed out, and would be read and decided again.
        """

    def resume_flow(self) -> None:
        """Resume, unless partitions are being given away: the resumption of an earlier assignment may come late."""
        if self._held:
            super().resume_flow()

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Let what is under way finish and be committed, then forget the partitions.

        Stock Faust forgets first, and so commits nothing of the last second.
        """
        self._held = False
        self.app.before_revocation(set(revoked))
        self.stop_flow()
        self.app.flow_control.suspend()
        self.app.flow_control.clear()
        await self.wait_empty()
        await super().on_partitions_revoked(revoked)
        self.positions = {}  # not when partitions are assigned: they may be read from before that is told
        self._forget()

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Take over partitions; everything read before the rebalance has been forgotten."""
        self._forget()
        self._held = True
        self.app.before_assignment(set(assigned))
        await super().on_partitions_assigned(assigned, generation_id)
        for tp in assigned:
            self._note_room(tp)
        self.app.after_assignment(set(assigned))


class PatientProducer(AIOKafkaProducer):
    """Keeps what it took, however long a partition has no leader.

    aiokafka gives such a batch up after the time of a request. Its sequence numbers are gone with it, and the broker
    refuses all that follows. How long a batch is waited for is decided by `Publisher`.
    """

    def __init__(self, **settings: object) -> None:
        """Take aiokafka's own settings."""
        super().__init__(**settings)  # type: ignore[no-untyped-call]  # aiokafka's
        self._message_accumulator._batch_ttl = math.inf
        back_off(self)


class IdempotentProducer(driver.Producer):
    """Faust offers an idempotent producer only with its transactions; Groundwire needs it without."""

    @property
    def _producer_type(self) -> type[AIOKafkaProducer]:
        return PatientProducer

    def _settings_extra(self) -> dict[str, Any]:
        return {"acks": "all", "enable_idempotence": True, "linger_ms": 0}


class BatchTransport(driver.Transport):
    """The aiokafka driver with the two replacements."""

    Consumer: ClassVar[Any] = BatchConsumer
    Producer: ClassVar[Any] = IdempotentProducer


class BatchApp(faust.App):
    """A Faust app over BatchTransport.

    Attributes:
        before_revocation: called with partitions before they are given away: what waits must let go of them.
        before_assignment: called with all partitions held, before any of their records come.
        after_assignment: called with all partitions held, once they can be read.
        give_up: called with the error that keeps the worker from reading on.
        seal: called with offsets that are to be committed; returns those that may be, each with the hash of the seal
            that ends there. None: nothing is sealed.
    """

    before_revocation: Callable[[set[TP]], None]
    before_assignment: Callable[[set[TP]], None]
    after_assignment: Callable[[set[TP]], None]
    give_up: Callable[[UsageError], None]
    seal: Callable[[Mapping[TP, int]], Awaitable[Mapping[TP, tuple[int, str]]]] | None = None

    def _create_directories(self) -> None:
        """Make none: nothing is kept in files, and the file system may be read-only."""

    def _new_transport(self) -> Any:  # noqa: ANN401
        return BatchTransport(self.conf.broker_consumer, self)

    def _new_producer_transport(self) -> Any:  # noqa: ANN401
        return BatchTransport(self.conf.broker_producer, self)

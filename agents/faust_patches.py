"""What Groundwire replaces in Faust and aiokafka: a fetch is one event, and offsets are tracked by `agents.book`.

| what | why: Faust or aiokafka else | test |
|---|---|---|
| `FetchConsumer.getmany`, `_drain_messages` | pass each record through conductor, channel, event and stream | B `a_fetch_is_one_event` |
| `FetchConsumer.force_commit` | commits past an unfinished event, and aborted records and markers stay as lag | U `the_done_prefix`, B `never_commits_past` |
| `FetchConsumer.wait_empty` | waits for acks, and a commit that runs counts as one that begins | B `graceful_stop`, `settled_while` |
| `FetchConsumer.perform_seek` | seeks again after a rebalance: records are read twice | B `nothing_fetched_around_it` |
| `FetchConsumer.resume_flow` | resumes an assignment that is being revoked | B `begun_before_a_rebalance` |
| `FetchConsumer.on_partitions_*` | forgets offsets before what runs is finished and committed | B `settled_while`, U `ends_after_a_revocation` |
| `LoopConsumer` | runs in a thread: fetches, commits and waits compete for the GIL | B all |
| `LoopConsumer.on_stop` | waits for ever for a fetch from a lost node | U `node_that_is_away` |
| `LoopConsumer._create_worker_consumer` | waits 1.5 s for silent partitions, reads uncommitted records, commits no metadata | U `busy_partition`, S |
| `LoopConsumer.on_start` | pauses a broker for 0.1 s while records of one partition are buffered; forgets what was committed at the start | U `busy_partition`, `commits_later` |
| `FetchConsumer.note_start` | goes on where the log begins, and says nothing of the records that are gone | C |
| `LoopConsumer.verify_event_path` | logs advice about timeouts, 15 lines a minute, while the worker waits | U `silent` |
| `LoopConsumer._create_worker_consumer` | joins again and again if another worker has its instance id | U `instance_id` |
| `LoopConsumer.wake` | reads a partition that has room again only with the next fetch | U `has_room_again` |
| `NoTables` | sleeps for a second, and subscribes agents that come later after 45 s | U `topics_are_subscribed_once` |
| `PatientProducer` | drops a batch whose partition has no leader for long; the broker refuses all that follow | U `no_leader` |
| `IdempotentProducer` | is idempotent only with Faust's transactions | B all |
| `WorkerApp._create_directories` | writes to the file system, which may be read-only | `tests/unit/deploy` |

B: tests/stream/test_batches.py, C: tests/stream/test_topics_that_change.py, S: tests/stream/test_seals.py, U: tests/unit/agents/test_faust_patches.py, which also fails
if the source of anything replaced changes. This holds for the versions below; docs/develop/faust.md lists what else
Faust would lose, duplicate or delay.
"""

# ruff: noqa: E501 - a table

# ruff: noqa: SLF001 - bound to the internals of these versions

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import faust
import structlog
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import ConsumerStoppedError, UnsupportedCodecError
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.structs import OffsetAndMetadata
from faust.tables.manager import TableManager
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.utils.futures import maybe_async

from agents.book import PartitionBook
from agents.hooks import Commits
from groundwire.errors import UsageError
from groundwire.kafka.connection import ISOLATION, back_off, codec_missing, inbound

if TYPE_CHECKING:
    from agents.partitions import Partitions

log = structlog.get_logger()

VERSIONS: Final = {"faust-streaming": "0.15.3", "mode-streaming": "0.7.1", "aiokafka": "0.14.0"}

FETCH_WAIT: Final = 100
"""Milliseconds that the broker may hold a fetch.

aiokafka keeps one fetch per broker in flight, for partitions without buffered records; with Faust's 1.5 s a busy
partition beside silent ones was fetched once in 1.5 s.
"""

_SHORT_WAIT: Final = 10
"""The same for a fetch without a partition whose records are still buffered."""

_SHORT_FOR: Final = 1.0
"""Seconds for which buffered records shorten fetches."""

_PREFETCH_PAUSE: Final = 0.005
"""Seconds for which buffered records delay fetching other partitions without theirs.

With aiokafka's 0.1 s, half of the records beside a busy partition were 50 ms old when they were read.
"""

_METADATA_SECONDS: Final = 5.0


def check_versions() -> None:
    """Refuse versions of Faust that this file was not written for. Raises: UsageError."""
    for package, expected in VERSIONS.items():
        found = version(package)
        if found != expected:
            raise UsageError(
                f"{package} is {found}, workers need {expected}: install groundwire[worker] as locked"
            )


class NoTables(TableManager):
    """Subscribes as soon as all agents know their topics; no worker has a table."""

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
    """Faust's consumer thread without the thread, as nothing in a worker blocks the event loop for long.

    On stop, aiokafka leaves the group and cancels its fetches; one that backs off from an unreachable broker passes the
    cancellation on to the caller.
    """

    commits: Commits = MappingProxyType({})
    """The offsets that are committed next, with their metadata, which Faust leaves empty."""

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
        consumer: Any = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT  # Faust has no setting for it
        consumer._isolation_level = ISOLATION  # Faust ties it to transactions of its own
        commit = consumer.commit

        async def commit_with_metadata(offsets: Mapping[Any, OffsetAndMetadata]) -> None:
            await commit({tp: OffsetAndMetadata(*self.commits[TP(*tp)]) for tp in offsets})

        consumer.commit = commit_with_metadata
        client, member = consumer._client, StaticMember(consumer._group_instance_id)
        app: Any = self.consumer.app
        send = client.send

        async def send_and_note(node: Any, request: Any, **options: Any) -> Any:  # noqa: ANN401 - aiokafka's
            answer = await send(node, request, **options)
            app.broker_answered()
            if member.is_replaced(answer, consumer._coordinator.member_id):
                app.give_up(member.error)
            return answer

        client.send = send_and_note
        return back_off(consumer)

    async def on_start(self) -> None:
        """Start aiokafka's consumer, with fetches that wait for no busy partition."""
        await super().on_start()
        fetcher: Any = self._ensure_consumer()._fetcher
        fetcher._prefetch_backoff = _PREFETCH_PAUSE
        actions, update = fetcher._get_actions_per_node, fetcher._update_fetch_positions

        def hurry(assignment: Any) -> Any:  # noqa: ANN401 - aiokafka's
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
            for partition, position in _positions(assignment, tps).items():
                consumer.note_start(partition, position)
            return updated

        fetcher._get_actions_per_node, fetcher._update_fetch_positions = hurry, note_starts

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Do nothing: `agents.health` and the alerts tell what a worker waits for."""

    def wake(self) -> None:
        """Wake a waiting fetch: a partition that it left out has room now."""
        if self._consumer is not None:
            fetcher: Any = self._consumer._fetcher
            for waiter in fetcher._fetch_waiters:
                fetcher._notify(waiter)


class StaticMember:
    """Finds out that another worker has the same instance id: the broker replaces each by the other, in turn."""

    def __init__(self, instance_id: str | None) -> None:
        self.error = UsageError(
            f"GROUNDWIRE_INSTANCE_ID: another worker of this group is {instance_id!r} too: give each its own"
        )
        self._is_static = instance_id is not None
        self._replaced: dict[str, float] = {}  # when, by member id
        # one of the workers goes on, as a rule
        self._most = random.randint(2, 12)  # noqa: S311 - no secret

    def is_replaced(self, answer: Any, member_id: str) -> bool:  # noqa: ANN401 - aiokafka's
        """Return whether the broker has refused this worker so often in a minute that it gives up: some first."""
        if not (self._is_static and member_id and _REFUSED & set(_error_codes(answer))):
            return False
        now = time.monotonic()
        self._replaced.setdefault(member_id, now)
        return sum(now - at < _ALTERNATING for at in self._replaced.values()) >= self._most


_REFUSED: Final = {25, 82}
"""UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID."""

_ALTERNATING: Final = 60.0


def _error_codes(answer: Any) -> Iterable[int]:  # noqa: ANN401 - aiokafka's
    """Yield the errors of an answer about the group: to a commit, a heartbeat, or a sync."""
    match getattr(answer, "API_KEY", None):
        case 8:
            yield from (code for _, partitions in answer.topics for _, code in partitions)
        case 12 | 14:
            yield answer.error_code


async def _noted(state: Any, starts: dict[TP, OffsetAndMetadata], tp: TP) -> OffsetAndMetadata:  # noqa: ANN401 - aiokafka's
    starts[tp] = await type(state).fetch_committed(state)
    return starts[tp]


def _positions(assignment: Any, tps: Iterable[tuple[str, int]]) -> dict[TP, int]:  # noqa: ANN401 - aiokafka's
    """Return the next offset to read of each partition, if known."""
    states = {TP(*tp): assignment.state_value(tp) for tp in tps}
    return {tp: state.position for tp, state in states.items() if state and state.has_valid_position}


class FetchConsumer(driver.Consumer):
    """Yields fetches, and commits up to the first record that is not done."""

    app: Any

    def _new_consumer_thread(self) -> LoopConsumer:
        return LoopConsumer(self, loop=self.loop, beacon=self.beacon)

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - Faust's own arguments
        super().__init__(*args, **kwargs)
        self._held = False
        #: Fetchable partitions; the fetch in flight sees changes.
        self._ready: set[TP] = set()
        self._freed = asyncio.Event()
        #: Next offsets to read.
        self.positions: dict[TP, int] = {}
        #: What was committed when the assignment began, offset -1 for nothing; who holds a partition next commits more.
        self.starts: dict[TP, OffsetAndMetadata] = {}
        #: Every record that is fetched and not done, by partition.
        self.books: dict[TP, PartitionBook] = {}
        #: Partitions that are not read before they are assigned anew.
        self._recreated: set[TP] = set()

    def _book(self, tp: TP) -> PartitionBook:
        if tp not in self.books:
            self.books[tp] = self.app.partitions.new_book()
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
        """Hand on what is fetched until the worker ends."""
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

    def note_start(self, tp: TP, position: int) -> None:
        """Take the offset at which a partition is read on: a later one than the next means that records are gone.

        An earlier one is that of a topic that was declared again. Where something was read of the one before, all
        partitions are assigned anew: what is known of this one is of another log.
        """
        committed = self.starts.get(tp)
        due = self.positions.get(tp, committed.offset if committed else -1)
        self.positions[tp] = position
        if 0 <= due < position:
            self.app.partitions.note_lost(tp, due, position)
            self._book(tp).pass_over(position, first=due)
        elif position < due:
            where = {"topic": tp.topic, "partition": tp.partition, "expected": due, "found": position}
            log.warning("topic.recreated", **where)
            if self.books.pop(tp, None) is not None:
                self._committed_offset.pop(tp, None)
                self._recreated.add(tp)
                coordinator: Any = self._thread._ensure_consumer()._coordinator
                coordinator.request_rejoin()

    async def missing(self, topics: Sequence[str]) -> list[str]:
        """Return those of the topics that do not exist. Raises: KafkaError."""
        client, cluster = self._thread._ensure_consumer()._client, ClusterMetadata()
        # of these alone: an estate may have thousands
        asked = MetadataRequest(list(topics), allow_auto_topic_creation=False)
        cluster.update_metadata(await client.send(client.get_random_node(), asked))
        return [topic for topic in topics if not cluster.partitions_for_topic(topic)]

    def _has_room(self, tp: TP) -> bool:
        return tp not in self._recreated and (tp not in self.books or self.books[tp].has_room)

    def note_room(self, tp: TP) -> None:
        """Mark the partition fetchable, for the fetch in flight too."""
        if tp not in self._ready and self._held and self._has_room(tp):
            self._ready.add(tp)
            self._freed.set()
            thread: Any = self._thread
            thread.wake()

    def partitions_of(self, topic: str) -> int:
        """Return the number of a topic's partitions, as of the last metadata; 0 if it is unknown."""
        return len(self._thread._ensure_consumer().partitions_for_topic(topic) or ())

    async def refresh_metadata(self) -> None:
        """Have the consumer ask for metadata; wait for the answer, for some seconds at most."""
        consumer: Any = self._thread and self._thread._consumer
        if consumer is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_METADATA_SECONDS):
                    if await consumer._client.force_metadata_update():
                        self.app.broker_answered()

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

    async def force_commit(self, topics: Any = None, start_new_transaction: bool = True) -> bool:  # noqa: ANN401, ARG002, FBT001, FBT002 - Faust's
        """Commit what is done of each partition; what a hook holds back is tried at the next commit."""
        commits: Commits = {}
        for tp, book in self.books.items():  # 1. take the end of the done prefix of each partition
            known = max(book.first_offset or 0, self._committed_offset.get(tp) or 0)
            if book.committable is not None and book.committable > known:
                commits = {**commits, tp: (book.committable, "")}
        if commits:  # 2. have hooks seal what led there
            commits = await self.app.partitions.before_commit(commits)
        thread: Any = self._thread
        thread.commits = commits  # 3. commit with the hashes of the seals, 4. and remember what is committed
        return bool(commits) and await self._commit_offsets({tp: end for tp, (end, _) in commits.items()})

    async def wait_empty(self) -> None:
        """End leases, and commit what is done then: a commit that is running may have begun too early."""
        await self.app.partitions.finish()
        await self.maybe_wait_for_commit_to_finish()
        await self.commit()

    async def perform_seek(self) -> None:
        """Do nothing: aiokafka starts each assignment at the committed offsets."""

    def resume_flow(self) -> None:
        """Resume unless partitions are being revoked: a late resumption of an earlier assignment is ignored."""
        if self._held:
            super().resume_flow()

    async def on_partitions_revoked(self, revoked: set[TP]) -> None:
        """Finish and commit what is in flight, then forget the partitions."""
        self._held = False
        self.stop_flow()
        self.app.flow_control.suspend()
        self.app.flow_control.clear()
        await self.wait_empty()
        await super().on_partitions_revoked(revoked)
        # positions not at assignment: reading may begin before that callback
        self.positions, self.starts, self.books = {}, {}, {}

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """Take over partitions; everything read before the rebalance is forgotten."""
        self.books, self._recreated, self._held = {}, set(), True
        self.app.partitions.before_assignment()
        await super().on_partitions_assigned(assigned, generation_id)
        for tp in assigned:
            self.note_room(tp)
        self.app.partitions.after_assignment(set(assigned))


class PatientProducer(AIOKafkaProducer):
    """Keeps batches however long a partition has no leader; `Publisher` decides how long to wait."""

    def __init__(self, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[no-untyped-call]  # aiokafka's
        self._message_accumulator._batch_ttl = math.inf
        back_off(self)


class IdempotentProducer(driver.Producer):
    @property
    def _producer_type(self) -> type[AIOKafkaProducer]:
        return PatientProducer

    def _settings_extra(self) -> dict[str, Any]:
        return {"acks": "all", "enable_idempotence": True, "linger_ms": 0}


class WorkerTransport(driver.Transport):
    Consumer: ClassVar[Any] = FetchConsumer
    Producer: ClassVar[Any] = IdempotentProducer


class WorkerApp(faust.App):
    """A Faust app over WorkerTransport.

    Attributes:
        broker_answered: called at each answer of a broker to the consumer.
        give_up: called with the error that keeps the worker from reading on.
    """

    partitions: Partitions
    broker_answered: Callable[[], None]
    give_up: Callable[[UsageError], None]

    def _create_directories(self) -> None:
        """Create none: the file system may be read-only."""

    def _new_transport(self) -> Any:  # noqa: ANN401
        return WorkerTransport(self.conf.broker_consumer, self)

    _new_producer_transport = _new_transport

"""Process a portion of records: prepare, decide by state, publish, wait for acknowledgement.

The pipeline never raises for a record: it publishes a decision, publishes a dead letter, or waits (X-09, X-12, X-13).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Protocol

import structlog
from faust.types import TP

from agents.app import WorkerRole
from agents.book import ALONE, Entry, PartitionBook
from agents.observability import BatchMetrics, Tracing
from agents.outputs import Output, followers, outputs
from agents.partitions import GIVEN_UP, CrashMarks, Health, LeaseLost, PartitionLease, PartitionLoop
from agents.publisher import ProducerBroken, Publisher
from agents.recovery import StateReconciler, StateRecovery
from agents.sealing import Sealer
from groundwire.errors import (
    BrokerUnavailable,
    ErrorCode,
    RecordError,
    StateError,
    StateLost,
    StateUnavailable,
)
from groundwire.gate.types import Acted, DeadLetter, Decided, Deferred, Result
from groundwire.logs import report_fault
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject
from groundwire.messages.topics import TopicName, partition_of, record_key
from groundwire.state.model import InFlightMark
from groundwire.state.redis import RedisState

log = structlog.get_logger()

STALE: Final = 30.0
"""Seconds after which an answer of state is requested again before it is published."""

FIRST_TRIAL: Final = 5.0
"""Seconds before a record is tried again after too many internal errors; doubled up to `LAST_TRIAL`."""

LAST_TRIAL: Final = 300.0

_TELL: Final = 60.0
"""Seconds between two log lines about the broker."""

_RETRY: Final = 0.5

COPY_AGE: Final = 20.0
"""Seconds for which a record on `deferred` that is not due stays there before it is copied to the end of the topic.

An outage so copies each claim at most three times a minute, besides its look-ups, and delays what follows by this much.
"""

Batch = list[Any]
"""Entries that the handler has prepared."""

_OF_PRODUCERS: Final = (TopicName.CLAIMS, TopicName.LLM_RESPONSES)
"""Topics whose records others produce, to a partition that their client chooses."""


class Handler(Protocol):
    """Decides batches: `groundwire.gate.gate.Gate` or `groundwire.gate.reviews.ReviewGate`; entries are opaque here."""

    async def prepare(self, records: Sequence[InboundRecord], *, ask_network: bool = False) -> list[Any]: ...

    async def apply_step(self, batch: Sequence[Any], *, deferred: bool = False) -> list[Result]:
        """Decide a prepared batch. Raises: StateUnavailable, StateLost."""
        ...

    async def abandon(self, record: InboundRecord, give_up: Callable[[Subject], Awaitable[bool]]) -> bool:
        """Return whether a record that crashes workers becomes a dead letter: not if state holds its outcome.

        `give_up` releases a waiting subject in state; False if it holds an outcome. Raises: RecordError, no identity.
        """
        ...

    def provisional(self, batch: Sequence[Any]) -> list[Result]: ...


@dataclass(frozen=True, slots=True)
class Services:
    state: RedisState
    publisher: Publisher
    recovery: StateRecovery
    reconciler: StateReconciler
    health: Health
    tracing: Tracing = field(default_factory=Tracing)
    sealer: Sealer | None = None


class Pipeline:
    """Processes the records of one worker.

    Args:
        partitions: returns the number of partitions of a topic; 0: unknown.
        grace: seconds without state after which records are decided provisionally; None: wait without limit.
        ask_model: asks a language model about a prepared batch; cancelled when the partition is revoked.
    """

    def __init__(
        self,
        role: WorkerRole,
        handler: Handler,
        services: Services,
        *,
        partitions: Callable[[str], int],
        grace: float | None = None,
        ask_model: Callable[[Batch], Coroutine[Any, Any, Batch]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._role = role
        self._handler = handler
        self._services = services
        self._publisher = services.publisher
        self._health = services.health
        self._partitions = partitions
        self._grace = grace
        self._ask_model = ask_model
        self._clock = clock
        self._metrics = BatchMetrics(role.topic)
        self._trial = FIRST_TRIAL
        self._outages: dict[
            PartitionLoop, tuple[int, float]
        ] = {}  # partition that waits for state, since when
        self._tell_broker_at = 0.0
        self._large = asyncio.Lock()

    def new_book(self) -> PartitionBook:
        """Return the empty book of a partition."""
        role = self._role
        return PartitionBook(role.max_bytes, role.max_records, due=self._due, clock=self._clock)

    def begin(
        self,
        tp: TP,
        book: PartitionBook,
        earlier: Collection[asyncio.Task[None]] = (),
        room: Callable[[], None] = lambda: None,
    ) -> PartitionLoop:
        """Return the loop of a partition; `earlier` are the portions of the last lease that still run."""
        failures = self._metrics.failures
        return PartitionLoop(
            book,
            partial(self.process, tp),
            CrashMarks(self._services.state, tp.topic, tp.partition),
            self._health,
            earlier=earlier,
            alone=lambda: failures.too_long,
            room=room,
        )

    async def process(self, tp: TP, portion: list[Entry], loop: PartitionLoop) -> None:
        """Process a portion under a mark that only a crash leaves behind.

        Raises:
            LeaseLost: the partition is revoked while the portion waits; it is not done.
            ProducerBroken, MemoryError: this process cannot go on.
        """
        book, sealer = loop.book, self._services.sealer
        self._metrics.batch_records.observe(len(portion))
        try:
            if sealer is not None:
                sealer.note_batch(tp, book.first_offset or 0)
                while not sealer.has_room(tp, portion[0].record.offset):
                    await loop.lease.pause(_RETRY)
            await self._pause_after_failures(loop.lease)
            await self._process_until_done(tp, portion, loop)
        except LeaseLost:
            self._end_outage(loop)
            book.put_back(portion)
            await loop.marks.write(book.mark, answered=True)
            raise
        loop.marks.send(book.mark)

    def _due(self, record: InboundRecord) -> float:
        """Return when a record of `deferred` is processed: at its next look-up, or copied once it is `COPY_AGE` old.

        In seconds of this pipeline's clock: the wall clock may be set back.
        """
        retry = self._role.original(record).retry if self._role.deferred else None
        if retry is None:
            return 0.0
        now = time.time()
        return self._clock() + min(retry.due / 1000, min(record.timestamp / 1000, now) + COPY_AGE) - now

    def state_answered(self) -> None:
        """End the outages of partitions of which nothing runs that would find out itself."""
        away = self._services.state.server.away()
        for loop, (partition, _) in list(self._outages.items()):
            if loop.lease.over or not (loop.running or partition in away):
                self._end_outage(loop)

    def _note_outage(self, tp: TP, loop: PartitionLoop, error: StateUnavailable) -> float:
        """Return since when state does not answer a partition."""
        if not self._outages:
            log.warning("state.unavailable", error=str(error))
        self._health.begin("state")
        return self._outages.setdefault(loop, (tp.partition, self._clock()))[1]

    def _end_outage(self, loop: PartitionLoop) -> None:
        self._outages.pop(loop, None)
        if not self._outages:
            self._health.end("state")

    async def _pause_after_failures(self, lease: PartitionLease) -> None:
        """Pause before a record is tried after too many internal errors in a row; broken input is no trial."""
        failures = self._metrics.failures
        if not (failures.too_long and failures.fresh):
            return
        if "internal_errors" not in self._health.current:
            hint = "the gate failed at 100 records in a row, of ten keys or more: check the version, policy and keys"
            log.error("worker.paused", why="internal_errors", hint=hint)
        self._health.begin("internal_errors")
        await lease.pause(self._trial)
        failures.fresh = False
        self._trial = min(2 * self._trial, LAST_TRIAL)

    async def _process_until_done(self, tp: TP, portion: list[Entry], loop: PartitionLoop) -> None:
        """Retry after internal errors until the portion is done."""
        began = self._services.tracing.began()
        while True:
            try:
                async with self._turn(portion, loop.lease):
                    await self._mark(portion, loop)
                    batch = await self._prepare(tp, portion, loop)
                published = await self._decide_and_publish(tp, batch, loop, began)
                if self._services.sealer is not None:
                    offsets = {
                        _place_of(self._role.original(one.record)): one.record.offset for one in portion
                    }
                    of_records = [(offsets[_place_of(each.cause)], each) for each in published]
                    self._services.sealer.note(tp, of_records)
            except (LeaseLost, MemoryError, ProducerBroken):
                raise
            except StateLost:
                await self._services.recovery.recover(loop.lease)
            except StateUnavailable as exc:
                self._note_outage(tp, loop, exc)
                await loop.lease.pause(_RETRY)
            except Exception as exc:  # noqa: BLE001 - whatever it is, records are never dropped over it
                report_fault("batch.failed", exc, records=len(portion), offset=portion[0].record.offset)
                self._health.begin("internal")
                await loop.lease.pause(5.0)
            else:
                self._health.end("internal")
                self._health.progress()
                loop.book.done(portion)
                return

    @asynccontextmanager
    async def _turn(self, portion: list[Entry], lease: PartitionLease) -> AsyncIterator[None]:
        """Check large records of all partitions one portion at a time. Raises: LeaseLost."""
        if self._role.max_bytes is None or not portion[0].large:
            yield
            return
        await lease.wait_for(self._large.acquire())
        try:
            if lease.over:
                raise LeaseLost
            yield
        finally:
            self._large.release()

    async def _mark(self, portion: list[Entry], loop: PartitionLoop) -> None:
        """Mark records as started: waiting crashes no worker."""
        if not portion[0].started:
            for entry in portion:
                entry.started = True
            await loop.marks.write(loop.book.mark, answered=any(entry.crashes for entry in portion))

    async def _prepare(self, tp: TP, portion: list[Entry], loop: PartitionLoop) -> Batch:
        with self._timed("prepare"):
            originals = [self._role.original(entry.record) for entry in portion]
            if (crashes := portion[0].crashes) >= GIVEN_UP:
                record, message = originals[0], f"a worker died {crashes} times over this record"
                letter = DeadLetter(record, RecordError(ErrorCode.WORKER_CRASH, message))
                is_dead = True
                # once its identity is read without a crash, state is asked again after each further crash
                alone = InFlightMark(portion[0].record.offset, portion[0].record.offset, ALONE)
                try:
                    if crashes == GIVEN_UP:  # at the next crash even its identity is not read again
                        is_dead = await self._handler.abandon(record, self._services.state.give_up)
                except RecordError as error:
                    letter = DeadLetter(record, error)
                except StateError:
                    await loop.marks.write(alone, answered=True)
                    raise
                await loop.marks.write(alone, answered=True)
                if is_dead:
                    return [letter]
            return self._in_place(tp, await self._handler.prepare(originals, ask_network=self._role.deferred))

    def _in_place(self, tp: TP, batch: Batch) -> Batch:
        """Count records on another partition than their user's; in a cluster, claims go there through `deferred`."""
        partitions = self._partitions(tp.topic) if self._role.topic in _OF_PRODUCERS else 0
        if not partitions:
            return batch
        placed: Batch = []
        for entry in batch:
            user = _user_of(entry)
            if user is not None and partition_of(*user, partitions) != tp.partition:
                self._metrics.misplaced.inc()
                if self._services.state.is_cluster and self._role.topic is TopicName.CLAIMS:
                    placed.append(Deferred(entry.record, record_key(*user)))
                    continue
            placed.append(entry)
        return placed

    def _partitions_of(self, batch: Batch) -> set[int]:
        """Return the partitions of state that deciding a batch depends on."""
        server = self._services.state.server
        users = {user for user in map(_user_of, batch) if user is not None}
        if self._role.topic is TopicName.REVIEW_DECISIONS:  # ids of actions are reserved by tenant
            users |= {(tenant, "") for tenant, _ in users}
        return {server.partition_of(*user) for user in users}

    async def _decide_and_publish(
        self, tp: TP, batch: Batch, loop: PartitionLoop, began: int
    ) -> list[Output]:
        fresh: set[str] = set()
        while True:
            asked_at, results = await self._decide(tp, batch, loop)
            fresh |= {r.decision.decision_id for r in results if isinstance(r, Decided | Acted) and r.fresh}
            outgoing: list[Output] = []
            for first in range(0, len(results), 50):
                outgoing += outputs(results[first : first + 50])
                await asyncio.sleep(0)  # the event loop gets a turn
            following = followers(results)
            if self._clock() - asked_at > STALE:
                continue
            try:
                published: list[Output] = []
                with self._timed("publish"), self._services.tracing.spans(results, began) as carried:
                    for some in filter(None, (outgoing, following)):
                        sent = carried(some)
                        refused = {id(output) for output in await self._publisher.publish(sent)}
                        published += [output for output in sent if id(output) not in refused]
            except BrokerUnavailable as exc:
                self._health.begin("broker")
                if self._clock() >= self._tell_broker_at:
                    self._tell_broker_at = self._clock() + _TELL
                    log.warning("broker.unavailable", error=str(exc), records=len(batch))
                await loop.lease.pause(_RETRY)
            else:
                self._health.end("broker")
                self._metrics.count(results, fresh)
                if not self._metrics.failures.too_long:
                    self._trial = FIRST_TRIAL
                    self._health.end("internal_errors")
                return published

    async def _decide(self, tp: TP, batch: Batch, loop: PartitionLoop) -> tuple[float, list[Result]]:
        """Return when state was asked, and the results; past the grace, provisional ones."""
        reconciler = self._services.reconciler
        failed_at: float | None = None
        while True:
            asked_at = self._clock()
            try:
                if self._ask_model is not None:
                    with self._timed("model"):
                        batch[:] = await loop.lease.wait_for(self._ask_model(batch))
                asked_at = self._clock()
                with self._timed("state"):
                    await reconciler.before_step(self._partitions_of(batch))
                    results = await self._handler.apply_step(batch, deferred=self._role.deferred)
            except StateLost:
                await self._services.recovery.recover(loop.lease)
            except StateUnavailable as exc:
                reconciler.failed()
                now = self._clock()
                failed_at = now if failed_at is None else failed_at
                # answers to other portions do not end this wait
                lost_at = min(self._note_outage(tp, loop, exc), failed_at)
                if self._grace is not None and now - lost_at > self._grace:
                    return asked_at, self._handler.provisional(batch)
                await loop.lease.pause(_RETRY)
            else:
                self._end_outage(loop)
                return asked_at, results

    def _timed(self, stage: str) -> AbstractContextManager[Any]:
        return self._metrics.stage(stage).time()


def _place_of(record: InboundRecord) -> tuple[str | None, int, int]:
    return record.topic, record.partition, record.offset


def _user_of(entry: object) -> tuple[str, str] | None:
    """Return tenant and user of a prepared entry; None of one that needs no state."""
    subject: Subject | None = getattr(entry, "subject", None)
    return None if subject is None else (subject.tenant_id, subject.user_id)

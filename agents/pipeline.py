"""Process a batch: prepare, decide by state, publish, wait for acknowledgement.

The pipeline never raises for a record: it publishes a decision, publishes a dead letter, or waits (X-09, X-12, X-13).
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, Final, Protocol

import structlog
from faust.types import TP

from agents.app import WorkerRole
from agents.observability import BatchMetrics, Tracing
from agents.outputs import Output, followers, outputs
from agents.partitions import (
    ALONE,
    GIVEN_UP,
    LARGE,
    CrashGuard,
    Health,
    LeaseLost,
    PartitionLease,
    keys_of,
    parts_of,
    small_first,
    split,
)
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
from groundwire.gate.types import Acted, DeadLetter, Decided, Result
from groundwire.logs import report_fault
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject
from groundwire.messages.topics import TopicName
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
_KEY_OF_ENTRY: Final = attrgetter("record.key")

Batch = list[Any]
"""Entries that the handler has prepared."""


class _PartlyAway(Exception):
    """Some records depend on an unreachable Redis shard."""


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
    """Processes the batches of one worker.

    Args:
        grace: seconds without state after which records are decided provisionally; None: wait without limit.
        ask_model: asks a language model about a prepared batch; cancelled when the partition is revoked.
    """

    def __init__(
        self,
        role: WorkerRole,
        handler: Handler,
        services: Services,
        *,
        grace: float | None = None,
        ask_model: Callable[[Batch], Coroutine[Any, Any, Batch]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._role = role
        self._handler = handler
        self._services = services
        self._publisher = services.publisher
        self._health = services.health
        self._grace = grace
        self._ask_model = ask_model
        self._clock = clock
        self._metrics = BatchMetrics(role.topic)
        self._trial = FIRST_TRIAL
        self._state_lost_at: float | None = None
        self._tell_broker_at = 0.0
        self._beside = asyncio.Lock()  # large records of all partitions are checked one part at a time

    async def process_batch(
        self,
        records: Sequence[InboundRecord],
        lease: PartitionLease,
        read_on: Callable[[], None] = lambda: None,
    ) -> None:
        """Process a batch of one partition; `read_on` makes the partition fetchable while the batch is unfinished.

        Records that depend on an unreachable shard are set aside and processed last. Raises: LeaseLost: nothing of the
        batch is committed; ProducerBroken, MemoryError: this process cannot go on.
        """
        self._metrics.batch_records.observe(len(records))
        sealer = self._services.sealer
        if sealer is not None:
            while sealer.is_full:
                await lease.pause(_RETRY)
            sealer.note_batch(_partition_of(records[0]), records[0].offset)
        async with lease.first():
            if not hasattr(lease, "guard"):
                lease.guard = CrashGuard(self._services.state, records[0].topic or "", records[0].partition)
                await lease.guard.load()
            left, behind = list[InboundRecord](), list[InboundRecord]()
            portions = lease.guard.portions(records)
            if lease.guard.suspects or self._by_due(records)[1]:
                # exclusively: the batch may crash the worker, or waits until it is due
                async with lease.behind():
                    for portion, crashes in portions:
                        due, later = self._by_due(portion)
                        first, large = small_first(due)
                        for part in filter(None, (first, *parts_of(large, 0))):
                            left += await self._process_here(part, crashes, lease)
                        if later:
                            left += await self._process_later(later, crashes, lease)
            else:
                first, behind = small_first(records, self._role.together, lease.held)
                lease.held += keys_of(behind)
                left = await self._process_here(first, 0, lease) if first else []
        if behind:
            read_on()
            async with lease.behind():
                for part in parts_of(behind, self._role.together or LARGE):
                    lease.insist_held()
                    left += await self._process_here(part, 0, lease, beside=True)
                    lease.held -= keys_of(part)
        if left:
            read_on()
            await self._process_aside(left, portions[0][1], lease)

    async def _process_here(
        self, records: Sequence[InboundRecord], crashes: int, lease: PartitionLease, *, beside: bool = False
    ) -> list[InboundRecord]:
        """Process records whose shards answer and whose keys are free; set the others aside and return them.

        While suspects of a crash are isolated, set-aside records are waited for here, and nothing is returned.
        """
        free, left = lease.aside.split(records)
        if free:
            left += await self._process_portion(free, crashes, lease, beside=beside)
        if left:
            lease.aside.add(left)
            lease.held += keys_of(left)
        self._health.progress()
        if left and lease.guard.isolates:
            await self._process_aside(left, crashes, lease)
            return []
        return left

    async def _process_aside(
        self, records: Sequence[InboundRecord], crashes: int, lease: PartitionLease
    ) -> None:
        """Process set-aside records in order, once their shard answers or its grace is over.

        Waiting records carry no in-flight mark: they crash no worker.
        """
        left = sorted(records, key=lambda record: record.offset)
        while left:
            lease.insist_held()
            ready = lease.aside.ready(left, partial(self._waits, self._services.state.away()))
            part = next(parts_of(ready, self._role.together or LARGE), [])
            again = await self._process_portion(part, crashes, lease, beside=True) if part else []
            waiting = {record.offset for record in again}
            decided = [record for record in part if record.offset not in waiting]
            lease.aside.remove(decided)
            lease.held -= keys_of(decided)
            done = {record.offset for record in decided}
            left = [record for record in left if record.offset not in done]
            if decided:
                self._health.progress()
            else:
                self._health.begin("shard")
                await lease.pause(_RETRY)

    def _waits(self, away: Mapping[int, float], buckets: set[int]) -> bool:
        since = [away[bucket] for bucket in buckets & away.keys()]
        return bool(since) and (self._grace is None or self._clock() - max(since) <= self._grace)

    def state_answered(self) -> None:
        """Clear the outage if no batch is under way that would find out itself."""
        self._note_shards()
        if not self._health.under_way:
            self._state_lost_at = None
            self._health.end("state")

    def _note_shards(self) -> None:
        if not self._services.state.away():
            self._health.end("shard")

    def _by_due(self, records: Sequence[InboundRecord]) -> tuple[list[InboundRecord], list[InboundRecord]]:
        """Split records into those due now and those that go back to `deferred` until their next look-up."""
        due: list[InboundRecord] = []
        later: list[InboundRecord] = []
        for record in records:
            retry = self._role.original(record).retry if self._role.deferred else None
            (later if retry and retry.due > time.time() * 1000 else due).append(record)
        return due, later

    async def _process_later(
        self, records: Sequence[InboundRecord], crashes: int, lease: PartitionLease
    ) -> list[InboundRecord]:
        """Wait until the newest record is `COPY_AGE` old; decide what falls due, then copy the rest once.

        Pauses are counted rather than read off the wall clock, which may be set back.
        """
        left_aside: list[InboundRecord] = []
        later = list(records)
        age = time.time() - max(record.timestamp for record in later) / 1000
        left = min(COPY_AGE - age, COPY_AGE)
        while later and left > 0:
            first = min(retry.due for record in later if (retry := self._role.original(record).retry))
            pause = min(max(first / 1000 - time.time(), 1.0), left)
            await lease.pause(pause)
            left -= pause
            self._health.progress()
            due, later = self._by_due(later)
            if due:
                left_aside += await self._process_here(due, crashes, lease)
        if later:
            left_aside += await self._process_here(later, crashes, lease)
        return left_aside

    async def _process_portion(
        self, records: Sequence[InboundRecord], crashes: int, lease: PartitionLease, *, beside: bool
    ) -> list[InboundRecord]:
        """Process a portion, and return what it sets aside; after too many internal errors, record by record."""
        failures = self._metrics.failures
        if not failures.too_long:
            return await self._process_until_done(records, crashes, lease, beside=beside)
        left: list[InboundRecord] = []
        for record in records:
            free, follow = split([record], set(keys_of(left)), lambda _record: False)
            left += follow
            if not free:
                continue
            if failures.too_long and failures.fresh:  # broken input is no trial
                if "internal_errors" not in self._health.current:
                    hint = "the gate failed at 100 records in a row, of ten keys or more:"
                    hint += " check the version, policy and keys"
                    log.error("worker.paused", why="internal_errors", hint=hint)
                self._health.begin("internal_errors")
                await lease.pause(self._trial)
                failures.fresh = False
                self._trial = min(2 * self._trial, LAST_TRIAL)
            left += await self._process_until_done(free, crashes, lease, beside=beside)
        return left

    async def _process_until_done(
        self, records: Sequence[InboundRecord], crashes: int, lease: PartitionLease, *, beside: bool
    ) -> list[InboundRecord]:
        """Process records under an in-flight mark, which only a crash leaves behind."""
        await lease.guard.mark(records, crashes)
        try:
            left = await self._try_until_done(records, crashes, lease, beside=beside)
        except LeaseLost:
            await lease.guard.unmark_now(records)
            raise
        lease.guard.unmark(records)
        return left

    async def _try_until_done(
        self, records: Sequence[InboundRecord], crashes: int, lease: PartitionLease, *, beside: bool
    ) -> list[InboundRecord]:
        """Retry after internal errors until the records are done; return those set aside."""
        began = self._services.tracing.began()
        while True:
            try:
                async with self._beside if beside and self._role.together else nullcontext():
                    batch = await self._prepare(records, crashes, lease.guard)
                published, left = list[Output](), batch
                while left:
                    part, rest = self._apart(left)
                    if not part:
                        break
                    with suppress(_PartlyAway):
                        published += await self._decide_and_publish(part, lease, began)
                        left = rest
                if self._services.sealer is not None:
                    offsets = {_place_of(self._role.original(record)): record.offset for record in records}
                    of_records = [(offsets[_place_of(each.cause)], each) for each in published]
                    self._services.sealer.note(_partition_of(records[0]), of_records)
            except (LeaseLost, MemoryError, ProducerBroken):
                raise
            except Exception as exc:  # noqa: BLE001 - whatever it is, records are never dropped over it
                report_fault("batch.failed", exc, records=len(records), offset=records[0].offset)
                self._health.begin("internal")
                await lease.pause(5.0)
            else:
                self._health.end("internal")
                # entries hold the original record, which is on another topic for the role `deferred`
                read: defaultdict[tuple[str | None, int, int], list[InboundRecord]] = defaultdict(list)
                for record in records:
                    read[_place_of(self._role.original(record))].append(record)
                aside = [read[_place_of(entry.record)].pop(0) for entry in left]
                for record, entry in zip(aside, left, strict=True):
                    lease.aside.buckets[record.offset] = self._buckets_of(entry)
                return aside

    async def _prepare(self, records: Sequence[InboundRecord], crashes: int, guard: CrashGuard) -> Batch:
        with self._timed("prepare"):
            originals = [self._role.original(record) for record in records]
            if crashes >= GIVEN_UP:
                record, message = originals[0], f"a worker died {crashes} times over this record"
                letter = DeadLetter(record, RecordError(ErrorCode.WORKER_CRASH, message))
                is_dead = True
                try:
                    if crashes == GIVEN_UP:  # at the next crash even its identity is not read again
                        is_dead = await self._handler.abandon(record, self._services.state.give_up)
                except RecordError as error:
                    letter = DeadLetter(record, error)
                except StateError:
                    # reading its identity did not crash: after each further crash state is asked again
                    await guard.mark(records, ALONE)
                    raise
                await guard.mark(records, ALONE)
                if is_dead:
                    return [letter]
            return await self._handler.prepare(originals, ask_network=self._role.deferred)

    def _apart(self, batch: Batch) -> tuple[Batch, Batch]:
        """Split a batch into entries to decide now and those that wait or follow one that waits.

        First come entries on reachable shards; if there are none, those whose grace is over.
        """
        away = self._services.state.away()
        if not away:
            return batch, []
        here, others = split(
            batch, set(), lambda one: bool(self._buckets_of(one) & away.keys()), _KEY_OF_ENTRY
        )
        if here:
            return here, others
        return split(batch, set(), lambda one: self._waits(away, self._buckets_of(one)), _KEY_OF_ENTRY)

    def _buckets_of(self, entry: object) -> set[int]:
        subject = getattr(entry, "subject", None)
        if subject is None:
            return set()
        state = self._services.state
        buckets = {state.bucket_of(subject)}
        if self._role.topic is TopicName.REVIEW_DECISIONS:  # ids of actions are reserved by tenant
            buckets.add(state.actions_bucket(subject.tenant_id))
        return buckets

    async def _decide_and_publish(self, batch: Batch, lease: PartitionLease, began: int) -> list[Output]:
        fresh: set[str] = set()
        while True:
            asked_at, results = await self._decide(batch, lease)
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
                await lease.pause(_RETRY)
            else:
                self._health.end("broker")
                self._metrics.count(results, fresh)
                if not self._metrics.failures.too_long:
                    self._trial = FIRST_TRIAL
                    self._health.end("internal_errors")
                return published

    async def _decide(self, batch: Batch, lease: PartitionLease) -> tuple[float, list[Result]]:
        """Return when state was asked, and the results; past the grace, provisional ones. Raises: _PartlyAway."""
        reconciler = self._services.reconciler
        failed_at: float | None = None
        while True:
            asked_at = self._clock()
            try:
                if self._ask_model is not None:
                    with self._timed("model"):
                        batch[:] = await lease.wait_for(self._ask_model(batch))
                asked_at = self._clock()
                with self._timed("state"):
                    await reconciler.before_step()
                    results = await self._handler.apply_step(batch, deferred=self._role.deferred)
            except StateLost:
                await self._services.recovery.recover(lease)
            except StateUnavailable as exc:
                reconciler.failed()
                if self._apart(batch)[1]:
                    raise _PartlyAway from exc
                now, away = self._clock(), self._services.state.away()
                failed_at = now if failed_at is None else failed_at
                buckets = [bucket for entry in batch for bucket in self._buckets_of(entry)]
                if since := [away[bucket] for bucket in buckets if bucket in away]:
                    lost_at = max(since)
                    self._health.begin("shard")
                else:
                    if self._state_lost_at is None:
                        self._state_lost_at = now
                        log.warning("state.unavailable", error=str(exc))
                    self._health.begin("state")
                    # answers to other batches do not end this wait
                    lost_at = min(self._state_lost_at, failed_at)
                if self._grace is not None and now - lost_at > self._grace:
                    return asked_at, self._handler.provisional(batch)
                await lease.pause(_RETRY)
            else:
                reconciler.answered()
                self._state_lost_at = None
                self._health.end("state")
                self._note_shards()
                return asked_at, results

    def _timed(self, stage: str) -> AbstractContextManager[Any]:
        return self._metrics.stage(stage).time()


def _place_of(record: InboundRecord) -> tuple[str | None, int, int]:
    return record.topic, record.partition, record.offset


def _partition_of(record: InboundRecord) -> TP:
    return TP(record.topic or "", record.partition)

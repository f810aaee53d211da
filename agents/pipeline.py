"""How a batch is processed: prepared, decided by state, published and acknowledged, whatever it takes.

The pipeline never raises for a record: it publishes a decision, publishes a dead letter, or waits.

Requirements X-09, X-12, X-13.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, Final, Protocol

import structlog
from faust.types import TP

from agents.app import WorkerRole
from agents.aside import keys_of, split
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
    Portion,
    parts_of,
    small_first,
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
"""Seconds after which an answer of state is asked for again before it is published."""

FIRST_TRIAL: Final = 5.0
"""Seconds that a worker pauses before it tries one record again; doubled while that fails, up to `LAST_TRIAL`."""

LAST_TRIAL: Final = 300.0

_TELL: Final = 60.0
"""Seconds between two lines about the same dependency."""
_RETRY: Final = 0.5
COPY_AGE: Final = 20.0
"""Seconds for which a record on `deferred` that is not due stays there before it is copied to the end of the topic.

So an outage copies each claim three times a minute at most, besides its look-ups, whatever the backlog; and what comes
after it in its partition waits that long at most.
"""
_INTERNAL_RETRY: Final = 5.0
_KEY_OF_ENTRY: Final = attrgetter("record.key")
_YIELD_EVERY: Final = 50
"""Results that are written before the event loop gets a turn."""

Batch = list[Any]
"""What the handler has prepared."""


class _PartlyAway(Exception):
    """Some of a batch, or all, waits for a part of state that is away."""


class Handler(Protocol):
    """Decides batches of records: `groundwire.gate.gate.Gate`, or `groundwire.gate.reviews.ReviewGate`.

    What it prepares, only it can read.
    """

    async def prepare(self, records: Sequence[InboundRecord], *, ask_network: bool = False) -> list[Any]:
        """Decode a batch; state is not asked yet."""
        ...

    async def apply_step(self, batch: Sequence[Any], *, deferred: bool = False) -> list[Result]:
        """Decide a prepared batch. Raises: StateUnavailable, StateLost."""
        ...

    async def abandon(self, record: InboundRecord, give_up: Callable[[Subject], Awaitable[bool]]) -> bool:
        """Return whether a record that brings workers down becomes a dead letter: not where state holds its outcome.

        `give_up` has state let go of a subject that waits; False where it holds an outcome.

        Raises:
            RecordError: not even its identity can be read.
        """
        ...

    def provisional(self, batch: Sequence[Any]) -> list[Result]:
        """Decide a prepared batch without state."""
        ...


@dataclass(frozen=True, slots=True)
class Services:
    """What a pipeline uses besides its handler."""

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
        role: which records these are.
        handler: decides them.
        services: state, publisher and what watches over them.
        grace: seconds without state after which records are decided provisionally; None waits without limit.
        ask_model: asks a language model what a prepared batch needs of it; cancelled where the partition is given away.
        clock: in seconds.
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
        self._beside = asyncio.Lock()  # of what is behind in several partitions one part is checked at a time

    async def process_batch(
        self,
        records: Sequence[InboundRecord],
        lease: PartitionLease,
        read_on: Callable[[], None] = lambda: None,
    ) -> None:
        """Process a batch of one partition; once only what is behind is left of it, its partition is read on.

        What concerns a part of state that is away is set aside, and waited for last.

        Raises:
            LeaseLost: the partition is given away while the batch waits; nothing of it counts as done.
            ProducerBroken, MemoryError: this process cannot go on.
        """
        self._metrics.batch_records.observe(len(records))
        sealer = self._services.sealer
        if sealer is not None:
            while sealer.is_full:
                await lease.pause(_RETRY)
            sealer.note_batch(_partition_of(records[0]), records[0].offset)
        async with lease.first():
            if lease.guard is None:
                lease.guard = CrashGuard(self._services.state, records[0].topic or "", records[0].partition)
                await lease.guard.load()
            portions = lease.guard.portions(records)
            behind: list[InboundRecord] = []
            if lease.guard.suspects or self._by_due(records)[1]:
                async with lease.behind():
                    left = await self._process_alone(portions, lease, lease.guard)
            else:
                first, behind = small_first(records, self._role.together, lease.held)
                lease.held += keys_of(behind)
                left = await self._process_here(first, 0, lease, lease.guard) if first else []
        if behind:
            read_on()
            left += await self._process_behind(behind, lease, lease.guard)
        if left:
            read_on()
            await self._process_aside(left, portions[0][1], lease, lease.guard)

    async def _process_alone(
        self, portions: Sequence[Portion], lease: PartitionLease, guard: CrashGuard
    ) -> list[InboundRecord]:
        """Process a batch with nothing beside it: it may bring the worker down, or waits until it is due.

        Returns:
            What is set aside: nothing where there are several portions.
        """
        left: list[InboundRecord] = []
        for portion, crashes in portions:
            due, later = self._by_due(portion)
            first, behind = small_first(due)
            for part in ([first] if first else []) + [[record] for record in behind]:
                left += await self._process_here(part, crashes, lease, guard)
            if later:
                left += await self._process_later(later, crashes, lease, guard)
        return left

    async def _process_behind(
        self, records: Sequence[InboundRecord], lease: PartitionLease, guard: CrashGuard
    ) -> list[InboundRecord]:
        """Process what is behind, beside the batches that follow; the rest is left when the lease ends.

        Returns:
            What is set aside.
        """
        left: list[InboundRecord] = []
        async with lease.behind():
            for part in parts_of(records, self._role.together or LARGE):
                lease.insist_held()
                left += await self._process_here(part, 0, lease, guard, beside=True)
                lease.held -= keys_of(part)
        return left

    async def _process_here(
        self,
        records: Sequence[InboundRecord],
        crashes: int,
        lease: PartitionLease,
        guard: CrashGuard,
        *,
        beside: bool = False,
    ) -> list[InboundRecord]:
        """Process what concerns no part of state that is away, and follows no such record in its key.

        Returns:
            The others, which are set aside; nothing where some must run alone: then they were waited for.
        """
        free, left = lease.aside.split(records)
        if free:
            left += await self._process_portion(free, crashes, lease, guard, beside=beside)
        if left:
            lease.aside.add(left)
            lease.held += keys_of(left)
        self._health.progress()
        if left and guard.isolates:
            await self._process_aside(left, crashes, lease, guard)
            return []
        return left

    async def _process_aside(
        self, records: Sequence[InboundRecord], crashes: int, lease: PartitionLease, guard: CrashGuard
    ) -> None:
        """Process what was set aside, in its order, once its part of state is back or the grace is over.

        What waits is under no mark: it brings no worker down. What is away again by the time that it is decided goes on
        waiting, and holds up no other.
        """
        left = sorted(records, key=lambda record: record.offset)
        while left:
            lease.insist_held()
            ready = lease.aside.ready(left, partial(self._waits, self._services.state.away()))
            part = next(parts_of(ready, self._role.together or LARGE), [])
            again = await self._process_portion(part, crashes, lease, guard, beside=True) if part else []
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
        """Tell whether what concerns parts of state waits for one that is away, within the grace of that."""
        since = [away[bucket] for bucket in buckets & away.keys()]
        return bool(since) and (self._grace is None or self._clock() - max(since) <= self._grace)

    def state_answered(self) -> None:
        """Note that state answers where no batch is under way that would find out: it is waited for no longer."""
        self._note_shards()
        if not self._health.under_way:
            self._state_lost_at = None
            self._health.end("state")

    def _note_shards(self) -> None:
        if not self._services.state.away():
            self._health.end("shard")

    def _by_due(self, records: Sequence[InboundRecord]) -> tuple[list[InboundRecord], list[InboundRecord]]:
        """Split what is decided now from what is looked up again later, and only goes back to `deferred`."""
        due: list[InboundRecord] = []
        later: list[InboundRecord] = []
        for record in records:
            retry = self._role.original(record).retry if self._role.deferred else None
            (later if retry and retry.due > time.time() * 1000 else due).append(record)
        return due, later

    async def _process_later(
        self, records: Sequence[InboundRecord], crashes: int, lease: PartitionLease, guard: CrashGuard
    ) -> list[InboundRecord]:
        """Wait until the newest of the records is `COPY_AGE` old; decide what is due by then, and copy the rest once.

        Pauses are counted, not read off the clock: one that is set back delays nothing for longer.

        Returns:
            What is set aside.
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
                left_aside += await self._process_here(due, crashes, lease, guard)
        if later:
            left_aside += await self._process_here(later, crashes, lease, guard)
        return left_aside

    async def _process_portion(
        self,
        records: Sequence[InboundRecord],
        crashes: int,
        lease: PartitionLease,
        guard: CrashGuard,
        *,
        beside: bool,
    ) -> list[InboundRecord]:
        """Process a portion, record by record after too many internal errors in a row: one that is decided ends that.

        Returns:
            The records that wait for a part of state that is away, and those that follow them; they are not done.
        """
        if not self._metrics.failures.too_long:
            return await self._process_until_done(records, crashes, lease, guard, beside=beside)
        left: list[InboundRecord] = []
        for record in records:
            free, follow = split([record], set(keys_of(left)), lambda _record: False)
            left += follow
            if free:
                await self._pause_after_failures(lease)
                left += await self._process_until_done(free, crashes, lease, guard, beside=beside)
        return left

    async def _pause_after_failures(self, lease: PartitionLease) -> None:
        failures = self._metrics.failures
        if not (failures.too_long and failures.fresh):  # broken input is no trial
            return
        if "internal_errors" not in self._health.current:
            hint = "the gate failed at 100 records in a row, of ten keys or more: check the version, policy and keys"
            log.error("worker.paused", why="internal_errors", hint=hint)
        self._health.begin("internal_errors")
        await lease.pause(self._trial)
        failures.fresh = False
        self._trial = min(2 * self._trial, LAST_TRIAL)

    async def _process_until_done(
        self,
        records: Sequence[InboundRecord],
        crashes: int,
        lease: PartitionLease,
        guard: CrashGuard,
        *,
        beside: bool,
    ) -> list[InboundRecord]:
        """Try until it is done, under a mark that a crash alone leaves behind; return what is left."""
        await guard.mark(records, crashes)
        try:
            left = await self._try_until_done(records, crashes, lease, guard, beside=beside)
        except LeaseLost:
            await guard.unmark_now(records)
            raise
        guard.unmark(records)
        return left

    async def _try_until_done(
        self,
        records: Sequence[InboundRecord],
        crashes: int,
        lease: PartitionLease,
        guard: CrashGuard,
        *,
        beside: bool,
    ) -> list[InboundRecord]:
        """Try again after an error of our own, visibly, until it is done; return what is left."""
        began = self._services.tracing.began()
        while True:
            try:
                async with self._beside if beside and self._role.together else nullcontext():
                    batch = await self._prepare(records, crashes, guard)
                published, left = await self._decide_in_parts(batch, lease, began)
                self._note_published(records, published)
            except (LeaseLost, MemoryError, ProducerBroken):
                raise
            except Exception as exc:  # noqa: BLE001 - whatever it is, records are never dropped over it
                report_fault("batch.failed", exc, records=len(records), offset=records[0].offset)
                self._health.begin("internal")
                await lease.pause(_INTERNAL_RETRY)
            else:
                self._health.end("internal")
                read = self._as_read(records, left)
                concerned = map(self._buckets_of, left)
                lease.aside.buckets |= {
                    record.offset: some for record, some in zip(read, concerned, strict=True)
                }
                return read

    def _as_read(self, records: Sequence[InboundRecord], entries: Batch) -> list[InboundRecord]:
        """Return the records of entries as they stand on this worker's own topic; entries hold what they come of."""
        read: defaultdict[tuple[str | None, int, int], list[InboundRecord]] = defaultdict(list)
        for record in records:
            read[_place_of(self._role.original(record))].append(record)
        return [read[_place_of(entry.record)].pop(0) for entry in entries]

    async def _prepare(self, records: Sequence[InboundRecord], crashes: int, guard: CrashGuard) -> Batch:
        with self._timed("prepare"):
            originals = [self._role.original(record) for record in records]
            if crashes >= GIVEN_UP:
                try:
                    letter = await self._given_up(originals[0], crashes)
                except StateError:
                    # its identity is read alive: however often its worker dies from here on, state is asked
                    await guard.mark(records, ALONE)
                    raise
                await guard.mark(records, ALONE)
                if letter is not None:
                    return [letter]
            return await self._handler.prepare(originals, ask_network=self._role.deferred)

    async def _given_up(self, record: InboundRecord, crashes: int) -> DeadLetter | None:
        """Return the dead letter of a record that has brought down its worker too often; None if it is decided.

        Its text is not read again. Where even its identity cannot be read alive, state never heard of it.
        """
        message = f"a worker died {crashes} times over this record"
        letter = DeadLetter(record, RecordError(ErrorCode.WORKER_CRASH, message))
        if crashes > GIVEN_UP:
            return letter
        try:
            abandoned = await self._handler.abandon(record, self._services.state.give_up)
        except RecordError as error:
            return DeadLetter(record, error)
        return letter if abandoned else None

    def _note_published(self, records: Sequence[InboundRecord], published: Iterable[Output]) -> None:
        """Have what was published of records sealed before their offsets are committed."""
        if self._services.sealer is None:
            return
        offsets: dict[tuple[str | None, int, int], int] = {}
        for record in records:
            offsets[_place_of(self._role.original(record))] = record.offset
        of_records = [(offsets[_place_of(each.cause)], each) for each in published]
        self._services.sealer.note(_partition_of(records[0]), of_records)

    async def _decide_in_parts(
        self, batch: Batch, lease: PartitionLease, began: int
    ) -> tuple[list[Output], Batch]:
        """Decide first what state answers of; return what was published, and what is left of the batch."""
        published: list[Output] = []
        left = batch
        while left:
            part, rest = self._apart(left)
            if not part:
                break
            with suppress(_PartlyAway):
                published += await self._decide_and_publish(part, lease, began)
                left = rest
        return published, left

    def _apart(self, batch: Batch) -> tuple[Batch, Batch]:
        """Split a batch into what may be decided now, and what waits or follows that in its key.

        First what concerns no part of state that is away; where all does, that whose grace is over.
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
        """Return what parts of state an entry of a batch concerns."""
        subject = getattr(entry, "subject", None)
        if subject is None:
            return set()
        state = self._services.state
        ids = (
            {state.actions_bucket(subject.tenant_id)}
            if self._role.topic is TopicName.REVIEW_DECISIONS
            else ()
        )
        return {state.bucket_of(subject), *ids}

    async def _decide_and_publish(self, batch: Batch, lease: PartitionLease, began: int) -> list[Output]:
        """Return what was published. Raises: _PartlyAway."""
        fresh: set[str] = set()
        while True:
            asked_at, results = await self._decide(batch, lease)
            fresh |= {r.decision.decision_id for r in results if isinstance(r, Decided | Acted) and r.fresh}
            outgoing, following = await _outgoing(results), followers(results)
            if self._clock() - asked_at > STALE:
                continue
            try:
                with self._timed("publish"), self._services.tracing.spans(results, began) as carried:
                    published = await self._publish(carried(outgoing))
                    if following:
                        published += await self._publish(carried(following))
            except BrokerUnavailable as exc:
                self._health.begin("broker")
                if self._clock() >= self._tell_broker_at:  # each partition tries again every half minute
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

    async def _publish(self, outgoing: Sequence[Output]) -> list[Output]:
        """Publish; return what stands on its topic now. Raises: as `Publisher.publish`."""
        refused = {id(output) for output in await self._publisher.publish(outgoing)}
        return [output for output in outgoing if id(output) not in refused]

    async def _decide(self, batch: Batch, lease: PartitionLease) -> tuple[float, list[Result]]:
        """Return when state was asked, and what the batch came to.

        Raises:
            _PartlyAway: what waits is left, and the others are decided by themselves.
        """
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
                failed_at = self._clock() if failed_at is None else failed_at
                provisional = await self._without_state(batch, exc, lease, failed_at)
                if provisional is not None:
                    return asked_at, provisional
            else:
                reconciler.answered()
                self._state_lost_at = None
                self._health.end("state")
                self._note_shards()
                return asked_at, results

    async def _without_state(
        self, batch: Batch, error: StateUnavailable, lease: PartitionLease, failed_at: float
    ) -> list[Result] | None:
        """Wait for state, or decide provisionally once it has been out of reach for longer than the grace."""
        now = self._clock()
        lost_at = self._away_since(batch)
        if lost_at is not None:
            self._health.begin("shard")
        else:
            if self._state_lost_at is None:
                self._state_lost_at = now
                log.warning("state.unavailable", error=str(error))
            self._health.begin("state")
            lost_at = min(
                self._state_lost_at, failed_at
            )  # what others were answered meanwhile ends no wait of this
        if self._grace is not None and now - lost_at > self._grace:
            return self._handler.provisional(batch)
        await lease.pause(_RETRY)
        return None

    def _away_since(self, batch: Batch) -> float | None:
        """Return since when the last of what a batch concerns is away; None where nothing is."""
        away = self._services.state.away()
        since = [away[bucket] for entry in batch for bucket in self._buckets_of(entry) & away.keys()]
        return max(since, default=None)

    def _timed(self, stage: str) -> AbstractContextManager[Any]:
        return self._metrics.stage(stage).time()


def _place_of(record: InboundRecord) -> tuple[str | None, int, int]:
    return record.topic, record.partition, record.offset


def _partition_of(record: InboundRecord) -> TP:
    return TP(record.topic or "", record.partition)


async def _outgoing(results: Sequence[Result]) -> list[Output]:
    """Return what is to be published for a batch, in its order; the event loop gets its turns."""
    found: list[Output] = []
    for first in range(0, len(results), _YIELD_EVERY):
        found += outputs(results[first : first + _YIELD_EVERY])
        await asyncio.sleep(0)
    return found

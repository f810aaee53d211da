"""The loop of a partition: take, prepare, step, publish, mark as done.

It never raises for a record: it publishes a decision, publishes a dead letter, or waits (X-09, X-12, X-13). Health,
crash marks, seals, metrics and traces hang on it as hooks (`agents/hooks.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import structlog
from faust.types import TP

from agents.app import WorkerRole
from agents.book import PartitionBook
from agents.health import Health
from agents.hooks import Batch, Decider, Hook, LookUp
from agents.lease import LeaseLost, PartitionLease
from agents.observability import sender_of
from agents.outputs import followers, outputs
from agents.publisher import ProducerBroken, Publisher
from agents.recovery import StateReconciler, StateRecovery
from groundwire import metrics
from groundwire.errors import BrokerUnavailable, StateLost, StateUnavailable, TopicsMissing
from groundwire.gate.types import Acted, Decided, Deferred
from groundwire.logs import report_fault
from groundwire.messages.identity import Subject
from groundwire.messages.topics import TopicName, partition_of, record_key
from groundwire.state.redis import RedisState

log = structlog.get_logger()

STALE: Final = 30.0
"""Seconds after which an answer of state is requested again before it is published."""

_RETRY: Final = 0.5
"""Seconds between two attempts, and between two looks at records that wait for a time."""

_OF_PRODUCERS: Final = (TopicName.CLAIMS, TopicName.LLM_RESPONSES)
"""Topics whose records others produce, to a partition that their client chooses."""


@dataclass(slots=True)
class Services:
    """What the loops of a worker share.

    Attributes:
        decider: of batches that begin now; another one after a change of the policy.
        partitions_of: returns the number of partitions of a topic; 0: unknown.
        large: held while large records are read: those of all partitions are read one batch at a time.
    """

    role: WorkerRole
    decider: Decider
    state: RedisState
    publisher: Publisher
    recovery: StateRecovery
    reconciler: StateReconciler
    health: Health
    hooks: Sequence[Hook]
    partitions_of: Callable[[str], int]
    clock: Callable[[], float] = time.monotonic
    large: asyncio.Lock = field(default_factory=asyncio.Lock)


class PartitionLoop:
    """Processes what may start of a partition: one batch of small records and one of large ones at a time.

    Beside them wait the records whose look-ups are under way, each on its own: only later ones of its key wait too.

    Args:
        earlier: the batches of the lease before that still run.
        room: called when the partition may be read on.
    """

    def __init__(
        self,
        tp: TP,
        book: PartitionBook,
        services: Services,
        *,
        earlier: Collection[asyncio.Task[None]] = (),
        room: Callable[[], None] = lambda: None,
    ) -> None:
        self.tp = tp
        self.book = book
        self.lease = PartitionLease()
        self.running: set[asyncio.Task[None]] = set(earlier)
        self._services = services
        self._room = room
        self._changed = asyncio.Event()
        self._busy: set[bool] = set()
        self._error: Exception | None = None

    def wake(self) -> None:
        """Look again at what may start."""
        self._changed.set()

    def end(self) -> None:
        """End the lease: what waits is left to the next holder, what runs is finished."""
        self.lease.end()
        self.wake()

    async def run(self) -> None:
        """Run until the lease ends, and finish what runs then.

        Raises: ProducerBroken, MemoryError: this process cannot go on.
        """
        await self.finish()  # the batches of the lease before
        self.running.clear()
        for hook in self._services.hooks:
            await hook.before_loop(self)
        while not self.lease.over:
            self._changed.clear()
            for large in (False, True):
                if large not in self._busy:
                    self._take(large=large)
            if self.book.has_room:
                self._room()
            await self._wait_for_change(_RETRY if self.book.waits else None)
        await self.finish()
        if self._error is not None:
            raise self._error

    async def finish(self) -> None:
        """Wait for what runs, and for what that begins."""
        while running := {task for task in self.running if not task.done()}:
            await asyncio.wait(running)

    async def _wait_for_change(self, seconds: float | None) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _take(self, *, large: bool) -> None:
        """Begin a batch, if one may start."""
        alone = any(hook.alone for hook in self._services.hooks)
        entries = self.book.take(large=large, most=1 if alone else None)
        if not entries:
            return

        async def run() -> None:
            try:
                await self._process_or_end(Batch(self, entries, self._services.decider))
            finally:
                self._busy.remove(large)

        self._busy.add(large)
        self._begin(run())

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.running.add(task)
        task.add_done_callback(self.running.discard)

    async def _process_or_end(self, batch: Batch) -> None:
        try:
            await self.process(batch)
        except Exception as exc:  # noqa: BLE001 - `run` raises it
            self._error = exc
            self.end()
        finally:
            self.wake()

    async def _look_up(self, batch: Batch, prepared: Any, look_up: LookUp) -> None:  # noqa: ANN401 - the handler's
        """Look up what the record of a batch waits for, then process it on its own."""
        try:
            prepared = await self.lease.wait_for(look_up(prepared))
        except LeaseLost:
            self.book.put_back(batch.entries)
            return
        except Exception as exc:  # noqa: BLE001 - fails closed: it is decided without its answers
            report_fault("look_up.failed", exc, offset=batch.first_offset)
        batch.looked_up = [prepared]
        await self._process_or_end(batch)

    async def process(self, batch: Batch) -> None:
        """Process a batch until it is done; if the partition is revoked while it waits, the next holder does.

        Raises: ProducerBroken, MemoryError.
        """
        hooks = self._services.hooks
        try:
            for hook in hooks:
                await hook.before_batch(batch)
            while not await self._prepare_step_publish(batch):
                pass
        except LeaseLost:
            self._services.health.end("state", self)
            self.book.put_back(batch.entries)
        else:
            self.book.done(batch.entries)
        for hook in hooks:
            await hook.after_batch(batch)

    async def _prepare_step_publish(self, batch: Batch) -> bool:
        """Return whether what follows from a batch is acknowledged, or all is to be tried again.

        Raises: LeaseLost, ProducerBroken, MemoryError.
        """
        services = self._services
        try:
            if not batch.prepared:
                await self._prepare(batch)
            if not batch.entries:
                return True
            await self._step(batch)
            return await self._publish(batch)
        except (LeaseLost, MemoryError, ProducerBroken):
            raise
        except StateLost:
            await services.recovery.recover(self.lease)
        except StateUnavailable as exc:
            self._note_outage(exc)
            await self.lease.pause(_RETRY)
        except BrokerUnavailable as exc:
            why, other = ("topics", "broker") if isinstance(exc, TopicsMissing) else ("broker", "topics")
            services.health.begin(why, batch)
            services.health.end(other, batch)
            await self.lease.pause(_RETRY)
        except Exception as exc:  # noqa: BLE001 - whatever it is, records are never dropped over it
            report_fault("batch.failed", exc, records=len(batch.entries), offset=batch.first_offset)
            services.health.begin("internal", batch)
            batch.prepared = []
            await self.lease.pause(5.0)
        return False

    async def _prepare(self, batch: Batch) -> None:
        """Read records, large ones of all partitions one batch at a time."""
        services, role = self._services, self._services.role
        is_slow = batch.entries[0].large
        async with services.large if is_slow else nullcontext():
            if is_slow and self.lease.over:
                raise LeaseLost
            batch.originals = [role.original(entry.record) for entry in batch.entries]
            for hook in services.hooks:
                await hook.before_prepare(batch)
            if not batch.prepared:
                with self._during("prepare", batch):
                    prepared = batch.looked_up or await batch.by.handler.prepare(batch.originals)
                    batch.prepared = self._in_place(prepared)
            if batch.by.look_up is not None and not batch.looked_up:
                self._set_aside(batch, batch.by.look_up)
            batch.looked_up = []  # what fails later is prepared anew

    def _set_aside(self, batch: Batch, look_up: LookUp) -> None:
        """Keep of a batch what can be decided now: what waits for a look-up goes on alone, its key behind it."""
        held: set[bytes | None] = set()
        kept: set[bytes | None] = set()
        left = list(zip(batch.entries, batch.originals, batch.prepared, strict=True))
        batch.entries, batch.originals, batch.prepared = [], [], []
        for entry, original, prepared in left:
            key = entry.record.key
            waits = getattr(prepared, "wait", False)
            # on its own it could be published before an earlier record of its key that this batch keeps
            before = held | kept if waits else held
            if key in before or (key is None and before):
                held.add(key)
                self.book.put_back([entry])
            elif waits:
                held.add(key)
                self.book.set_aside(entry)
                self._begin(self._look_up(Batch(self, [entry], batch.by), prepared, look_up))
            else:
                kept.add(key)
                batch.entries.append(entry)
                batch.originals.append(original)
                batch.prepared.append(prepared)

    def _in_place(self, prepared: list[Any]) -> list[Any]:
        """Count records on another partition than their user's; in a cluster, claims go there through `deferred`."""
        services, role = self._services, self._services.role
        partitions = services.partitions_of(self.tp.topic) if role.topic in _OF_PRODUCERS else 0
        if not partitions:
            return prepared
        placed: list[Any] = []
        for entry in prepared:
            user = _user_of(entry)
            if user is not None and partition_of(*user, partitions) != self.tp.partition:
                metrics.MISPLACED.labels(role.topic, *sender_of(entry.record)).inc()
                if services.state.is_cluster and role.topic is TopicName.CLAIMS:
                    placed.append(Deferred(entry.record, record_key(*user)))
                    continue
            placed.append(entry)
        return placed

    async def _step(self, batch: Batch) -> None:
        """Decide by state; past the grace, provisionally without. Raises: StateLost, StateUnavailable, LeaseLost."""
        services, reconciler = self._services, self._services.reconciler
        try:
            if batch.by.ask_model is not None:
                batch.asked_at = services.clock()
                with self._during("model", batch):
                    batch.prepared = await self.lease.wait_for(batch.by.ask_model(batch.prepared))
            batch.asked_at = services.clock()
            with self._during("state", batch):
                await reconciler.before_step(self._partitions_of(batch.prepared), self.lease)
                deferred = services.role.deferred
                batch.results = await batch.by.handler.apply_step(batch.prepared, deferred=deferred)
        except StateUnavailable as exc:
            reconciler.failed(self._partitions_of(batch.prepared))
            now = services.clock()
            batch.failed_at = now if batch.failed_at is None else batch.failed_at
            # answers to other batches do not end this wait
            grace = batch.by.grace
            if grace is None or now - min(self._note_outage(exc), batch.failed_at) <= grace:
                raise
            batch.results = batch.by.handler.provisional(batch.prepared)
            return
        batch.failed_at = None
        services.health.end("state", self)
        decided = [result for result in batch.results if isinstance(result, Decided | Acted) and result.fresh]
        batch.fresh |= {result.decision.decision_id for result in decided}

    def _partitions_of(self, prepared: list[Any]) -> set[int]:
        """Return the partitions of state that deciding records depends on."""
        server = self._services.state.server
        users = {user for user in map(_user_of, prepared) if user is not None}
        if self._services.role.topic is TopicName.REVIEW_DECISIONS:  # ids of actions are reserved by tenant
            users |= {(tenant, "") for tenant, _ in users}
        return {server.partition_of(*user) for user in users}

    def _note_outage(self, error: StateUnavailable) -> float:
        """Return since when state does not answer this partition."""
        health = self._services.health
        if not health.waiters("state"):
            log.warning("state.unavailable", error=str(error))
        return health.begin("state", self)

    async def _publish(self, batch: Batch) -> bool:
        """Return False for an answer of state that is too old to publish. Raises: BrokerUnavailable, ProducerBroken."""
        batch.outputs = [[], followers(batch.results)]
        for first in range(0, len(batch.results), 50):
            batch.outputs[0] += outputs(batch.results[first : first + 50])
            await asyncio.sleep(0)  # the event loop gets a turn
        if self._services.clock() - batch.asked_at > STALE:
            return False
        batch.published = []
        with self._during("publish", batch):
            for some in filter(None, batch.outputs):
                refused = {id(output) for output in await self._services.publisher.publish(some)}
                batch.published += [output for output in some if id(output) not in refused]
        for hook in self._services.hooks:
            hook.after_publish(batch)
        return True

    @contextmanager
    def _during(self, stage: str, batch: Batch) -> Iterator[None]:
        with ExitStack() as opened:
            for hook in self._services.hooks:
                opened.enter_context(hook.during(stage, batch))
            yield


def _user_of(entry: object) -> tuple[str, str] | None:
    """Return tenant and user of a prepared entry; None of one that needs no state."""
    subject: Subject | None = getattr(entry, "subject", None)
    return None if subject is None else (subject.tenant_id, subject.user_id)

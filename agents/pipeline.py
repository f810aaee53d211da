"""How a batch is settled: prepared, decided by state, published and acknowledged, whatever it takes.

The pipeline never raises for a record: it publishes a decision, publishes a dead letter, or waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import structlog

from agents.crashes import ALONE, GIVEN_UP, CrashGuard
from agents.desk import Desk
from agents.outputs import Output, followers, outputs
from agents.pauses import Pauses
from agents.publisher import ProducerBroken, Publisher
from agents.reassertion import Reassertion
from agents.recovery import Recovery
from agents.tally import Tally
from agents.tenure import Released, Tenure
from agents.tracing import NoTracing, Tracing
from groundwire import metrics
from groundwire.errors import BrokerUnavailable, ErrorCode, RecordError, StateLost, StateUnavailable
from groundwire.gate.faults import report_fault
from groundwire.gate.results import Acted, DeadLetter, Decided, Result
from groundwire.messages.inbound import InboundRecord
from groundwire.state.redis import RedisState

log = structlog.get_logger()

STALE: Final = 30.0
"""Seconds after which an answer of state is asked for again before it is published."""

TOO_MANY: Final = 100
"""Records in a row that could not be decided, after which the configuration is taken to be wrong, not the records."""

_RETRY: Final = 0.5
_INTERNAL_RETRY: Final = 5.0
_BREATH: Final = 50  # results that are written before the event loop gets a turn

Batch = Sequence[Any]
"""What the desk has prepared."""


@dataclass(frozen=True, slots=True)
class Role:
    """What differs between the agents that decide records.

    Attributes:
        name: as in `python -m agents <name>`; labels metrics.
        deferred: records come from `deferred`: the network may be asked, and state is waited for.
        grace: seconds without state after which records are decided provisionally; None waits for ever.
        original: gives the record that is decided for the one that was read.
    """

    name: str
    deferred: bool
    grace: float | None
    original: Callable[[InboundRecord], InboundRecord] = lambda record: record


class Pipeline:
    """Settles the batches of one worker.

    Args:
        inquire: asks a language model what a prepared batch needs of it; called off where the partition is given away.
    """

    def __init__(  # noqa: PLR0913 - the parts of a worker
        self,
        role: Role,
        gate: Desk,
        state: RedisState,
        publisher: Publisher,
        recovery: Recovery,
        reassertion: Reassertion,
        pauses: Pauses,
        *,
        tracing: Tracing | None = None,
        inquire: Callable[[Batch], Coroutine[Any, Any, None]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._role = role
        self._tracing = tracing or NoTracing()
        self._gate = gate
        self._state = state
        self._publisher = publisher
        self._recovery = recovery
        self._reassertion = reassertion
        self._pauses = pauses
        self._inquire = inquire
        self._clock = clock
        self._tally = Tally(role.name)
        self._state_lost_at: float | None = None

    async def settle(self, records: Sequence[InboundRecord], tenure: Tenure) -> None:
        """Settle a batch of one partition.

        Raises:
            Released: the partition is given away while the batch waits; nothing of it counts as done.
            ProducerBroken, MemoryError: this process cannot go on.
        """
        if tenure.guard is None:
            guard = CrashGuard(self._state, records[0].topic or "", records[0].partition)
            await guard.read()
            tenure.guard = guard
        guard = tenure.guard
        metrics.BATCH_RECORDS.labels(self._role.name).observe(len(records))
        try:
            for portion, crashes in guard.portions(records):
                await self._insist(portion, crashes, tenure, guard)
                self._pauses.progress()
        except Released:
            await guard.let_go()
            raise
        guard.leave()

    def state_answered(self) -> None:
        """Note that state answers, where no batch is under way that would find out: it is waited for no longer."""
        if not self._pauses.under_way:
            self._state_lost_at = None
            self._pauses.end("state")

    async def _insist(
        self, records: Sequence[InboundRecord], crashes: int, tenure: Tenure, guard: CrashGuard
    ) -> None:
        """Try a portion until it is settled; an error of our own waits, visibly, and is tried again."""
        await self._pauses.wait_if("dead_letters", lambda: self._tally.failed_in_a_row >= TOO_MANY, tenure)
        await guard.enter(records, crashes)
        began = self._tracing.began()
        while True:
            try:
                await self._publish(await self._prepare(records, crashes, guard), tenure, began)
            except (Released, MemoryError, ProducerBroken):
                raise
            except Exception as exc:  # noqa: BLE001 - whatever it is, records are never dropped over it
                report_fault("batch.failed", exc, records=len(records), offset=records[0].offset)
                self._pauses.begin("internal")
                await tenure.pause(_INTERNAL_RETRY)
            else:
                self._pauses.end("internal")
                return

    async def _prepare(self, records: Sequence[InboundRecord], crashes: int, guard: CrashGuard) -> Batch:
        with self._timed("prepare"):
            originals = [self._role.original(record) for record in records]
            if crashes >= GIVEN_UP:
                letter = await self._given_up(originals[0], crashes)
                if letter is not None:
                    return [letter]
                await guard.enter(records, ALONE)  # it is decided, however often its worker dies from here on
            return await self._gate.prepare(originals, ask_network=self._role.deferred)

    async def _given_up(self, record: InboundRecord, crashes: int) -> DeadLetter | None:
        """Return the dead letter of a record that has brought down its worker too often; None if it is decided.

        Its text is not read again. Where even its identity cannot be read alive, state never heard of it.
        """
        message = f"a worker died {crashes} times over this record"
        letter = DeadLetter(record, RecordError(ErrorCode.WORKER_CRASH, message))
        if crashes > GIVEN_UP:
            return letter
        try:
            abandoned = await self._gate.abandon(record, self._state.give_up)
        except RecordError as error:
            return DeadLetter(record, error)
        return letter if abandoned else None

    async def _publish(self, batch: Batch, tenure: Tenure, began: int) -> None:
        fresh: set[str] = set()
        while True:
            asked_at, results = await self._decide(batch, tenure)
            fresh |= {r.decision.decision_id for r in results if isinstance(r, Decided | Acted) and r.fresh}
            outgoing, following = await _outgoing(results), followers(results)
            if self._clock() - asked_at > STALE:
                continue
            try:
                with self._timed("publish"), self._tracing.spans(results, began) as carried:
                    await self._publisher.publish(carried(outgoing))
                    if following:
                        await self._publisher.publish(carried(following))
            except BrokerUnavailable as exc:
                self._pauses.begin("broker")
                log.warning("broker.unavailable", error=str(exc), records=len(batch))
                await tenure.pause(_RETRY)
            else:
                self._pauses.end("broker")
                self._tally.count(results, fresh)
                return

    async def _decide(self, batch: Batch, tenure: Tenure) -> tuple[float, list[Result]]:
        """Return when state was asked, and what it came to."""
        while True:
            asked_at = self._clock()
            try:
                if self._inquire is not None:
                    with self._timed("model"):
                        await tenure.wait_for(self._inquire(batch))
                asked_at = self._clock()
                with self._timed("state"):
                    await self._reassertion.before_step()
                    results = await self._gate.settle(batch, deferred=self._role.deferred)
            except StateLost:
                await self._recovery.recover(tenure)
            except StateUnavailable as exc:
                self._reassertion.failed()
                provisional = await self._without_state(batch, exc, tenure)
                if provisional is not None:
                    return asked_at, provisional
            else:
                self._reassertion.answered()
                self._state_lost_at = None
                self._pauses.end("state")
                return asked_at, results

    async def _without_state(
        self, batch: Batch, error: StateUnavailable, tenure: Tenure
    ) -> list[Result] | None:
        """Wait for state, or decide provisionally once it has been out of reach for longer than the grace."""
        now = self._clock()
        if self._state_lost_at is None:
            self._state_lost_at = now
            log.warning("state.unavailable", error=str(error))
        self._pauses.begin("state")
        if self._role.grace is not None and now - self._state_lost_at > self._role.grace:
            return self._gate.provisional(batch)
        await tenure.pause(_RETRY)
        return None

    def _timed(self, stage: str) -> AbstractContextManager[Any]:
        return metrics.STAGE.labels(self._role.name, stage).time()


async def _outgoing(results: Sequence[Result]) -> list[Output]:
    """Return what is to be published for a batch, in its order; the event loop gets its turns."""
    found: list[Output] = []
    for first in range(0, len(results), _BREATH):
        found += outputs(results[first : first + _BREATH])
        await asyncio.sleep(0)
    return found

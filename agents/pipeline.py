"""How a batch is settled: prepared, decided by state, published and acknowledged, whatever it takes.

The pipeline never raises for a record: it publishes a decision, publishes a dead letter, or waits.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import structlog

from agents.crashes import GIVEN_UP, CrashGuard
from agents.outputs import outputs
from agents.pauses import Pauses
from agents.publisher import Publisher
from agents.recovery import Recovery
from agents.tenure import Released, Tenure
from groundwire import metrics
from groundwire.errors import BrokerUnavailable, ErrorCode, RecordError, StateLost, StateUnavailable
from groundwire.gate.claims import ClaimGate
from groundwire.gate.prepared import Prepared
from groundwire.gate.results import DeadLetter, Decided, Deferred, Provisional, Result
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import record_key
from groundwire.state.redis import RedisState

log = structlog.get_logger()

STALE: Final = 30.0
"""Seconds after which an answer of state is asked for again before it is published."""

TOO_MANY: Final = 100
"""Dead letters in a row after which the configuration is taken to be wrong, not the records."""

_RETRY: Final = 0.5
_INTERNAL_RETRY: Final = 5.0

Batch = Sequence[Prepared | DeadLetter]


@dataclass(frozen=True, slots=True)
class Role:
    """What differs between the agents that decide claims.

    Attributes:
        name: as in `python -m agents <name>`; labels metrics.
        deferred: records come from `deferred`: the network may be asked, and state is waited for.
        grace: seconds without state after which claims are decided provisionally; None waits for ever.
        original: gives the record that is decided for the one that was read.
    """

    name: str
    deferred: bool
    grace: float | None
    original: Callable[[InboundRecord], InboundRecord] = lambda record: record


class Pipeline:
    """Settles the batches of one worker."""

    def __init__(
        self,
        role: Role,
        gate: ClaimGate,
        state: RedisState,
        publisher: Publisher,
        recovery: Recovery,
        pauses: Pauses,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._role = role
        self._gate = gate
        self._state = state
        self._publisher = publisher
        self._recovery = recovery
        self._pauses = pauses
        self._clock = clock
        self._in_a_row = 0
        self._state_lost_at: float | None = None

    async def settle(self, records: Sequence[InboundRecord], tenure: Tenure) -> None:
        """Settle a batch of one partition.

        Raises:
            Released: the partition is given away while the batch waits; nothing of it counts as done.
        """
        guard = CrashGuard(self._state, records[0].topic or "", records[0].partition)
        if not tenure.crash_mark_read:
            await guard.read()
            tenure.crash_mark_read = True
        metrics.BATCH_RECORDS.labels(self._role.name).observe(len(records))
        try:
            for portion, crashes in guard.portions(records):
                await self._insist(portion, crashes, tenure)
                self._pauses.progress()
        except Released:
            guard.clear()
            raise

    async def _insist(self, records: Sequence[InboundRecord], crashes: int, tenure: Tenure) -> None:
        """Try a portion until it is settled; an error of our own waits, visibly, and is tried again."""
        await self._pauses.wait_if("dead_letters", lambda: self._in_a_row >= TOO_MANY, tenure)
        while True:
            try:
                await self._settle(records, crashes, tenure)
            except (Released, MemoryError):
                raise
            except Exception:
                log.exception("batch.failed", records=len(records), offset=records[0].offset)
                self._pauses.begin("internal")
                await tenure.pause(_INTERNAL_RETRY)
            else:
                self._pauses.end("internal")
                return

    async def _settle(self, records: Sequence[InboundRecord], crashes: int, tenure: Tenure) -> None:
        with self._timed("prepare"):
            originals = [self._role.original(record) for record in records]
            batch = await self._gate.prepare(originals, ask_network=self._role.deferred)
            if crashes >= GIVEN_UP:
                batch = [await self._give_up(entry, crashes) for entry in batch]
        while True:
            results = await self._decide(batch, tenure)
            decided_at = self._clock()
            outgoing = outputs(results)
            if self._clock() - decided_at > STALE:
                continue
            try:
                with self._timed("publish"):
                    await self._publisher.publish(outgoing)
            except BrokerUnavailable as exc:
                self._pauses.begin("broker")
                log.warning("broker.unavailable", error=str(exc), records=len(records))
                await tenure.pause(_RETRY)
            else:
                self._pauses.end("broker")
                self._count(results)
                return

    async def _decide(self, batch: Batch, tenure: Tenure) -> list[Result]:
        while True:
            try:
                with self._timed("state"):
                    results = await self._gate.settle(batch, deferred=self._role.deferred)
            except StateLost as exc:
                log.warning("state.lost", error=str(exc))
                await self._pauses.during("state_lost", self._recovery.recover(tenure))
            except StateUnavailable as exc:
                provisional = await self._without_state(batch, exc, tenure)
                if provisional is not None:
                    return provisional
            else:
                self._state_lost_at = None
                self._pauses.end("state")
                return results

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

    async def _give_up(self, entry: Prepared | DeadLetter, crashes: int) -> Prepared | DeadLetter:
        """Turn a record that has brought down its worker too often into a dead letter, unless it is decided."""
        if isinstance(entry, DeadLetter) or not await self._state.give_up(entry.subject):
            return entry
        message = f"a worker died {crashes} times over this record"
        return DeadLetter(entry.record, RecordError(ErrorCode.WORKER_CRASH, message))

    def _timed(self, stage: str) -> AbstractContextManager[Any]:
        return metrics.STAGE.labels(self._role.name, stage).time()

    def _count(self, results: Sequence[Result]) -> None:
        now = time.time()
        for result in results:
            self._in_a_row = self._in_a_row + 1 if isinstance(result, DeadLetter) else 0
            match result:
                case Decided(record=record, decision=decision, fresh=True):
                    metrics.DECISIONS.labels(decision.kind, decision.tier, decision.reason_code).inc()
                    metrics.LATENCY.labels(self._role.name).observe(max(0.0, now - record.timestamp / 1000))
                    for name, checks in (
                        ("passed", decision.checks_passed),
                        ("failed", decision.checks_failed),
                        ("skipped", decision.checks_skipped),
                    ):
                        for check in checks:
                            metrics.CHECKS.labels(check.partition(":")[0], name).inc()
                    if record.key != record_key(decision.tenant_id, decision.user_id):
                        metrics.MISKEYED.inc()
                case Decided():
                    metrics.REPEATS.inc()
                case Provisional(decision=decision):
                    metrics.PROVISIONAL.labels(decision.reason_code).inc()
                    metrics.DEFERRED.inc()
                case Deferred():
                    metrics.DEFERRED.inc()
                case DeadLetter(error=error):
                    metrics.DEAD_LETTERS.labels(error.code).inc()
                    log.info(
                        "record.dead",
                        code=error.code,
                        field=error.field,
                        topic=result.record.topic,
                        partition=result.record.partition,
                        offset=result.record.offset,
                    )

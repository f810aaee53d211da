"""Brings state back in line with the output topics: after a loss, and after an outage."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final

import structlog

from agents.partitions import Health, PartitionLease
from groundwire import metrics
from groundwire.errors import BrokerUnavailable, SchemeMismatch, StateUnavailable, UsageError
from groundwire.policy import Policy
from groundwire.replay.rebuild import OutputReader, Rebuilder, stored_outcome
from groundwire.state.model import StoredOutcome
from groundwire.state.policies import PolicyStore
from groundwire.state.redis import RedisState
from groundwire.state.server import Doubt, ServerRun

log = structlog.get_logger()

WINDOW: Final = 60.0
"""Seconds before the last answer of state whose outcomes are reasserted on another server."""

_CHUNK: Final = 200
_LOST: Final = "state_lost"


class StateRecovery:
    """Rebuilds lost state once for all partitions; one worker rebuilds, the others wait."""

    def __init__(
        self,
        state: RedisState,
        rebuilder: Rebuilder,
        read: OutputReader,
        health: Health,
        note: Callable[..., None],
    ) -> None:
        self._state = state
        self._rebuilder = rebuilder
        self._read = read
        self._health = health
        self._note = note
        self._running: asyncio.Task[bool] | None = None

    async def begin(self) -> None:
        """Give a deployment without published records its first state. Raises: StateUnavailable."""
        try:
            async with aclosing(self._read()) as values:
                async for _ in values:
                    return
            await self._rebuilder.rebuild(only_lost=True)
        except (BrokerUnavailable, UsageError) as exc:
            log.warning("topics.unreadable", error=str(exc))

    async def recover(self, lease: PartitionLease) -> None:
        """Return once state carries an epoch, which is adopted. Raises: LeaseLost."""
        while True:
            if self._running is None or self._running.done():
                self._running = asyncio.create_task(self._once())
            running = self._running
            # it goes on for other partitions if this lease ends
            await lease.wait_for(asyncio.wait({running}))
            if running.result():
                return
            await lease.pause(1.0)

    async def _once(self) -> bool:
        """Adopt another worker's epoch, or rebuild; True when state is usable."""
        known = self._state.epoch
        try:
            if await self._adopted():
                return True
            if _LOST not in self._health.current:
                log.warning(
                    "state.lost", hint="it is empty, was flushed or restored: rebuilt from the topics"
                )
                self._health.begin(_LOST)
                # each worker's event is named by its time
                self._note("state_lost", {"epoch": known}, recurs=True)
            done = await self._rebuilder.rebuild(only_lost=True)
        except (StateUnavailable, BrokerUnavailable, UsageError) as exc:
            log.warning("state.rebuild_interrupted", error=str(exc))
            metrics.REBUILDS.labels("interrupted").inc()
            return False
        except SchemeMismatch as exc:
            log.error("state.scheme_mismatch", error=str(exc))  # noqa: TRY400 - a traceback would add nothing
            return False
        if done:
            metrics.REBUILDS.labels("done").inc()
        adopted = done and await self._adopted()
        if adopted:
            self._note("state_rebuilt", {"epoch": self._state.epoch})
        return adopted

    async def _adopted(self) -> bool:
        epoch = await self._state.adopt_epoch()
        if epoch is not None:
            self._health.end(_LOST)
        return epoch is not None


class StateReconciler:
    """Reasserts recent outcomes after an outage of state, and stores the policy before anything is decided by it.

    A restarted server or a promoted replica may have lost the last second. The output topics are authoritative: who
    finds another server rereads their last minute before the next step.
    """

    def __init__(
        self,
        state: RedisState,
        policy: Policy,
        policies: PolicyStore,
        read: Callable[[datetime], AsyncGenerator[bytes, None]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._policy = policy
        self._policies = policies
        self._kept_in: str | None = ""  # the epoch that has the policy
        self._read = read
        self._clock = clock
        self._runs: dict[int, ServerRun] = {}
        self._answered_at: float | None = None
        state.server.watch_servers()
        self._comparing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by server

    def answered(self) -> None:
        self._answered_at = self._clock()

    def failed(self) -> None:
        """Note an outage: the next answer may be another server's."""
        self._state.server.suspect()

    async def before_step(self, partitions: Collection[int]) -> None:
        """Compare the servers of partitions, and reassert on new ones; an unidentified one counts as new.

        Raises: StateError.
        """
        if self._kept_in != (epoch := self._state.epoch):
            await self._policies.put(self._policy)
            self._kept_in = epoch
        server = self._state.server
        if self._answered_at is None:  # later runs are compared with those of the first step
            partitions = range(len(server.tags))
        for partition in partitions:
            if server.doubts(partition):
                async with self._comparing[server.name_of(partition)]:
                    if doubts := server.doubts(partition):
                        await self._compare(partition, doubts)

    async def _compare(self, partition: int, doubts: Mapping[int, Doubt]) -> None:
        run = await self._state.server.server_run(partition)
        others = {at for at in doubts if run[1] is None or run != self._runs.get(at)}
        if self._answered_at is not None and others:
            # others may have answered while these were away
            since = min(self._answered_at, *(doubts[at].since for at in others))
            await self._assert_again(since - WINDOW, others)
        self._runs |= dict.fromkeys(doubts, run)
        self._state.server.trust(doubts, run)

    async def _assert_again(self, since: float, partitions: set[int]) -> None:
        count = 0
        chunk: list[StoredOutcome] = []
        try:
            async with aclosing(self._read(datetime.fromtimestamp(since, UTC))) as values:
                async for value in values:
                    outcome = stored_outcome(value, self._policy)
                    if outcome is not None and self._state.partition_of(outcome.subject) in partitions:
                        chunk.append(outcome)
                    if len(chunk) == _CHUNK:
                        count += await self._state.reassert(chunk)
                        chunk = []
        except (BrokerUnavailable, UsageError) as exc:
            raise StateUnavailable(f"published outcomes cannot be read to reassert them: {exc}") from exc
        count += await self._state.reassert(chunk) if chunk else 0
        log.info("state.reasserted", missing=count)

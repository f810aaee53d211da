"""Brings state back in line with the output topics: after a loss, and after an outage."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final

import structlog

from agents.health import Health
from agents.lease import PartitionLease
from groundwire import metrics
from groundwire.errors import BrokerUnavailable, SchemeMismatch, StateError, StateUnavailable, UsageError
from groundwire.logs import report_fault
from groundwire.policy import Policy
from groundwire.replay.rebuild import OutputReader, Rebuilder, stored_outcome
from groundwire.state.model import StoredOutcome
from groundwire.state.policies import PolicyStore
from groundwire.state.redis import RedisState
from groundwire.state.server import HIDDEN

log = structlog.get_logger()

WINDOW: Final = 60.0
"""Seconds before a server was last seen whose outcomes are reasserted on the next one."""

_LOOK: Final = 1.0
"""Seconds between two looks at the servers, and between two attempts to rebuild."""

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
        self._running: asyncio.Task[None] | None = None
        self._is_reported = False

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
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._until_usable())
        # it goes on for other partitions, and for `Health`, if this lease ends
        await lease.wait_for(asyncio.wait({self._running}))

    async def _until_usable(self) -> None:
        lost = self._state.epoch
        while True:
            try:
                if await self._adopted() or await self._rebuilt(lost):
                    return
            except SchemeMismatch as exc:
                if _LOST not in self._health.current:
                    log.error("state.scheme_mismatch", error=str(exc))  # noqa: TRY400 - a traceback would add nothing
                self._health.begin(_LOST)
            except Exception as exc:  # noqa: BLE001 - a crash would count against the records that wait
                if isinstance(exc, StateUnavailable | BrokerUnavailable | UsageError):
                    log.warning("state.rebuild_interrupted", error=str(exc))
                else:
                    report_fault("state.rebuild_failed", exc)
                metrics.REBUILDS.labels("interrupted").inc()
            await asyncio.sleep(_LOOK)

    async def _rebuilt(self, lost: str | None) -> bool:
        """Rebuild state, unless another worker does, and adopt its epoch; `lost`: the one before."""
        if not self._is_reported:
            self._is_reported = True
            log.warning("state.lost", hint="it is empty, was flushed or restored: rebuilt from the topics")
            self._health.begin(_LOST)
            # each worker's event is named by its time
            self._note("state_lost", {"epoch": lost}, recurs=True)
        if not (await self._rebuilder.rebuild(only_lost=True) and await self._adopted()):
            return False
        metrics.REBUILDS.labels("done").inc()
        self._note("state_rebuilt", {"epoch": self._state.epoch})
        return True

    async def _adopted(self) -> bool:
        epoch = await self._state.adopt_epoch()
        if epoch is not None:
            self._is_reported = False
            self._health.end(_LOST)
        return epoch is not None


class StateReconciler:
    """Lets partitions decide on servers that were compared, and stores the policy before anything is decided by it.

    A restarted server or a promoted replica may have lost the last second. The output topics are authoritative: each
    worker rereads their last minute for all partitions of another server, before it decides on one. State holds which
    run was compared last, and when: a worker that starts after its server did compares, too, and what a server lost
    before is reread. Scripts refuse a run of the server that is not trusted. Of a server that hides its run, each
    failure counts as another run.
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
        self._in_use = [policy]  # a batch that began before a change may still be decided by the one before
        self._kept: tuple[int, str | None] = 0, None  # how many of them the epoch has
        self._read = read
        self._clock = clock
        self._trusted = state.trusted = {}
        self._seen: dict[int, tuple[str, float]] = {}  # run of its server, and when, by partition
        self._comparing: dict[int, asyncio.Task[None]] = {}  # by first partition of a server

    def use(self, policy: Policy) -> None:
        """Decide by another policy from now on: it is stored before the next step."""
        self._policy = policy
        self._in_use += [policy] if policy not in self._in_use else []

    def failed(self, partitions: Iterable[int]) -> None:
        """Note that servers of partitions failed: the next answer may be another server's."""
        for partition in {at for one in partitions for at in self._state.server.partitions_beside(one)}:
            run, at = self._seen.get(partition, ("", 0.0))
            if run.startswith(HIDDEN):
                self._seen[partition] = "", at
                self._trusted.pop(partition, None)

    async def before_step(self, partitions: Collection[int], lease: PartitionLease) -> None:
        """Compare the servers of partitions that are not trusted, and reassert on other ones.

        Raises: StateError, LeaseLost.
        """
        if self._kept != (wanted := (len(self._in_use), self._state.epoch)):
            for policy in self._in_use[: wanted[0]]:
                await self._policies.put(policy)
            self._kept = wanted
        for partition in partitions:
            if partition not in self._trusted:
                comparing = self._comparison(partition)  # it goes on for others if this lease ends
                await lease.wait_for(asyncio.wait({comparing}))
                comparing.result()

    async def watch(self) -> None:
        """Compare all servers now and then: another one is found though nothing is decided there."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK)

    async def look(self) -> None:
        """Compare all servers that answer."""
        await asyncio.wait({self._comparison(partition) for partition in range(len(self._state.server.tags))})

    def _comparison(self, partition: int) -> asyncio.Task[None]:
        """Compare the server of a partition in a task, unless one is running."""
        beside = self._state.server.partitions_beside(partition)
        running = self._comparing.get(beside[0])
        if running is None or running.done():
            running = self._comparing[beside[0]] = asyncio.create_task(self._compare(beside))
            running.add_done_callback(_report_comparison)
        return running

    async def _compare(self, partitions: Sequence[int]) -> None:
        now = self._clock()
        try:
            run = await self._state.server.server_run(partitions[0])
        except StateUnavailable:
            self.failed(partitions)
            self._seen = dict.fromkeys(partitions, ("", now)) | self._seen
            raise
        others: dict[int, float] = {}
        for at in partitions:
            seen = self._seen.get(at)
            if seen is None or seen[0] != run:
                # a server that lost more than the last second says itself since when
                known = filter(None, (seen, await self._state.remembered_run(at)))
                if times := [since for earlier, since in known if earlier != run]:
                    others[at] = min(times)
        if others:
            await self._assert_again(min(others.values()) - WINDOW, others.keys(), run)
        # what was reasserted may be lost at once, too, until the next look
        self._seen |= {at: (run, others.get(at, now)) for at in partitions}
        for at in partitions:
            await self._state.remember_run(at, *self._seen[at])
        self._trusted |= dict.fromkeys(partitions, run)

    async def _assert_again(self, since: float, partitions: Collection[int], run: str) -> None:
        count = 0
        chunk: list[StoredOutcome] = []
        try:
            async with aclosing(self._read(datetime.fromtimestamp(since, UTC))) as values:
                async for value in values:
                    outcome = stored_outcome(value, self._policy)
                    if outcome is not None and self._state.partition_of(outcome.subject) in partitions:
                        chunk.append(outcome)
                    if len(chunk) == _CHUNK:
                        count += await self._state.reassert(chunk, run)
                        chunk = []
        except (BrokerUnavailable, UsageError) as exc:
            raise StateUnavailable(f"published outcomes cannot be read to reassert them: {exc}") from exc
        count += await self._state.reassert(chunk, run) if chunk else 0
        log.info("state.reasserted", missing=count)


def _report_comparison(done: asyncio.Task[None]) -> None:
    error = None if done.cancelled() else done.exception()
    if isinstance(error, Exception) and not isinstance(error, StateError):
        report_fault("state.comparison_failed", error)

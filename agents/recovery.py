"""What a worker does when state is lost: one of them rebuilds it from the topics, the others wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

import structlog

from agents.pauses import Pauses
from agents.tenure import Tenure
from groundwire import metrics
from groundwire.errors import BrokerUnavailable, SchemeMismatch, StateUnavailable, UsageError
from groundwire.rebuild import Read, Rebuilder
from groundwire.state.redis import RedisState

log = structlog.get_logger()

_LOOK_AGAIN: Final = 1.0
_LOST: Final = "state_lost"


class Recovery:
    """Brings state back, once for all partitions of the worker that ask for it.

    Args:
        read: reads the output topics.
        pauses: shows that state is lost for as long as it is.

    Attributes:
        tell: is told of `state_lost` and `state_rebuilt`; set by whoever can publish.
    """

    def __init__(
        self,
        state: RedisState,
        rebuilder: Rebuilder,
        read: Read,
        pauses: Pauses,
    ) -> None:
        self._state = state
        self._rebuilder = rebuilder
        self._read = read
        self._pauses = pauses
        self._running: asyncio.Task[bool] | None = None
        self.tell: Callable[..., None] | None = None

    async def begin(self) -> None:
        """Give a deployment that has published nothing yet its first state; anything else waits for `recover`.

        Raises:
            StateUnavailable: state went away meanwhile.
        """
        try:
            async with aclosing(self._read()) as values:
                async for _ in values:
                    return
            await self._rebuilder.rebuild(only_lost=True)
        except (BrokerUnavailable, UsageError) as exc:
            log.warning("topics.unreadable", error=str(exc))

    async def recover(self, tenure: Tenure) -> None:
        """Return when state carries an epoch again; this worker then takes it. Raises: Released."""
        while True:
            if self._running is None or self._running.done():
                self._running = asyncio.create_task(self._once())
            ending = asyncio.create_task(tenure.pause(3600))
            try:
                await asyncio.wait({self._running, ending}, return_when=asyncio.FIRST_COMPLETED)
                if tenure.over:
                    await ending
                if self._running.done() and self._running.result():
                    return
            finally:
                ending.cancel()
            await tenure.pause(_LOOK_AGAIN)

    async def _once(self) -> bool:
        """Adopt the epoch that another worker has set, or rebuild; True when state can be used."""
        known = self._state.epoch
        try:
            if await self._adopted():
                return True
            self._note_lost(known)
            done = await self._rebuilder.rebuild(only_lost=True)
        except (StateUnavailable, BrokerUnavailable, UsageError) as exc:
            log.warning("state.rebuild_interrupted", error=str(exc))
            metrics.REBUILDS.labels("interrupted").inc()
            return False
        except SchemeMismatch as exc:
            log.error("state.scheme_mismatch", error=str(exc))  # noqa: TRY400 - it says all there is
            return False
        if done:
            metrics.REBUILDS.labels("done").inc()
        adopted = done and await self._adopted()
        if adopted and self.tell:
            self.tell("state_rebuilt", {"epoch": self._state.epoch})
        return adopted

    def _note_lost(self, epoch: str | None) -> None:
        """Say once that state is lost; every worker that knew its epoch names the same event."""
        if _LOST in self._pauses.current:
            return
        log.warning("state.lost", hint="it is empty, was flushed or restored: rebuilt from the topics")
        self._pauses.begin(_LOST)
        if self.tell:
            self.tell("state_lost", {"epoch": epoch}, recurs=epoch is None)

    async def _adopted(self) -> bool:
        epoch = await self._state.adopt_epoch()
        if epoch is not None:
            self._pauses.end(_LOST)
        return epoch is not None

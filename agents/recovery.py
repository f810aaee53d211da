"""What a worker does when state is lost: one of them rebuilds it from the topics, the others wait."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from agents.tenure import Tenure
from groundwire import metrics
from groundwire.errors import BrokerUnavailable, SchemeMismatch, StateUnavailable, UsageError
from groundwire.rebuild import Rebuilder
from groundwire.state.redis import RedisState

log = structlog.get_logger()

_LOOK_AGAIN: Final = 1.0


class Recovery:
    """Brings state back, once for all partitions of the worker that ask for it."""

    def __init__(self, state: RedisState, rebuilder: Rebuilder) -> None:
        self._state = state
        self._rebuilder = rebuilder
        self._running: asyncio.Task[bool] | None = None

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
        try:
            if await self._state.adopt_epoch() is not None:
                return True
            done = await self._rebuilder.rebuild()
        except (StateUnavailable, BrokerUnavailable, UsageError) as exc:
            log.warning("state.rebuild_interrupted", error=str(exc))
            metrics.REBUILDS.labels("interrupted").inc()
            return False
        except SchemeMismatch:
            log.exception("state.scheme_mismatch")
            return False
        if done:
            metrics.REBUILDS.labels("done").inc()
        return done and await self._state.adopt_epoch() is not None

"""After state was out of reach: has it forgotten what was published?

A server that restarts or hands over to a replica may have lost the last second. What stands on the output topics
is true, so a worker that finds another server than before reads the last minute of them and asserts it again,
before it asks anything else of state.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Final

import structlog

from groundwire.errors import BrokerUnavailable, StateUnavailable, UsageError
from groundwire.policy import Policy
from groundwire.rebuild import stored_outcome
from groundwire.state.model import StoredOutcome
from groundwire.state.redis import RedisState

log = structlog.get_logger()

WINDOW: Final = 60.0
_CHUNK: Final = 200


class Reassertion:
    """Asserts recent outcomes again, once for all partitions of the worker.

    Args:
        read: yields the values of the output topics from a time on.
        server: names the server's process, None where it does not tell: then it counts as another one.
            Raises: StateUnavailable.
    """

    def __init__(
        self,
        state: RedisState,
        policy: Policy,
        read: Callable[[datetime], AsyncGenerator[bytes, None]],
        server: Callable[[], Awaitable[str | None]],
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._policy = policy
        self._read = read
        self._ask_server = server
        self._clock = clock
        self._server: str | None = None
        self._answered_at: float | None = None
        self._due = True
        self._lock = asyncio.Lock()

    def answered(self) -> None:
        """Note that state has answered a step."""
        self._answered_at = self._clock()

    def failed(self) -> None:
        """Note that it has not: who answers next may be another."""
        self._due = True

    async def before_step(self) -> None:
        """Make sure of the server. Raises: StateUnavailable, StateLost."""
        if not self._due:
            return
        async with self._lock:
            if not self._due:
                return
            server = await self._ask_server()
            if self._answered_at is not None and (server is None or server != self._server):
                await self._assert_again(self._answered_at - WINDOW)
            self._server = server
            self._due = False

    async def _assert_again(self, since: float) -> None:
        count = 0
        chunk: list[StoredOutcome] = []
        try:
            async with aclosing(self._read(datetime.fromtimestamp(since, UTC))) as values:
                async for value in values:
                    outcome = stored_outcome(value, self._policy)
                    if outcome is not None:
                        chunk.append(outcome)
                    if len(chunk) == _CHUNK:
                        count += await self._state.reassert(chunk)
                        chunk = []
        except (BrokerUnavailable, UsageError) as exc:
            raise StateUnavailable(f"what was published cannot be read to assert it again: {exc}") from exc
        count += await self._state.reassert(chunk) if chunk else 0
        log.info("state.reasserted", missing=count)

"""How fast a replay goes: it shares brokers with those that work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class Rate:
    """Lets through so many records a second, in the mean since the start.

    Args:
        a_second: records; None: as fast as it goes.
        clock: seconds.
        sleep: waits so many of them.
    """

    def __init__(
        self,
        a_second: float | None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._a_second = a_second
        self._clock = clock
        self._sleep = sleep
        self._started = clock()
        self._done = 0

    async def after(self, count: int) -> None:
        """Wait as long as `count` more records take; without a rate only the event loop has its turn."""
        self._done += count
        due = self._started + self._done / self._a_second if self._a_second else 0.0
        await self._sleep(max(due - self._clock(), 0.0))

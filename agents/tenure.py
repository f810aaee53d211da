"""How long a partition is held, and what ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from agents.crashes import CrashGuard


class Released(Exception):
    """The partition is being given away, or the worker stops: what waits for something is left to its next holder."""


class Tenure:
    """The time for which a partition is held."""

    def __init__(self) -> None:
        self._over = asyncio.Event()
        self.guard: CrashGuard | None = None
        self.broken = False

    @property
    def over(self) -> bool:
        """Whether the partition is being given away."""
        return self._over.is_set()

    def end(self) -> None:
        """Call every pause of this tenure off."""
        self._over.set()

    def insist_held(self) -> None:
        """Raise Released where the partition is being given away, or an earlier batch was let go unfinished.

        A batch that has not begun is quicker read again than waited for by the whole group.
        """
        if self.broken or self.over:
            raise Released

    async def wait_for(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work of which nothing is lost when it is called off. Raises: Released when the tenure ends meanwhile."""
        if self.over:
            work.close()
            raise Released
        doing, over = asyncio.create_task(work), asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait([doing, over], return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise Released
            doing.result()
        finally:
            for task in (doing, over):
                task.cancel()
            await asyncio.gather(doing, over, return_exceptions=True)

    async def pause(self, seconds: float) -> None:
        """Wait, for instance for a dependency to come back. Raises: Released when the tenure ends meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return
        raise Released

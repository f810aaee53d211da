"""The time for which a partition is held."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


class LeaseLost(Exception):
    """The partition is revoked or the worker stops; waiting work is left to the next holder."""


class PartitionLease:
    """The time for which a partition is held; nothing waits longer."""

    def __init__(self) -> None:
        self._over = asyncio.Event()

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def end(self) -> None:
        self._over.set()

    async def wait_for(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Await work that may be cancelled. Raises: LeaseLost if the lease ends meanwhile."""
        if self.over:
            work.close()
            raise LeaseLost
        doing, over = asyncio.create_task(work), asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait([doing, over], return_when=asyncio.FIRST_COMPLETED)
            if not doing.done():
                raise LeaseLost
            return doing.result()
        finally:
            for task in (doing, over):
                task.cancel()
            await asyncio.gather(doing, over, return_exceptions=True)

    async def pause(self, seconds: float) -> None:
        """Sleep. Raises: LeaseLost if the lease ends meanwhile."""
        await self.wait_for(asyncio.sleep(seconds))

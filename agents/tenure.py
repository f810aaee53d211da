"""How long a partition is held, and what ends with it."""

from __future__ import annotations

import asyncio

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

    async def pause(self, seconds: float) -> None:
        """Wait, for instance for a dependency to come back. Raises: Released when the tenure ends meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return
        raise Released

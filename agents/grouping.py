"""Small batches of several partitions that are processed together, as a database groups its commits.

A call costs some hundred microseconds and a round trip, whatever it holds. With half the load that a worker can take,
batches are small, and a worker that paid this for each partition was busy for four fifths of the time.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Generic, TypeVar

from groundwire.errors import StateError

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

MOST: Final = 200
"""Items of a group at most; a batch of half as many is called for by itself, at once."""


class Grouped(Generic[_Item, _Result]):
    """Calls for several callers at a time: for all that have come while the call before was under way.

    Args:
        call: returns a result for each item, in their order; may be called again for the same.
    """

    def __init__(self, call: Callable[[Sequence[_Item]], Awaitable[list[_Result]]]) -> None:
        self._call = call
        self._waiting: deque[tuple[Sequence[_Item], asyncio.Future[list[_Result]]]] = deque()
        self._calling: asyncio.Task[None] | None = None

    async def __call__(self, items: Sequence[_Item]) -> list[_Result]:
        """Return the results of items. Raises: what the call raises."""
        if len(items) >= MOST / 2:
            return await self._call(items)
        results: asyncio.Future[list[_Result]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, results))
        if self._calling is None or self._calling.done():
            self._calling = asyncio.create_task(self._call_for_all())
        return await results

    async def _call_for_all(self) -> None:
        while self._waiting:
            group = [self._waiting.popleft()]
            size = len(group[0][0])
            while self._waiting and size + len(self._waiting[0][0]) <= MOST:
                group.append(self._waiting.popleft())
                size += len(group[-1][0])
            try:
                await self._call_for(group)
            finally:  # nothing to do, unless this task is cancelled
                for _, results in group:
                    results.cancel()

    async def _call_for(self, group: Sequence[tuple[Sequence[_Item], asyncio.Future[list[_Result]]]]) -> None:
        """Call for a group; where that fails over one of them, for each by itself."""
        try:
            found = await self._call([item for items, _ in group for item in items])
        except Exception as exc:  # noqa: BLE001 - whoever waits for it raises it
            if len(group) > 1 and not isinstance(exc, StateError):
                for one in group:
                    await self._call_for([one])
            for _, results in group:
                if not results.done():
                    results.set_exception(exc)
            return
        first = 0
        for items, results in group:
            if not results.done():  # its caller is cancelled otherwise
                results.set_result(found[first : first + len(items)])
            first += len(items)

"""Telling open pages that something changed: server-sent events, each a number and nothing else.

A page that hears one asks for what it shows again, with the rights of its reader. So no event can carry what
somebody may not see.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Final

MOST_STREAMS: Final = 20
"""Open streams of one person."""
_BEAT: Final = 15.0
"""Seconds after which a stream without news says that it is there."""


class Live:
    """Wakes streams when what they show may have changed.

    Args:
        version: anything that changes with it.
    """

    def __init__(self, version: Callable[[], object]) -> None:
        self._version = version
        self._latest = version()
        self._seen = 0
        self._changed = asyncio.Condition()
        self._streams: Counter[str] = Counter()
        self._closed = False

    async def look(self) -> bool:
        """Wake all streams if there is news; say whether there was."""
        version = self._version()
        if version == self._latest:
            return False
        self._latest = version
        self._seen += 1
        async with self._changed:
            self._changed.notify_all()
        return True

    async def close(self) -> None:
        """End all streams."""
        self._closed = True
        async with self._changed:
            self._changed.notify_all()

    def enter(self, person: str) -> bool:
        """Count a stream of a person; say whether there may be one more."""
        if self._streams[person] >= MOST_STREAMS:
            return False
        self._streams[person] += 1
        return True

    def leave(self, person: str) -> None:
        """Count one stream less."""
        self._streams[person] -= 1
        if self._streams[person] <= 0:
            del self._streams[person]

    async def events(self, person: str, holds: Callable[[], bool], beat: float = _BEAT) -> AsyncIterator[str]:
        """Yield a stream that `enter` let in.

        Args:
            person: whose it is.
            holds: whether its reader is still signed in; asked before every event.
            beat: seconds without news until a comment.
        """
        last = None
        try:
            yield "retry: 3000\n\n"
            while holds() and not self._closed:
                if last != self._seen:
                    last = self._seen
                    yield f"event: change\nid: {last}\ndata: {last}\n\n"
                    continue
                if not await self._news(last, beat):
                    yield ": still here\n\n"
        finally:
            self.leave(person)

    async def _news(self, last: int | None, beat: float) -> bool:
        try:
            async with asyncio.timeout(beat), self._changed:
                await self._changed.wait_for(lambda: self._closed or self._seen != last)
        except TimeoutError:
            return False
        return True

"""The lock of a rebuild, and what its holder may do to state.

A worker that stalls may lose the lock to another without noticing. So every command of a rebuild runs in a
script that first asks whether the lock is still held, and a holder that came too late changes nothing.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from groundwire.errors import StateUnavailable
from groundwire.state.entries import Argument, write_stored
from groundwire.state.model import StoredOutcome
from groundwire.state.server import Server, script

_KEYS: Final = ("s:*", "k:*", "b:*", "m:*", "w:*", "d:*", "r:*")
_SCANNED: Final = 1000
_GLOB: Final = str.maketrans({char: f"\\{char}" for char in "\\*?[]^-"})


class Fence:
    """The lock as its holder knows it."""

    def __init__(self, server: Server, key: str, token: str, ttl: float) -> None:
        self.server = server
        self.token = token
        self._key = key
        self._ttl = ttl

    async def run(self, *command: Argument) -> None:
        """Run one command as the lock's holder.

        Raises:
            StateUnavailable: the lock is no longer held; nothing was changed.
        """
        if not await self.server.run(script("fenced"), (self._key,), self.token, *command):
            raise StateUnavailable("the rebuild's lock was lost to another worker")

    async def renew(self) -> None:
        """Hold on to the lock for as long as the context lasts."""
        while True:
            await asyncio.sleep(self._ttl / 3)
            with suppress(StateUnavailable):  # the next command of the rebuild says so
                await self.run("PEXPIRE", self._key, round(self._ttl * 1000))

    async def release(self) -> None:
        """Give up the lock, if it is still ours."""
        with suppress(StateUnavailable):  # then it falls by itself
            await self.run("DEL", self._key)


@asynccontextmanager
async def hold(server: Server, prefix: str, ttl: float) -> AsyncIterator[Fence | None]:
    """Take the lock of the rebuild, renew it, and release it at the end; None where it is taken."""
    key, token = prefix + "rebuild", secrets.token_hex(16)
    if not await server.call("SET", key, token, "NX", "PX", round(ttl * 1000)):
        yield None
        return
    fence = Fence(server, key, token, ttl)
    renewing = asyncio.create_task(fence.renew())
    try:
        yield fence
    finally:
        renewing.cancel()
        with suppress(asyncio.CancelledError):
            await renewing
        await fence.release()


class Rebuild:
    """What the one worker may do that rebuilds state: `clear`, `load` as often as needed, `start_epoch`.

    Every method raises StateUnavailable where the server does not answer or the lock is lost.
    """

    def __init__(self, fence: Fence, prefix: str, scheme: str, lifetimes: tuple[int, int]) -> None:
        self._fence = fence
        self._prefix = prefix
        self._scheme = scheme
        self._lifetime, self._action_lifetime = lifetimes

    async def clear(self) -> None:
        """Remove outcomes, index, queue and epoch; workers pause from here on.

        Cached citations, policies, what derivation lines have alike, marks of what is in flight, actions of people
        and what they superseded stay: the first outcome of an action stands, where it was published.
        """
        # first, so that nobody decides on half a state
        await self._fence.run("UNLINK", *[self._prefix + name for name in ("epoch", "scheme", "q")])
        for pattern in _KEYS:
            await self._clear(self._prefix.translate(_GLOB) + pattern)

    async def load(self, outcomes: Sequence[StoredOutcome]) -> int:
        """Load outcomes; of a subject the highest revision stays.

        A joined claim may come before the one that it is joined to.

        Returns:
            How many were taken.

        Raises:
            ValueError: an outcome is none that state could have recorded.
        """
        arguments = [write_stored(outcome) for outcome in outcomes]
        head = (self._prefix, self._lifetime, "rebuild", self._fence.token, self._action_lifetime)
        taken = await self._fence.server.run(script("entries", "load"), (), *head, *arguments)
        if taken == b"LOST":
            raise StateUnavailable("the rebuild's lock was lost to another worker")
        return int(taken)

    async def start_epoch(self, epoch: str) -> None:
        """Give the state its epoch and scheme: workers may decide on it."""
        await self._fence.run("MSET", self._prefix + "epoch", epoch, self._prefix + "scheme", self._scheme)

    async def _clear(self, pattern: str) -> None:
        cursor = b"0"
        while True:
            cursor, keys = await self._fence.server.call("SCAN", cursor, "MATCH", pattern, "COUNT", _SCANNED)
            for first in range(0, len(keys), _SCANNED):
                await self._fence.run("UNLINK", *keys[first : first + _SCANNED])
            if int(cursor) == 0:
                return

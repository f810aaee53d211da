"""Commands to Redis that are written one behind the other, none waiting for the answer to the one before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.exceptions import ConnectionError as BrokenConnection
from redis.exceptions import ResponseError

from groundwire.state.entries import Argument
from groundwire.state.server import PATIENCE, bounded


class Line:
    """A connection for as long as answers are due on it: the server carries commands out in the order of the calls.

    A connection that breaks takes with it what was under way; the next command goes over another.

    Args:
        redis: the client whose pool the connection is from.
        patience: seconds for one call.
    """

    def __init__(self, redis: Redis, patience: float = PATIENCE) -> None:
        self._pool = redis.connection_pool
        self._patience = patience
        self._writing = asyncio.Lock()
        self._burst: _Burst | None = None

    async def call(self, *command: Argument, written: Callable[[], None] = lambda: None) -> Any:  # noqa: ANN401 - a reply is what the server sends
        """Send one command and return its answer.

        Args:
            command: its name and arguments.
            written: called once the operating system has the command: it is sent, whatever becomes of this process.

        Raises:
            StateUnavailable: as `groundwire.state.server.Server.call`.
        """
        async with bounded(command, self._patience), AsyncExitStack() as due:
            async with self._writing:
                burst = await due.enter_async_context(self._share())
                await burst.connection.send_command(*command)
                await asyncio.sleep(0)  # uvloop writes once its loop comes around
            written()
            async with burst.reading:  # whoever waits for a lock gets it in turn: in the order of writing
                if burst.broken:
                    raise BrokenConnection("an answer before this one did not come")
                return await burst.connection.read_response(disconnect_on_error=False)

    @asynccontextmanager
    async def _share(self) -> AsyncIterator[_Burst]:
        """Give a connection for one answer; where that does not come, nobody may take it for the next one."""
        burst = self._burst
        if burst is None or burst.broken:
            connection = await self._pool.get_connection()  # type: ignore[no-untyped-call]
            burst = self._burst = _Burst(connection)
        burst.due += 1
        try:
            yield burst
        except ResponseError:
            raise
        except BaseException:
            burst.broken = True
            raise
        finally:
            burst.due -= 1
            if burst.due == 0:
                await self._give_back(burst)

    async def _give_back(self, burst: _Burst) -> None:
        if self._burst is burst:
            self._burst = None
        if burst.broken:
            await burst.connection.disconnect(nowait=True)
        await self._pool.release(burst.connection)


class _Burst:
    """Commands that share a connection; the pool looks after it between two bursts."""

    def __init__(self, connection: AbstractConnection) -> None:
        self.connection = connection
        self.reading = asyncio.Lock()
        self.due = 0
        self.broken = False

"""Calls to the Redis server that end in bounded time, with an answer or with StateUnavailable."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as BrokenConnection
from redis.exceptions import NoPermissionError, NoScriptError, RedisError, ResponseError

from groundwire.errors import StateUnavailable, UsageError
from groundwire.state.codec import Argument

PATIENCE: Final = 5.0


def connect(url: str, *, patience: float = PATIENCE) -> Redis:
    """Return a client for state: bytes in and out, bounded waits, at most one silent retry.

    Args:
        url: `redis://` or `rediss://` address of the primary.
        patience: seconds for connecting, and for an answer.

    Raises:
        UsageError: the address is none.
    """
    try:
        return Redis.from_url(
            url,
            socket_timeout=patience,
            socket_connect_timeout=patience,
            # once, for a connection that broke while it was idle; all that state is asked may be asked twice
            retry=Retry(NoBackoff(), 1),
        )
    except ValueError as error:
        raise UsageError(f"GROUNDWIRE_REDIS_URL: {error}") from None


@dataclass(frozen=True, slots=True)
class Script:
    """A Lua script and the hash under which the server knows it."""

    source: str
    sha1: str


@cache
def script(*names: str) -> Script:
    """Return the script made of these files of the package."""
    source = "\n".join(files("groundwire.state").joinpath("lua", f"{name}.lua").read_text() for name in names)
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


@asynccontextmanager
async def bounded(command: Sequence[Argument], patience: float) -> AsyncIterator[None]:
    """Bound the time of a command, and turn what goes wrong into an error of state; see `Server.call`."""
    try:
        async with asyncio.timeout(patience):
            yield
    except NoScriptError:
        raise
    except (RedisError, OSError, TimeoutError) as error:
        raise StateUnavailable(f"{command[0]!s}: {type(error).__name__}: {str(error)[:200]}") from error


class Server:
    """The primary, as state calls it.

    Args:
        redis: a client that gives bytes.
        patience: seconds for one call, whatever the client's own time limits are.
    """

    def __init__(self, redis: Redis, patience: float = PATIENCE) -> None:
        if redis.connection_pool.connection_kwargs.get("decode_responses"):
            raise UsageError("the Redis client must not decode responses")
        self._redis = redis
        self._patience = patience

    async def call(self, *command: Argument) -> Any:  # noqa: ANN401 - a reply is what the server sends
        """Send one command.

        Raises:
            StateUnavailable: no answer in time, or an error for an answer (replica, loading, out of memory).
            NoScriptError: the server does not know a script.
        """
        async with bounded(command, self._patience):
            return await self._redis.execute_command(*command)  # type: ignore[no-untyped-call]

    async def run(self, code: Script, keys: tuple[str, ...], *arguments: Argument) -> Any:  # noqa: ANN401 - as above
        """Run a script; one that the server does not know yet is sent along once more."""
        try:
            return await self.call("EVALSHA", code.sha1, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self.call("EVAL", code.source, len(keys), *keys, *arguments)

    async def check(self, *, require_aof: bool) -> None:
        """Refuse a server that state must not live on.

        Raises:
            UsageError: Redis Cluster; or, where the server lets it be read, a server that evicts keys or, if
                `require_aof`, one without an append-only file.
        """
        if (await self._section("cluster")).get("cluster_enabled"):
            raise UsageError(
                "GROUNDWIRE_REDIS_URL: Redis Cluster is not supported; use one primary with replicas"
            )
        policy = await self._setting("maxmemory-policy")
        if policy not in (None, "noeviction"):
            raise UsageError(f"Redis evicts keys: set maxmemory-policy to noeviction, not {policy}")
        if require_aof and await self._setting("appendonly") == "no":
            raise UsageError("Redis would forget at a restart: set appendonly to yes")

    async def close(self) -> None:
        """Let go of the connections."""
        await self._redis.aclose()

    async def _section(self, name: str) -> dict[str, Any]:
        try:
            return dict(await self.call("INFO", name))
        except StateUnavailable as error:
            if _refused(error):
                return {}
            raise

    async def _setting(self, name: str) -> str | None:
        """Return a setting, or None where the server does not tell (managed ones often do not)."""
        try:
            async with asyncio.timeout(self._patience):
                found = await self._redis.config_get(name)
        except (RedisError, OSError, TimeoutError) as error:
            unavailable = StateUnavailable(f"CONFIG GET: {type(error).__name__}")
            unavailable.__cause__ = error
            if _refused(unavailable):
                return None
            raise unavailable from error
        return {_text(key): _text(value) for key, value in found.items()}.get(name)


class SharedConnection:
    """Pipelines commands of several tasks over one connection: the server carries them out in the order of the calls.

    No command waits for the answer to the one before. A connection that breaks fails what was under way; the next
    command goes over another.

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
            StateUnavailable: as `Server.call`.
        """
        async with bounded(command, self._patience), AsyncExitStack() as due:
            async with self._writing:
                burst = await due.enter_async_context(self._share())
                await burst.connection.send_command(*command)
                await asyncio.sleep(0)  # uvloop writes once its loop comes around
            written()
            async with burst.reading:  # whoever waits for a lock gets it in turn: in the order of writing
                if burst.broken:
                    raise BrokenConnection("an earlier answer did not come")
                return await burst.connection.read_response(disconnect_on_error=False)

    @asynccontextmanager
    async def _share(self) -> AsyncIterator[_Burst]:
        """Give a connection for one answer; where that does not come, it must not be read as the next one's."""
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
    """Commands that share a connection; between two bursts it is the pool's."""

    def __init__(self, connection: AbstractConnection) -> None:
        self.connection = connection
        self.reading = asyncio.Lock()
        self.due = 0
        self.broken = False


def _refused(error: StateUnavailable) -> bool:
    cause = error.__cause__
    if isinstance(cause, NoPermissionError):
        return True
    return type(cause) is ResponseError and "unknown" in str(cause).lower()


def _text(value: bytes | str | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value

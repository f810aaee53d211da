"""Calls to the Redis server that end in bounded time, with an answer or StateUnavailable."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final
from urllib.parse import urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError, NoScriptError, RedisError, ResponseError

from groundwire.errors import StateUnavailable, UsageError
from groundwire.state.codec import Argument

PATIENCE: Final = 5.0


Client = Redis | RedisCluster
"""Returned by `connect`."""

Command = Sequence[Argument]
"""Name and arguments of a command."""

HIDDEN: Final = "?"
"""Begins the run of a server that hides INFO."""

_CLUSTER: Final = "+cluster"
_SCHEMES: Final = ("redis", "rediss", "unix", f"redis{_CLUSTER}", f"rediss{_CLUSTER}")


def connect(url: str, *, patience: float = PATIENCE) -> Client:
    """Return a client: bytes in and out, bounded waits, at most one silent retry. Raises: UsageError.

    `url`: `redis://` or `rediss://` of the primary; of a cluster `redis+cluster://host:port,host:port` (or `rediss+`).
    """
    scheme = urlsplit(url).scheme
    if scheme not in _SCHEMES:
        known = ", ".join(f"{name}://" for name in _SCHEMES)
        raise UsageError(f"GROUNDWIRE_REDIS_URL: an address begins with one of {known}")
    if "@" in url.removeprefix(f"{scheme}://{urlsplit(url).netloc}"):
        raise UsageError("GROUNDWIRE_REDIS_URL: write / ? and # of a password as %2F, %3F and %23")
    try:
        if scheme.endswith(_CLUSTER):
            return _connect_cluster(url, patience)
        return Redis.from_url(
            url,
            socket_timeout=patience,
            socket_connect_timeout=patience,
            # once, for a connection that broke while idle; all commands are idempotent
            retry=Retry(NoBackoff(), 1),
        )
    except ValueError as error:
        raise UsageError(f"GROUNDWIRE_REDIS_URL: {error}") from None


def without_login(url: str) -> str:
    """Return an address without its password."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _connect_cluster(url: str, patience: float) -> RedisCluster:
    """Return a client that finds all nodes from those named. Raises: ValueError."""
    parts = urlsplit(url)
    if parts.path.startswith("//") or not all(parts.netloc.rpartition("@")[2].split(",")):
        raise ValueError("a Redis Cluster is named by some of its nodes: redis+cluster://host:port,host:port")
    if parts.path.strip("/") not in {"", "0"}:
        raise ValueError("a Redis Cluster has no database but 0")
    login, at, hosts = parts.netloc.rpartition("@")
    scheme = parts.scheme.removesuffix(_CLUSTER)
    nodes = [parse_url(f"{scheme}://{login}{at}{host}/?{parts.query}") for host in hosts.split(",")]
    options: dict[str, Any] = {**nodes[0], "ssl": nodes[0].get("connection_class") is SSLConnection}
    for name in ("host", "port", "connection_class", "path"):
        options.pop(name, None)
    return RedisCluster(
        startup_nodes=[ClusterNode(node.get("host", "localhost"), node.get("port", 6379)) for node in nodes],
        require_full_coverage=False,
        socket_timeout=patience,
        socket_connect_timeout=patience,
        retry=Retry(NoBackoff(), 1),
        **options,
    )


def tagged(redis: Client, name: str) -> str:
    """Return the part of a key that keeps keys in one slot of a cluster; unchanged on one server."""
    return f"{{{name}}}" if isinstance(redis, RedisCluster) else name


@dataclass(frozen=True, slots=True)
class Script:
    source: str
    sha1: str


@cache
def script(*names: str) -> Script:
    """Return the script made of these Lua files."""
    source = "\n".join(files("groundwire.state").joinpath("lua", f"{name}.lua").read_text() for name in names)
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


@asynccontextmanager
async def bounded(command: Sequence[Argument], patience: float) -> AsyncIterator[None]:
    """Bound a command in time, and turn errors into StateUnavailable; see `Server.call`."""
    try:
        async with asyncio.timeout(patience):
            yield
    except NoScriptError:
        raise
    except (RedisError, OSError, TimeoutError) as error:
        raise unavailable(command, error) from error


def unavailable(command: Sequence[Argument], error: Exception) -> StateUnavailable:
    return StateUnavailable(f"{command[0]!s}: {type(error).__name__}: {str(error)[:200]}")


class Server:
    """One primary, with one namespace for all users; `Cluster` has a namespace for each partition.

    Attributes:
        tags: what follows the prefix in keys, by partition.
    """

    def __init__(self, redis: Redis, patience: float = PATIENCE) -> None:
        if redis.connection_pool.connection_kwargs.get("decode_responses"):
            raise UsageError("the Redis client must not decode responses")
        self._redis = redis
        self._patience = patience
        self._in_order = SharedConnection(redis, patience)
        self.tags: tuple[str, ...] = ("",)

    def partition_of(self, tenant_id: str, user_id: str) -> int:  # noqa: ARG002 - as the cluster
        return 0

    def away(self) -> Collection[int]:
        """Return the partitions that are known to be unreachable; see `Cluster`."""
        return ()

    def partitions_beside(self, partition: int) -> Sequence[int]:
        """Return the partitions whose server a partition shares, itself among them, in order."""
        return (partition,)

    async def server_run(self, partition: int) -> str:  # noqa: ARG002 - as the cluster
        """Return the run of the server that has a partition: of one process, from one promotion to the next.

        Scripts tell the same of themselves (packed.lua). Raises: StateUnavailable.
        """
        return run_of(await or_hidden(self.call("INFO", "server", "replication")))

    async def call(self, *command: Argument) -> Any:  # noqa: ANN401 - a reply is what the server sends
        """Send a command.

        Raises: StateUnavailable: no answer in time, or an error (replica, loading, out of memory); NoScriptError.
        """
        async with bounded(command, self._patience):
            return await self._redis.execute_command(*command)  # type: ignore[no-untyped-call]

    async def send_in_order(self, *command: Argument, answered: bool) -> None:
        """Send a command behind earlier ones; see `SharedConnection.send`."""
        await self._in_order.send(*command, answered=answered)

    async def scan(self, pattern: str, size: int) -> AsyncIterator[list[bytes]]:
        """Yield matching keys. Raises: StateUnavailable."""
        cursor: Argument = b"0"
        while True:
            cursor, keys = await self.call("SCAN", cursor, "MATCH", pattern, "COUNT", size)
            yield keys
            if int(cursor) == 0:
                return

    async def scan_hash(self, key: str, pattern: str) -> AsyncIterator[Mapping[bytes, bytes]]:
        cursor: Argument = 0
        while True:
            cursor, page = await self.call("HSCAN", key, cursor, "MATCH", pattern, "COUNT", 1_000)
            yield page
            if not int(cursor):
                return

    async def infos(self, section: str) -> list[dict[str, Any]]:
        return [await self.call("INFO", section)]

    async def refresh_layout(self) -> None:
        """Reload the slot map of a cluster."""

    def absent_keys(self, prefix: str) -> Sequence[str]:  # noqa: ARG002 - as the cluster
        """Return the keys that every script on a partition names; see `Cluster.absent_keys`."""
        return ()

    @asynccontextmanager
    async def lend(self, key: str) -> AsyncIterator[AbstractConnection]:  # noqa: ARG002 - as the cluster
        """Lend a connection to the server of a key; after an exception it is not reused."""
        pool = self._redis.connection_pool
        connection = await pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            yield connection
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            await pool.release(connection)

    async def run(
        self,
        code: Script,
        keys: Sequence[str],
        *arguments: Argument,
    ) -> Any:  # noqa: ANN401 - as above
        """Run a script, sending its source if the server does not know it."""
        try:
            return await self.call("EVALSHA", code.sha1, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self.call("EVAL", code.source, len(keys), *keys, *arguments)

    async def check_kind(self) -> None:
        """Refuse a cluster that is addressed as one server. Raises: UsageError; StateUnavailable."""
        if (await or_hidden(self.call("INFO", "cluster")) or {}).get("cluster_enabled"):
            raise UsageError(
                "GROUNDWIRE_REDIS_URL: this is a Redis Cluster: write redis+cluster://host:port,... for redis://"
            )

    async def check(self, *, require_aof: bool) -> None:
        """Refuse a cluster addressed as one server, and visible settings that lose keys. Raises: UsageError."""
        await self.check_kind()
        await refuse_settings(self.call, "Redis", require_aof=require_aof)

    async def close(self) -> None:
        await self._in_order.close()
        await self._redis.aclose()


def run_of(info: Mapping[str, Any] | None, name: str = "") -> str:
    """Return the run of a server by its INFO; of one that hides it, its name."""
    known = info or {}
    run, history = known.get("run_id"), known.get("master_replid")
    return f"{run}{history}" if run and history else f"{HIDDEN}{name}"


async def or_hidden(answer: Awaitable[Any]) -> Any:  # noqa: ANN401 - a reply is what the server sends
    """Return an answer; None if the server hides it, as managed ones often do. Raises: StateUnavailable."""
    try:
        return await answer
    except StateUnavailable as error:
        cause = error.__cause__
        if isinstance(cause, NoPermissionError):
            return None
        if type(cause) is ResponseError and "unknown" in str(cause).lower():
            return None
        raise


async def setting_of(ask: Callable[..., Awaitable[Any]], name: str) -> str | None:
    """Return a setting of the server that `ask` sends commands to; None if it is hidden. Raises: StateUnavailable."""
    found = await or_hidden(ask("CONFIG GET", name)) or {}
    return {text_of(key): text_of(value) for key, value in found.items()}.get(name)


async def refuse_settings(ask: Callable[..., Awaitable[Any]], server: str, *, require_aof: bool) -> None:
    """Refuse a server by its settings. Raises: UsageError; StateUnavailable."""
    policy = await setting_of(ask, "maxmemory-policy")
    if policy not in (None, "noeviction"):
        raise UsageError(f"{server} evicts keys: set maxmemory-policy to noeviction, not {policy}")
    if require_aof and await setting_of(ask, "appendonly") == "no":
        raise UsageError(f"{server} would forget at a restart: set appendonly to yes")


class SharedConnection:
    """Sends commands of several tasks over one connection, in the order of the calls.

    An answer that nobody waits for is read before the next command; a broken connection is replaced.
    """

    def __init__(self, redis: Redis, patience: float = PATIENCE) -> None:
        self._pool = redis.connection_pool
        self._patience = patience
        self._turn = asyncio.Lock()
        self._connection: AbstractConnection = self._pool.make_connection()  # type: ignore[no-untyped-call]
        self._is_due = False  # whether the answer to the last command is still to be read

    async def send(self, *command: Argument, answered: bool = True) -> Any:  # noqa: ANN401 - as above
        """Send a command; return its answer if it is waited for.

        On return the operating system has the command: it is sent even if this process dies. Raises: StateUnavailable.
        """
        async with bounded(command, self._patience), self._turn:
            try:
                if self._is_due:
                    await self._skip_answer()
                await self._pool.ensure_connection(self._connection)
                await self._connection.send_command(*command)
                self._is_due = True
                await asyncio.sleep(0)  # uvloop writes once its loop comes around
                return await self._answer() if answered else None
            except ResponseError:
                raise
            except BaseException:  # the server may have received a part, or its answer is not read
                self._is_due = False
                await self.close()
                raise

    async def _skip_answer(self) -> None:
        try:
            await self._answer()
        except ResponseError:
            pass
        except (RedisError, OSError):
            await self.close()

    async def _answer(self) -> Any:  # noqa: ANN401 - as above
        self._is_due = False
        return await self._connection.read_response(disconnect_on_error=False)

    async def close(self) -> None:
        await self._connection.disconnect(nowait=True)


def text_of(value: bytes | str | None) -> str | None:
    return value.decode() if isinstance(value, bytes) else value

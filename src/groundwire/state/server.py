"""Calls to the Redis server that end in bounded time, with an answer or with StateUnavailable."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection, SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as BrokenConnection
from redis.exceptions import NoPermissionError, NoScriptError, RedisError, ResponseError

from groundwire.errors import StateUnavailable, UsageError
from groundwire.state.codec import Argument

PATIENCE: Final = 5.0


Client = Redis | RedisCluster
"""What `connect` returns."""

Command = Sequence[Argument]
"""The name of a command and its arguments."""

ScriptCall = tuple[tuple[str, ...], Command]
"""The keys and the arguments that a script is called with."""

ServerRun = tuple[str, str | None]
"""The name of a server and that of its process; None where it does not tell."""

_CLUSTER: Final = "+cluster"
_SCHEMES: Final = ("redis", "rediss", "unix", f"redis{_CLUSTER}", f"rediss{_CLUSTER}")


def connect(url: str, *, patience: float = PATIENCE) -> Client:
    """Return a client for state: bytes in and out, bounded waits, at most one silent retry.

    Args:
        url: `redis://` or `rediss://` address of the primary; of a cluster `redis+cluster://` or `rediss+cluster://`,
            and some of its nodes, `host:port,host:port`.
        patience: seconds for connecting, and for an answer.

    Raises:
        UsageError: the address is none.
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
            # once, for a connection that broke while it was idle; all that state is asked may be asked twice
            retry=Retry(NoBackoff(), 1),
        )
    except ValueError as error:
        raise UsageError(f"GROUNDWIRE_REDIS_URL: {error}") from None


def without_login(url: str) -> str:
    """Return an address as a person may see it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _connect_cluster(url: str, patience: float) -> RedisCluster:
    """Return a client of a cluster, which finds the other nodes by those named. Raises: ValueError."""
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
        require_full_coverage=False,  # where one primary is away the others serve
        socket_timeout=patience,
        socket_connect_timeout=patience,
        retry=Retry(NoBackoff(), 1),
        **options,
    )


def tagged(redis: Client, name: str) -> str:
    """Return the part of a key that keeps others with it in one slot of a cluster; as it is, on one server."""
    return f"{{{name}}}" if isinstance(redis, RedisCluster) else name


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
        raise _unavailable(command, error) from error


def _unavailable(command: Sequence[Argument], error: Exception) -> StateUnavailable:
    return StateUnavailable(f"{command[0]!s}: {type(error).__name__}: {str(error)[:200]}")


class Server:
    """The server that state calls: one primary, and one bucket for all users; `Cluster` has more of both.

    Args:
        redis: a client that gives bytes.
        patience: seconds for one call, whatever the client's own time limits are.

    Attributes:
        tags: what stands behind the prefix in the keys of each bucket.
    """

    def __init__(self, redis: Redis, patience: float = PATIENCE) -> None:
        if redis.connection_pool.connection_kwargs.get("decode_responses"):
            raise UsageError("the Redis client must not decode responses")
        self._redis = redis
        self._patience = patience
        self._in_order = SharedConnection(redis, patience)
        self._suspected = True
        self.tags: tuple[str, ...] = ("",)

    def bucket_of(self, tenant_id: str, user_id: str) -> int:  # noqa: ARG002 - as the cluster
        """Return the bucket of a user."""
        return 0

    def bucket_of_key(self, key: bytes) -> int | None:  # noqa: ARG002 - as the cluster
        """Return the bucket of a key without its prefix; None where it is in none."""
        return 0

    def away(self) -> Mapping[int, float]:
        """Return the buckets that are away while others answer; of one server there are none."""
        return {}

    def watch_servers(self) -> None:
        """Prepare for somebody who compares servers; see `Cluster.watch_servers`."""

    def suspect(self) -> None:
        """Note that an answer was missing: the next one may be another server's."""
        self._suspected = True

    def doubtful(self) -> Mapping[int, int]:
        """Return the buckets whose server is to be compared with the one before; see `Cluster.doubtful`."""
        return {0: 0} if self._suspected else {}

    def doubted_at(self, buckets: Collection[int]) -> float:  # noqa: ARG002 - as the cluster
        """Return since when buckets are in doubt, in seconds since 1970; infinite: no longer than all of state."""
        return math.inf

    async def server_runs(self, buckets: Collection[int]) -> dict[int, ServerRun]:
        """Name the server of each bucket. Raises: StateUnavailable."""
        return dict.fromkeys(buckets, ("", (await self._section("server")).get("run_id")))

    def trust(self, runs: Mapping[int, ServerRun], doubtful: Mapping[int, int]) -> None:  # noqa: ARG002 - as the cluster
        """Note that the servers of buckets were compared."""
        self._suspected = False

    async def call(self, *command: Argument, needed: bool = False) -> Any:  # noqa: ANN401, ARG002 - a reply is what the server sends; as the cluster
        """Send one command; `needed`: as of `run_each`.

        Raises:
            StateUnavailable: no answer in time, or an error for an answer (replica, loading, out of memory).
            NoScriptError: the server does not know a script.
        """
        async with bounded(command, self._patience):
            return await self._redis.execute_command(*command)  # type: ignore[no-untyped-call]

    async def send_in_order(self, *command: Argument) -> asyncio.Future[Any]:
        """Send a command behind those before, and return its answer, which is to come; see `SharedConnection.send`."""
        return await self._in_order.send(*command)

    async def each(self, commands: Mapping[int, Command], *, some: bool = False) -> dict[int, Any]:  # noqa: ARG002 - as the cluster
        """Send a command to each of some buckets, and return their answers.

        Args:
            commands: by bucket.
            some: return what answers there are, if only there are any.

        Raises:
            StateUnavailable: as `call`; all commands were sent.
        """
        return {bucket: await self.call(*command) for bucket, command in commands.items()}

    async def run_each(
        self,
        code: Script,
        prefix: str,  # noqa: ARG002 - as the cluster
        calls: Mapping[int, ScriptCall],
        *,
        deciding: bool = False,  # noqa: ARG002 - as the cluster
        needed: bool = False,  # noqa: ARG002 - as the cluster
    ) -> dict[int, Any]:
        """Run a script in each of some buckets, and return its answers.

        Args:
            code: the script.
            prefix: stands before every key.
            calls: by bucket.
            deciding: it decides on what is there: not where a server is to be compared first. What answers there are
                are returned, if only there are any: what was decided is known.
            needed: nothing can be decided without it, nor without what decides: a bucket that refuses it is away.

        Raises:
            StateUnavailable: as `call`; all were run that could.
        """
        return {bucket: await self.run(code, keys, *rest) for bucket, (keys, rest) in calls.items()}

    async def scan(self, pattern: str, size: int) -> AsyncIterator[list[bytes]]:
        """Yield the keys that match a pattern. Raises: StateUnavailable."""
        cursor: Argument = b"0"
        while True:
            cursor, keys = await self.call("SCAN", cursor, "MATCH", pattern, "COUNT", size)
            yield keys
            if int(cursor) == 0:
                return

    async def infos(self, section: str) -> list[dict[str, Any]]:
        """Return a section of INFO of each server. Raises: StateUnavailable."""
        return [await self.call("INFO", section)]

    async def refresh_layout(self) -> None:
        """Ask a cluster anew which server has what."""

    @asynccontextmanager
    async def lend(self, key: str) -> AsyncIterator[AbstractConnection]:  # noqa: ARG002 - as the cluster
        """Lend a connection to the server of a key; where an exception ends that, it goes to nobody else."""
        pool = self._redis.connection_pool
        connection = await pool.get_connection()  # type: ignore[no-untyped-call]
        try:
            yield connection
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        finally:
            await pool.release(connection)

    async def run(self, code: Script, keys: tuple[str, ...], *arguments: Argument) -> Any:  # noqa: ANN401 - as above
        """Run a script; one that the server does not know yet is sent along once more."""
        try:
            return await self.call("EVALSHA", code.sha1, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self.call("EVAL", code.source, len(keys), *keys, *arguments)

    async def check_kind(self) -> None:
        """Refuse a cluster that is not named as one.

        Raises:
            UsageError: it is one.
            StateUnavailable: as `call`.
        """
        if (await self._section("cluster")).get("cluster_enabled"):
            raise UsageError(
                "GROUNDWIRE_REDIS_URL: this is a Redis Cluster: write redis+cluster://host:port,... for redis://"
            )

    async def check(self, *, require_aof: bool) -> None:
        """Refuse a server that state must not live on.

        Raises:
            UsageError: a cluster that is not named as one; or, where the server lets it be read, a server that evicts
                keys or, if `require_aof`, one without an append-only file.
            StateUnavailable: as `call`.
        """
        await self.check_kind()
        await refuse_settings(self._setting, "Redis", require_aof=require_aof)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._in_order.close()
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
        return {text_of(key): text_of(value) for key, value in found.items()}.get(name)


async def refuse_settings(
    setting: Callable[[str], Awaitable[str | None]], name: str, *, require_aof: bool
) -> None:
    """Refuse a server by its settings. Raises: UsageError; as `setting`."""
    policy = await setting("maxmemory-policy")
    if policy not in (None, "noeviction"):
        raise UsageError(f"{name} evicts keys: set maxmemory-policy to noeviction, not {policy}")
    if require_aof and await setting("appendonly") == "no":
        raise UsageError(f"{name} would forget at a restart: set appendonly to yes")


class SharedConnection:
    """Sends commands of several tasks over one connection: the server carries them out in the order of the calls.

    No command waits for the answer to the one before. The connection is kept; one that breaks fails what was under way,
    and the next command goes over another.

    Args:
        redis: the client that says where the server is.
        patience: seconds for one call.
    """

    def __init__(self, redis: Redis, patience: float = PATIENCE) -> None:
        self._pool = redis.connection_pool
        self._patience = patience
        self._writing = asyncio.Lock()
        self._line: _PipelinedConnection | None = None

    async def send(self, *command: Argument) -> asyncio.Future[Any]:
        """Send one command, and return its answer, which is to come, or is StateUnavailable.

        On return the operating system has the command: it is sent, whatever becomes of this process.

        Raises:
            StateUnavailable: it could not be sent.
        """
        async with bounded(command, self._patience), self._writing:
            line = await self._open()
            answer = line.expect(command)
            try:
                await line.connection.send_command(*command)
            except BaseException:
                line.close()  # the server may have got a part of it
                raise
            await asyncio.sleep(0)  # uvloop writes once its loop comes around
        return answer

    async def close(self) -> None:
        """Let go of the connection."""
        if self._line is not None:
            self._line.close()
            await asyncio.wait([self._line.reading])

    async def _open(self) -> _PipelinedConnection:
        line = self._line
        if line is None or line.is_closed or line.waits_for() > self._patience:
            if line is not None:
                line.close()
            connection = self._pool.make_connection()  # type: ignore[no-untyped-call]
            connection.socket_timeout = None  # the time of a call is bounded here; it costs a task in each
            connection.health_check_interval = (
                0  # its PING would be read by `_PipelinedConnection`, which reads all the time
            )
            await connection.connect()
            line = self._line = _PipelinedConnection(connection)
        return line


class _PipelinedConnection:
    """A connection over which answers come in the order of the commands; they are read as long as it is open."""

    def __init__(self, connection: AbstractConnection) -> None:
        self.connection = connection
        self.is_closed = False
        self._due: deque[_Due] = deque()
        self.reading = asyncio.create_task(self._read())

    def expect(self, command: Sequence[Argument]) -> asyncio.Future[Any]:
        """Return the answer to the command that is sent next."""
        loop = asyncio.get_running_loop()
        due = _Due(command, loop.time(), loop.create_future())
        due.answer.add_done_callback(_retrieve)
        self._due.append(due)
        return due.answer

    def waits_for(self) -> float:
        """Return the seconds since the command was sent whose answer is next."""
        return asyncio.get_running_loop().time() - self._due[0].sent if self._due else 0.0

    def close(self) -> None:
        """Close it; what is due does not come."""
        self.is_closed = True
        self.reading.cancel()

    async def _read(self) -> None:
        error: Exception = BrokenConnection("an earlier answer did not come")
        try:
            while True:
                try:
                    found = await self.connection.read_response(disconnect_on_error=False)
                except ResponseError as refusal:
                    self._due.popleft().fail(refusal)
                else:
                    self._due.popleft().succeed(found)
        except (RedisError, OSError) as broken:
            error = broken
        finally:
            self.is_closed = True
            while self._due:
                self._due.popleft().fail(error)
            await self.connection.disconnect(nowait=True)


class _Due(NamedTuple):
    """A command that was sent, and its answer; one that was called off is given to nobody."""

    command: Sequence[Argument]
    sent: float
    answer: asyncio.Future[Any]

    def succeed(self, found: object) -> None:
        if not self.answer.done():
            self.answer.set_result(found)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(_unavailable(self.command, error))


def _retrieve(answer: asyncio.Future[Any]) -> None:
    """Retrieve an error, so that asyncio does not log later that nobody has."""
    if not answer.cancelled():
        answer.exception()


def _refused(error: StateUnavailable) -> bool:
    cause = error.__cause__
    if isinstance(cause, NoPermissionError):
        return True
    return type(cause) is ResponseError and "unknown" in str(cause).lower()


def text_of(value: bytes | str | None) -> str | None:
    """Return a reply that is text as such."""
    return value.decode() if isinstance(value, bytes) else value

"""Calls to the primaries of a Redis Cluster, some of which may be unreachable while others answer.

Scripts name two keys that never exist: while a slot is moving, the server refuses commands on two missing keys.
Otherwise a script would decide on a partition that is half moved; so the partition waits until its slot has arrived.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any, Final

import structlog
from redis.asyncio.cluster import ClusterNode, PipelineCommand, RedisCluster
from redis.asyncio.connection import AbstractConnection
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MaxConnectionsError,
    MovedError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as BrokenConnection

from groundwire.errors import StateUnavailable, UsageError
from groundwire.logs import report_fault
from groundwire.messages.topics import partition_of
from groundwire.state.codec import Argument
from groundwire.state.partitions import slots, tags
from groundwire.state.server import (
    PATIENCE,
    Client,
    Command,
    Server,
    or_hidden,
    refuse_settings,
    run_of,
    setting_of,
    unavailable,
)

log = structlog.get_logger()

_PROBE: Final = 0.25
"""Seconds between probes of an unreachable server."""

_REDIRECTIONS: Final = 5


def server_of(redis: Client, patience: float = PATIENCE, partitions: int = 0) -> Server:
    """Return the server behind a client; `partitions` of users' records have a tag each in a cluster."""
    return (
        Cluster(redis, patience, partitions) if isinstance(redis, RedisCluster) else Server(redis, patience)
    )


class Cluster(Server):
    """The primaries of a Redis Cluster; see `Server`.

    Calls to an unreachable primary fail at once until a probe succeeds, so that it delays a batch once, by `patience`.
    """

    def __init__(self, redis: RedisCluster, patience: float, partitions: int) -> None:
        if redis.connection_kwargs.get("decode_responses"):
            raise UsageError("the Redis client must not decode responses")
        self._nodes = redis.nodes_manager
        self._patience = patience
        self.tags = tags(partitions)
        self._slots = slots(partitions)
        self._owners: dict[int, str] = {}  # name of the primary, by partition
        self._away: set[str] = set()  # names of unreachable primaries
        self._opening = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._orders: defaultdict[Argument, asyncio.Lock] = defaultdict(asyncio.Lock)

    def partition_of(self, tenant_id: str, user_id: str) -> int:
        return partition_of(tenant_id, user_id, len(self.tags))

    def away(self) -> Collection[int]:
        return [partition for partition, name in self._owners.items() if name in self._away]

    def absent_keys(self, prefix: str) -> Sequence[str]:
        """Return two keys that never exist; `prefix` has the tag."""
        return f"{prefix}never:1", f"{prefix}never:2"

    def partitions_beside(self, partition: int) -> Sequence[int]:
        name = self._owners.get(partition)
        return tuple(at for at, owner in self._owners.items() if owner == name) or (partition,)

    async def server_run(self, partition: int) -> str:
        await self._open()
        node = self._node_of(self._slots[partition])
        return run_of(await or_hidden(self._ask_any(node, "INFO", "server", "replication")), str(node.name))

    # Calls

    async def send_in_order(self, *command: Argument, answered: bool) -> None:  # noqa: ARG002 - as one server
        """Send a command after the answer to the one before on its key, and wait for its own."""
        async with self._orders[command[1]]:
            await self.call(*command)

    async def call(self, *command: Argument) -> Any:  # noqa: ANN401 - a reply is what the server sends
        """Send a command to the server of its first key, following moved slots. Raises: as `Server.call`."""
        key = command[3] if command[0] in {"EVALSHA", "EVAL"} else command[1]
        slot = key_slot(key if isinstance(key, bytes) else str(key).encode())
        await self._open()
        node, sent = self._node_of(slot), [command]
        for _ in range(_REDIRECTIONS):
            try:
                return await self._ask(node, *sent)
            except NoScriptError:
                raise
            except MovedError as error:
                await self._move(error, node)
                node, sent = self._node_of(slot), [command]
            except AskError as error:
                importing = self._nodes.get_node(error.host or node.host, error.port)
                if importing is None:
                    raise unavailable(command, error) from error
                node, sent = importing, [("ASKING",), command]
            except (RedisError, OSError, TimeoutError) as error:
                if isinstance(error, ClusterDownError | ReadOnlyError):
                    with suppress(StateUnavailable, UsageError):
                        await self._refresh()
                raise unavailable(command, error) from error
        raise StateUnavailable(f"{command[0]!s}: {_REDIRECTIONS} redirections of slot {slot}")

    async def _ask(self, node: ClusterNode, *commands: Command) -> Any:  # noqa: ANN401 - as above
        """Send commands over one connection, and once more if that broke: all are idempotent; return the last answer.

        Raises: the error of server or connection; the latter makes the server count as unreachable.
        """
        for _ in range(2):
            sent = [PipelineCommand(at, *command) for at, command in enumerate(commands)]
            answer: Any
            try:
                async with asyncio.timeout(self._patience):
                    await node.execute_pipeline(sent)
                answer = sent[-1].result
            except (RedisError, OSError, TimeoutError) as error:
                answer = error
            if not isinstance(answer, BrokenConnection):
                break
            await node.disconnect_free_connections()  # other idle ones broke too
        if not isinstance(answer, Exception):
            return answer
        if not isinstance(answer, ResponseError | MaxConnectionsError):
            self._lose(node, answer)
        raise answer

    async def scan(self, pattern: str, size: int) -> AsyncIterator[list[bytes]]:
        """Yield matching keys of all servers. Raises: StateUnavailable."""
        await self._open()
        for node in self._primaries():
            cursor: Argument = b"0"
            while True:
                cursor, keys = await self._ask_any(node, "SCAN", cursor, "MATCH", pattern, "COUNT", size)
                yield keys
                if int(cursor) == 0:
                    break

    async def infos(self, section: str) -> list[dict[str, Any]]:
        """Return a section of INFO per primary. Raises: StateUnavailable."""
        await self._open()
        return [await self._ask_any(node, "INFO", section) for node in self._primaries()]

    async def _ask_any(self, node: ClusterNode, *command: Argument) -> Any:  # noqa: ANN401 - as above
        try:
            return await self._ask(node, command)
        except (RedisError, OSError, TimeoutError) as error:
            raise unavailable(command, error) from error

    @asynccontextmanager
    async def lend(self, key: str) -> AsyncIterator[AbstractConnection]:
        """Lend a connection to the server of a key; see `Server.lend`."""
        await self._open()
        node = self._node_of(key_slot(key.encode()))
        connection = node.acquire_connection()
        try:
            await node.disconnect_if_needed(connection)
            await connection.connect()  # type: ignore[no-untyped-call]
            yield connection
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, MovedError):
                await self._move(error, node)
                raise BrokenConnection(str(error)) from error  # a retry reaches the right server
            if isinstance(error, BrokenConnection):
                self._lose(node, error)
            raise
        finally:
            node.release(connection)

    # Unreachable servers

    def _lose(self, node: ClusterNode, error: Exception) -> None:
        name = str(node.name)
        if name not in self._away:
            log.warning("state.primary_away", server=name, why=f"{type(error).__name__}: {str(error)[:200]}")
        self._away.add(name)
        self._keep_watching()

    def _keep_watching(self) -> None:
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        """Probe unreachable servers until none is left; one without slots is none."""
        layout = None
        while self._away or "" in self._owners.values():
            await asyncio.sleep(_PROBE)
            try:
                with suppress(StateUnavailable, UsageError):
                    if (found := await self._layout_of_another()) is None or found != layout:
                        await self._refresh()  # which makes all connections anew
                        layout = found
                primaries = {str(node.name): node for node in self._primaries()}
                await asyncio.gather(*(self._probe(name, primaries.get(name)) for name in self._away))
            except Exception as exc:  # noqa: BLE001 - without this task servers stay away for good
                report_fault("state.probe_failed", exc)

    async def _layout_of_another(self) -> list[Any] | None:
        """Return the primaries by slots, as one that is not away has them; None: all are. Raises: StateUnavailable."""
        for node in self._primaries():
            if node.name not in self._away:
                found = await self._ask_any(node, "CLUSTER SLOTS")
                return [(first, last, primary[:2]) for first, last, primary, *_ in found]
        return None

    async def _probe(self, name: str, node: ClusterNode | None) -> None:
        with suppress(RedisError, OSError, TimeoutError):
            if node is not None:
                async with asyncio.timeout(1.0):
                    await node.execute_command("PING")
            self._away.discard(name)
            log.info("state.primary_back", server=name)

    # The slot map

    async def refresh_layout(self) -> None:
        """Reload the slot map. Raises: StateUnavailable."""
        await self._open()
        await self._refresh()

    async def _open(self) -> None:
        if self._nodes.slots_cache and len(self._owners) == len(self._slots):
            return
        async with self._opening:
            if not self._nodes.slots_cache:
                await self._refresh()
            self._note_owners()

    async def _refresh(self) -> None:
        """Reload the slot map. Raises: StateUnavailable; UsageError: not a cluster."""
        asked = list(self._nodes.startup_nodes.values())
        try:
            async with asyncio.timeout(self._patience):
                await self._nodes.initialize(last_failed_node_name=next(iter(self._away), None))
        except IndexError:  # of redis-py, which takes the first of no primaries
            await asyncio.gather(*(node.disconnect() for node in asked))
            self._nodes.startup_nodes = {str(node.name): node for node in asked}
            raise UsageError(
                "GROUNDWIRE_REDIS_URL: no server has any slot: `redis-cli --cluster create` makes a cluster"
            ) from None
        except (RedisError, RedisClusterException, OSError, TimeoutError) as error:
            if "Cluster mode is not enabled" in str(error):
                raise UsageError(
                    "GROUNDWIRE_REDIS_URL: this is one Redis and no cluster: write redis:// for redis+cluster://"
                ) from None
            why = str(error)[:200] or f"no answer within {self._patience:g} s"
            raise StateUnavailable(f"CLUSTER SLOTS: {type(error).__name__}: {why}") from error
        self._note_owners()

    async def _move(self, error: MovedError, asked: ClusterNode) -> None:
        error.host = error.host or asked.host
        with suppress(KeyError):
            await self._nodes.move_slot(error)
        self._note_owners()

    def _note_owners(self) -> None:
        for partition, slot in enumerate(self._slots):
            nodes = self._nodes.slots_cache.get(slot)
            self._owners[partition] = str(nodes[0].name) if nodes else ""

    def _node_of(self, slot: int) -> ClusterNode:
        """Return the primary of a slot. Raises: StateUnavailable: it is unreachable."""
        nodes = self._nodes.slots_cache.get(slot)
        if not nodes:
            self._keep_watching()
            raise StateUnavailable(f"no primary of the cluster has slot {slot}")
        if nodes[0].name in self._away:
            self._keep_watching()
            raise StateUnavailable(f"{nodes[0].name}, which has slot {slot} of the cluster, is away")
        return nodes[0]

    def _primaries(self) -> list[ClusterNode]:
        return list({nodes[0].name: nodes[0] for nodes in self._nodes.slots_cache.values()}.values())

    # Settings

    async def check_kind(self) -> None:
        """Refuse a server that is no cluster. Raises: UsageError; StateUnavailable."""
        await self._open()

    async def check(self, *, require_aof: bool) -> None:
        """Refuse unsuitable reachable primaries; see `Server.check`."""
        await self.check_kind()
        missing = REDIS_CLUSTER_HASH_SLOTS - len(self._nodes.slots_cache)
        if missing:
            raise UsageError(
                f"Redis Cluster: no primary has {missing} of the slots; `redis-cli --cluster fix` assigns them"
            )
        away: list[StateUnavailable] = []
        for node in self._primaries():
            try:
                ask = partial(self._ask_any, node)
                await refuse_settings(ask, f"Redis {node.name}", require_aof=require_aof)
                if await setting_of(ask, "cluster-require-full-coverage") == "yes":
                    hint = "one unreachable primary stops all users, not only its own: set it to no"
                    log.warning("state.full_coverage", server=node.name, hint=hint)
            except StateUnavailable as error:
                away.append(error)
        if len(away) == len(self._primaries()):
            raise away[0]

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._nodes.aclose()
        await self._nodes.aclose("startup_nodes")

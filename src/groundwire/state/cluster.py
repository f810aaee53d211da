"""Calls to the primaries of a Redis Cluster, some of which may be unreachable while others answer.

Deciding scripts name two keys that never exist: while a slot is migrating, the server refuses commands on two missing
keys. Otherwise a script would decide on a bucket that is partly moved; so the bucket waits until its slot has arrived.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import structlog
from redis.asyncio.cluster import ClusterNode, PipelineCommand, RedisCluster
from redis.asyncio.connection import AbstractConnection
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    NoPermissionError,
    NoScriptError,
    ReadOnlyError,
    RedisClusterException,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as BrokenConnection
from redis.exceptions import TimeoutError as TimedOut

from groundwire.errors import StateUnavailable, UsageError
from groundwire.logs import report_fault
from groundwire.state.buckets import bucket_of, buckets_by_tag, slots, tags, tags_by_slot
from groundwire.state.codec import Argument
from groundwire.state.server import (
    PATIENCE,
    Client,
    Command,
    Script,
    ScriptCall,
    Server,
    ServerRun,
    refuse_settings,
    text_of,
)

log = structlog.get_logger()

_LOOK: Final = 0.25
"""Seconds between probes of an unreachable slot."""

_NOT_NOW: Final = (AskError, ClusterDownError, ReadOnlyError, TryAgainError)
"""Errors of a live server that does not serve a slot."""


def server_of(redis: Client, patience: float = PATIENCE) -> Server:
    return Cluster(redis, patience) if isinstance(redis, RedisCluster) else Server(redis, patience)


@dataclass(frozen=True, slots=True)
class _Away:
    """An unreachable slot: its probe, when that is due, and the error."""

    probe: Command
    due: float
    why: str


@dataclass(slots=True)
class _Call:
    """A command; `answer` is the reply or the error."""

    slot: int
    command: Command
    answer: Any = None


class Cluster(Server):
    """The primaries of a Redis Cluster; see `Server`.

    Calls to a failed slot fail at once until a probe succeeds, so that it delays a batch once, by `patience`. With
    `watch_servers`, a bucket that was away or has another primary takes no decisions until `trust`: a replica may lack
    the last of what was published.
    """

    def __init__(self, redis: RedisCluster, patience: float = PATIENCE) -> None:
        if redis.connection_kwargs.get("decode_responses"):
            raise UsageError("the Redis client must not decode responses")
        self._nodes = redis.nodes_manager
        self._patience = patience
        self.tags = tags()
        self._away: dict[int, _Away] = {}
        self._refusals: Counter[int] = Counter()  # slot -> how often in a row what decides was refused
        self._failing: dict[int, float] = {}  # slot -> since when it takes no decisions
        self._back: dict[int, float] = {}  # slot -> when it was found to answer again
        self._doubtful: dict[int, float] = {}  # slot -> seconds since 1970
        self._doubts: Counter[int] = Counter()  # slot -> how often its server was in doubt
        self._compared = False
        self._owners: dict[int, str] = {}
        self._opening = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._orders: defaultdict[Argument, asyncio.Lock] = defaultdict(asyncio.Lock)

    def bucket_of(self, tenant_id: str, user_id: str) -> int:
        return bucket_of(tenant_id, user_id)

    def bucket_of_key(self, key: bytes) -> int | None:
        """Return the bucket of a key without its prefix, or None."""
        return buckets_by_tag().get(key[: key.find(b"}") + 1])

    def away(self) -> dict[int, float]:
        """Return unreachable buckets, and since when they take no decisions; nothing if all are."""
        if not self._away:
            return {}
        now = time.monotonic()
        away = {b: self._failing.get(slot, now) for b, slot in enumerate(slots()) if slot in self._away}
        return away if len(away) < len(slots()) else {}

    def watch_servers(self) -> None:
        """Let no bucket decide before its server was compared; see `doubtful`."""
        self._compared = True
        self._doubtful = dict.fromkeys(slots(), time.time())

    def suspect(self) -> None:
        """No-op: failures are recorded per slot."""

    def doubtful(self) -> dict[int, int]:
        """Return the reachable buckets whose server must be compared, with the number of their doubts."""
        doubtful = self._doubtful
        if not doubtful:
            return {}
        answering = ((b, s) for b, s in enumerate(slots()) if s in doubtful and s not in self._away)
        return {bucket: self._doubts[slot] for bucket, slot in answering}

    def doubted_at(self, buckets: Collection[int]) -> float:
        """Return since when the first of some buckets is doubtful, in seconds since 1970, or infinity."""
        found = [self._doubtful[slot] for bucket in buckets if (slot := slots()[bucket]) in self._doubtful]
        return min(found, default=math.inf)

    async def server_runs(self, buckets: Collection[int]) -> dict[int, ServerRun]:
        """Return server and run id of buckets whose server answers. Raises: StateUnavailable."""
        await self._open()
        by_node: defaultdict[str, list[int]] = defaultdict(list)
        for bucket in buckets:
            by_node[self._owners.get(slots()[bucket], "")].append(bucket)
        nodes = [node for node in self._primaries() if node.name in by_node]
        calls = [[_Call(0, ("INFO", "server"))] for _ in nodes]
        await asyncio.gather(*map(self._exchange, nodes, calls))
        runs: dict[int, ServerRun] = {}
        for node, (call,) in zip(nodes, calls, strict=True):
            if isinstance(call.answer, ResponseError) and not _is_away(call.answer):
                runs |= dict.fromkeys(by_node[node.name], (node.name, None))  # managed servers often hide it
            elif not isinstance(call.answer, Exception):
                runs |= dict.fromkeys(by_node[node.name], (node.name, call.answer.get("run_id")))
        return runs

    def trust(self, runs: Mapping[int, ServerRun], doubtful: Mapping[int, int]) -> None:
        """Let compared buckets decide, unless they moved or failed since."""
        for bucket, (name, _) in runs.items():
            slot = slots()[bucket]
            is_same = self._owners.get(slot) == name and doubtful.get(bucket) == self._doubts[slot]
            if is_same and slot not in self._away:
                self._doubtful.pop(slot, None)

    async def call(self, *command: Argument, needed: bool = False) -> Any:  # noqa: ANN401 - a reply is what the server sends
        """Send a command to the server of its first key; see `Server.call`."""
        key = _key_of(command)
        call = _Call(key_slot(key if isinstance(key, bytes) else str(key).encode()), command)
        await self._send([call], needed=needed)
        return _answer_of(call)

    async def send_in_order(self, *command: Argument) -> asyncio.Future[Any]:
        """Send a command after the answer to the one before on its key; return its answer, done."""
        answer = asyncio.get_running_loop().create_future()
        async with self._orders[command[1]]:
            answer.set_result(await self.call(*command))
        return answer

    async def each(self, commands: Mapping[int, Command], *, some: bool = False) -> dict[int, Any]:
        """See `Server.each`; commands for one server are pipelined."""
        calls = {bucket: _Call(slots()[bucket], command) for bucket, command in commands.items()}
        await self._send(calls.values())
        return _answers_of(calls, some=some)

    async def run_each(
        self,
        code: Script,
        prefix: str,
        calls: Mapping[int, ScriptCall],
        *,
        deciding: bool = False,
        needed: bool = False,
    ) -> dict[int, Any]:
        """See `Server.run_each`; calls for one server are pipelined."""
        needed = needed or deciding
        sent: dict[int, _Call] = {}
        for bucket, (keys, arguments) in calls.items():
            tag = prefix + tags()[bucket]
            named = (*keys, tag + "never:1", tag + "never:2")
            sent[bucket] = _Call(slots()[bucket], ("EVALSHA", code.sha1, len(named), *named, *arguments))
        await self._send(sent.values(), deciding=deciding, needed=needed)
        unknown = [call for call in sent.values() if isinstance(call.answer, NoScriptError)]
        for call in unknown:
            call.command = ("EVAL", code.source, *call.command[2:])
        if unknown:
            await self._send(unknown, deciding=deciding, needed=needed)
        return _answers_of(sent, some=deciding)

    async def scan(self, pattern: str, size: int) -> AsyncIterator[list[bytes]]:
        """Yield matching keys of all servers. Raises: StateUnavailable."""
        await self._open()
        for node in self._primaries():
            cursor: Argument = b"0"
            while True:
                call = _Call(0, ("SCAN", cursor, "MATCH", pattern, "COUNT", size))
                await self._exchange(node, [call])
                cursor, keys = _answer_of(call)
                yield keys
                if int(cursor) == 0:
                    break

    async def infos(self, section: str) -> list[dict[str, Any]]:
        """Return a section of INFO per primary. Raises: StateUnavailable."""
        await self._open()
        calls = [[_Call(0, ("INFO", section))] for _ in self._primaries()]
        await asyncio.gather(*map(self._exchange, self._primaries(), calls))
        return [_answer_of(call) for (call,) in calls]

    async def refresh_layout(self) -> None:
        """Reload the slot map. Raises: StateUnavailable."""
        await self._open()
        await self._refresh()

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
                setting = partial(self._setting, node)
                await refuse_settings(setting, f"Redis {node.name}", require_aof=require_aof)
                if await setting("cluster-require-full-coverage") == "yes":
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

    @asynccontextmanager
    async def lend(self, key: str) -> AsyncIterator[AbstractConnection]:
        """Lend a connection to the server of a key; see `Server.lend`."""
        await self._open()
        node = self._node_of(slot := key_slot(key.encode()))
        if node is None:
            raise self._unavailable(slot)
        connection = node.acquire_connection()
        try:
            await node.disconnect_if_needed(connection)
            await connection.connect()  # type: ignore[no-untyped-call]
            yield connection
        except BaseException as error:
            await connection.disconnect(nowait=True)
            if isinstance(error, MovedError):
                await self._move(error)
                raise BrokenConnection(str(error)) from error  # a retry reaches the right server
            if isinstance(error, BrokenConnection | AskError):
                self._lose(slot, ("EXISTS", key), error)
            raise
        finally:
            node.release(connection)

    async def _send(self, calls: Iterable[_Call], *, deciding: bool = False, needed: bool = False) -> None:
        """Send commands, grouped by server, following moved slots."""
        await self._open()
        left = list(calls)
        answered: dict[int, _Call] = {}
        for _ in range(5):  # redirections
            by_node: defaultdict[ClusterNode, list[_Call]] = defaultdict(list)
            for call in left:
                node = None if deciding and call.slot in self._doubtful else self._node_of(call.slot)
                if node is None:
                    call.answer = self._unavailable(call.slot)
                else:
                    by_node[node].append(call)
            await asyncio.gather(*map(self._exchange, by_node.keys(), by_node.values()))
            sent = [call for some in by_node.values() for call in some]
            answered |= {id(call): call for call in sent}
            left = [call for call in sent if await self._redirected(call, deciding=deciding)]
            if not left:
                break
        for call in answered.values():
            error = call.answer
            if not isinstance(error, Exception):
                if deciding and call.slot not in self._away:
                    self._failing.pop(call.slot, None)
                    self._refusals.pop(call.slot, None)
            elif not isinstance(error, StateUnavailable | NoScriptError) and (needed or _is_away(error)):
                probe = _probe_of(call.slot) if needed else ("EXISTS", _key_of(call.command))
                self._lose(call.slot, probe, error)

    async def _exchange(self, node: ClusterNode, calls: Sequence[_Call]) -> None:
        """Send commands over one connection, and once more if that broke: all commands are idempotent."""
        error: Exception | None = None
        for _ in range(2):
            error = await self._try(node, calls)
            if not isinstance(error, BrokenConnection):
                break
            await node.disconnect_free_connections()  # other idle ones broke too
        if error is not None:
            for slot in slots():
                if self._owners.get(slot) == node.name:
                    self._lose(slot, _probe_of(slot), error)

    async def _try(self, node: ClusterNode, calls: Sequence[_Call]) -> Exception | None:
        """Send commands and store their answers; return the connection's error."""
        commands = [PipelineCommand(at, *call.command) for at, call in enumerate(calls)]
        for command in commands:
            command.result = BrokenConnection("no answer")
        failed: Exception | None = None
        try:
            async with asyncio.timeout(self._patience):
                await node.execute_pipeline(commands)
        except (RedisError, OSError, TimeoutError) as error:
            failed = error
        for call, command in zip(calls, commands, strict=True):
            call.answer = command.result
        broken = [call for call in calls if isinstance(call.answer, BrokenConnection | TimedOut)]
        for call in broken if failed else ():
            call.answer = failed
        return failed or (broken[0].answer if broken else None)

    async def _redirected(self, call: _Call, *, deciding: bool) -> bool:
        """Update the slot map from an answer; return whether to send the command again."""
        if isinstance(call.answer, MovedError):
            await self._move(call.answer)
            return call.slot not in self._doubtful or not deciding
        if isinstance(call.answer, AskError) and not deciding:
            node = self._nodes.get_node(call.answer.host, call.answer.port)
            if node is not None:
                asking = _Call(call.slot, ("ASKING",))
                await self._exchange(node, [asking, call])
        return False

    def _lose(self, slot: int, probe: Command, error: Exception) -> None:
        if slot not in self._away:
            now = due = time.monotonic()
            if not _is_away(error):
                self._refusals[slot] += 1
                due += min(_LOOK * 2 ** min(self._refusals[slot], 10), 30.0)
            self._away[slot] = _Away(probe, due, f"{type(error).__name__}: {str(error)[:200]}")
            # a recovered slot that was not asked to decide counts as one that never failed
            if now - self._back.pop(slot, now) > 60.0:
                self._failing[slot] = now
            self._failing.setdefault(slot, now)
        self._doubt(slot)
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())

    def _doubt(self, slot: int) -> None:
        if self._compared and slot in tags_by_slot():
            self._doubtful.setdefault(slot, time.time())
            self._doubts[slot] += 1

    async def _watch(self) -> None:
        """Probe unreachable slots until none is left."""
        logged: set[str] = set()
        watched: set[int] = set()
        while self._away:
            watched.update(self._away)
            names = {self._name_of(slot) for slot in self._away}
            if names - logged:
                why = sorted({away.why for away in self._away.values()})[:3]
                log.warning("state.shard_away", servers=sorted(names), slots=len(self._away), why=why)
                logged |= names
            await asyncio.sleep(_LOOK)
            try:
                with suppress(StateUnavailable, UsageError):
                    await self._refresh()
                await self._look()
            except Exception as exc:  # noqa: BLE001 - without this task slots stay away for good
                report_fault("state.look_failed", exc)
        log.info("state.shard_back", servers=sorted({self._name_of(slot) for slot in watched}))

    async def _look(self) -> None:
        by_node: defaultdict[ClusterNode, list[_Call]] = defaultdict(list)
        now = time.monotonic()
        for slot, away in self._away.items():
            for node in self._nodes.slots_cache.get(slot, ())[:1] if away.due <= now else ():
                by_node[node].append(_Call(slot, away.probe))
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                await asyncio.gather(*map(self._try, by_node.keys(), by_node.values()))
        for call in (call for calls in by_node.values() for call in calls):
            if isinstance(call.answer, MovedError):
                await self._move(call.answer)
            elif call.answer is not None and not _is_away(call.answer):
                # a server that forbids only the probe is retried by a decision
                refused = isinstance(call.answer, Exception) and not isinstance(
                    call.answer, NoPermissionError
                )
                if not (refused and call.command[0] == "SETRANGE"):
                    self._away.pop(call.slot, None)
                    self._back[call.slot] = time.monotonic()

    async def _open(self) -> None:
        if self._owners and self._nodes.slots_cache:
            return
        async with self._opening:
            if not self._nodes.slots_cache:
                await self._refresh()
            self._note_owners()

    async def _refresh(self) -> None:
        """Reload the slot map. Raises: StateUnavailable; UsageError: not a cluster."""
        failing = next((self._owners.get(slot) for slot in self._away), None)
        asked = list(self._nodes.startup_nodes.values())
        try:
            async with asyncio.timeout(self._patience):
                await self._nodes.initialize(last_failed_node_name=failing)
        except IndexError:  # of redis-py, which takes the first of no primaries
            await asyncio.gather(*(node.disconnect() for node in asked))
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

    async def _move(self, error: MovedError) -> None:
        with suppress(KeyError):
            await self._nodes.move_slot(error)
        self._note_owners()

    def _note_owners(self) -> None:
        for slot in slots():
            name = self._name_of(slot)
            if self._owners.get(slot, name) != name:
                self._doubt(slot)
            self._owners[slot] = name

    def _unavailable(self, slot: int) -> StateUnavailable:
        return StateUnavailable(f"slot {slot} of the cluster, on {self._name_of(slot)}, is away")

    def _name_of(self, slot: int) -> str:
        nodes = self._nodes.slots_cache.get(slot)
        return str(nodes[0].name) if nodes else "no server"

    def _node_of(self, slot: int) -> ClusterNode | None:
        nodes = self._nodes.slots_cache.get(slot)
        return nodes[0] if nodes and slot not in self._away else None

    def _primaries(self) -> list[ClusterNode]:
        return list({nodes[0].name: nodes[0] for nodes in self._nodes.slots_cache.values()}.values())

    async def _setting(self, node: ClusterNode, name: str) -> str | None:
        call = _Call(0, ("CONFIG GET", name))
        error = await self._try(node, [call])
        if error is None and isinstance(call.answer, ResponseError):
            return None  # managed servers often hide it
        return text_of(_answer_of(call).get(name))


def _probe_of(slot: int) -> Command:
    """Return a write that changes nothing, as the key never exists."""
    return "SETRANGE", f"{tags_by_slot()[slot]}never:1", 0, b""


def _key_of(command: Command) -> Argument:
    return command[3] if command[0] in {"EVALSHA", "EVAL"} else command[1]


def _is_away(error: object) -> bool:
    """Return whether a slot is unreachable, not just this command refused."""
    return isinstance(error, Exception) and (
        not isinstance(error, ResponseError) or isinstance(error, _NOT_NOW)
    )


def _answer_of(call: _Call) -> Any:  # noqa: ANN401 - a reply is what the server sends
    """Return the answer of a call. Raises: as `Server.call`."""
    error = call.answer
    if isinstance(error, StateUnavailable | NoScriptError):
        raise error
    if isinstance(error, Exception):
        said = f"{call.command[0]!s}: {type(error).__name__}: {str(error)[:200]}"
        raise StateUnavailable(said) from error
    return error


def _answers_of(calls: Mapping[int, _Call], *, some: bool = False) -> dict[int, Any]:
    """Return answers; with `some`, those that exist. Raises: as `Server.each`."""
    answered = {bucket: call for bucket, call in calls.items() if not isinstance(call.answer, Exception)}
    return {bucket: _answer_of(call) for bucket, call in (answered if some and answered else calls).items()}

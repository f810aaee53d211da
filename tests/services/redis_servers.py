"""The Redis server that tests run on, and a Redis Cluster of such servers on loopback."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Self

from redis import Redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS
from redis.exceptions import RedisError

from deploy.embedded import EmbeddedRedis, RealRedis, RedisServer
from deploy.embedded.process import free_port

#: Which Redis server tests run on: embedded (default) or real (`redis-server` on the PATH).
REDIS_VARIABLE = "GROUNDWIRE_TEST_REDIS"


def kind_of_redis(kind: str | None = None) -> type[RedisServer]:
    """Return the servers of a kind: embedded or real; by default the one the environment names. Raises: ValueError."""
    kind = kind or os.environ.get(REDIS_VARIABLE) or "embedded"
    kinds: dict[str, type[RedisServer]] = {"embedded": EmbeddedRedis, "real": RealRedis}
    if kind not in kinds:
        raise ValueError(f"{REDIS_VARIABLE}: {kind!r} is none of {', '.join(kinds)}")
    return kinds[kind]


def start_redis(kind: str | None = None) -> RedisServer:
    """Start a Redis server of a kind. Raises: as `kind_of_redis`; MissingServiceError: it is not installed here."""
    server = kind_of_redis(kind)()
    server.start()
    return server


class LocalCluster:
    """Primaries with equal shares of the slots, each with some replicas."""

    def __init__(
        self, primaries: int = 3, replicas: int = 0, *, kind: type[RedisServer] | None = None
    ) -> None:
        class Node(kind or kind_of_redis()):  # type: ignore[valid-type, misc]
            def _command(self) -> list[str]:
                self.bus_port = free_port()  # the one 10,000 above may be taken
                options = {
                    "cluster-port": str(self.bus_port),
                    "cluster-enabled": "yes",
                    "cluster-node-timeout": "800",
                    "cluster-require-full-coverage": "no",
                    "cluster-replica-validity-factor": "0",
                    "repl-diskless-sync-delay": "0",
                }
                return [
                    *super()._command(),
                    *[part for one, v in options.items() for part in (f"--{one}", v)],
                ]

        self._stack = ExitStack()
        self.primaries: list[RedisServer] = [Node() for _ in range(primaries)]
        self.replicas: list[RedisServer] = [Node() for _ in range(primaries * replicas)]

    def __enter__(self) -> Self:
        try:
            for node in self.nodes:
                self._stack.enter_context(node)
            self._join()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    @property
    def nodes(self) -> Sequence[RedisServer]:
        return [*self.primaries, *self.replicas]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.primaries)

    def move(
        self, slot: int, source: RedisServer, target: RedisServer, *, pause: Callable[[], None] = lambda: None
    ) -> None:
        """Move a slot key by key, as `redis-cli --cluster reshard` does; `pause` is called while it is half moved."""
        serving = self.serving()
        names = {node.port: self.ask(node, "CLUSTER", "MYID") for node in serving}
        self.ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", names[source.port])
        self.ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", names[target.port])
        first = True
        while keys := self.ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 10):
            to = ("127.0.0.1", target.port, "", 0, 5000, "KEYS")
            self.ask(source, "MIGRATE", *to, *keys[: 1 if first else None])
            if first:
                pause()
            first = False
        for node in (target, source, *[one for one in serving if one not in (source, target)]):
            self.ask(node, "CLUSTER", "SETSLOT", slot, "NODE", names[target.port])

    def serving(self) -> list[RedisServer]:
        return [node for node in self.nodes if self.ask(node, "ROLE")[0] == b"master"]

    def restart(self, node: RedisServer, *, keep_data: bool = True) -> None:
        """Start a node that was killed, and wait until it serves, or follows the replica that took over."""
        node.start(keep_data=keep_data)
        self.wait_until(self.is_whole)

    def is_whole(self) -> bool:
        serving = self.serving()
        return (
            all(self._is_ok(node) for node in self.nodes)
            and len(serving) == len(self.primaries)
            and all(self._follows(node) for node in self.nodes if node not in serving)
        )

    def primary_of(self, slot: int) -> RedisServer:
        """Return the node that has a slot, as the first node that answers knows it."""
        for node in self.nodes:
            with suppress(RedisError):
                for first, last, (_, port, *_), *_ in self.ask(node, "CLUSTER SLOTS"):
                    if first <= slot <= last:
                        return next(one for one in self.nodes if one.port == port)
        raise LookupError(slot)

    def ask(self, node: RedisServer, *command: Any) -> Any:
        with Redis(port=node.port, socket_timeout=10) as client:
            return client.execute_command(*command)

    def wait_until(self, holds: Callable[[], bool], seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError("the cluster did not get there")
            time.sleep(0.05)

    def _join(self) -> None:
        first, share = self.primaries[0], REDIS_CLUSTER_HASH_SLOTS / len(self.primaries)
        for at, node in enumerate(self.primaries):
            self.ask(node, "CLUSTER", "ADDSLOTSRANGE", round(at * share), round((at + 1) * share) - 1)
        for at, node in enumerate(self.nodes):
            self.ask(node, "CLUSTER", "SET-CONFIG-EPOCH", at + 1)
            if node is not first:
                self.ask(first, "CLUSTER", "MEET", "127.0.0.1", node.port, node.bus_port)  # type: ignore[attr-defined]
        self.wait_until(lambda: all(self._knows_all(node) for node in self.nodes))
        for at, node in enumerate(self.replicas):
            of = self.primaries[at % len(self.primaries)]
            self.ask(node, "CLUSTER", "REPLICATE", self.ask(of, "CLUSTER", "MYID"))
        self.wait_until(lambda: all(self._is_ok(node) for node in self.nodes))
        self.wait_until(lambda: all(self._follows(node) for node in self.replicas))

    def _knows_all(self, node: RedisServer) -> bool:
        return self._info(node)["cluster_known_nodes"] == str(len(self.nodes))

    def _is_ok(self, node: RedisServer) -> bool:
        return self._info(node)["cluster_state"] == "ok"

    def _follows(self, node: RedisServer) -> bool:
        return bool(self.ask(node, "INFO", "replication").get("master_link_status") == "up")

    def _info(self, node: RedisServer) -> dict[str, str]:
        return dict(self.ask(node, "CLUSTER INFO"))

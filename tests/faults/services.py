"""What a run needs beside workers, each behind a proxy: brokers, Redis, and a web site that claims cite."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Protocol

from deploy.embedded import EmbeddedBroker, RedisServer
from deploy.embedded.process import HOST
from deploy.kafka.cluster import KafkaCluster
from tests.faults.proxy import Proxies, Proxy
from tests.services.redis_servers import start_redis
from tests.stream.site import Site

NODES = {"embedded": 1, "kafka": 1, "kafka3": 3}


class Nodes(Protocol):
    """The nodes of a broker, numbered from 0."""

    def kill(self, node: int) -> None:
        """Take a node away as a crash would; its data are kept."""

    def stop(self, node: int) -> None:
        """Take it away in good order: with several nodes, its leaders move."""

    def start(self, node: int) -> None:
        """Bring it back."""

    def pause(self, node: int) -> None:
        """Freeze it."""

    def resume(self, node: int) -> None:
        """Let it go on."""


class _Embedded:
    def __init__(self, broker: EmbeddedBroker) -> None:
        self._broker = broker

    def kill(self, _node: int) -> None:
        self._broker.down()

    stop = kill

    def start(self, _node: int) -> None:
        self._broker.up()

    def pause(self, _node: int) -> None:
        self._broker.pause()

    def resume(self, _node: int) -> None:
        self._broker.resume()


class _Kafka:
    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def kill(self, node: int) -> None:
        self._cluster.stop_node(node + 1)

    def stop(self, node: int) -> None:
        self._cluster.stop_node(node + 1, hard=False)

    def start(self, node: int) -> None:
        self._cluster.start_node(node + 1)

    def pause(self, node: int) -> None:
        self._cluster.pause_node(node + 1)

    def resume(self, node: int) -> None:
        self._cluster.resume_node(node + 1)


@dataclass
class Proxied:
    """A broker as clients see it: through proxies, one a node. It is a `tests.services.brokers.Broker`."""

    nodes: Nodes
    proxies: list[Proxy]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{proxy.port}" for proxy in self.proxies)

    @property
    def replication(self) -> int:
        return len(self.proxies)


class Pages(Site):
    """A site that can be broken: it then answers what is no HTTP."""

    def __init__(self) -> None:
        super().__init__()
        self.broken = False

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.broken:
            await super().serve(reader, writer)
            return
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"\x00\xffHTTP/0 twohundred\r\n\r\n" + b"x" * 1000)
            await writer.drain()
        writer.close()


@dataclass
class Services:
    """All of them, running."""

    kind: str
    broker: Proxied
    redis: RedisServer
    redis_proxy: Proxy
    proxies: Proxies


@contextmanager
def running(kind: str) -> Iterator[Services]:
    """Start a broker of a kind and Redis behind proxies; Apache Kafka goes with the real `redis-server`.

    Raises:
        MissingServiceError: one of them is not installed here.
    """
    with ExitStack() as stack:
        proxies = stack.enter_context(Proxies())
        broker = _embedded(stack, proxies) if kind == "embedded" else _kafka(stack, proxies, NODES[kind])
        default = "embedded" if kind == "embedded" else "real"
        redis = start_redis(os.environ.get("GROUNDWIRE_TEST_REDIS") or default)
        stack.callback(redis.close)
        yield Services(kind, broker, redis, proxies.before(redis.port), proxies)


def _embedded(stack: ExitStack, proxies: Proxies) -> Proxied:
    proxy = proxies.before(0)
    broker = stack.enter_context(EmbeddedBroker(advertised=proxy.port))
    proxy.target = broker.port
    return Proxied(_Embedded(broker), [proxy])


def _kafka(stack: ExitStack, proxies: Proxies, count: int) -> Proxied:
    cluster = KafkaCluster(count)
    before = []
    for node, address in zip(cluster.nodes, cluster.bootstrap.split(","), strict=True):
        proxy = proxies.before(int(address.rsplit(":", 1)[1]))
        node.format()
        with (node.folder / "server.properties").open("a") as settings:
            # nodes copy from each other through the proxies too: a cut is one between nodes as well
            settings.write(f"advertised.listeners=PLAINTEXT://{HOST}:{proxy.port}\n")
        before.append(proxy)
    stack.enter_context(cluster)
    return Proxied(_Kafka(cluster), before)

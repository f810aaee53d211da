"""What a run needs beside workers, each behind a proxy: brokers, Redis, and a web site that claims cite."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Self

from deploy.embedded import EmbeddedBroker, RedisServer
from deploy.embedded.process import HOST, free_port
from deploy.kafka.cluster import KafkaCluster
from tests.services.redis_cluster import LocalCluster
from tests.services.redis_servers import REDIS_VARIABLE, kind_of_redis, start_redis
from tests.stream.harness import Site

_CHUNK = 65_536


@dataclass(frozen=True)
class Weather:
    """What happens to bytes on their way: a delay in seconds, a rate in bytes a second, of a connection and direction.

    `frozen`: nothing passes; connections stay open. `closed`: connections are dropped, and new ones at once.
    """

    delay: float = 0.0
    rate: int | None = None
    frozen: bool = False
    closed: bool = False


FAIR = Weather()


class Proxy:
    """One port in front of another; `weather` is changed by `set` from any thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, target: int) -> None:
        self.port = free_port()
        self.target = target
        self.weather = FAIR
        self._loop = loop
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    def set(self, **weather: float | bool | None) -> None:
        """Change the weather; what is not named becomes fair."""
        changed = replace(FAIR, **weather)  # type: ignore[arg-type]
        asyncio.run_coroutine_threadsafe(self._set(changed), self._loop).result()

    def cut(self) -> None:
        asyncio.run_coroutine_threadsafe(self._drop(), self._loop).result()

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._serve, HOST, self.port)

    async def close(self) -> None:
        """Listen no more, and drop all connections."""
        if self._server:
            self._server.close()
        await self._drop()

    async def _set(self, weather: Weather) -> None:
        self.weather = weather
        if weather.frozen:
            self._thawed.clear()
        else:
            self._thawed.set()
        if weather.closed:
            await self._drop()

    async def _drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            await self._thawed.wait()
            if not self.weather.closed:
                back, onward = await asyncio.open_connection(HOST, self.target)
                self._writers.add(onward)
                pumps = (self._pump(reader, onward), self._pump(back, writer))
                await asyncio.wait([asyncio.ensure_future(pump) for pump in pumps])
        except OSError:
            pass  # nobody is behind us: the client finds its connection closed
        finally:
            for each in filter(None, (writer, onward)):
                self._writers.discard(each)
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass bytes on until one side ends; then the other is told."""
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await self._thawed.wait()
                weather = self.weather
                await asyncio.sleep(weather.delay + (len(data) / weather.rate if weather.rate else 0))
                writer.write(data)
                await writer.drain()
        writer.transport.abort() if writer.transport.is_closing() else writer.close()


class Proxies:
    """Proxies in a thread of their own, so that they pass on whatever their owner is busy with; a context manager."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxies", daemon=True)
        self._all: list[Proxy] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for proxy in self._all:
            self._do(proxy.close)
        self._do(self._rest)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def before(self, target: int) -> Proxy:
        """Return a proxy that listens before a port, whether somebody listens there yet or not."""
        proxy = Proxy(self._loop, target)
        self._do(proxy.open)
        self._all.append(proxy)
        return proxy

    def _do(self, what: Callable[[], object]) -> None:
        asyncio.run_coroutine_threadsafe(what(), self._loop).result()  # type: ignore[arg-type]

    async def _rest(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


NODES = {"embedded": 1, "kafka": 1, "kafka3": 3}


def one_node(broker: EmbeddedBroker) -> SimpleNamespace:
    """An embedded broker, asked as a cluster with one node is."""
    return SimpleNamespace(
        stop_node=lambda _number, hard: broker.down(),  # noqa: ARG005 - it knows one way only
        start_node=lambda _number: broker.up(),
        pause_node=lambda _number: broker.pause(),
        resume_node=lambda _number: broker.resume(),
    )


@dataclass
class Proxied:
    """A broker as clients see it: through proxies, one a node. It is a `tests.services.brokers.Broker`."""

    nodes: KafkaCluster | SimpleNamespace
    proxies: list[Proxy]

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{proxy.port}" for proxy in self.proxies)

    @property
    def replication(self) -> int:
        return len(self.proxies)


class Pages(Site):
    """A site that can be broken: it then answers what is no HTTP."""

    broken = False

    def set(self, *, broken: bool = False) -> None:
        self.broken = broken

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
class OneRedis:
    server: RedisServer
    proxy: Proxy

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.proxy.port}/0"


REDIS: dict[str, int | None] = {"one": None, "cluster": 0, "replicated": 1}
"""What state is on: one server, or a cluster of three primaries with so many replicas each."""


@dataclass
class Services:
    """All of them, running; `kind` names the broker, and state's servers where they are not one."""

    kind: str
    broker: Proxied
    redis: OneRedis | LocalCluster
    proxies: Proxies


@contextmanager
def running(kind: str, redis: str = "one") -> Iterator[Services]:
    """Start a broker of `NODES` behind proxies, and Redis of `REDIS`; Apache Kafka goes with the real `redis-server`.

    Raises: MissingServiceError.
    """
    with ExitStack() as stack:
        proxies = stack.enter_context(Proxies())
        broker = _embedded(stack, proxies) if kind == "embedded" else _kafka(stack, proxies, NODES[kind])
        server = os.environ.get(REDIS_VARIABLE) or ("embedded" if kind == "embedded" else "real")
        replicas = REDIS[redis]
        if replicas is not None:
            cluster = LocalCluster(replicas=replicas, kind=kind_of_redis(server))
            yield Services(f"{kind}-{redis}", broker, stack.enter_context(cluster), proxies)
            return
        one = start_redis(server)
        stack.callback(one.close)
        yield Services(kind, broker, OneRedis(one, proxies.before(one.port)), proxies)


def _embedded(stack: ExitStack, proxies: Proxies) -> Proxied:
    proxy = proxies.before(0)
    broker = stack.enter_context(EmbeddedBroker(advertised=proxy.port))
    proxy.target = broker.port
    return Proxied(one_node(broker), [proxy])


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
    return Proxied(cluster, before)

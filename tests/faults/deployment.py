"""What a run breaks, and what it runs on: brokers, Redis and a web site behind proxies, and workers."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from aiokafka.errors import KafkaError
from anyio.from_thread import BlockingPortal, start_blocking_portal

from deploy.embedded import EmbeddedBroker, RedisServer
from deploy.embedded.process import HOST, free_port
from deploy.kafka.cluster import KafkaCluster
from groundwire.gate.claim_case import dedup_scheme
from groundwire.messages.identity import Subject
from groundwire.policy import load_policy
from groundwire.state.model import SubjectStatus
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from tests.faults.history import RESPONSES, REVIEWS, Limits, Place, place_of
from tests.services.redis_servers import REDIS_VARIABLE, LocalCluster, kind_of_redis, start_redis
from tests.stream.harness import Deployment, Seen, Site, Worker, until


class Proxy:
    """One port in front of another, whose connections `set` and `cut` disturb from any thread.

    It runs in the portal's thread, so that it passes data on while its owner is busy.
    """

    def __init__(self, portal: BlockingPortal, target: int) -> None:
        self.port, self.target = free_port(), target
        self._portal = portal
        self._delay, self._rate, self._closed = 0.0, 0, False
        self._thawed = asyncio.Event()
        self._thawed.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server = portal.call(asyncio.start_server, self._serve, HOST, self.port)

    def set(self, *, delay: float = 0.0, rate: int = 0, frozen: bool = False, closed: bool = False) -> None:
        """Disturb connections; what is not named works again.

        `delay`: seconds, and `rate`: bytes a second, of a connection and direction. `frozen`: nothing passes;
        connections stay open. `closed`: connections are dropped, and new ones at once.
        """

        def change() -> None:
            self._delay, self._rate, self._closed = delay, rate, closed
            if frozen:
                self._thawed.clear()
            else:
                self._thawed.set()
            if closed:
                self._drop()

        self._portal.call(change)

    def cut(self) -> None:
        self._portal.call(self._drop)

    def _drop(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        onward: asyncio.StreamWriter | None = None
        try:
            await self._thawed.wait()
            if not self._closed:
                back, onward = await asyncio.open_connection(HOST, self.target)
                self._writers.add(onward)
                pumps = (self._pump(reader, onward), self._pump(back, writer))
                await asyncio.wait([asyncio.ensure_future(pump) for pump in pumps])
        except OSError:
            pass  # the target refuses connections: the client finds its own closed
        finally:
            for each in filter(None, (writer, onward)):
                self._writers.discard(each)
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await self._thawed.wait()
                await asyncio.sleep(self._delay + (len(data) / self._rate if self._rate else 0))
                writer.write(data)
                await writer.drain()
        writer.transport.abort() if writer.transport.is_closing() else writer.close()


NODES = {"embedded": 1, "kafka": 1, "kafka3": 3}
REDIS: dict[str, int | None] = {"one": None, "cluster": 0, "replicated": 1}
"""State's servers: one, or a cluster of three primaries with so many replicas each."""


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


@dataclass
class Services:
    """All of them, running; `kind` names the broker, and state's servers where they are not one."""

    kind: str
    broker: Proxied
    redis: OneRedis | LocalCluster
    portal: BlockingPortal


@contextmanager
def running(kind: str, redis: str = "one") -> Iterator[Services]:
    """Start a broker of `NODES` behind proxies, and Redis of `REDIS`; Apache Kafka goes with the real `redis-server`.

    Raises: MissingServiceError.
    """
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        if kind == "embedded":
            proxy = Proxy(portal, 0)
            embedded = stack.enter_context(EmbeddedBroker(advertised=proxy.port))
            proxy.target = embedded.port
            one_node = SimpleNamespace(
                stop_node=lambda _number, hard: embedded.down(),  # noqa: ARG005 - it knows one way only
                start_node=lambda _number: embedded.up(),
                pause_node=lambda _number: embedded.pause(),
                resume_node=lambda _number: embedded.resume(),
            )
            broker = Proxied(one_node, [proxy])
        else:
            nodes = KafkaCluster(NODES[kind])
            broker = Proxied(nodes, [])
            for node, address in zip(nodes.nodes, nodes.bootstrap.split(","), strict=True):
                proxy = Proxy(portal, int(address.rsplit(":", 1)[1]))
                node.format()
                with (node.folder / "server.properties").open("a") as settings:
                    # nodes copy from each other through the proxies too: a cut is one between nodes as well
                    settings.write(f"advertised.listeners=PLAINTEXT://{HOST}:{proxy.port}\n")
                broker.proxies.append(proxy)
            stack.enter_context(nodes)
        server = os.environ.get(REDIS_VARIABLE) or ("embedded" if kind == "embedded" else "real")
        replicas = REDIS[redis]
        if replicas is not None:
            cluster = LocalCluster(replicas=replicas, kind=kind_of_redis(server))
            yield Services(f"{kind}-{redis}", broker, stack.enter_context(cluster), portal)
        else:
            one = start_redis(server)
            stack.callback(one.close)
            yield Services(kind, broker, OneRedis(one, Proxy(portal, one.port)), portal)


ROLES: Final = {"claims": 2, "responses": 1, "deferred": 1, "reviews": 1}
"""Workers that run when nothing is broken."""
SLOTS: Final = tuple(f"{role}-{number}" for role, count in ROLES.items() for number in range(count))
LIMITS = Limits(user=6, tenant=40, total=70)
OVERSHOOT = LIMITS.tenant
"""Places of a tenant, and of all, that a cluster may give beyond that: less than was free at the last count."""
SESSION, GRACE, REBUILD_WAIT = 6.0, 2.0, 4.0
"""Seconds of workers' settings that decide how long recovery takes, shorter than by default."""
POLICY = f"""
version = "faults"

[limits]
review_per_user = {LIMITS.user}
review_per_tenant = {LIMITS.tenant}
review_total = {LIMITS.total}
review_reserved = 0

[verification]
on_failure = "ask"
"""


class Watched(Deployment):
    """Keeps when each record was read."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.seen_at: dict[Place, float] = {}

    def note(self, seen: Seen) -> None:
        self.seen_at[place_of(seen)] = time.monotonic()
        super().note(seen)

    async def idle(self, seconds: float) -> list[str]:
        """Wait until every group has worked its topic off; return what it has not, once so long nothing has moved."""
        groups = {"claims": "claims", "responses": RESPONSES, "deferred": "deferred", "reviews": REVIEWS}
        calm, behind, since = 0, ["nothing was asked yet"], time.monotonic()
        while calm < 2 and time.monotonic() - since < seconds:
            await asyncio.sleep(1.0)
            before = behind
            try:
                behind = [
                    f"{topic}/{partition}: {committed} of {ends[partition]}"
                    for group, topic in groups.items()
                    for ends in [await self.ends(topic)]
                    for partition, committed in (await self.committed(group, topic)).items()
                    if committed != ends[partition]
                ]
            except (KafkaError, TimeoutError) as error:
                behind = [f"the broker does not answer: {type(error).__name__}"]
            calm = 0 if behind else calm + 1
            since = since if behind == before else time.monotonic()
        return behind

    async def statuses(self, policy: Path, subjects: list[Subject]) -> dict[Subject, SubjectStatus | None]:
        scheme = dedup_scheme(load_policy(policy, {}))
        state = RedisState(
            connect(self.redis.url), self.prefix, scheme=scheme, partitions=self.partitions, require_aof=False
        )
        try:
            await state.open()
            found: dict[Subject, SubjectStatus | None] = {}
            for first in range(0, len(subjects), 200):
                some = subjects[first : first + 200]
                found |= zip(some, await state.statuses(some), strict=True)
            return found
        finally:
            await state.close()


class Crew:
    """Keeps a worker in every slot but those that a fault empties."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self.partitions = deployment.partitions
        self._slots: dict[str, Worker] = {}
        self._empty: set[str] = set()

    async def begin(self) -> None:
        """Start all workers and wait until they are ready; `watch` starts those again that a busy machine fails."""
        self._slots = {slot: self._start(slot) for slot in SLOTS}

        def are_ready() -> bool:
            return all("ready" in worker.text for worker in self._slots.values())

        await until(are_ready, self._deployment.dump, seconds=600)

    async def watch(self) -> None:
        while True:
            await asyncio.sleep(0.3)
            for slot, worker in list(self._slots.items()):
                if not worker.alive and slot not in self._empty:
                    self._slots[slot] = self._start(slot)

    async def replace(self, slot: str, seconds: float, *, hard: bool) -> None:
        await self._empty_slot(slot, hard=hard)
        await asyncio.sleep(seconds)
        await self._fill(slot)

    async def skew(self, slot: str, seconds: float, clock: float) -> None:
        await self._empty_slot(slot)
        await self._fill(slot, f"skewed:{clock}")
        await asyncio.sleep(seconds)
        await self.replace(slot, 0.0, hard=False)

    async def add(self, role: str, seconds: float) -> None:
        worker = self._deployment.start_worker(role)
        await asyncio.sleep(seconds)
        await worker.stop()

    def signal(self, slot: str, number: signal.Signals) -> None:
        self._slots[slot].signal(number)

    async def stop(self) -> Counter[int]:
        alive = [(worker, "ready" in worker.text) for worker in self._deployment.workers if worker.alive]
        for worker, _ in alive:
            worker.process.terminate()
        return Counter([status for worker, up in alive for status in [await worker.ended()] if up])

    async def _empty_slot(self, slot: str, *, hard: bool = False) -> None:
        self._empty.add(slot)
        worker = self._slots[slot]
        await (worker.kill() if hard else worker.stop())

    async def _fill(self, slot: str, faulty: str | None = None) -> None:
        """Start a worker in a slot, and wait until it is ready or has ended too."""
        worker = self._slots[slot] = self._start(slot, faulty)
        self._empty.discard(slot)
        while worker.alive and "ready" not in worker.text:  # noqa: ASYNC110 - a log sends no event
            await asyncio.sleep(0.2)

    def _start(self, slot: str, faulty: str | None = None) -> Worker:
        return self._deployment.start_worker(slot.partition("-")[0], faulty=faulty)

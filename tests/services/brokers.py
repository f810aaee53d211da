"""One interface over the embedded broker and Apache Kafka, so that a test runs on either."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError, for_code

from deploy.embedded import EmbeddedBroker
from deploy.kafka.cluster import KafkaCluster

#: Which broker tests run on: embedded (default), kafka (one node) or kafka3 (three).
BROKER_VARIABLE = "GROUNDWIRE_TEST_BROKER"

_VISIBLE_SECONDS = 120.0
_READY_SECONDS = 240.0


class Broker(Protocol):
    """A running broker."""

    @property
    def bootstrap(self) -> str:
        """The addresses for `bootstrap_servers`."""

    @property
    def replication(self) -> int:
        """How many copies of a record there are."""

    def create_topics(self, names: Mapping[str, int]) -> None:
        """Create topics (name: partitions) and wait until they can be used."""

    def stop(self) -> None:
        """Take the broker down as a crash would, all nodes of it; data are kept."""

    def start(self) -> None:
        """Bring it up again, on the same addresses."""

    def close(self) -> None:
        """End it for good."""


class _Embedded:
    def __init__(self) -> None:
        self.broker = EmbeddedBroker()
        self.broker.start()
        self.bootstrap = self.broker.bootstrap
        self.replication = self.broker.replication

    def create_topics(self, names: Mapping[str, int]) -> None:
        create_topics(self.bootstrap, names, self.replication)

    def stop(self) -> None:
        self.broker.down()

    def start(self) -> None:
        self.broker.up()

    def close(self) -> None:
        self.broker.stop()


class _Kafka:
    def __init__(self, nodes: int) -> None:
        self.cluster = KafkaCluster(nodes)
        self.cluster.start()
        self.bootstrap = self.cluster.bootstrap
        self.replication = self.cluster.replication

    def create_topics(self, names: Mapping[str, int]) -> None:
        create_topics(self.bootstrap, names, self.replication)

    def stop(self) -> None:
        for node in self.cluster.nodes:
            self.cluster.stop_node(node.number)

    def start(self) -> None:
        self.cluster.start()
        in_a_thread(until_led(self.bootstrap))

    def close(self) -> None:
        self.cluster.stop()


def start_broker(kind: str | None = None) -> Broker:
    """Start a broker of a kind: embedded, kafka or kafka3; by default the one the environment names.

    Raises:
        ValueError: another kind.
        MissingServiceError: what it needs is not installed here.
    """
    kind = kind or os.environ.get(BROKER_VARIABLE) or "embedded"
    match kind:
        case "embedded":
            return _Embedded()
        case "kafka":
            return _Kafka(1)
        case "kafka3":
            return _Kafka(3)
    raise ValueError(f"{BROKER_VARIABLE}: {kind!r} is none of embedded, kafka, kafka3")


async def until_ready(bootstrap: str, nodes: int) -> None:
    """Wait until all nodes of a broker serve clients: on a busy machine one may be away for some seconds.

    Raises:
        TimeoutError: they do not, minutes later.
    """
    async with asyncio.timeout(_READY_SECONDS):
        while await _serving(bootstrap) < nodes:  # noqa: ASYNC110 - the cluster tells nobody
            await asyncio.sleep(0.2)


async def _serving(bootstrap: str) -> int:
    """Return how many nodes the cluster itself counts as alive."""
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    try:
        await client.bootstrap()
        return len(client.cluster.brokers())
    except KafkaError:
        return 0
    finally:
        await client.close()


def create_topics(bootstrap: str, names: Mapping[str, int], replication: int) -> None:
    """Create topics through the protocol and wait until all their partitions have a leader."""
    in_a_thread(_create(bootstrap, names, replication))


def in_a_thread(doing: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a thread of its own: the caller may be one, whose loop cannot run another."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(asyncio.run, doing).result()


async def until_led(bootstrap: str) -> None:
    """Wait until every partition has a leader: nodes that are up again elect them one after the other.

    Raises:
        TimeoutError: some have none, minutes later.
    """
    async with asyncio.timeout(_READY_SECONDS):
        while not await _led(bootstrap):  # noqa: ASYNC110 - the cluster tells nobody
            await asyncio.sleep(0.2)


async def _led(bootstrap: str) -> bool:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        await admin.start()
        return all(map(_has_leaders, await admin.describe_topics()))
    except KafkaError:
        return False
    finally:
        await admin.close()


async def _create(bootstrap: str, names: Mapping[str, int], replication: int) -> None:
    await until_ready(bootstrap, replication)
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        answer: Any = await admin.create_topics(
            [NewTopic(name, count, replication) for name, count in names.items()]
        )
        for name, code, *_ in answer.topic_errors:
            if code:
                raise for_code(code)(name)
        async with asyncio.timeout(_VISIBLE_SECONDS):
            while not all(map(_has_leaders, await admin.describe_topics(list(names)))):  # noqa: ASYNC110 - the broker tells nobody
                await asyncio.sleep(0.05)
    finally:
        await admin.close()


def _has_leaders(topic: dict[str, object]) -> bool:
    partitions = topic["partitions"]
    assert isinstance(partitions, list)
    return bool(partitions) and all(partition["leader"] >= 0 for partition in partitions)

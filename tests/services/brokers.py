"""One interface over the embedded broker and Apache Kafka, so that a test runs on either."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Protocol

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from deploy.embedded import EmbeddedBroker
from deploy.kafka.cluster import KafkaCluster

#: Which broker tests run on: embedded (default), kafka (one node) or kafka3 (three).
BROKER_VARIABLE = "GROUNDWIRE_TEST_BROKER"

_READY_SECONDS = 240.0


class Broker(Protocol):
    """A running broker: embedded, or Apache Kafka."""

    bootstrap: str
    replication: int

    def stop(self) -> None:
        """Take all nodes down as a crash would; data are kept."""

    def start(self) -> None:
        """Bring it up again, on the same addresses."""

    def close(self) -> None:
        """End it for good."""


class _Embedded(Broker):
    def __init__(self) -> None:
        self.broker = EmbeddedBroker()
        self.broker.start()
        self.bootstrap = self.broker.bootstrap
        self.replication = self.broker.replication
        self.stop, self.start, self.close = self.broker.down, self.broker.up, self.broker.stop  # type: ignore[method-assign]


class _Kafka(Broker):
    def __init__(self, nodes: int) -> None:
        self.cluster = KafkaCluster(nodes)
        self.cluster.start()
        self.bootstrap = self.cluster.bootstrap
        self.replication = self.cluster.replication
        self.close = self.cluster.stop  # type: ignore[method-assign]

    def stop(self) -> None:
        for node in self.cluster.nodes:
            self.cluster.stop_node(node.number)

    def start(self) -> None:
        self.cluster.start()
        asyncio.run(until_led(self.bootstrap))  # its callers are threads


def start_broker(kind: str | None = None) -> Broker:
    """Start a broker of a kind, by default the one the environment names. Raises: MissingServiceError."""
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
    """Wait until the cluster counts all its nodes as alive."""
    async with asyncio.timeout(_READY_SECONDS):
        while await _serving(bootstrap) < nodes:  # noqa: ASYNC110 - Kafka sends no event
            await asyncio.sleep(0.2)


async def _serving(bootstrap: str) -> int:
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    try:
        await client.bootstrap()
        return len(client.cluster.brokers())
    except KafkaError:
        return 0
    finally:
        await client.close()


async def until_led(bootstrap: str) -> None:
    """Wait until every partition has a leader."""
    async with asyncio.timeout(_READY_SECONDS):
        while not await _led(bootstrap):  # noqa: ASYNC110 - Kafka sends no event
            await asyncio.sleep(0.2)


async def _led(bootstrap: str) -> bool:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        await admin.start()
        topics: list[Any] = await admin.describe_topics()
        return all(
            topic["partitions"] and min(p["leader"] for p in topic["partitions"]) >= 0 for topic in topics
        )
    except KafkaError:
        return False
    finally:
        await admin.close()

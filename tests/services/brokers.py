"""One interface over the embedded broker and Apache Kafka, so that a test runs on either."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from deploy.embedded import EmbeddedBroker
from deploy.kafka.cluster import KafkaCluster

#: Which broker tests run on: embedded (default), kafka (one node) or kafka3 (three).
BROKER_VARIABLE = "GROUNDWIRE_TEST_BROKER"

_READY_SECONDS = 240.0


@dataclass
class Broker:
    """A running broker: embedded, or Apache Kafka.

    `stop` takes all nodes down as a crash would and keeps data, `start` brings them up on the same addresses, `close`
    ends them for good.
    """

    bootstrap: str
    replication: int
    stop: Callable[[], None]
    start: Callable[[], None]
    close: Callable[[], None]


def start_broker(kind: str | None = None) -> Broker:
    """Start a broker of a kind, by default the one the environment names. Raises: MissingServiceError."""
    kind = kind or os.environ.get(BROKER_VARIABLE) or "embedded"
    if kind == "embedded":
        one = EmbeddedBroker()
        one.start()
        return Broker(one.bootstrap, one.replication, one.down, one.up, one.stop)
    if kind not in {"kafka", "kafka3"}:
        raise ValueError(f"{BROKER_VARIABLE}: {kind!r} is none of embedded, kafka, kafka3")
    cluster = KafkaCluster(3 if kind == "kafka3" else 1)
    cluster.start()

    def stop() -> None:
        for node in cluster.nodes:
            cluster.stop_node(node.number)

    def start() -> None:
        cluster.start()
        asyncio.run(until_led(cluster.bootstrap))  # its callers are threads

    return Broker(cluster.bootstrap, cluster.replication, stop, start, cluster.stop)


async def until_ready(bootstrap: str, nodes: int) -> None:
    """Wait until the cluster counts all its nodes as alive."""

    async def serving() -> int:
        client = AIOKafkaClient(bootstrap_servers=bootstrap)
        try:
            await client.bootstrap()
            return len(client.cluster.brokers())
        except KafkaError:
            return 0
        finally:
            await client.close()

    async with asyncio.timeout(_READY_SECONDS):
        while await serving() < nodes:  # noqa: ASYNC110 - Kafka sends no event
            await asyncio.sleep(0.2)


async def until_led(bootstrap: str) -> None:
    """Wait until every partition has a leader."""

    async def led() -> bool:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        try:
            await admin.start()
            partitions = [topic["partitions"] for topic in await admin.describe_topics()]
            return all(those and min(one["leader"] for one in those) >= 0 for those in partitions)
        except KafkaError:
            return False
        finally:
            await admin.close()

    async with asyncio.timeout(_READY_SECONDS):
        while not await led():  # noqa: ASYNC110 - Kafka sends no event
            await asyncio.sleep(0.2)

"""Servers to measure against: Apache Kafka and redis-server where they are installed, the embedded ones elsewhere."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from redis import Redis

from deploy.embedded import EmbeddedBroker, EmbeddedRedis, MissingServiceError, RealRedis, RedisServer
from deploy.kafka.cluster import KafkaCluster


@dataclass(frozen=True, slots=True)
class Broker:
    """A running broker.

    Attributes:
        bootstrap: for clients.
        kind: what it is, as the tables say it.
    """

    bootstrap: str
    kind: str


@contextmanager
def open_broker(kind: str) -> Iterator[Broker]:
    """Run a broker of its own: `kafka`, `embedded`, or `auto`.

    Raises:
        MissingServiceError: Kafka was asked for by name, and Java or Maven is not there.
    """
    if kind != "embedded":
        try:
            cluster = KafkaCluster(nodes=1)
        except MissingServiceError:
            if kind == "kafka":
                raise
        else:
            with cluster:
                yield Broker(cluster.bootstrap, "Apache Kafka, one node")
            return
    with EmbeddedBroker() as broker:
        yield Broker(broker.bootstrap, "the embedded broker")


@contextmanager
def open_redis(kind: str) -> Iterator[RedisServer]:
    real = kind == "real" or (kind == "auto" and shutil.which("redis-server"))
    with RealRedis() if real else EmbeddedRedis() as server:
        yield server


def redis_kind(server: RedisServer) -> str:
    with Redis.from_url(server.url) as client:
        found = client.info("server")
    if "valkey_version" in found:
        return f"Valkey {found['valkey_version']}, embedded"
    return f"redis-server {found['redis_version']}"

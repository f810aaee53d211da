"""Fixtures with a running broker and a running Redis server, shared by all tests of a session."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from deploy.embedded import MissingServiceError, RedisServer
from tests.services.brokers import Broker, start_broker
from tests.services.redis_servers import LocalCluster, start_redis

T = TypeVar("T")


def or_skip(start: Callable[[], T]) -> T:
    """Skip where a service is not installed; in CI, where it must be, fail."""
    try:
        return start()
    except MissingServiceError as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """The broker; a test that stops it starts it again."""
    service = or_skip(start_broker)
    yield service
    service.close()


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """The Redis server; a test that stops it starts it again."""
    server = or_skip(start_redis)
    yield server
    server.close()


@pytest.fixture(scope="session")
def redis_cluster() -> Iterator[LocalCluster]:
    with or_skip(LocalCluster) as cluster:
        yield cluster

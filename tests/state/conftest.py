"""A Redis server for the session, and state over it or in memory for each test."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from deploy.embedded import RedisServer
from groundwire.state.memory import MemoryState
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from tests.services.redis_cluster import LocalCluster
from tests.state.claims import SCHEME, Claims, People

SERVERS = {"redis": "server", "cluster": "cluster"}
"""The fixtures that serve a kind of state."""

PATIENCE = 60.0
"""Seconds for an answer of Redis: a machine that is busy elsewhere is no outage."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the cases on a Redis Cluster, six servers on the same processors, to `make test-kafka`."""
    for item in items:
        cases = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if item.path.is_relative_to(Path(__file__).parent) and "cluster" in cases:
            item.add_marker(pytest.mark.slow)


def state_at(url: str, prefix: str, *, scheme: str = SCHEME, **options: Any) -> RedisState:
    """Return state in the server at an address, which may take a minute to answer."""
    return RedisState(connect(url, patience=PATIENCE), prefix, scheme=scheme, patience=PATIENCE, **options)


async def start(state: RedisState) -> RedisState:
    """Give an empty state its first epoch, as the rebuild from empty topics does."""
    async with state.rebuilding() as rebuild:
        assert rebuild
        await rebuild.clear()
        await rebuild.start_epoch(uuid.uuid4().hex)
    await state.adopt_epoch()
    return state


@pytest.fixture
def claims() -> Claims:
    return Claims()


@pytest.fixture
def people(claims: Claims) -> People:
    return People(claims)


@pytest.fixture
def prefix() -> str:
    return f"test-{uuid.uuid4().hex}."


@pytest.fixture
async def redis_state(redis_server: RedisServer, prefix: str) -> AsyncIterator[RedisState]:
    state = await start(state_at(redis_server.url, prefix))
    yield state
    await state.close()


@pytest.fixture(params=["memory", "redis", "cluster"])
async def state(request, prefix: str) -> AsyncIterator[MemoryState | RedisState]:
    if request.param == "memory":
        yield MemoryState()
        return
    server: RedisServer | LocalCluster = request.getfixturevalue(f"redis_{SERVERS[request.param]}")
    redis = await start(state_at(server.url, prefix))
    yield redis
    await redis.close()

"""State in memory, in one Redis, and in a Redis Cluster: the same contract for each."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from redis.asyncio import Redis

from deploy.embedded import RedisServer
from groundwire.state.memory import MemoryState
from groundwire.state.redis import RedisState
from groundwire.state.server import connect
from tests.services.redis_servers import start_redis
from tests.state.claims import SCHEME, Claims, People

PATIENCE = 60.0
"""Seconds to wait for Redis: a busy machine is not an outage."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave the random walks of test_agreement.py to `make test-smoke`, the one in Redis, and `make test-all`."""
    for item in items:
        if item.path.name == "test_agreement.py":
            item.add_marker(pytest.mark.slow)
            if item.name.startswith("test_state_in_redis"):
                item.add_marker(pytest.mark.smoke)


class Overtaken(RedisState):
    """State in which another worker may write between what a step reads and what it writes."""

    overtake: Callable[[], Awaitable[None]] | None = None

    async def run(self, name, partition, *arguments):
        if name == "commit" and self.overtake is not None:
            overtake, self.overtake = self.overtake, None
            await overtake()
        return await super().run(name, partition, *arguments)


PARTITIONS = 8
"""As many tags has the state of a cluster."""


def state_at(
    url: str, prefix: str, *, scheme: str = SCHEME, patience: float = PATIENCE, **options
) -> RedisState:
    options = {"partitions": PARTITIONS, **options}
    return RedisState(connect(url, patience=patience), prefix, scheme=scheme, patience=patience, **options)


async def start(state: RedisState) -> RedisState:
    """Give an empty state its first epoch, as a rebuild from empty topics does."""
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


@pytest.fixture(params=["memory", "redis", pytest.param("cluster", marks=pytest.mark.slow)])
def url(request) -> str | None:
    """The server under test; None: in memory."""
    fixtures = {"redis": "redis_server", "cluster": "redis_cluster"}
    return None if request.param == "memory" else request.getfixturevalue(fixtures[request.param]).url


@pytest.fixture
async def new_state(url: str | None, prefix: str) -> AsyncIterator[Any]:
    """Create empty states of the kind under test."""
    created: list[RedisState] = []

    async def new(**options) -> MemoryState | RedisState:
        if url is None:
            return MemoryState(**options)
        created.append(await start(state_at(url, f"{prefix}{len(created)}.", **options)))
        return created[-1]

    yield new
    for state in created:
        await state.close()


@pytest.fixture
async def state(new_state) -> MemoryState | RedisState:
    return await new_state()


@pytest.fixture
async def redis_state(redis_server: RedisServer, prefix: str) -> AsyncIterator[RedisState]:
    state = await start(state_at(redis_server.url, prefix))
    yield state
    await state.close()


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    client = connect(redis_server.url)
    yield client
    await client.aclose()


@pytest.fixture
def own_server() -> Iterator[RedisServer]:
    """A server that the test may stop or reconfigure."""
    with start_redis() as server:
        yield server

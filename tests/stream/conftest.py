"""Deployments for stream tests; where a test fails, its workers' logs and stacks are printed."""

from __future__ import annotations

import gc
import os
from collections.abc import AsyncIterator, Generator, Iterator
from pathlib import Path

import pytest

from deploy.embedded import RedisServer
from tests.services.brokers import BROKER_VARIABLE, Broker
from tests.services.serving import serving
from tests.stream.harness import Deployment, Office, Site

_FAILED = pytest.StashKey[bool]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let aiokafka lose a connection: `asyncio.wait_for` of Python 3.11 drops one whose start is cancelled."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed|loop is closed:ResourceWarning"))


@pytest.fixture(autouse=True)
def lost_connections_are_collected() -> Iterator[None]:
    """Collect them while their warning is ignored, not in the next test."""
    yield
    gc.collect()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[_FAILED] = report.failed
    return report


@pytest.fixture
async def deployment(
    request: pytest.FixtureRequest, broker: Broker, redis_server: RedisServer, tmp_path: Path
) -> AsyncIterator[Deployment]:
    """Topics and groups of the test's own; `@pytest.mark.parametrize("deployment", [{...}], indirect=True)` sets up."""
    # the number of brokers changes no decision: once is enough, where it is quick
    options = {"verified": os.environ.get(BROKER_VARIABLE, "embedded") != "kafka3"}
    options |= getattr(request, "param", {})
    async with Deployment(broker, redis_server, tmp_path, **options) as made:
        yield made
        if request.node.stash.get(_FAILED, True):
            made.verified = False
            print(made.dump())  # noqa: T201 - pytest shows it with the failure


@pytest.fixture
async def topics(broker: Broker, redis_server: RedisServer, tmp_path: Path) -> AsyncIterator[Deployment]:
    """A deployment without workers, on whose topics a test may publish anything."""
    async with Deployment(broker, redis_server, tmp_path) as made:
        yield made


@pytest.fixture
def office(deployment: Deployment, tmp_path: Path) -> Office:
    return Office(deployment, tmp_path)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A web site of the test's own, at each address of 127.0.0.0/8."""
    made = Site()
    async with serving(made.serve, "0.0.0.0") as made.port:  # noqa: S104 - loopback has many addresses
        yield made

"""What a batch needs of the schema registry is asked for before it is read, and holds up no other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest

from agents import loop as module
from agents.schemas import Schemas
from groundwire.config import RegistrySettings
from groundwire.kafka.registry import Registry
from tests.services.schema_registry import SchemaRegistry, schema_registry
from tests.unit.agents.standins import Bench, record

FLOOD = 40


@pytest.fixture(autouse=True)
def _results_are_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "outputs", list)


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    with schema_registry() as made:
        yield made


def framed(schema: int) -> bytes:
    return b"\0" + schema.to_bytes(4) + b"\x02a"


def bench_of(registry: Registry) -> Bench:
    bench = Bench()
    bench.services.hooks.insert(1, Schemas(registry, bench.health))
    return bench


async def test_many_invented_ids_are_asked_for_together_and_never_round_and_round_however_slow_the_registry_is(
    server: SchemaRegistry,
):
    ticks = iter(range(0, 10**9, 20))  # of 20 s: what is known to be unknown is so for three
    registry = Registry(RegistrySettings(url=server.url), lambda: next(ticks))
    ask, calls, together = registry.look_up, count(), threading.Barrier(2)

    def look_up(schema: int) -> None:
        if next(calls) < 2:
            together.wait(60)
        ask(schema)

    registry.look_up = look_up  # type: ignore[method-assign]
    bench = bench_of(registry)
    await bench.run(*(replace(record(), offset=at, value=framed(1000 + at)) for at in range(FLOOD)))
    assert {*server.asked} == {f"/schemas/ids/{1000 + at}" for at in range(FLOOD)}
    assert len(server.asked) <= 2 * FLOOD
    assert bench.health.current == frozenset()


async def test_a_registry_that_hangs_holds_neither_large_records_of_others_nor_a_partition_that_is_revoked(
    server: SchemaRegistry,
):
    registry = Registry(RegistrySettings(url=server.url))
    answered, asked = threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hang(_: int) -> None:
        loop.call_soon_threadsafe(asked.set)
        answered.wait(60)

    registry.look_up = hang  # type: ignore[method-assign]
    bench = bench_of(registry)
    await bench.begin(replace(record(), value=framed(1) + b"x" * 100_000))
    await asked.wait()
    assert not bench.services.large.locked()
    bench.loop.end()
    await bench.finish()
    answered.set()
    assert not bench.published

"""What one tenant takes of Redis: each place a bounded number of bytes, and all of them are counted."""

from __future__ import annotations

import json

import pytest
from redis.asyncio import Redis

from groundwire.gate.types import DeadLetter, Decided
from groundwire.messages.decisions import Place
from groundwire.messages.decode import MAX_VALUE_BYTES
from groundwire.policy import Policy
from groundwire.state.redis import RedisState
from tests.state.claims import Claims, decide
from tests.unit.gate.world import World

PLACES = 10
OVERHEAD = 4_000
"""Bytes of a place beside its record, whose metadata stands in its outcome too: keys, index, counters."""


def claim(number: int, **fields: object) -> bytes:
    text = f"Part {number} of the gateway number {number} waits for nobody, whatever it is asked."
    record = {"claim_id": f"c{number}", "user_id": f"u{number}", "content": text, **fields}
    return json.dumps(record).encode()


async def bytes_of(redis_url: str, prefix: str) -> int:
    async with Redis.from_url(redis_url) as redis:
        return sum([await redis.memory_usage(key, samples=0) async for key in redis.scan_iter(f"{prefix}*")])


@pytest.mark.parametrize(
    ("blanks", "metadata", "record"),
    [
        pytest.param(880_000, {}, 600, id="blanks between fields are not kept"),
        pytest.param(0, {"note": "x" * 15_000}, 15_600, id="metadata as long as it may be"),
    ],
)
async def test_a_place_takes_no_more_of_redis_than_twice_its_canonical_record(
    redis_server, redis_state: RedisState, prefix: str, blanks: int, metadata: dict[str, str], record: int
):
    world = World(policy=Policy(dedup_method="partition"), state=redis_state)
    before = await bytes_of(redis_server.url, prefix)
    values = [claim(n, metadata=metadata).replace(b", ", b", " + b" " * blanks, 1) for n in range(PLACES)]
    results = await world.results(*map(world.record, values))
    assert [r.decision.facts.place for r in results if isinstance(r, Decided)] == [Place.FREE] * PLACES
    taken = await bytes_of(redis_server.url, prefix) - before
    assert PLACES * 100 < taken < PLACES * (2 * record + OVERHEAD)


async def test_metadata_of_900_kb_takes_no_place(redis_state: RedisState):
    world = World(policy=Policy(dedup_method="partition"), state=redis_state)
    value = claim(1, metadata={"note": "x" * (MAX_VALUE_BYTES - 400)})
    (result,) = await world.results(world.record(value))
    assert isinstance(result, DeadLetter)
    assert await redis_state.tenants_use() == ({}, {})


async def test_places_and_bytes_of_each_tenant_are_told_and_only_theirs(
    redis_state: RedisState, claims: Claims
):
    asks = [claims.ask(f"c{n}", f"Fact {n} of nobody in particular {n}.", 2, user=f"u{n}") for n in range(3)]
    other = claims.ask("c9", tier=2, tenant="umbrella")
    await decide(redis_state, *asks, other)
    places, stored = await redis_state.tenants_use()
    assert places == {b"acme": 3, b"umbrella": 1}
    assert stored == {b"acme": sum(len(ask.record) for ask in asks), b"umbrella": len(other.record)}

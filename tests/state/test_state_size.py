"""`groundwire state size`, and how much of Redis a tenant can take."""

import asyncio
import json
from functools import partial

import pytest
from click.testing import CliRunner

from groundwire.cli.main import main
from groundwire.cli.state import StateSize, Usage, measure
from groundwire.gate.types import DeadLetter, Decided
from groundwire.messages.decisions import Place
from groundwire.messages.decode import MAX_VALUE_BYTES
from groundwire.policy import Policy
from groundwire.state.server import Server, connect
from tests.state.claims import OTHER, decide
from tests.unit.gate.world import World

PLACES = 10
OVERHEAD = 4_000
"""Bytes of a place besides its record: keys, index, counters, and the outcome with its metadata."""


@pytest.fixture
def size_of(redis_server, redis_state, prefix):
    async def measured(own: str = prefix, sample: int = 1_000) -> StateSize:
        client = connect(redis_server.url)
        found = await measure(Server(client), redis_state, own, sample, lambda _: None)
        await client.aclose()
        return found

    return measured


def numbers(found: StateSize) -> dict[str, int]:
    return {kind: usage.number for kind, usage in found.kinds.items()}


async def test_every_key_of_the_deployment_is_counted_and_measured_by_its_kind(
    redis, redis_state, prefix, claims, size_of
):
    await decide(redis_state, claims.ask("c1"), claims.ask("c2", OTHER, 2))
    await redis.set(f"{prefix}new:1", "of a later version")
    await redis.hset(f"{prefix}console:looking", "item", "ann")
    keys = await redis.keys(f"{prefix}*")
    taken = sum([await redis.memory_usage(key) for key in keys])
    found = await size_of()
    kinds = {"outcomes": 2, "index": 2, "counters": 1, "console": 1, "epoch, scheme": 2, "other": 1}
    assert numbers(found) == kinds
    assert sum(kinds.values()) == len(keys)
    assert sum(usage.total for usage in found.kinds.values()) == taken
    assert found.pending == {"acme": len(OTHER)}
    await decide(redis_state, *[claims.ask(f"d{n}", None) for n in range(5)])
    sampled = (await size_of(sample=3)).kinds["outcomes"]
    assert (sampled.number, sampled.measured) == (7, 3)
    await redis.set(f"{prefix}x[ab].s:1", "ours")
    await redis.set(f"{prefix}xa.s:1", "theirs")
    assert numbers(await size_of(f"{prefix}x[ab].")) == {"outcomes": 1}, "a prefix is no pattern"


async def test_a_cluster_has_a_limit_only_where_each_primary_has_one_and_room_as_the_fullest(
    size_of, monkeypatch
):
    rows = [
        ([400, 500], 900, 786),
        ([400, 5], 405, 0),
        ([400, 0], 0, 0),
        ([0, 400], 0, 0),
        ([400, None], 0, 0),
        ([0], 0, 0),
    ]
    for limits, limit, room in rows:

        async def infos(_server: Server, _section: str, limits=limits) -> list[dict[str, int]]:
            return [{"used_memory": 7} | ({} if one is None else {"maxmemory": one}) for one in limits]

        monkeypatch.setattr(Server, "infos", infos)
        found = await size_of()
        assert (found.used, found.limit, found.room) == (7 * len(limits), limit, room)


def test_the_projection_follows_from_the_mean_of_an_outcome_and_its_index():
    kinds = {"outcomes": Usage(10, 2, 800), "index": Usage(1, 1, 2_000)}
    assert StateSize(kinds, {}, 1_000_000, 4_000_000, 3_000_000).projection(1_000, 500) == {
        "bytes_per_outcome": 600,
        "outcomes_per_gb": 1_666_666,
        "bytes_of_claims": 600_000,
        "outcomes_until_maxmemory": 5_000,
        "days_until_maxmemory": 10.0,
    }
    assert StateSize({"outcomes": Usage()}).projection(1_000, 500) == {}


async def test_the_command_prints_what_state_takes_and_names_the_setting_of_an_unreachable_server(
    redis_server, redis, prefix
):
    await redis.set(f"{prefix}s:1", "A" * 100)
    environment = {"GROUNDWIRE_REDIS_URL": redis_server.url, "GROUNDWIRE_TOPIC_PREFIX": prefix}
    asked = ["state", "size", "--claims", "10", "--format"]
    invoke = partial(asyncio.to_thread, CliRunner().invoke, main)
    result = await invoke([*asked, "json"], env=environment)
    found = json.loads(result.stdout)
    assert (result.exit_code, found["kinds"]["outcomes"]["keys"]) == (0, 1)
    assert found["projection"]["bytes_of_claims"] == 10 * found["projection"]["bytes_per_outcome"]
    result = await invoke([*asked, "table"], env=environment)
    assert result.stdout.splitlines()[1].split()[:3] == ["outcomes", "1", "1"]
    away = {"GROUNDWIRE_REDIS_URL": "redis://127.0.0.1:1/0"}
    result = await invoke(["state", "size"], env=away)
    assert (result.exit_code, "GROUNDWIRE_REDIS_URL" in result.output) == (2, True)


@pytest.mark.slow
async def test_a_place_takes_at_most_twice_its_canonical_record_and_900_kb_take_none(
    redis, redis_state, prefix
):
    async def taken() -> int:
        keys = [key async for key in redis.scan_iter(f"{prefix}*")]
        return sum([await redis.memory_usage(key, samples=0) for key in keys])

    def claim(number: int, **fields: object) -> bytes:
        text = f"Part {number} of the gateway number {number} waits for nobody, whatever it is asked."
        return json.dumps(
            {"claim_id": f"c{number}", "user_id": f"u{number}", "content": text, **fields}
        ).encode()

    world = World(policy=Policy(dedup_method="partition"), state=redis_state)
    (result,) = await world.results(world.record(claim(1, metadata={"note": "x" * (MAX_VALUE_BYTES - 400)})))
    assert isinstance(result, DeadLetter)
    assert await redis_state.tenants_use() == ({}, {})
    # blanks between fields are not kept; metadata as long as it may be
    for turn, (blanks, metadata, record) in enumerate(
        [(880_000, {}, 600), (0, {"note": "x" * 15_000}, 15_600)]
    ):
        before = await taken()
        numbered = range(turn * PLACES, (turn + 1) * PLACES)
        values = [claim(n, metadata=metadata).replace(b", ", b", " + b" " * blanks, 1) for n in numbered]
        results = await world.results(*map(world.record, values))
        assert [r.decision.facts.place for r in results if isinstance(r, Decided)] == [Place.FREE] * PLACES
        assert PLACES * 100 < await taken() - before < PLACES * (2 * record + OVERHEAD)


async def test_places_and_bytes_are_counted_by_tenant(redis_state, claims):
    asks = [claims.ask(f"c{n}", f"Fact {n} of nobody in particular {n}.", 2, user=f"u{n}") for n in range(3)]
    other = claims.ask("c9", tier=2, tenant="umbrella")
    await decide(redis_state, *asks, other)
    sizes = {b"acme": sum(len(ask.record) for ask in asks), b"umbrella": len(other.record)}
    assert await redis_state.tenants_use() == ({b"acme": 3, b"umbrella": 1}, sizes)

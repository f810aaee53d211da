"""`groundwire state size` over a real server."""

import json

import pytest
from click.testing import CliRunner
from redis import Redis

from groundwire.cli.main import main
from groundwire.cli.state import StateSize, Usage, measure
from groundwire.state.server import Server, connect
from tests.state.claims import decide

OTHER = "backups of the billing database are written to a second region every night at two o'clock"


async def size_of(redis_server, redis_state, prefix, sample=1_000) -> StateSize:
    client = connect(redis_server.url)
    found = await measure(Server(client), redis_state, prefix, sample, lambda _: None)
    await client.aclose()
    return found


async def test_every_key_of_the_deployment_is_counted_and_measured_by_its_kind(
    redis_server, redis_state, prefix, claims
):
    await decide(redis_state, claims.ask("c1"), claims.ask("c2", OTHER, 2))
    with Redis.from_url(redis_server.url) as redis:
        redis.set(f"{prefix}new:1", "of a later version")
        keys = redis.keys(f"{prefix}*")
        taken = sum(redis.memory_usage(key) for key in keys)
    found = await size_of(redis_server, redis_state, prefix)
    kinds = {kind: usage.number for kind, usage in found.kinds.items()}
    assert kinds == {"outcomes": 2, "index": 2, "counters": 1, "epoch, scheme": 2, "other": 1}
    assert sum(kinds.values()) == len(keys)
    assert sum(usage.total for usage in found.kinds.values()) == taken
    assert found.pending == {"acme": len(OTHER)}


async def test_a_prefix_stands_for_itself_and_no_other_deployment_is_counted(
    redis_server, redis_state, prefix
):
    with Redis.from_url(redis_server.url) as redis:
        redis.set(f"{prefix}x[ab].s:1", "ours")
        redis.set(f"{prefix}xa.s:1", "theirs")
    found = await size_of(redis_server, redis_state, f"{prefix}x[ab].")
    assert {kind: usage.number for kind, usage in found.kinds.items()} == {"outcomes": 1}


async def test_what_consoles_share_is_a_kind_of_its_own(redis_server, redis_state, prefix):
    with Redis.from_url(redis_server.url) as redis:
        redis.hset(f"{prefix}console:looking", "item", "ann")
    found = await size_of(redis_server, redis_state, prefix)
    kinds = {kind: usage.number for kind, usage in found.kinds.items()}
    assert kinds == {"console": 1, "epoch, scheme": 2}


@pytest.mark.parametrize(
    ("limits", "limit", "room"),
    [
        ([400, 500], 900, 2 * 393),
        ([400, 5], 405, 0),
        ([400, 0], 0, 0),
        ([0, 400], 0, 0),
        ([400, None], 0, 0),
        ([0], 0, 0),
    ],
)
async def test_a_cluster_has_a_limit_only_where_each_primary_has_one_and_room_as_the_fullest(
    redis_server, redis_state, prefix, limits, limit, room, monkeypatch
):
    async def infos(_server: Server, _section: str) -> list[dict[str, int]]:
        return [{"used_memory": 7} | ({} if one is None else {"maxmemory": one}) for one in limits]

    monkeypatch.setattr(Server, "infos", infos)
    found = await size_of(redis_server, redis_state, prefix)
    assert (found.used, found.limit, found.room) == (7 * len(limits), limit, room)


async def test_no_more_keys_of_a_kind_are_measured_than_asked_for(redis_server, redis_state, prefix, claims):
    await decide(redis_state, *[claims.ask(f"c{n}", None) for n in range(7)])
    found = await size_of(redis_server, redis_state, prefix, sample=3)
    assert (found.kinds["outcomes"].number, found.kinds["outcomes"].measured) == (7, 3)


def test_the_projection_follows_from_the_mean_of_an_outcome_and_its_index():
    found = StateSize(
        {"outcomes": Usage(10, 2, 800), "index": Usage(1, 1, 2_000)}, {}, 1_000_000, 4_000_000, 3_000_000
    )
    assert found.projection(1_000, 500) == {
        "bytes_per_outcome": 600,
        "outcomes_per_gb": 1_666_666,
        "bytes_of_claims": 600_000,
        "outcomes_until_maxmemory": 5_000,
        "days_until_maxmemory": 10.0,
    }


def test_without_an_outcome_nothing_is_projected():
    assert StateSize({"outcomes": Usage()}).projection(1_000, 500) == {}


@pytest.mark.parametrize("layout", ["table", "json"])
def test_the_command_prints_what_state_takes(redis_server, prefix, layout):
    with Redis.from_url(redis_server.url) as redis:
        redis.set(f"{prefix}s:1", "A" * 100)
    environment = {"GROUNDWIRE_REDIS_URL": redis_server.url, "GROUNDWIRE_TOPIC_PREFIX": prefix}
    asked = ["state", "size", "--claims", "10", "--format", layout]
    result = CliRunner().invoke(main, asked, env=environment)
    assert result.exit_code == 0, result.output
    if layout == "json":
        found = json.loads(result.stdout)
        assert found["kinds"]["outcomes"]["keys"] == 1
        assert found["projection"]["bytes_of_claims"] == 10 * found["projection"]["bytes_per_outcome"]
    else:
        assert result.stdout.splitlines()[1].split()[:3] == ["outcomes", "1", "1"]


def test_a_server_out_of_reach_is_named_with_its_setting():
    environment = {"GROUNDWIRE_REDIS_URL": "redis://127.0.0.1:1/0"}
    result = CliRunner().invoke(main, ["state", "size"], env=environment)
    assert result.exit_code == 2
    assert "GROUNDWIRE_REDIS_URL" in result.output

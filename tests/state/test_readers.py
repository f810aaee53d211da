"""Who else reads state on a real server: the console, rebuilds, and `groundwire state size`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest
from click.testing import CliRunner

from groundwire.cli.main import main
from groundwire.cli.state import StateSize, Usage, measure
from groundwire.config import Settings
from groundwire.errors import SchemeMismatch, StateLost, StateUnavailable
from groundwire.gate.claim_case import dedup_scheme
from groundwire.gate.types import Acted, DeadLetter, Decided
from groundwire.messages.decisions import Place
from groundwire.messages.decode import MAX_VALUE_BYTES
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.replay.rebuild import Rebuilder
from groundwire.review.feed import RedisStatuses
from groundwire.state.model import SubjectStatus
from groundwire.state.server import Server, connect
from tests.state.claims import OTHER, Claims, P, decide, subject
from tests.state.conftest import start, state_at
from tests.unit.gate.office import TEXT, Office, Topics
from tests.unit.gate.world import World

SCHEME = dedup_scheme(Policy())


@pytest.fixture
async def new_office(redis_server, prefix) -> AsyncIterator:
    states = []

    async def new() -> Office:
        states.append(await start(state_at(redis_server.url, f"{prefix}{len(states)}.", scheme=SCHEME)))
        return Office(state=states[-1])

    yield new
    for state in states:
        await state.close()


async def rebuild(office: Office, topics: Topics) -> None:
    assert await Rebuilder(office.state, office.policy, topics.read, quiet=0).rebuild()
    await office.state.adopt_epoch()


async def test_what_a_person_refused_stays_refused_though_its_decision_is_past_its_retention(new_office):
    for action, source in (("reject", "ai_synthesis"), ("retract", "user")):
        for kept in (True, False):
            office, topics = await new_office(), Topics()
            claim = office.claim("a", TEXT, source=source)
            (before,) = await office.decide(claim)
            record = office.action(action, before, reason="incorrect")
            (refused,) = await office.carry_out(record)
            topics.put(before, refused)
            if not kept:
                del topics[TopicName.BLOCKED]
            await rebuild(office, topics)
            (again,) = await office.decide(claim)
            assert again.to_bytes() == refused.decision.to_bytes()
            assert (await office.one(TEXT, "b", source="user")).reason_code == "previously_rejected"
            (repeat,) = await office.carry_out(record)
            assert repeat.decision.to_bytes() == refused.decision.to_bytes()


async def test_a_retraction_that_comes_again_after_a_rebuild_names_the_same_claims(new_office):
    for kept in (True, False):
        office, topics = await new_office(), Topics()
        (before,) = await office.decide(office.claim("a", TEXT, source="user"))
        (child,) = await office.decide(office.claim("c", "It follows", source="user", derived_from=["a"]))
        (later,) = await office.decide(office.claim("d", "Delta rests upon it", derived_from=["a"]))
        record = office.action("retract", before)
        (retracted,) = await office.carry_out(record)
        topics.put(before, child, later, retracted, await office.act("approve", later))
        if not kept:
            del topics[TopicName.BLOCKED]
        await rebuild(office, topics)
        (again,) = await office.carry_out(record)
        assert isinstance(again, Acted)
        assert again.retraction == retracted.retraction
        assert again.retraction.affected == ["c"]


async def test_state_of_the_scheme_before_is_refused_and_a_rebuild_carries_it_over(
    new_office, redis, redis_server, prefix
):
    kept, wrong = "The invoices are kept for 30 days.", "The gate at the north entrance is painted green."
    office, topics = await new_office(), Topics()
    (approved,) = await office.decide(office.claim("a", kept, source="user"))
    (waits,) = await office.decide(office.claim("b", wrong, source="ai_synthesis"))
    (rejected,) = await office.carry_out(office.action("reject", waits, reason="incorrect"))
    topics.put(approved, waits, rejected)
    own = f"{prefix}0."
    before = "minhash-16x8-affine32-s1/words-1/signature-2/9200/user_type"
    await redis.set(f"{own}scheme", before)  # with signatures and keys of another form
    for key in await redis.keys(f"{own}m:*"):
        for name, member in (await redis.hgetall(key)).items():
            if name != b"n":
                await redis.hset(key, name, member.partition(b"\0")[0] + b"\0" + bytes(12) + b"oldtoken" * 7)
    for key in await redis.keys(f"{own}k:*"):
        await redis.set(key, b"key1" + (1).to_bytes(4, "little"))
    newer = state_at(redis_server.url, own, scheme=SCHEME)
    with pytest.raises(SchemeMismatch, match="groundwire rebuild"):
        await newer.open()
    assert await Rebuilder(newer, Policy(), topics.read, quiet=0).rebuild()
    await newer.adopt_epoch()
    later = Office(state=newer)
    conflict = await later.one("Invoices are kept for 90 days.", "c", source="user")
    assert conflict.reason_code == "conflicting_near_duplicate"
    assert "conflicting_near_duplicate: a: number" in conflict.checks_failed
    assert (await later.one(kept, "d", source="user")).reason_code == "duplicate"
    again = await later.one(f"{wrong[:-1]} permanently.", "e", source="user")
    assert again.reason_code == "previously_rejected"
    await newer.close()


async def test_statuses_follow_a_state_that_was_lost_or_rebuilt_and_a_server_that_was_away(own_server):
    names, pending = [subject(), subject("nobody")], [SubjectStatus(P, 1), None]
    state = await start(state_at(own_server.url, "gw.", scheme=SCHEME))
    live = RedisStatuses(state_at(own_server.url, "gw.", scheme=SCHEME, require_aof=False))
    await decide(state, Claims().ask(tier=2))
    assert await live.statuses(names) == pending
    own_server.kill()
    with pytest.raises(StateUnavailable):
        await live.statuses(names)
    own_server.start()
    assert await live.statuses(names) == pending
    redis = connect(own_server.url)
    await redis.delete("gw.epoch")
    await redis.aclose()
    for _ in range(2):
        with pytest.raises(StateLost):
            await live.statuses(names)
    await start(state)  # rebuilt, from topics that held nothing
    assert await live.statuses(names) == [None, None]
    await decide(state, Claims().ask(tier=2))
    assert await live.statuses(names) == pending
    await start(state)
    with pytest.raises(StateLost):  # before it answers from the rebuilt state
        await live.statuses(names)
    assert await live.statuses(names) == [None, None]
    await start(other := state_at(own_server.url, "other.", scheme="another"))
    strange = RedisStatuses.of(Settings(redis_url=own_server.url, topic_prefix="other."))
    with pytest.raises(SchemeMismatch):
        await strange.statuses(names)
    for each in (live, state, strange, other):
        await each.close()


@pytest.fixture
def size_of(redis_server, redis_state, prefix):
    async def measured(own: str = prefix, sample: int = 1_000) -> StateSize:
        client = connect(redis_server.url)
        found = await measure(Server(client), redis_state, own, sample, lambda _: None)
        await client.aclose()
        return found

    return measured


async def test_every_key_of_the_deployment_is_counted_and_measured_by_its_kind(
    redis, redis_state, prefix, claims, size_of
):
    def numbers(found: StateSize) -> dict[str, int]:
        return {kind: usage.number for kind, usage in found.kinds.items()}

    other = claims.ask("c9", None, 2, tenant="umbrella")
    await decide(redis_state, claims.ask("c1"), claims.ask("c2", OTHER, 2), replace(other, record=b"text"))
    await redis.set(f"{prefix}new:1", "of a later version")
    await redis.hset(f"{prefix}console:looking", "item", "ann")
    keys = await redis.keys(f"{prefix}*")
    taken = sum([await redis.memory_usage(key) for key in keys])
    found = await size_of()
    kinds = {"outcomes": 3, "index": 2, "console": 1, "epoch, scheme": 2, "other": 1}
    assert numbers(found) == kinds | {"counters": len(keys) - sum(kinds.values())}
    assert sum(usage.total for usage in found.kinds.values()) == taken
    assert found.pending == {"acme": len(OTHER), "umbrella": 4}
    assert await redis_state.tenants_use() == (
        {b"acme": 1, b"umbrella": 1}, {b"acme": len(OTHER), b"umbrella": 4}
    )  # fmt: skip
    await decide(redis_state, *[claims.ask(f"d{n}", None) for n in range(5)])
    sampled = (await size_of(sample=3)).kinds["outcomes"]
    assert (sampled.number, sampled.measured) == (8, 3)
    await redis.set(f"{prefix}x[ab].s:1", "ours")
    await redis.set(f"{prefix}xa.s:1", "theirs")
    assert numbers(await size_of(f"{prefix}x[ab].")) == {"outcomes": 1}, "a prefix is no pattern"


async def test_a_cluster_has_a_limit_only_where_each_primary_has_one_and_room_as_the_fullest(
    size_of, monkeypatch
):
    rows = [([400, 500], 900, 786), ([400, 5], 405, 0), ([0], 0, 0)]
    rows += [(limits, 0, 0) for limits in ([400, 0], [0, 400], [400, None])]
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
    places, overhead = 10, 4_000  # bytes besides the record: keys, index, counters, metadata of the outcome

    async def taken() -> int:
        keys = [key async for key in redis.scan_iter(f"{prefix}*")]
        return sum([await redis.memory_usage(key, samples=0) for key in keys])

    def claim(number: int, **more: object) -> bytes:
        text = f"Part {number} of the gateway number {number} waits for nobody, whatever it is asked."
        return json.dumps(
            {"claim_id": f"c{number}", "user_id": f"u{number}", "content": text, **more}
        ).encode()

    world = World(policy=Policy(dedup_method="partition"), state=redis_state)
    (result,) = await world.results(world.record(claim(1, metadata={"note": "x" * (MAX_VALUE_BYTES - 400)})))
    assert isinstance(result, DeadLetter)
    assert await redis_state.tenants_use() == ({}, {})
    # blanks between fields are not kept; metadata as long as it may be
    rows = [(880_000, {}, 600), (0, {"note": "x" * 15_000}, 15_600)]
    for turn, (blanks, metadata, record) in enumerate(rows):
        before = await taken()
        numbered = range(turn * places, (turn + 1) * places)
        values = [claim(n, metadata=metadata).replace(b", ", b", " + b" " * blanks, 1) for n in numbered]
        results = await world.results(*map(world.record, values))
        assert [r.decision.facts.place for r in results if isinstance(r, Decided)] == [Place.FREE] * places
        assert places * 100 < await taken() - before < places * (2 * record + overhead)

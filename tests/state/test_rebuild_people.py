"""Rebuilds on Redis: what people decided stands, and state of the scheme before is carried over."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from groundwire.errors import SchemeMismatch
from groundwire.gate.claim_case import dedup_scheme
from groundwire.gate.types import Acted
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.replay.rebuild import Rebuilder
from tests.state.conftest import start, state_at
from tests.unit.gate.office import TEXT, Office, Topics

SCHEME = dedup_scheme(Policy())
BEFORE = "minhash-16x8-affine32-s1/words-1/signature-2/9200/user_type"


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
    await redis.set(f"{own}scheme", BEFORE)  # with signatures and keys of another form
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

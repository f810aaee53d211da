"""A rebuild on Redis keeps to what people decided, though the Decision that says so is past its retention."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from groundwire.gate.claim_case import dedup_scheme
from groundwire.gate.types import Acted
from groundwire.messages.topics import TopicName
from groundwire.policy import Policy
from groundwire.replay.rebuild import Rebuilder
from groundwire.state.redis import RedisState
from tests.state.conftest import start, state_at
from tests.unit.gate.test_rebuild_people import Topics
from tests.unit.gate.test_review_gate import TEXT, Office


@pytest.fixture
async def office(redis_server, prefix) -> AsyncIterator[Office]:
    state = await start(state_at(redis_server.url, prefix, scheme=dedup_scheme(Policy())))
    yield Office(state=state)
    await state.close()


async def rebuild(office: Office, topics: Topics) -> None:
    assert isinstance(office.state, RedisState)
    assert await Rebuilder(office.state, office.policy, topics.read, quiet=0).rebuild()
    await office.state.adopt_epoch()


@pytest.mark.parametrize("action", ["reject", "retract"])
@pytest.mark.parametrize("kept", [True, False])
async def test_what_a_person_refused_stays_refused_after_a_rebuild(office, action, kept):
    topics = Topics()
    claim = office.claim("a", TEXT, source="user" if action == "retract" else "ai_synthesis")
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


@pytest.mark.parametrize("kept", [True, False])
async def test_a_retraction_that_comes_again_after_a_rebuild_names_the_same_claims(office, kept):
    topics = Topics()
    (before,) = await office.decide(office.claim("a", TEXT, source="user"))
    (child,) = await office.decide(office.claim("c", "It follows", source="user", derived_from=["a"]))
    (later,) = await office.decide(office.claim("d", "Delta rests upon it", derived_from=["a"]))
    record = office.action("retract", before)
    (retracted,) = await office.carry_out(record)
    approved = await office.act("approve", later)
    topics.put(before, child, later, retracted, approved)
    if not kept:
        del topics[TopicName.BLOCKED]
    await rebuild(office, topics)
    (again,) = await office.carry_out(record)
    assert isinstance(again, Acted)
    assert again.retraction == retracted.retraction
    assert again.retraction.affected == ["c"]

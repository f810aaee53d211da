"""State and the pure code that derives decisions from facts come to the same tier, for whatever is sent."""

import asyncio
import dataclasses
import secrets
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from groundwire.gate.types import Decided
from groundwire.policy import Policy
from groundwire.replay.derive import rederive
from groundwire.replay.inputs import Inputs, read_record
from groundwire.replay.rebuild import stored_outcome
from groundwire.state.memory import MemoryState
from groundwire.state.model import Outcome
from tests.state.conftest import start, state_at
from tests.unit.gate.world import World, adr_folder, chunk, verifier

TEXT = "the ingest service retries every failed upload five times before it gives up and raises an alarm"
claims = st.fixed_dictionaries(
    {
        "claim_id": st.sampled_from("abcdefgh"),
        "content": st.sampled_from(
            [
                TEXT,
                TEXT + ".",
                TEXT + " never",
                "It may snow",
                "Maybe it snows",
                "I think, per ADR-003, it snows",
                "Per ADR-003 it holds",
                "Per ADR-003 it may hold",
                "Per ADR-999 and ADR-003 it holds",
                "!!!",
            ]
        ),
        "source": st.sampled_from(["user", "ai_synthesis", "conversation", "chat"]),
    },
    optional={
        "memory_type": st.sampled_from(["fact", "preference", "decision"]),
        "derived_from": st.lists(st.sampled_from(["a", "b", "response:a", "zz"]), max_size=2),
        "validity_horizon": st.sampled_from(
            ["2025-01-01T00:00:00Z", "2026-01-31T12:00:04Z", "2030-01-01T00:00:00Z"]
        ),
        "user_id": st.just("bob"),
    },
)
CODE = chunk("def search(query, top_k):\n    return index.find(query)")
responses = st.fixed_dictionaries(
    {
        "response_id": st.sampled_from("abcd"),
        "answer": st.sampled_from(
            [
                "Call `search` with `top_k` [source:1].",
                "Call `search` with `fuzz` [source:1].",
                "Call `search` [source:2].",
                "Yes.",
            ]
        ),
        "chunks": st.sampled_from([[CODE], [CODE], []]),
    },
    optional={
        "confidence": st.sampled_from([0.2, 0.4, 0.9]),
        "sources": st.sampled_from([[{"file": CODE["file"]}], [{"file": "elsewhere"}]]),
        "query": st.just("how do I search?"),
        "mode": st.sampled_from(["instant", "thinking"]),
        "in_reply_to": st.sampled_from(["a", "b", "zz"]),
        "user_id": st.just("bob"),
    },
)
records = claims | claims | responses
policies = st.builds(
    Policy,
    dedup_method=st.sampled_from(["minhash", "partition"]),
    dedup_scope=st.sampled_from(["user", "user_type"]),
    enable_dedup=st.sampled_from([True, True, True, False]),
    dedup_material_difference=st.booleans(),
    trusted_technical_hedges=st.sampled_from(["review", "approve"]),
    grounded_speculation=st.sampled_from(["review", "block"]),
    failed_citation_overrides_trust=st.booleans(),
    auto_approve_ai_synthesis=st.booleans(),
    verify_claim_relevance=st.booleans(),
    attestation=st.sampled_from(["off", "off", "hmac"]),
    verification=st.fixed_dictionaries({"on_failure": st.sampled_from(["flag", "ask"])}),
    limits=st.fixed_dictionaries({"review_per_user": st.integers(0, 3), "review_total": st.integers(0, 4)}),
)


class Spy(MemoryState):
    """Keeps what another state answered."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.answers = []

    async def step(self, asks, limits, *, deferred=False):
        answers = await self.inner.step(asks, limits, deferred=deferred)
        self.answers += answers
        return answers


@pytest.fixture(scope="module")
def adrs(tmp_path_factory) -> Path:
    return adr_folder(tmp_path_factory.mktemp("agreement") / "adrs", ADR_003="It holds, it snows")


def record(world, fields):
    return world.response(**fields) if "response_id" in fields else world.claim(**fields)


async def run(state, policy, adrs, sent):
    """Decide records one after the other; return the decisions."""
    spy = Spy(state)
    world = World(policy=policy, state=spy, verifier=verifier(adrs))
    found = []
    for fields in sent:
        sent_record = record(world, fields)
        (result,) = await world.results(sent_record)
        if isinstance(result, Decided):
            answer, decision = spy.answers[-1], result.decision
            assert isinstance(answer, Outcome)
            assert (answer.place, answer.revision) == (decision.facts.place, decision.revision)
            value = sent_record.value
            if decision.origin == sent_record.origin:
                derived = rederive(decision, Inputs(value, read_record(value)), policy)
                assert derived.to_bytes() == decision.to_bytes()
            found.append(decision)
    return found


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(policy=policies, sent=st.lists(records, min_size=1, max_size=12))
def test_state_in_memory_and_the_pure_code_agree(adrs, policy, sent):
    asyncio.run(run(MemoryState(), policy, adrs, sent))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(policy=policies, sent=st.lists(records, min_size=1, max_size=12))
def test_state_in_redis_and_the_pure_code_agree_and_decide_as_state_in_memory(
    redis_server, adrs, policy, sent
):
    async def both() -> None:
        redis = await start(state_at(redis_server.url, f"{secrets.token_hex(8)}."))
        try:
            in_redis = await run(redis, policy, adrs, sent)
            in_memory = await run(MemoryState(), policy, adrs, sent)
            assert [d.to_bytes() for d in in_redis] == [d.to_bytes() for d in in_memory]
        finally:
            await redis.close()

    asyncio.run(both())


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(policy=policies, sent=st.lists(records, min_size=1, max_size=10), later=st.lists(records, max_size=4))
def test_after_a_rebuild_from_what_was_published_everything_is_decided_as_before(
    redis_server, adrs, policy, sent, later
):
    """Re-sent or new: the same bytes from the state that was there and from the one that was rebuilt."""

    async def compare() -> None:
        before = MemoryState()
        published = await run(before, policy, adrs, sent)
        latest = {(d.user_id, d.kind, d.subject_id): d for d in sorted(published, key=lambda d: d.revision)}
        stored = [stored_outcome(decision.to_bytes(), policy) for decision in latest.values()]
        rebuilt = await start(state_at(redis_server.url, f"{secrets.token_hex(8)}."))
        try:
            await rebuilt.reassert(stored)
            assert await rebuilt.queue_depth() == await before.queue_depth()
            new = [
                fields | {"response_id" if "response_id" in fields else "claim_id": f"new{n}"}
                for n, fields in enumerate(later)
            ]
            worlds = [
                World(policy=policy, state=state, verifier=verifier(adrs), offset=50)
                for state in (before, rebuilt)
            ]
            for fields in new + sent:
                ours, theirs = [
                    (await world.results(dataclasses.replace(record(world, fields))))[0] for world in worlds
                ]
                assert type(ours) is type(theirs)
                if isinstance(ours, Decided):
                    assert theirs.decision.to_bytes() == ours.decision.to_bytes()
        finally:
            await rebuilt.close()

    asyncio.run(compare())

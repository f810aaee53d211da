"""The same record again, whatever has changed meanwhile: the same decision, byte for byte."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from dataclasses import fields, replace
from datetime import timedelta
from unittest.mock import DEFAULT, patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from groundwire.gate import build, claim_case, claims, record, response_case, responses
from groundwire.gate.build import Stamp
from groundwire.gate.claim_case import ClaimInputs, read_claim
from groundwire.gate.response_checks import read_response
from groundwire.gate.types import DeadLetter, Decided
from groundwire.messages.decisions import Decision, EvidenceObject, Kind, PolicyName, ReasonCode
from groundwire.messages.identity import subject_of_decision
from groundwire.policy import Policy
from groundwire.replay.derive import rederive
from groundwire.replay.inputs import Inputs, read_record
from groundwire.replay.rebuild import stored_outcome
from groundwire.state.memory import MemoryState
from groundwire.state.policies import PolicyStore
from tests.unit.gate.world import GROUNDED, NOW, RESPONSES, World, adr_folder, summary, verifier

TEXT = "the ingest service retries every failed upload five times before it gives up and raises an alarm"

# claims with every outcome, in the order in which they are sent
SCRIPT = [
    ("a", TEXT, {"source": "user"}, "trusted_source"),
    ("b", TEXT + ".", {"source": "user"}, "duplicate"),
    ("c", "The API returns JSON", {"captured_at": "2026-01-01T00:00:00.5Z"}, "ungrounded"),
    ("d", "The API returns JSON!", {}, "pending_duplicate"),
    ("e", "It may fail", {"metadata": {"n": [1, 2.5, "ü"], "big": 10**30}}, "technical_hedge"),
    ("f", "Maybe", {}, "personal_speculation"),
    ("g", "Per ADR-003 we use PostgreSQL", {}, "verified_citation"),
    ("h", "Per ADR-999 we use magic", {}, "citation_unverified"),
    ("i", "Old news", {"validity_horizon": "2025-01-01T00:00:00Z"}, "expired"),
    ("j", "Rests on c", {"source": "user", "derived_from": ["c", "a", "zz"]}, "derived_from_unapproved"),
    ("k", "Rests on what is approved", {"source": "user", "derived_from": ["a"]}, "trusted_source"),
    ("l", TEXT + " never", {"source": "user"}, "conflicting_near_duplicate"),
    ("m", "I like tabs", {"source": "chat", "memory_type": "preference"}, "stated_preference"),
    ("n", "We chose Go", {"source": "conversation", "memory_type": "decision"}, "stated_decision"),
    ("o", "One too many", {}, "review_queue_full"),
]
LIMITED = Policy.model_validate({"limits": {"review_per_user": 5}})


@pytest.fixture
def world(tmp_path):
    return World(policy=LIMITED, verifier=verifier(adr_folder(tmp_path / "adrs", ADR_003="PostgreSQL")))


async def decide_all(world):
    records = [world.claim(name, text, **fields) for name, text, fields, _ in SCRIPT]
    return records, await world.decide(*records)


def same(some, others):
    assert [decision.to_bytes() for decision in some] == [decision.to_bytes() for decision in others]


async def test_the_same_records_give_the_same_bytes_in_batches_of_any_size_and_after_an_upgrade(world):
    """The first time the step's own payload is used, the second time what state recorded is read back."""
    for relevance in (True, False):
        world.state, world.offset, world.now = MemoryState(), 0, lambda: NOW
        world.policy = LIMITED.model_copy(update={"verify_claim_relevance": relevance})
        records, decisions = await decide_all(world)
        assert {decision.revision for decision in decisions} == {1}
        world.now = lambda: NOW + timedelta(days=1)
        same(await world.decide(*records), decisions)
        same(await world.decide(*reversed(records)), reversed(decisions))
    assert [str(decision.reason_code) for decision in decisions] == [reason for *_, reason in SCRIPT]
    with patch.object(build, "__version__", "99.0"):
        same(await world.decide(*records), decisions)
    world.now = lambda: NOW
    for size in (1, 2, 4, 15):
        world.state = MemoryState()
        found = []
        for start in range(0, len(records), size):
            found += await world.decide(*records[start : start + size])
        same(found, decisions)


async def test_a_decision_is_made_as_it_would_be_validated(world):
    def with_types(value):
        """Every value with its type, all the way down: a str and an enum of it are equal, and not the same."""
        if isinstance(value, BaseModel):
            fields_ = {name: with_types(item) for name, item in value.__dict__.items() if name != "wire"}
            return type(value), fields_
        if isinstance(value, EvidenceObject):
            return EvidenceObject, {
                each.name: with_types(getattr(value, each.name)) for each in fields(value)
            }
        if isinstance(value, list):
            return [with_types(item) for item in value]
        return type(value), value

    _, decisions = await decide_all(world)
    for decision in decisions:
        read_back = Decision.model_validate_json(decision.to_bytes())
        assert with_types(decision) == with_types(read_back)
        assert list(decision.__dict__)[: len(Decision.model_fields)] == list(Decision.model_fields)
    with pytest.raises(TypeError, match="PolicyName has no field 'other'"):
        PolicyName.made(version="1", sha256="0", other=1)
    with pytest.raises(PydanticSerializationError):
        PolicyName.made(version="1").model_dump_json()
    decision = await world.one("The API returns JSON")
    bytes_before = decision.to_bytes()
    changed = decision.model_copy(update={"reason": "another"})
    assert b'"reason":"another"' in changed.to_bytes()
    assert decision.to_bytes() == bytes_before == type(decision).model_validate_json(bytes_before).to_bytes()


async def test_another_record_with_other_metadata_and_capture_time_gives_the_same_bytes(world):
    """S0-122: nor is a claim its own duplicate. What was refused may be tried again, so it is left out."""
    _, decisions = await decide_all(world)
    changes = {"metadata": {"try": 2}, "captured_at": "2024-06-01T00:00:00Z"}
    records = [world.claim(name, text, **(fields | changes)) for name, text, fields, _ in SCRIPT]
    same((await world.decide(*records))[:-1], decisions[:-1])


async def test_the_recorded_policy_decides_and_where_it_is_not_known_verdict_reason_and_facts_stay(world):
    records, decisions = await decide_all(world)
    await world.policies.put(world.policy)
    hedges = {"block": ["service", "tabs", "chose"]}
    world.policy = Policy.model_validate({"trusted_sources": [], "hedges": hedges, "version": "new"})
    same(await world.decide(*records), decisions)
    world = World(policy=LIMITED, verifier=world.verifier)
    records, decisions = await decide_all(world)
    world.policies = PolicyStore(None, None)
    world.policy = Policy.model_validate({"trusted_sources": [], "attestation": "hmac", "version": "new"})
    kept = [
        "decision_id",
        "tier",
        "verdict",
        "reason",
        "reason_code",
        "facts",
        "policy",
        "decided_at",
        "origin",
    ]
    for again, before in zip(await world.decide(*records), decisions, strict=True):
        assert {name: getattr(again, name) for name in kept} == {name: getattr(before, name) for name in kept}


async def test_state_that_was_rebuilt_from_the_topics_gives_the_same_bytes_and_compares_with_the_same_claims(
    world,
):
    records, decisions = await decide_all(world)
    stored = [stored_outcome(decision.to_bytes(), world.policy) for decision in decisions]
    rebuilt = replace(world, state=MemoryState())
    assert await rebuilt.state.reassert(stored) == len(SCRIPT)
    same(await rebuilt.decide(*records), decisions)
    assert await rebuilt.state.queue_depth() == 5
    rebuilt.offset = world.offset
    new = {
        TEXT: "user",
        "The API returns JSON.": "ai_synthesis",
        "I like tabs": "chat",
        "It may fail": "user",
    }
    for number, (text, source) in enumerate(new.items()):
        before = await world.one(text, f"new{number}", source=source)
        assert (await rebuilt.one(text, f"new{number}", source=source)).to_bytes() == before.to_bytes()


async def test_a_refused_claim_is_decided_afresh_by_a_later_record_and_another_under_its_id_is_a_dead_letter(
    world,
):
    records, decisions = await decide_all(world)
    refused = decisions[-1]
    assert refused.retryable
    (same_record,) = await world.decide(records[-1])
    assert same_record.to_bytes() == refused.to_bytes()
    world.policy = Policy()
    fresh = await world.one("One too many", "o")
    assert summary(fresh) == ("tier_2", "ungrounded")
    assert (fresh.revision, fresh.supersedes) == (2, refused.decision_id)
    assert fresh.subject_origin == refused.origin
    await decide_all(world)
    (result,) = await world.results(world.claim("a", "Something else"))
    assert isinstance(result, DeadLetter)
    assert (result.error.code, result.error.field) == ("claim_id_conflict", "claim_id")
    assert "Something" not in result.error.message
    record = world.claim()
    results = await world.results(record, record)
    assert [result.fresh for result in results if isinstance(result, Decided)] == [True, False]


async def test_a_fault_while_a_record_is_read_again_changes_nothing_of_its_decision(world):
    records = [
        world.claim("g", "Per ADR-003 it holds and may snow"),
        world.response("r", **GROUNDED, fan_out=True),
    ]
    decisions = await world.decide(*records)
    for module, read in ((claims, read_claim), (responses, read_response)):
        with patch.object(module, read.__name__, side_effect=[MemoryError, DEFAULT], wraps=read):
            same(await world.decide(*records), decisions)


async def test_what_is_rebuilt_has_its_reason_by_its_code_however_an_engine_words_it(world):
    world.policy = Policy(failed_citation_overrides_trust=True, auto_approve_ai_synthesis=False)
    cited = "as ADR-999 says"
    records = [
        world.claim("branch", f"It holds, {cited}", source="chat"),
        world.claim("trusted", f"It snows, {cited}", source="user"),
        world.claim("verified", f"It rains per ADR-003, {cited}", source="chat"),
        world.claim("stated", f"We chose Go, {cited}", source="conversation", memory_type="decision"),
    ]
    decisions = await world.decide(*records)
    assert {str(decision.reason_code) for decision in decisions} == {"citation_unverified"}
    reworded = [decision.model_copy(update={"reason": "In other words"}) for decision in decisions]
    world.state = MemoryState()
    await world.state.reassert([stored_outcome(one.to_bytes(), world.policy) for one in reworded])
    same(await world.decide(*records), decisions)


async def test_a_record_whose_decision_cannot_be_built_is_an_internal_error_and_takes_no_other_along(world):
    """Its bytes are the same whenever it is sent again, and follow from the record and its facts."""
    text, world.policy = SCRIPT[0][1], Policy()
    sent = [
        world.claim("first", text, source="user"),
        world.claim("pending", "The API returns XML"),
        *(world.claim(f"poor{n}", f"{text} {n}", source="user") for n in range(2)),
        world.claim("poor-duplicate", text + ".", source="user"),
        world.claim("poor-joined", "The API returns XML!"),
        world.claim("in-one-batch", "It rests on it", source="user", derived_from=["poor0"]),
        world.claim("poor-expired", "Old", validity_horizon="2025-01-01T00:00:00Z"),
    ]
    sent += [world.response("good", **GROUNDED), world.response("poor", **GROUNDED, fan_out=True)]
    with ExitStack() as stack:
        for module, name in ((claim_case, "list_checks"), (response_case, "list_response_checks")):
            listed = getattr(module, name)

            def broken(case, *, listed=listed, **given):
                if "poor" in case.subject.subject_id and not case.facts.error:
                    raise KeyError("text")
                return listed(case, **given)

            stack.enter_context(patch.object(module, name, broken))
        decisions = await world.decide(*sent)
        same(await world.decide(*sent), decisions)
        held = [one for one in decisions if one.facts.error]
        states = await world.state.statuses([subject_of_decision(one) for one in held])
        assert [one.state.name for one in states] == [*["PENDING"] * 5, "BLOCKED", "REVIEW"]
        rests = await world.one("It rests on it", "rests", source="user", derived_from=["poor0"])
        assert summary(rests) == ("tier_2", "derived_from_unapproved")
    with patch.object(claim_case, "list_checks", side_effect=MemoryError), pytest.raises(MemoryError):
        await world.decide(*sent)
    codes = [summary(decision) for decision in decisions]
    error = "tier_2", "internal_error"
    assert codes[:2] + codes[8:9] == [
        ("tier_1", "trusted_source"),
        ("tier_2", "ungrounded"),
        ("tier_1", "grounded"),
    ]
    assert codes[2:7] + codes[9:] == [error] * 6
    assert codes[7] == ("tier_3", "expired")
    for record_, decision in zip(sent, decisions, strict=True):
        inputs = Inputs(record_.value, read_record(record_.value))
        assert rederive(decision, inputs, world.policy).to_bytes() == decision.to_bytes()


async def test_what_is_no_final_decision_of_a_claim_is_not_stored_and_what_was_not_compared_is_not_indexed(
    world,
):
    for value in (b"", b"{}", b"null", b"\xff", b"[" * 10_000):
        assert stored_outcome(value, world.policy) is None
    provisional = await world.provisional(world.claim())
    assert stored_outcome(provisional.to_bytes(), world.policy) is None
    response = (await world.one("x y z")).model_copy(update={"kind": Kind.RESPONSE, "evidence": None})
    assert stored_outcome(response.to_bytes(), world.policy) is None
    decision = await world.one("Snow is white", "c2")
    failed = decision.facts.dedup.model_copy(update={"status": "failed"})
    facts = decision.facts.model_copy(update={"dedup": failed})
    assert stored_outcome(decision.to_bytes(), world.policy).dedup is not None
    assert stored_outcome(decision.model_copy(update={"facts": facts}).to_bytes(), world.policy).dedup is None


@given(
    base=st.sampled_from(ReasonCode),
    cap=st.none() | st.sampled_from(ReasonCode),
    metadata=st.dictionaries(st.text(max_size=3), st.integers()),
)
def test_what_state_keeps_is_read_back_as_it_was_written(base, cap, metadata):
    stamp = Stamp(NOW + timedelta(1), "0.1.0", "ab" * 32, "default")
    payload = record.ClaimPayload(stamp, "", base, cap, NOW, metadata, ClaimInputs({}))
    assert record.ClaimPayload.from_bytes(payload.to_bytes()) == payload
    assert b"\n" not in payload.to_bytes()
    assert record.ClaimPayload.from_bytes(replace(payload, scheme="x\n").to_bytes()).scheme == "x\n"


async def test_nothing_keeps_a_refused_record_once_its_batch_is_settled():
    start = b'{"response_id": "forgotten'
    field_refused = start + b'", "user_id": "u", "answer": "Yes.", "context": null}'
    for value in (field_refused, start + b'", "user_id": "u", "answer": 1}', start):
        world = World()
        for _ in range(3):
            results = await world.results(world.record(value, topic=RESPONSES))
            assert isinstance(results[0], DeadLetter)
        del results
        gc.collect()
        assert not [one for one in gc.get_objects() if type(one) is DeadLetter and one.record.value == value]

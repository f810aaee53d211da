"""Responses at the gate: verdicts and their order, signed grounding, and what is derived again."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, patch

import pytest

from groundwire.epistemic.types import VerificationConfig
from groundwire.errors import StateUnavailable
from groundwire.gate import kinds, response_checks
from groundwire.gate.gate import Gate, Lookups
from groundwire.gate.response_case import fan_out
from groundwire.gate.types import DeadLetter
from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import ATTESTATION
from groundwire.policy import Limits, Policy
from groundwire.replay.rebuild import stored_outcome
from groundwire.state.memory import MemoryState
from groundwire.state.policies import PolicyStore
from tests.unit.gate.world import CODE, GROUNDED, World, chunk, resolver, response_bytes, summary


async def decide(world: World | None = None, **fields: Any) -> Decision:
    return await decide_exactly({**GROUNDED, **fields}, world)


async def test_the_first_rule_that_applies_decides():
    here, other = {"file": "src/search.py"}, {"file": "src/other.py"}
    stale = {"chunks": [{**CODE, "revision": "a1"}], "current_revisions": {"src/search.py": "b2"}}
    triple = {"claims": [{"subject": "a", "relation": "r", "object": "b"}], "relations": []}
    entity = {"entities": [{"id": "e"}], "corpus_index": {}}
    table = [
        ({}, "tier_1", "grounded"),
        ({"sources": [other]}, "tier_3", "low_confidence"),
        ({"sources": [other, here]}, "tier_2", "phantom_source"),
        ({"answer": "Call `search` [source:2]."}, "tier_2", "phantom_source"),
        ({"sources": [{**here, "snippet": "x = 1"}]}, "tier_2", "snippet_mismatch"),
        ({"sources": [{**here, "start_line": 2, "end_line": 9}]}, "tier_2", "snippet_mismatch"),
        (
            {"answer": "Call `search` or `find` with `top_k` or `fuzz` [source:1]."},
            "tier_2",
            "unverified_fields",
        ),
        (stale, "tier_2", "stale_index"),
        ({"transcript": "I slept.", "evidence": {"a": ["I slept", "I wept"]}}, "tier_2", "quotes_rejected"),
        ({"transcript": "I do not sleep.", "evidence": {"a": ["sleep"]}}, "tier_2", "quote_polarity"),
        ({"answer": "Call `search`; the timeout is 90 s [source:1]."}, "tier_2", "flagged_claims"),
        ({"confidence": 0.69}, "tier_2", "low_confidence"),
        ({"confidence": 0.7}, "tier_1", "grounded"),
        ({"confidence": 0.3}, "tier_2", "low_confidence"),
        ({"confidence": 0.29}, "tier_3", "low_confidence"),
        (entity, "tier_3", "entity_grounding_failed"),
        (entity | {"sources": [other], "confidence": 0.2}, "tier_3", "entity_grounding_failed"),
        (triple, "tier_3", "relation_preservation_failed"),
        ({"answer": "Yes."}, "tier_2", "nothing_to_ground_on"),
        ({"answer": "Yes.", "chunks": None}, "tier_2", "nothing_to_ground_on"),
        ({"answer": "Yes.", "sources": [], "entities": []}, "tier_2", "nothing_to_ground_on"),
    ]
    wrong = []
    for fields, tier, code in table:
        given = {name: value for name, value in {**GROUNDED, **fields}.items() if value is not None}
        if (found := summary(await decide_exactly(given))) != (tier, code):
            wrong.append((fields, found))
    assert wrong == []


async def decide_exactly(given: dict[str, Any], world: World | None = None) -> Decision:
    world = world or World()
    (decision,) = await world.decide(world.response(**given))
    return decision


async def test_quotes_block_and_are_checked_as_the_policy_says():
    """S1-04, S1-40."""
    fields = {"transcript": "I slept.", "evidence": {"a": ["I wept"]}}
    assert summary(await decide(**fields)) == ("tier_2", "quotes_rejected")
    strict = await decide(World(policy=Policy(evidence_quote_fail_on_all_rejected=True)), **fields)
    assert summary(strict) == ("tier_3", "quotes_rejected")
    assert strict.report["quotes"]["failure"] == {
        "category": "EVIDENCE_HALLUCINATION",
        "severity": "ERROR",
        "stage": "evidence_extraction",
        "extracted_count": 1,
        "mode": "substring",
    }
    # S1-43
    world = World(policy=Policy(evidence_quote_validation_enabled=False))
    decision = await decide(world, transcript="I slept.", evidence={"a": ["I wept"]})
    assert decision.approved
    assert "quotes_skipped: disabled" in decision.checks_skipped


async def test_a_check_that_breaks_takes_the_response_to_review_and_no_other_check_along():
    whole_parts: dict[str, Any] = {
        "sources": [{"file": "src/search.py"}],
        "transcript": "I slept.",
        "evidence": {"a": ["I slept"]},
        "claims": [{"subject": "a", "relation": "r", "object": "b"}],
        "relations": [{"subject": "a", "relation": "r", "object": "b"}],
    }
    for check, function in (
        ("sources", "verify_sources"),
        ("fields", "FieldChecker"),
        ("quotes", "ground_quotes"),
        ("values", "check_values"),
        ("relations", "preserve_relations"),
        ("claims", "plan_response"),
    ):
        with patch.object(response_checks, function, side_effect=KeyError("text of the record")):
            decision = await decide(**whole_parts)
        assert summary(decision) == ("tier_2", "check_unavailable")
        assert decision.facts.error == f"{check}=KeyError"
        unavailable = [name for name in decision.checks_failed if name.endswith("_unavailable")]
        assert unavailable == [f"{check}_unavailable"]


async def test_a_response_that_breaks_the_gate_itself_goes_to_review_with_state_and_without():
    """S0-23; and it says what broke: the decision follows from its facts."""
    world = World()
    with patch("groundwire.gate.responses.read_response", side_effect=RuntimeError("text")):
        (decision,) = await world.decide(world.response(**GROUNDED))
        provisional = await world.provisional(world.response(**GROUNDED))
    for one in (decision, provisional):
        assert summary(one) == ("tier_2", "internal_error")
        assert "internal=RuntimeError" in one.facts.error
        assert "text" not in one.to_bytes().decode()
    build, outcomes = kinds.build_decision, [RuntimeError("text"), DEFAULT]
    with patch.object(kinds, "build_decision", wraps=build, side_effect=outcomes) as called:
        decision = await world.provisional(world.response(**GROUNDED))
    assert called.call_count == 2
    assert summary(decision) == ("tier_2", "internal_error")


async def test_the_same_response_again_gets_the_same_bytes_and_another_one_is_a_conflict():
    world = World()
    first = await decide_exactly({**GROUNDED, "metadata": {"a": 1}}, world)
    again = await decide_exactly({**GROUNDED, "metadata": {"b": 2}}, world)
    assert first.to_bytes() == again.to_bytes()
    (other,) = await world.results(world.response(answer="Another."))
    assert isinstance(other, DeadLetter)
    assert (other.error.code, other.error.field) == ("claim_id_conflict", "response_id")
    chunks = {"chunks": [{**CODE, "revision": "1"}]}
    hops = {"claims": [], "relations": [], "transcript": "x y"}
    for fields, name, one, other in (
        (hops, "evidence", {"a": ["x"], "b": ["y"]}, {"b": ["y"], "a": ["x"]}),
        (hops, "hop_results", [{"x": 1, "y": 2}], [{"y": 2.0, "x": 1.0}]),
        (
            chunks,
            "current_revisions",
            {"src/search.py": "1", "./src/search.py": "2"},
            {"./src/search.py": "2", "src/search.py": "1"},
        ),
    ):
        world = World()
        first = await decide_exactly({**GROUNDED, **fields, name: one}, world)
        second = {**GROUNDED, **fields, name: other}
        assert (await decide_exactly(second, world)).to_bytes() == first.to_bytes()
        assert (await decide_exactly(second)).reason_code == first.reason_code


async def test_a_response_is_a_subject_of_its_own_on_which_a_claim_may_rest_once_it_is_approved():
    world = World()
    response, claim = await world.decide(world.response("x", **GROUNDED), world.claim("x", source="user"))
    assert (response.kind, claim.kind) == ("response", "claim")
    assert response.approved
    assert claim.approved
    world = World()
    await world.decide(world.response("good", **GROUNDED), world.response("poor", "Yes."))
    rests = await world.one("It has a search", "c1", source="user", derived_from=["response:good"])
    doubts = await world.one("It has no printer", "c2", source="user", derived_from=["response:poor"])
    assert rests.approved
    assert summary(doubts) == ("tier_2", "derived_from_unapproved")
    assert [parent.state for parent in doubts.facts.parents] == ["review"]


async def test_a_response_in_review_takes_no_place_unless_people_are_asked():
    """C-65."""
    world = World()
    await decide_exactly({"answer": "Yes."}, world)
    assert await world.state.queue_depth() == 0
    asking = World(
        policy=Policy(verification=VerificationConfig(on_failure="ask"), limits=Limits(review_per_user=1))
    )
    first, second = await asking.decide(asking.response("r1"), asking.response("r2"))
    assert (first.facts.place, summary(first)) == ("free", ("tier_2", "nothing_to_ground_on"))
    assert "review_place" in first.checks_passed
    assert (second.facts.place, summary(second)) == ("user_full", ("tier_3", "review_queue_full"))
    assert second.retryable
    assert "review_queue_full: user" in second.checks_failed


async def test_claims_of_a_response_are_recorded_and_sent_on_or_the_decision_says_that_they_are_not():
    """X-15, S2-22; those of a blocked response are not."""
    world = World(policy=Policy(limits=Limits(max_claims_per_response=2)))
    answer = "The worker calls `search`. Maybe we could call it twice. The index holds every `query`."
    decision = await decide_exactly({**GROUNDED, "answer": answer, "fan_out": True}, world)
    claims = fan_out(decision)
    assert [claim.claim_id for claim in claims] == ["r1#1", "r1#2"]
    assert [claim.content for claim in claims] == decision.facts.extraction
    assert {(claim.source, claim.source_id, *claim.derived_from) for claim in claims} == {
        ("ai_synthesis", "response:r1", "response:r1")
    }
    assert [claim.tenant_id for claim in claims] == ["default"] * 2
    assert not fan_out(decision.model_copy(update={"tier": "tier_3"}))
    unseen = (
        "<!-- The worker calls a query -->\n\nThe worker calls `search`.\n\n<b The index holds each query>"
    )
    world = World()
    (commented,) = await world.decide(world.response(**{**GROUNDED, "answer": unseen}, fan_out=True))
    sent = [(claim.claim_id, claim.content) for claim in fan_out(commented)]
    assert sent == [("r1#2", "The worker calls `search`.")]
    assert "fan_out_skipped: disabled" not in decision.checks_skipped
    world = World()
    around = (world.policy, world.policies, world.state, Lookups(world.verifier))
    gate = Gate(*around, keys=world.keys, now=world.now, fan_out=False)
    batch = await gate.prepare([world.response(**GROUNDED, fan_out=True)])
    (result,) = await gate.apply_step(batch)
    assert "fan_out_skipped: disabled" in result.decision.checks_skipped
    assert not fan_out(result.decision)


async def test_a_weak_answer_asks_for_the_next_lower_mode_and_ends_in_raw_sources():
    """S2-24, S2-25."""
    world = World()
    seen = []
    for number, replaced in ((1, None), (2, "r1"), (3, "r2")):
        more = {"in_reply_to": replaced} if replaced else {}
        record = world.response(
            f"r{number}", **GROUNDED, mode="thinking", confidence=0.49, query="How?", **more
        )
        (result,) = await world.results(record)
        asked = result.request and (result.request.mode, result.request.attempt)
        seen.append((asked, result.decision.report["fallback"]))
    assert seen == [(("auto", 1), None), (("instant", 2), None), (None, "raw_sources")]
    world = World()
    fields = {**GROUNDED, "mode": "thinking", "confidence": 0.4, "query": "How?"}
    _, second = await world.results(
        world.response("r1", **fields), world.response("r2", **fields, in_reply_to="r1")
    )
    assert second.decision.facts.reply_to == {"response_id": "r1", "mode": "auto", "attempt": 0}
    # A generator that invents `in_reply_to` must not keep itself busy for ever
    world = World()
    fields = {**GROUNDED, "mode": "thinking", "confidence": 0.4, "query": "How?"}
    (result,) = await world.results(world.response("r2", **fields, in_reply_to="gone"))
    assert result.request is None
    assert result.decision.facts.reply_to == {"response_id": "gone", "mode": None, "attempt": None}
    assert result.decision.report["attempt"] is None
    assert result.decision.report["fallback"] is None, "the chain has not ended: nobody knows where it is"


async def test_what_a_corpus_answers_is_recorded_outranks_the_response_and_is_waited_for():
    truth = {"subject": "acme", "relation": "sued", "object": "globex"}
    world = World(resolver=resolver({"e1": {"confidence": 0.9}}, [truth]))
    fields = {"answer": "Yes.", "entities": [{"id": "e1"}], "claims": [truth]}
    first = await decide_exactly(fields, world)
    assert summary(first) == ("tier_1", "grounded")
    assert (first.facts.entities, first.facts.relations) == ({"e1": {"confidence": 0.9}}, [truth])
    world.resolver = resolver({})
    assert (await decide_exactly(fields, world)).to_bytes() == first.to_bytes()
    fields = {"answer": "Yes.", "entities": [{"id": "e1"}], "corpus_index": {"e1": {"confidence": 0.6}}}
    for known, code in (({}, "entity_grounding_failed"), ({"e1": {"confidence": 0.9}}, "grounded")):
        decision = await decide_exactly(fields, World(resolver=resolver(known)))
        assert (decision.reason_code, decision.facts.entities) == (code, known)
    # A moment without Redis must not become a review that is final
    asked = resolver({"e1": {"confidence": 0.9}}, fault=StateUnavailable("HMGET"))
    world = World(resolver=asked)
    gate = world.gate
    batch = await gate.prepare([world.response(answer="Yes.", entities=[{"id": "e1"}])])
    with pytest.raises(StateUnavailable):
        await gate.apply_step(batch)
    asked.corpus.fault = None
    (result,) = await gate.apply_step(batch)
    assert summary(result.decision) == ("tier_1", "grounded")


async def test_state_that_is_rebuilt_from_the_topics_derives_the_same_bytes():
    """A changed policy keeps what was decided."""
    asking = {"mode": "thinking", "confidence": 0.4, "query": "How?", "fan_out": True}
    for fields in ({}, {"answer": "Yes."}, {"confidence": 0.1}, asking):
        world, given = World(), {**GROUNDED, **fields}
        first = await decide_exactly(given, world)
        stored = stored_outcome(first.to_bytes(), world.policy)
        assert stored is not None
        rebuilt = replace(world, state=MemoryState())
        assert await rebuilt.state.reassert([stored]) == 1
        assert (await decide_exactly(given, rebuilt)).to_bytes() == first.to_bytes()
        (reply,) = await rebuilt.decide(rebuilt.response("r2", **GROUNDED, in_reply_to="r1"))
        (before,) = await world.decide(world.response("r2", **GROUNDED, in_reply_to="r1"))
        assert reply.facts.reply_to == before.facts.reply_to
    world = World(policies=PolicyStore(None, None))
    fields = {"transcript": "I slept.", "evidence": {"a": ["I wept"]}}
    first = await decide(world, **fields)
    await world.policies.put(world.policy)
    changed = replace(world, policy=Policy(evidence_quote_fail_on_all_rejected=True))
    again = await decide(changed, **fields)
    assert again.to_bytes() == first.to_bytes()
    forgotten = replace(changed, policies=PolicyStore(None, None))
    kept = await decide(forgotten, **fields)
    assert (summary(kept), kept.policy) == (summary(first), first.policy)


async def test_a_record_is_read_as_its_topic_says_and_a_line_of_a_file_as_it_says_itself():
    world = World()
    claim = replace(world.claim(), topic="groundwire.llm-responses")
    response = replace(world.response(), topic="groundwire.claims")
    for result in await world.results(claim, response):
        assert isinstance(result, DeadLetter)
        assert result.error.code == "invalid_record"
    world = World()
    lines = [
        replace(world.record(response_bytes("r1", **GROUNDED)), topic=None),
        replace(world.claim(), topic=None),
    ]
    assert [decision.kind for decision in await world.decide(*lines)] == ["response", "claim"]


KEYS = Keys.parse(
    b"""
[keys.retriever]
secret = "one"
tenants = ["default"]
roles = ["grounding"]
not_after = 2026-06-01T00:00:00Z

[keys.console]
secret = "two"
tenants = ["default"]
roles = ["reviewer"]

[keys.stranger]
secret = "three"
tenants = ["other"]
roles = ["grounding"]
""",
    Path("keys.toml"),
)
TEXT = "The gate keeps a journal of each decision."
HMAC = Policy(attestation="hmac")
GIVEN = {
    "chunks": {"chunks": [chunk(TEXT)]},
    "context": {"context": {"a": TEXT}},
    "transcript": {"transcript": TEXT, "evidence": {"a": [TEXT]}},
    "corpus_index": {"corpus_index": {"e": {"confidence": 1.0}}, "entities": [{"id": "e"}]},
    "relations": {
        "relations": [{"subject": "a", "relation": "owns", "object": "b"}],
        "claims": [{"subject": "a", "relation": "owns", "object": "b"}],
    },
}


async def decided(key: str | None, policy: Policy = HMAC, *, year: int = 2026, **fields):
    world = World(policy=policy, keys=KEYS)
    world.now = lambda: datetime(year, 1, 1, tzinfo=UTC)
    record = world.record(response_bytes("r", TEXT, **fields), topic="gw.llm-responses")
    if key is not None:
        record = replace(record, headers=((ATTESTATION, KEYS.sign(key, record.value)),))
    (decision,) = await world.decide(record)
    return decision


async def test_only_what_a_valid_key_of_role_and_tenant_signed_for_grounds_where_somebody_has_to_sign():
    """A provisional decision has the same bytes before and after the key expired."""
    for given in GIVEN.values():
        unsigned = await decided(None, **given)
        assert summary(unsigned) == ("tier_2", "grounding_unattested")
        assert "grounding_unattested" in unsigned.checks_failed
        signed = await decided("retriever", **given)
        assert summary(signed) == ("tier_1", "grounded")
        assert "grounding_attested" in signed.checks_passed
        assert signed.facts.attestation == {"key_id": "retriever", "state": "valid"}
    off = await decided(None, Policy(), **GIVEN["chunks"])
    assert summary(off) == ("tier_1", "grounded")
    bare = await decided(None)
    assert summary(bare) == ("tier_2", "nothing_to_ground_on")
    checks = [*off.checks_passed, *off.checks_failed, *bare.checks_passed, *bare.checks_failed]
    assert not [check for check in checks if check.startswith("grounding")]
    decision = await decided(None, entities=[{"id": "x"}], corpus_index={})
    assert summary(decision) == ("tier_3", "entity_grounding_failed")
    for key, year in (("console", 2026), ("stranger", 2026), ("retriever", 2030)):
        assert (await decided(key, year=year, **GIVEN["chunks"])).reason_code == "grounding_unattested"
    made = []
    for year in (2026, 2030):
        world = World(policy=HMAC, keys=KEYS)
        world.now = lambda year=year: datetime(year, 1, 1, tzinfo=UTC)
        value = response_bytes("r", TEXT, **GIVEN["chunks"])
        record = world.record(value, topic="gw.llm-responses")
        record = replace(record, headers=((ATTESTATION, KEYS.sign("retriever", value)),))
        (provisional,) = world.gate.provisional(await world.gate.prepare([record]))
        made.append(provisional.decision.to_bytes())
    assert made[0] == made[1]
    assert json.loads(made[0])["facts"]["attestation"]["state"] == "valid"


async def test_a_bypass_is_recorded_and_never_approved_where_there_is_something_to_compare_the_answer_with():
    """S4-37, C-64."""
    enabled, disabled = (
        Policy(check_values=False),
        Policy(check_values=False, verification={"enabled": False}),
    )
    for bypass, policy, why in (
        ({"verify": False}, enabled, "bypassed"),
        ({"query": "/simple how?"}, enabled, "bypassed"),
        ({"verify": False}, disabled, "bypassed"),
        ({}, disabled, "disabled"),
    ):
        for given in ("chunks", "context"):
            decision = await decided(None, policy, **GIVEN[given], **bypass)
            reason = "verification_bypassed" if bypass else "nothing_to_ground_on"
            assert summary(decision) == ("tier_2", reason)
            assert f"claims_skipped: {why}" in decision.checks_skipped
            assert decision.report["epistemic"] is None
    quoted = await decided(None, Policy(), verify=False, **GIVEN["transcript"])
    assert quoted.reason_code == "grounded", "judged by what else there is"
    for quote in ("e", "the gate", "keeps a journal of each", "The gate keeps a journal"):
        decision = await decided(None, Policy(), transcript=TEXT, evidence={"a": [quote]})
        long_enough = quote.startswith("The")
        assert decision.reason_code == ("grounded" if long_enough else "nothing_to_ground_on")
        assert "quotes_grounded" in decision.checks_passed

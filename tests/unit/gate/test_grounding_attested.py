"""Who says what a model was given: under attestation a key with the role `grounding`, else nothing rests on it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from groundwire.keys.attestation import Keys
from groundwire.messages.headers import ATTESTATION
from groundwire.policy import Policy
from tests.unit.gate.world import World, chunk, response_bytes, summary

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


async def test_a_provisional_decision_has_the_same_bytes_before_and_after_the_key_expired():
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

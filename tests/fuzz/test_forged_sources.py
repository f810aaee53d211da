"""Signatures that are not worth what they are shown for: at the gate, and on what people decide."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from groundwire.gate.types import Acted, Refused
from groundwire.keys.attestation import Keys
from groundwire.policy import Policy
from tests.unit.gate.test_review_gate import Office
from tests.unit.gate.world import World

KEYS = """
[keys.docs]
secret = "one"
tenants = ["default"]
sources = ["documentation"]
[keys.late]
secret = "two"
tenants = ["default"]
sources = ["documentation"]
not_after = 2026-01-01T00:00:00Z
[keys.globex]
secret = "three"
tenants = ["globex"]
sources = ["documentation"]
[keys.people]
secret = "four"
tenants = ["default"]
roles = ["reviewer"]
"""
OTHERS = (
    KEYS.replace('"one"', '"guessed"')
    + '[keys.nobody]\nsecret = "five"\ntenants = ["default"]\nsources = ["documentation"]\n'
)


def claim(**changes):
    fields = {"claim_id": "c", "user_id": "ada", "content": "Snow is white", "source": "documentation"}
    return json.dumps(fields | changes).encode()


def decided_with(header, value=None):
    async def decide():
        world = World(policy=Policy(attestation="hmac"), keys=Keys.parse(KEYS.encode(), Path("keys.toml")))
        headers = (("gw-attestation", header),) if header else ()
        (decision,) = await world.decide(world.record(value or claim(), headers=headers))
        return decision

    return decide()


def signed(key, value=None, keys=KEYS):
    return Keys.parse(keys.encode(), Path("keys.toml")).sign(key, value or claim())


async def test_what_is_signed_by_a_key_that_may_is_approved():
    """Else nothing below would show anything."""
    assert (await decided_with(signed("docs"))).reason_code == "trusted_source"


@pytest.mark.parametrize(
    ("header", "state"),
    [
        (None, None),
        (signed("docs", claim(content="Snow is black")), "invalid"),  # replayed on another body
        (signed("docs", claim() + b" "), "invalid"),  # the same claim in other bytes
        (signed("docs", claim(tenant_id="globex")), "invalid"),
        (signed("docs", keys=OTHERS), "invalid"),  # the right id, another secret
        (signed("nobody", keys=OTHERS), "unknown_key"),
        (signed("late"), "expired"),
        (signed("globex"), "not_entitled"),  # another tenant's
        (signed("people"), "not_entitled"),  # a reviewer's key speaks for no source
        (signed("docs").replace(b"docs:", b"globex:"), "invalid"),  # one key's signature under another's id
        (signed("docs")[:-2], "invalid"),
        (b"docs:", "invalid"),
        (b"\xff\xfe", None),
    ],
)
async def test_a_source_that_nobody_vouches_for_is_ai_synthesis_and_is_held(header, state):
    decision = await decided_with(header)
    assert (decision.approved, decision.reason_code) == (False, "source_unattested")
    assert (decision.facts.attestation or {}).get("state") == state


async def test_a_signature_for_one_source_vouches_for_no_other():
    value = claim(source="user")
    decision = await decided_with(signed("docs", value), value)
    assert (decision.approved, decision.facts.attestation["state"]) == (False, "not_entitled")


async def test_the_first_of_two_signatures_counts_and_no_other_is_tried():
    world = World(policy=Policy(attestation="hmac"), keys=Keys.parse(KEYS.encode(), Path("keys.toml")))
    headers = (("gw-attestation", signed("nobody", keys=OTHERS)), ("gw-attestation", signed("docs")))
    (decision,) = await world.decide(world.record(claim(), headers=headers))
    assert not decision.approved


@pytest.mark.parametrize("change", ["body", "unknown", "expired", "tenant", "role", "missing", "replayed"])
async def test_an_action_that_nobody_vouches_for_changes_nothing(change):
    office = Office()
    pending = await office.one("The ingest service retries every failed upload five times")
    record = office.action("approve", pending)
    value = record.value
    keys = {"expired": "late", "tenant": "gate", "role": "docs"}
    if change in keys:
        record = office.action("approve", pending, key=keys[change])
    elif change == "missing":
        record = office.record(value, topic=record.topic)
    else:
        (name, header), *_ = record.headers
        header = header.replace(b"console:", b"nobody:") if change == "unknown" else header
        if change == "body":
            value = value.replace(b'"approve"', b'"retract"')
        elif change == "replayed":  # a good signature of an earlier action, on another subject's
            value = value.replace(b'"c1"', b'"c2"')
            await office.one("The export service is written in Rust and deployed on Mondays", "c2")
        record = office.record(value, headers=((name, header),), topic=record.topic)
    (result,) = await office.carry_out(record)
    assert isinstance(result, Refused)
    assert result.code == "unattested"
    assert isinstance(await office.act("approve", pending), Acted), "the claim is still to be decided"

"""Signatures that are not worth what they are shown for: at the gate, and on what people decide."""

from __future__ import annotations

import json
from pathlib import Path

from groundwire.gate.types import Acted, Refused
from groundwire.keys.attestation import Keys
from groundwire.policy import Policy
from tests.unit.gate.office import Office
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


def signed(key, value=None, keys=KEYS):
    return Keys.parse(keys.encode(), Path("keys.toml")).sign(key, value or claim())


async def decided_with(*headers, value=None):
    world = World(policy=Policy(attestation="hmac"), keys=Keys.parse(KEYS.encode(), Path("keys.toml")))
    attested = tuple(("gw-attestation", header) for header in headers if header)
    (decision,) = await world.decide(world.record(value or claim(), headers=attested))
    return decision


async def test_a_source_that_nobody_vouches_for_is_ai_synthesis_and_is_held():
    assert (await decided_with(signed("docs"))).reason_code == "trusted_source"
    cases = {
        "unsigned": (None, None),
        "replayed on another body": (signed("docs", claim(content="Snow is black")), "invalid"),
        "the same claim in other bytes": (signed("docs", claim() + b" "), "invalid"),
        "another tenant": (signed("docs", claim(tenant_id="globex")), "invalid"),
        "the right id, another secret": (signed("docs", keys=OTHERS), "invalid"),
        "a key that is not there": (signed("nobody", keys=OTHERS), "unknown_key"),
        "a key that has ended": (signed("late"), "expired"),
        "another tenant's key": (signed("globex"), "not_entitled"),
        "a reviewer's key": (signed("people"), "not_entitled"),
        "under another id": (signed("docs").replace(b"docs:", b"globex:"), "invalid"),
        "cut off": (signed("docs")[:-2], "invalid"),
        "empty": (b"docs:", "invalid"),
        "no text": (b"\xff\xfe", None),
    }
    wrong = []
    for name, (header, state) in cases.items():
        decision = await decided_with(header)
        found = decision.approved, decision.reason_code, (decision.facts.attestation or {}).get("state")
        if found != (False, "source_unattested", state):
            wrong.append((name, found))
    assert wrong == []


async def test_a_signature_for_one_source_vouches_for_no_other():
    value = claim(source="user")
    decision = await decided_with(signed("docs", value), value=value)
    assert (decision.approved, decision.facts.attestation["state"]) == (False, "not_entitled")
    assert not (await decided_with(signed("nobody", keys=OTHERS), signed("docs"))).approved


async def test_an_action_that_nobody_vouches_for_changes_nothing():
    wrong = []
    for change in ("body", "unknown", "expired", "tenant", "role", "missing", "replayed"):
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
            elif change == "replayed":  # a good signature of an earlier action, on another subject
                value = value.replace(b'"c1"', b'"c2"')
                await office.one("The export service is written in Rust and deployed on Mondays", "c2")
            record = office.record(value, headers=((name, header),), topic=record.topic)
        (result,) = await office.carry_out(record)
        after = await office.act("approve", pending)  # the claim is still to be decided
        if not isinstance(result, Refused) or result.code != "unattested" or not isinstance(after, Acted):
            wrong.append((change, result))
    assert wrong == []

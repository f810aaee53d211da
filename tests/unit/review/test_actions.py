"""People's decisions as records, their outcomes, and the responses that they are about."""

import json
from pathlib import Path

import pytest

from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.keys.attestation import Keys
from groundwire.messages.base import sha256_hex
from groundwire.messages.decisions import AuditEvent, Kind
from groundwire.messages.decode import decode_review_decision
from groundwire.messages.headers import ATTESTATION
from groundwire.review.actions import (
    SENTENCES,
    ActionOutcome,
    ActionTarget,
    RejectReason,
    Signer,
    outcome_of,
    review_decision,
)
from groundwire.review.originals import OriginalState, has_original, read_original
from tests.unit.review.world import NOW, audit

TARGET = ActionTarget("acme", "ann", Kind.CLAIM, "c1", 3)


def test_a_decision_reads_back_as_the_gate_reads_it():
    for action, fields in (
        ("approve", {}),
        ("approve", {"note": "ok"}),
        ("reject", {"reason": "incorrect", "note": "JWT"}),
        ("edit", {"content": "Better."}),
        ("retract", {"reason": "outdated"}),
        ("retract", {}),
    ):
        made = review_decision(TARGET, action, "lead", **fields)
        read = decode_review_decision(made.model_dump_json(exclude_none=True).encode())
        assert read == made
        found = read.subject_id, read.expected_revision, read.reviewer, read.action
        assert found == ("c1", 3, "lead", action)
        assert {name: getattr(read, name) for name in fields} == fields
    first, second = (review_decision(TARGET, "approve", "ann") for _ in range(2))
    assert first.action_id != second.action_id
    assert review_decision(TARGET, "approve", "ann", action_id="mine").action_id == "mine"


def test_an_action_that_the_gate_would_refuse_is_refused_here_by_field():
    for action, fields, named in (
        ("reject", {}, "reason"),
        ("reject", {"reason": "because"}, "reason"),
        ("retract", {"reason": "Incorrect"}, "reason"),
        ("edit", {}, "content"),
        ("edit", {"content": ""}, "content"),
        ("edit", {"content": "x" * 20_001}, "content"),
        ("approve", {"content": "x"}, "content"),
        ("approve", {"note": "x" * 2_001}, "note"),
        ("expire", {}, "action"),
    ):
        with pytest.raises(UsageError, match=f"^{named}"):
            review_decision(TARGET, action, "ann", **fields)
    with pytest.raises(UsageError, match="expected_revision"):
        review_decision(ActionTarget("acme", "ann", Kind.CLAIM, "c1", 0), "approve", "ann")
    for content in (" ", "\n\t", "\u200b", "\u2800\u3164 \ufeff", "\u00a0\u2003\u00ad", "\x01\U000e0041"):
        with pytest.raises(UsageError, match=r"^content: The edited text is blank"):
            review_decision(TARGET, "edit", "ann", content=content)
        assert review_decision(TARGET, "edit", "ann", content=f"{content}.").content == f"{content}."
    reasons = "incorrect outdated not_verifiable duplicate sensitive off_topic other"
    assert [str(reason) for reason in RejectReason] == reasons.split(), "the reasons are a closed list"


def test_a_reviewers_key_signs_what_the_gate_accepts_and_another_is_refused():
    keys = Keys.parse(
        b'[keys.desk]\nsecret = "s"\ntenants = ["acme"]\nroles = ["reviewer"]\n'
        b'[keys.docs]\nsecret = "s"\ntenants = ["acme"]\nsources = ["adr"]\n',
        Path("keys.toml"),
    )
    signer = Signer(keys, "desk")
    header = dict(signer.headers(b"value"))[ATTESTATION].decode()
    assert keys.check(header, b"value", tenant="acme", at=NOW, role="reviewer").valid
    assert not keys.check(header, b"other", tenant="acme", at=NOW, role="reviewer").valid
    assert (signer.covers("acme"), signer.covers("globex")) == (True, False)
    for key_id, wrong in (("none", "no key 'none'"), ("docs", "role reviewer")):
        with pytest.raises(UsageError, match=wrong):
            Signer(keys, key_id)


def test_an_outcome_says_what_the_audit_says_in_one_sentence_for_each_code_and_an_unknown_one():
    def event(**changes):
        return AuditEvent.model_validate_json(audit(**changes).value)

    applied = outcome_of(event())
    assert applied == ActionOutcome("c1-action", True, "human_approved", 2, "approved", None)  # noqa: FBT003 - a field
    refused = outcome_of(event(applied=False))
    assert (refused.applied, refused.code, refused.verdict) == (False, "unauthorized", None)
    odd = outcome_of(event(detail={"revision": "2", "verdict": 1, "outcome": None}))
    assert (odd.revision, odd.verdict, odd.code) == (None, None, "unknown_code")
    for applied in (True, False):
        for code in [*SENTENCES, "of_a_later_version"]:
            sentence = ActionOutcome("a", applied, code, None, None, None).sentence
            assert (sentence[-1], sentence.count(". ")) == (".", 0)
    refusals = {"stale", "unknown", "not_pending", "not_approved", "waiting", "unattested", "unauthorized"}
    assert refusals <= SENTENCES.keys()


async def test_only_the_response_that_was_decided_is_read_back_from_its_topic():
    value = {"response_id": "r1", "tenant_id": "acme", "user_id": "ann", "answer": "Water is wet."}
    stored = json.dumps(value).encode()
    place = {"topic": "groundwire.llm-responses", "partition": 2, "offset": 41}

    def decided(value=stored, **changes):
        origin = {**place, "timestamp": "2026-01-01T00:00:00.000Z", "sha256": sha256_hex(value)}
        base = {"kind": "response", "tenant_id": "acme", "user_id": "ann", "subject_id": "r1"}
        return base | {"origin": origin, "subject_origin": None, "facts": {"review": None}} | changes

    first, other = decided()["origin"], json.dumps(value | {"answer": "Water is dry."}).encode()
    by_person = {"origin": {**first, "topic": "groundwire.review-decisions"}, "subject_origin": first}
    by_person["facts"] = {"review": {"action": "a"}}
    wrong = []
    for name, held, decision, state in (
        ("at its offset", stored, decided(), OriginalState.READ),
        ("decided by a person", stored, decided(**by_person), OriginalState.READ),
        ("past retention", None, decided(), OriginalState.GONE),
        ("without a topic", stored, decided(origin={**first, "topic": None}), OriginalState.GONE),
        ("another record", other, decided(), OriginalState.DIFFERS),
        *(
            (field, stored, decided(**{field: "eve"}), OriginalState.DIFFERS)
            for field in ("tenant_id", "user_id")
        ),
        ("another response", stored, decided(subject_id="eve"), OriginalState.DIFFERS),
        ("no response", b"[1]", decided(b"[1]"), OriginalState.DIFFERS),
        ("no broker", BrokerUnavailable("no broker"), decided(), OriginalState.AWAY),
    ):

        async def read(*position, held=held):
            if isinstance(held, Exception):
                raise held
            return held if position == tuple(place.values()) else None

        original = await read_original(read, decision)
        answer = original.response and original.response.answer
        expected = state, "Water is wet." if state is OriginalState.READ else None
        wrong += [(name, original)] * ((original.state, answer) != expected)
    assert wrong == []
    assert [has_original(decided(kind=kind)) for kind in ("response", "claim")] == [True, False]

"""What a person decided as a record, and what its outcome says."""

from __future__ import annotations

from pathlib import Path

import pytest

from groundwire.errors import UsageError
from groundwire.keys.attestation import Keys
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
from tests.unit.review.world import NOW, audit

TARGET = ActionTarget("acme", "ann", Kind.CLAIM, "c1", 3)
KEYS = Keys.parse(
    b'[keys.desk]\nsecret = "s"\ntenants = ["acme"]\nroles = ["reviewer"]\n'
    b'[keys.docs]\nsecret = "s"\ntenants = ["acme"]\nsources = ["adr"]\n',
    Path("keys.toml"),
)


def test_a_decision_reads_back_as_the_gate_reads_it() -> None:
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
        assert (read.subject_id, read.expected_revision, read.reviewer, read.action) == (
            "c1",
            3,
            "lead",
            action,
        )
        assert {name: getattr(read, name) for name in fields} == fields


def test_every_action_has_an_id_of_its_own_unless_one_is_given() -> None:
    first, second = (review_decision(TARGET, "approve", "ann") for _ in range(2))
    assert first.action_id != second.action_id
    assert review_decision(TARGET, "approve", "ann", action_id="mine").action_id == "mine"


def test_an_action_that_the_gate_would_refuse_is_refused_here_by_field() -> None:
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
        with pytest.raises(UsageError, match=r"^content: the edited text is blank"):
            review_decision(TARGET, "edit", "ann", content=content)
        assert review_decision(TARGET, "edit", "ann", content=f"{content}.").content == f"{content}."


def test_the_reasons_are_a_closed_list() -> None:
    assert [str(reason) for reason in RejectReason] == [
        *("incorrect", "outdated", "not_verifiable", "duplicate", "sensitive", "off_topic", "other")
    ]


def test_what_is_signed_is_what_the_gate_takes() -> None:
    signer = Signer(KEYS, "desk")
    header = dict(signer.headers(b"value"))[ATTESTATION].decode()
    assert KEYS.check(header, b"value", tenant="acme", at=NOW, role="reviewer").valid
    assert not KEYS.check(header, b"other", tenant="acme", at=NOW, role="reviewer").valid
    assert (signer.covers("acme"), signer.covers("globex")) == (True, False)


def test_a_key_that_may_not_sign_is_refused_before_anything_is_sent() -> None:
    for key_id, wrong in (("none", "no key 'none'"), ("docs", "role reviewer")):
        with pytest.raises(UsageError, match=wrong):
            Signer(KEYS, key_id)


def event(**changes) -> AuditEvent:
    return AuditEvent.model_validate_json(audit(**changes).value)


def test_an_outcome_says_what_the_audit_says() -> None:
    applied = outcome_of(event())
    assert applied == ActionOutcome("c1-action", True, "human_approved", 2, "approved", None)  # noqa: FBT003 - a field
    refused = outcome_of(event(applied=False))
    assert (refused.applied, refused.code, refused.verdict) == (False, "unauthorized", None)
    odd = outcome_of(event(detail={"revision": "2", "verdict": 1, "outcome": None}))
    assert (odd.revision, odd.verdict, odd.code) == (None, None, "unknown_code")


def test_every_code_has_one_sentence_and_an_unknown_one_too() -> None:
    for applied in (True, False):
        for code in [*SENTENCES, "of_a_later_version"]:
            sentence = ActionOutcome("a", applied, code, None, None, None).sentence
            assert (sentence[-1], sentence.count(". ")) == (".", 0)
    refusals = {"stale", "unknown", "not_pending", "not_approved", "waiting", "unattested", "unauthorized"}
    assert refusals <= SENTENCES.keys()

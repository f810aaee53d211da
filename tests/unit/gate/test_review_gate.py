"""What people decide: who may, what it comes to, and that it comes to the same however often it is asked."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from groundwire.gate import claims as claims_module
from groundwire.gate.reviews import ReviewGate
from groundwire.gate.types import Acted, DeadLetter, DecisionQuery, Refused, Result
from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import Decision, Verdict
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject, decision_id, expire_id, retraction_id
from groundwire.policy import Policy
from groundwire.replay.rebuild import stored_outcome
from groundwire.state.memory import MemoryState
from tests.unit.gate.world import NOW, World

KEYS = """
[keys.console]
secret = "one"
tenants = ["default", "acme"]
roles = ["reviewer"]

[keys.gate]
secret = "two"
tenants = ["nobody"]
roles = ["reviewer"]

[keys.docs]
secret = "three"
tenants = ["default"]
sources = ["documentation"]

[keys.late]
secret = "four"
tenants = ["default"]
roles = ["reviewer"]
not_after = 2026-01-01T00:00:00Z

[reviewers]
default = ["lead"]
"""
TEXT = "The ingest service retries every failed upload five times"
ASKING = Policy(verification={"on_failure": "ask"})  # type: ignore[arg-type]


@dataclass
class Office(World):
    """A gate for claims, one for reviews, and what both have published."""

    keys: Keys = field(default_factory=lambda: Keys.parse(KEYS.encode(), __file__))  # type: ignore[arg-type]
    published: dict[tuple[Verdict, str], Decision] = field(default_factory=dict)
    asked: list[DecisionQuery] = field(default_factory=list)

    async def find(self, wanted: Sequence[DecisionQuery]) -> dict[str, Decision]:
        self.asked += wanted
        those = [self.published.get((one.verdict, one.decision_id)) for one in wanted]
        return {d.decision_id: Decision.model_validate_json(d.to_bytes()) for d in those if d is not None}

    @property
    def reviews(self) -> ReviewGate:
        return ReviewGate(
            self.policy,
            self.policies,
            self.state,
            keys=self.keys,
            find=self.find,
            own_key="gate",
            now=self.now,
        )

    async def decide(self, *records: InboundRecord) -> list[Decision]:
        decisions = await super().decide(*records)
        self.publish(*decisions)
        return decisions

    def publish(self, *decisions: Decision) -> None:
        for decision in decisions:
            self.published[decision.verdict, decision.decision_id] = decision

    def action(
        self, action: str, decision: Decision, *, key: str | None = "console", **fields: Any
    ) -> InboundRecord:
        review = {
            "action_id": str(uuid.uuid4()),
            "tenant_id": decision.tenant_id,
            "user_id": decision.user_id,
            "kind": decision.kind,
            "subject_id": decision.subject_id,
            "expected_revision": decision.revision,
            "action": action,
            "reviewer": decision.user_id,
            **fields,
        }
        value = json.dumps(review).encode()
        headers = [("gw-attestation", self.keys.sign(key, value))] if key else []
        return self.record(value, headers=tuple(headers), topic="groundwire.review-decisions")

    async def carry_out(self, *records: InboundRecord) -> list[Result]:
        gate = self.reviews
        results = await gate.apply_step(await gate.prepare(records))
        self.publish(*(result.decision for result in results if isinstance(result, Acted)))
        return results

    async def act(self, action: str, decision: Decision, **fields: Any) -> Acted:
        (result,) = await self.carry_out(self.action(action, decision, **fields))
        assert isinstance(result, Acted), result
        return result

    async def refused(self, action: str, decision: Decision, **fields: Any) -> Refused:
        (result,) = await self.carry_out(self.action(action, decision, **fields))
        assert isinstance(result, Refused), result
        return result


@pytest.fixture
def office() -> Office:
    return Office()


async def test_an_approval_is_the_next_revision_with_everything_that_tells_where_it_comes_from(office):
    record = office.claim("a", TEXT)
    (pending,) = await office.decide(record)
    assert pending.verdict == "review"
    action = office.action("approve", pending, reason="checked")
    (result,) = await office.carry_out(action)
    decision = result.decision
    assert (decision.verdict, decision.reason_code, decision.approved) == ("approved", "human_approved", True)
    assert (decision.revision, decision.supersedes) == (2, pending.decision_id)
    assert (decision.evidence.claim, decision.evidence.confidence) == (TEXT, "high")
    assert decision.origin == action.origin
    assert decision.subject_origin == pending.origin
    assert decision.fingerprint == pending.fingerprint
    assert decision.facts.clock == action.origin.timestamp
    assert decision.facts.place == "not_needed"
    assert "review_place" not in decision.checks_passed
    assert decision.facts.review["reviewer"] == "ada"
    assert decision.facts.review["key_id"] == "console"
    assert result.fresh


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        ("approve", {}),
        ("edit", {"content": "The ingest service retries twice"}),
        ("reject", {"reason": "incorrect"}),
    ],
)
async def test_an_action_that_comes_again_and_a_claim_that_comes_again_get_the_same_bytes(
    office, action, fields
):
    claim = office.claim("a", TEXT, metadata={"n": 1})
    (pending,) = await office.decide(claim)
    record = office.action(action, pending, **fields)
    (first,) = await office.carry_out(record)
    office.now = lambda: NOW + timedelta(days=1)
    (again,) = await office.carry_out(record)
    assert again.decision.to_bytes() == first.decision.to_bytes()
    assert not again.fresh
    (resent,) = await office.decide(office.claim("a", TEXT, metadata={"n": 2}))
    assert resent.to_bytes() == first.decision.to_bytes()


@pytest.mark.parametrize(
    ("action", "fields"),
    [
        ("approve", {}),
        ("edit", {"content": "The ingest service retries twice"}),
        ("reject", {}),
        ("retract", {}),
    ],
)
async def test_state_rebuilt_from_what_was_published_gives_the_same_bytes(office, action, fields):
    claim = office.claim("a", TEXT, source="user" if action == "retract" else "ai_synthesis")
    (before,) = await office.decide(claim)
    record = office.action(action, before, **fields)
    (result,) = await office.carry_out(record)
    office.state = MemoryState()
    await office.state.reassert([stored_outcome(result.decision.to_bytes(), office.policy)])
    (resent,) = await office.decide(claim)
    assert resent.to_bytes() == result.decision.to_bytes()


async def test_an_edit_approves_the_edited_text_of_the_same_subject(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    decision = (await office.act("edit", pending, content="Uploads are retried twice")).decision
    assert (decision.subject_id, decision.revision, decision.reason_code) == ("a", 2, "human_approved")
    assert decision.evidence.claim == "Uploads are retried twice"
    duplicate = await office.one("Uploads are retried twice", "b", source="user")
    assert (duplicate.reason_code, duplicate.conflicting_memory_id) == ("duplicate", "a")
    other = await office.one(TEXT, "c", source="user")
    assert other.verdict == "approved"


async def test_an_edited_text_that_speculates_is_refused_and_the_claim_stays_pending(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    refused = await office.refused("edit", pending, content="I think uploads are retried twice")
    assert refused.code == "personal_speculation"
    assert (await office.act("approve", pending)).decision.verdict == "approved"


async def test_a_claim_whose_horizon_has_passed_at_the_action_is_blocked_as_expired(office):
    horizon = (NOW + timedelta(seconds=2)).isoformat()
    (pending,) = await office.decide(office.claim("a", TEXT, validity_horizon=horizon))
    assert pending.verdict == "review"
    decision = (await office.act("approve", pending)).decision
    assert (decision.verdict, decision.reason_code) == ("blocked", "expired")
    assert "expired" in decision.checks_failed


async def test_what_says_what_an_approved_claim_says_is_blocked_as_its_duplicate(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    (joined,) = await office.decide(office.claim("b", TEXT))
    assert joined.reason_code == "pending_duplicate"
    (other,) = await office.decide(office.claim("x", "Backups are written to a second region"))
    await office.act("approve", pending)
    decision = (await office.act("edit", other, content=TEXT)).decision
    assert (decision.verdict, decision.reason_code) == ("blocked", "duplicate")
    assert decision.conflicting_memory_id == "a"
    assert "duplicate: a" in decision.checks_failed
    (resent,) = await office.decide(office.claim("x", "Backups are written to a second region"))
    assert resent.to_bytes() == decision.to_bytes()


async def test_a_rejected_text_is_held_against_what_resembles_it(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    decision = (await office.act("reject", pending, reason="incorrect", note="It retries twice.")).decision
    assert (decision.verdict, decision.reason_code) == ("blocked", "human_rejected")
    assert decision.facts.review["reason"] == "incorrect"
    assert "note" not in decision.facts.review
    later = await office.one(TEXT, "b", source="user")
    assert (later.verdict, later.reason_code) == ("review", "previously_rejected")


async def test_a_retraction_names_the_approved_claims_that_rest_on_it(office):
    (base,) = await office.decide(office.claim("a", TEXT, source="user"))
    for name in ("d", "c"):
        await office.one(f"{name} follows from it {name}", name, source="user", derived_from=["a"])
    await office.one("Maybe something else", "e", source="user", derived_from=["a"])
    result = await office.act("retract", base, reason="outdated")
    assert (result.decision.verdict, result.decision.reason_code) == ("blocked", "retracted")
    assert result.decision.evidence.claim == TEXT
    retraction = result.retraction
    assert retraction.affected == ["c", "d"]
    assert retraction.truncated is None
    assert (retraction.decision_id, retraction.supersedes) == (result.decision.decision_id, base.decision_id)
    assert (retraction.actor, retraction.reason) == ("ada", "outdated")
    assert retraction_id(retraction.decision_id) != retraction.decision_id
    later = await office.one(TEXT, "z", source="user")
    assert later.reason_code == "previously_rejected"
    held = await office.one("It rests on a", "y", source="user", derived_from=["a"])
    assert held.reason_code == "derived_from_unapproved"


async def test_a_retraction_that_comes_again_is_the_same_and_one_by_another_action_is_refused(office):
    (base,) = await office.decide(office.claim("a", TEXT, source="user"))
    record = office.action("retract", base)
    (first,) = await office.carry_out(record)
    (again,) = await office.carry_out(record)
    assert again.retraction == first.retraction
    assert again.decision.to_bytes() == first.decision.to_bytes()
    assert (await office.refused("retract", base)).code == "stale"


async def test_an_approval_can_be_withdrawn_after_a_person_gave_it(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    edited = (await office.act("edit", pending, content="Uploads are retried twice")).decision
    decision = (await office.act("retract", edited)).decision
    assert (decision.revision, decision.reason_code) == (3, "retracted")
    assert decision.evidence.claim == "Uploads are retried twice"
    assert decision.facts.review["edited"] is True
    (resent,) = await office.decide(office.claim("a", TEXT))
    assert resent.to_bytes() == decision.to_bytes()


async def test_an_approval_that_is_on_no_topic_yet_cannot_be_withdrawn(office):
    (base,) = await office.decide(office.claim("a", TEXT, source="user"))
    office.published.clear()
    assert (await office.refused("retract", base)).code == "not_published"


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"key": None}, "unattested"),
        ({"key": "docs"}, "unattested"),
        ({"key": "late"}, "unattested"),
        ({"key": "gate"}, "unattested"),
        ({"reviewer": "eve"}, "unauthorized"),
        ({"reviewer": "groundwire"}, "reserved"),
        ({"action": "expire"}, "reserved"),
        ({"action": "expire", "reviewer": "groundwire"}, "reserved"),
        ({"action": "expire", "key": "gate"}, "reserved"),
        ({"expected_revision": 2}, "stale"),
        ({"subject_id": "other"}, "unknown"),
        ({"user_id": "bob", "reviewer": "bob"}, "unknown"),
        ({"action": "retract"}, "not_approved"),
    ],
)
async def test_whoever_may_not_act_changes_nothing(office, fields, code):
    (pending,) = await office.decide(office.claim("a", TEXT))
    assert (await office.refused(fields.pop("action", "approve"), pending, **fields)).code == code
    assert (await office.act("approve", pending)).decision.revision == 2


async def test_a_delegated_reviewer_may_decide_what_others_own(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    decision = (await office.act("approve", pending, reviewer="lead")).decision
    assert decision.facts.review["reviewer"] == "lead"


async def test_delegation_ends_at_the_tenant(office):
    (pending,) = await office.decide(office.claim("a", TEXT, tenant_id="acme"))
    assert (await office.refused("approve", pending, reviewer="lead")).code == "unauthorized"


async def test_what_nobody_reviewed_is_expired_by_the_gate_alone(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    fields = {"key": "gate", "reviewer": "groundwire", "action_id": expire_id(pending.decision_id)}
    decision = (await office.act("expire", pending, **fields)).decision
    assert (decision.verdict, decision.reason_code) == ("blocked", "review_expired")
    assert (await office.one(TEXT, "b", source="user")).verdict == "approved"


async def test_actions_on_one_subject_in_a_batch_rest_on_each_other(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    approve = office.action("approve", pending)
    retract = office.action("retract", pending, expected_revision=2)
    first, second = (await office.carry_out(approve))[0], None
    assert first.decision.revision == 2
    second = (await office.carry_out(retract))[0]
    assert second.decision.revision == 3


async def test_each_of_two_revisions_of_a_batch_is_published_though_a_worker_died_before_it_was(office):
    office.policy = ASKING
    claim, response = office.claim("a", TEXT), office.response("r1", "Yes, it is.")
    for pending in await office.decide(claim, response):
        batch = [office.action("approve", pending), office.action("retract", pending, expected_revision=2)]
        gate = office.reviews
        first = await gate.apply_step(await gate.prepare(batch))
        again = await office.carry_out(*batch)  # by another worker, which has only state and the topics
        assert [result.decision.revision for result in again] == [2, 3]
        assert [r.decision.to_bytes() for r in again] == [r.decision.to_bytes() for r in first]
        assert [r.retraction for r in again] == [r.retraction for r in first]
        assert again[1].decision.supersedes == again[0].decision.decision_id


async def test_the_second_of_two_actions_in_a_batch_is_refused(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    results = await office.carry_out(office.action("reject", pending), office.action("approve", pending))
    assert [type(result) for result in results] == [Acted, Refused]
    assert results[1].code == "stale"
    assert results[1].current.revision == 2


async def test_a_refusal_stands_though_the_same_action_would_be_possible_later(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    early = office.action("retract", pending, expected_revision=2)
    assert (await office.carry_out(early))[0].code == "stale"
    await office.act("approve", pending)
    assert (await office.carry_out(early))[0].code == "stale"


@pytest.mark.parametrize("value", [None, b"{", b"[]", b'{"action": "approve"}', b"\xff"])
async def test_what_is_no_review_decision_is_a_dead_letter(office, value):
    (result,) = await office.carry_out(office.record(value, topic="groundwire.review-decisions"))
    assert isinstance(result, DeadLetter)


# Responses


@pytest.mark.parametrize(("action", "verdict"), [("approve", "approved"), ("reject", "blocked")])
async def test_a_response_that_asks_is_decided_by_a_person_from_its_published_decision(
    office, action, verdict
):
    office.policy = ASKING
    record = office.response("r1", "Yes, it is.")
    (pending,) = await office.decide(record)
    assert (pending.verdict, pending.facts.place) == ("review", "free")
    action_record = office.action(action, pending)
    (result,) = await office.carry_out(action_record)
    decision = result.decision
    assert (decision.verdict, decision.revision, decision.supersedes) == (verdict, 2, pending.decision_id)
    assert decision.report == pending.report
    (again,) = await office.carry_out(action_record)
    assert again.decision.to_bytes() == decision.to_bytes()
    (resent,) = await office.decide(record)
    assert resent.to_bytes() == decision.to_bytes()
    office.state = MemoryState()
    await office.state.reassert([stored_outcome(decision.to_bytes(), office.policy)])
    (rebuilt,) = await office.decide(record)
    assert rebuilt.to_bytes() == decision.to_bytes()


async def test_a_response_cannot_be_edited_and_one_without_a_place_not_be_decided(office):
    (final,) = await office.decide(office.response("r0", "Yes, it is."))
    assert (await office.refused("approve", final)).code == "not_pending"
    office.policy = ASKING
    (pending,) = await office.decide(office.response("r1", "Yes, it is."))
    assert (await office.refused("edit", pending, content="No.")).code == "not_editable"


async def test_an_approved_response_can_be_withdrawn(office):
    office.policy = ASKING
    (pending,) = await office.decide(office.response("r1", "Yes, it is."))
    approved = (await office.act("approve", pending)).decision
    await office.one("It rests on it", "a", source="user", derived_from=["response:r1"])
    result = await office.act("retract", approved)
    assert (result.decision.revision, result.decision.reason_code) == (3, "retracted")
    assert result.retraction.affected == ["a"]
    (resent,) = await office.decide(office.response("r1", "Yes, it is."))
    assert resent.to_bytes() == result.decision.to_bytes()


# What must hold however awkwardly things fall


async def test_an_approval_that_is_not_published_yet_can_be_withdrawn_once_it_is(office):
    (base,) = await office.decide(office.claim("a", TEXT, source="user"))
    published, office.published = office.published, {}
    record = office.action("retract", base)
    assert (await office.carry_out(record))[0].code == "not_published"
    office.published = published
    assert (await office.carry_out(record))[0].decision.reason_code == "retracted"


async def test_a_retraction_right_behind_the_approval_of_a_response_rests_on_it(office):
    office.policy = ASKING
    (pending,) = await office.decide(office.response("r1", "Yes, it is."))
    approve = office.action("approve", pending)
    retract = office.action("retract", pending, expected_revision=2)
    gate = office.reviews
    first, second = await gate.apply_step(await gate.prepare([approve, retract]))
    assert [first.revision, second.revision] == [2, 3]
    assert second.decision.supersedes == decision_id(second_subject(second), 2)


def second_subject(result: Acted) -> Subject:
    decision = result.decision
    return Subject(decision.tenant_id, decision.user_id, decision.kind, decision.subject_id)


async def test_a_batch_that_is_settled_again_looks_nothing_up_twice(office):
    office.policy = ASKING
    (pending,) = await office.decide(office.response("r1", "Yes, it is."))
    gate = office.reviews
    batch = await gate.prepare([office.action("approve", pending)])
    await gate.apply_step(batch)
    asked = len(office.asked)
    await gate.apply_step(batch)
    assert len(office.asked) == asked == 1


@pytest.mark.parametrize("kept", ["own", "superseded", "neither"])
async def test_an_action_on_a_response_that_comes_again_never_stops_the_worker(office, kept):
    office.policy = ASKING
    (pending,) = await office.decide(office.response("r1", "Yes, it is."))
    record = office.action("approve", pending)
    (first,) = await office.carry_out(record)
    gone = {"own": [pending], "superseded": [first.decision], "neither": [pending, first.decision]}[kept]
    for decision in gone:
        del office.published[decision.verdict, decision.decision_id]
    (again,) = await office.carry_out(record)
    if kept == "neither":
        assert again.code == "not_published"
    else:
        assert again.decision.to_bytes() == first.decision.to_bytes()


@pytest.mark.parametrize("keys", ["", KEYS.replace("lead", "another")])
async def test_who_was_entitled_when_it_was_carried_out_is_told_the_same_again(office, keys):
    (pending,) = await office.decide(office.claim("a", TEXT))
    record = office.action("approve", pending, reviewer="lead")
    (first,) = await office.carry_out(record)
    office.keys = Keys.parse(keys.encode(), __file__)
    (again,) = await office.carry_out(record)
    assert again.decision.to_bytes() == first.decision.to_bytes()


async def test_a_refusal_for_want_of_a_right_is_none_once_the_right_is_there(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    record, office.keys = office.action("approve", pending, reviewer="lead"), Keys.empty()
    assert (await office.carry_out(record))[0].code == "unattested"
    office.keys = Keys.parse(KEYS.encode(), __file__)
    assert (await office.carry_out(record))[0].decision.approved


async def test_a_record_that_brings_workers_down_is_given_up_only_before_it_is_carried_out(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    record = office.action("approve", pending)

    async def give_up(subject: Subject) -> bool:
        raise AssertionError(subject)

    assert await office.reviews.abandon(record, give_up)
    assert await office.reviews.abandon(record, give_up), "giving up leaves nothing behind"
    await office.carry_out(record)
    assert not await office.reviews.abandon(record, give_up)


async def test_the_same_action_id_for_another_text_or_reviewer_is_refused(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    fields = {"action_id": "one", "content": "Uploads are retried twice"}
    await office.act("edit", pending, **fields)
    for other in ({"content": "Uploads are retried once"}, {"reviewer": "lead"}, {"reason": "typo"}):
        assert (await office.refused("edit", pending, **{**fields, **other})).code == "action_id_reused"
    assert (await office.act("edit", pending, **fields, note="Sent again")).revision == 2


async def test_nobody_can_use_up_the_id_with_which_the_gate_expires_a_review(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    taken = expire_id(pending.decision_id)
    await office.refused("retract", pending, action_id=taken)
    await office.refused("approve", pending, action_id=taken, user_id="bob", reviewer="bob")
    expired = await office.act("expire", pending, key="gate", reviewer="groundwire", action_id=taken)
    assert expired.decision.reason_code == "review_expired"


async def test_an_expired_key_does_not_hold_for_a_record_that_claims_to_be_older(office):
    (pending,) = await office.decide(office.claim("a", TEXT))
    record = replace(office.action("approve", pending, key="late"), timestamp=1)
    assert (await office.carry_out(record))[0].code == "unattested"


async def test_a_text_that_cannot_be_read_any_more_stops_no_decision(office, monkeypatch):
    (pending,) = await office.decide(office.claim("a", TEXT))

    def broken(content: str, policy: Policy) -> None:
        raise ValueError(content)

    monkeypatch.setattr(claims_module, "read_claim", broken)
    assert (await office.act("approve", pending)).decision.approved

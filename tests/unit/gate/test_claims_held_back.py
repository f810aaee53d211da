"""What a claim's decision says was looked at, and whom a cap leaves alone: each branch by itself."""

from __future__ import annotations

from typing import Any

import pytest

from groundwire.checks.hedges import HedgeAction
from groundwire.gate.claim_case import CheckFinding, ClaimCase, prejudge, read_claim
from groundwire.gate.report import Checks, list_checks
from groundwire.gate.tree import cap, is_code, reviewed
from groundwire.messages.decisions import CitationState, DedupFacts, DedupMatch, Facts, Place, ReasonCode
from groundwire.messages.records import Claim
from groundwire.policy import Policy
from tests.unit.gate.world import NOW

CITED = "Per ADR-003, we use PostgreSQL"


def judged(content: str = "It is so", *, policy: Policy | None = None, **options: Any) -> ClaimCase:
    policy = policy or Policy()
    fields, findings = options.pop("fields", {}), options.pop("findings", {})
    facts = Facts(
        clock=NOW,
        dedup=DedupFacts(status="ok", scheme="s", matches=options.pop("matches", [])),
        **options,
    )
    claim = Claim(claim_id="c1", user_id="ada", content=content, **fields)
    return ClaimCase(claim, read_claim(content, policy), policy, facts, findings)


def checks(**options: Any) -> Checks:
    return list_checks(judged(**options))


@pytest.mark.parametrize(
    ("source", "memory_type", "code"),
    [
        ("documentation", "fact", "trusted_source"),
        ("conversation", "decision", "stated_decision"),
        ("chat", "preference", "stated_preference"),
    ],
)
def test_what_holds_back_ai_synthesis_holds_back_no_trusted_source_and_no_conversation(
    source: str, memory_type: str, code: str
) -> None:
    fields = {"source": source, "memory_type": memory_type}
    found = judged(policy=Policy(auto_approve_ai_synthesis=False), fields=fields).outcome()
    assert (found.tier, found.code) == ("tier_1", code)


def test_parents_that_nobody_could_ask_for_are_not_told_as_approved() -> None:
    found = checks(fields={"derived_from": ["p"]}, parents=None)
    assert "parents_unavailable" in found.failed
    assert "parents_approved" not in found.passed


@pytest.mark.parametrize("place", Place)
def test_only_what_has_a_place_in_the_queue_is_told_to_have_one(place: Place) -> None:
    assert ("review_place" in checks(place=place).passed) is (place == Place.FREE)


def test_relevance_is_told_as_looked_at_only_where_the_policy_asks_and_a_citation_was_verified() -> None:
    asked = Policy(verify_claim_relevance=True)
    verified = {"adr:003": CheckFinding(CitationState.VERIFIED, "", NOW)}
    assert "relevance_skipped" in checks(content=CITED, findings=verified).skipped
    assert "relevance_skipped" in checks(content=CITED, policy=asked).skipped
    assert "relevance_skipped" not in checks(content=CITED, policy=asked, findings=verified).skipped


def test_a_duplicate_without_a_difference_is_no_conflict() -> None:
    match = DedupMatch(subject_id="m", inter=9, union=9, difference="none", match_class="approved")  # type: ignore[call-arg, arg-type]
    assert [name for name in checks(matches=[match]).failed if "duplicate" in name] == ["duplicate: m"]


def test_a_text_that_could_not_be_read_says_nothing_of_hedges_and_citations() -> None:
    found = judged(f"I think it may be so. {CITED}", error="ValueError")
    assert (found.reading.hedges, found.reading.citations, found.outcome().code) == ((), (), "internal_error")


TRUSTED = {"source": "documentation"}
VERIFIED = {"adr:003": CheckFinding(CitationState.VERIFIED, "", NOW)}


def test_a_technical_hedge_that_trust_excuses_is_not_taken_for_speculation_with_a_citation() -> None:
    policy = Policy(grounded_speculation="review", trusted_technical_hedges="approve")
    found = judged(f"It may fail. {CITED}", policy=policy, fields=TRUSTED, findings=VERIFIED)
    assert found.reading.action == HedgeAction.REVIEW
    assert found.hedge == HedgeAction.CONTINUE


@pytest.mark.parametrize(("overrides", "tier"), [(False, "tier_1"), (True, "tier_2")])
def test_a_citation_that_failed_holds_back_a_trusted_source_only_where_the_policy_says_so(
    *, overrides: bool, tier: str
) -> None:
    policy = Policy(failed_citation_overrides_trust=overrides)
    assert judged(CITED, policy=policy, fields=TRUSTED).outcome().tier == tier


def test_relevance_of_a_citation_that_stands_twice_is_that_of_its_first_place() -> None:
    relevance = [{"start": 4, "score": 0.9, "relevant": True}]
    found = judged(f"{CITED}, as ADR-003 says", findings=VERIFIED, relevance=relevance)
    assert (len(found.verified), found.irrelevant) == (2, [])


def test_what_a_person_decided_stands_whatever_the_tree_says() -> None:
    assert judged(review={"action": "approve"}).outcome().code == "human_approved"
    assert judged(fields=TRUSTED, review={"action": "reject"}).outcome().code == "human_rejected"


@pytest.mark.parametrize(
    ("action", "expired", "duplicate", "code"),
    [
        ("approve", False, False, "human_approved"),
        ("approve", False, True, "duplicate"),
        ("approve", True, True, "expired"),
        ("edit", True, False, "expired"),
        ("reject", True, True, "human_rejected"),
        ("expire", False, False, "review_expired"),
        ("retract", False, True, "retracted"),
    ],
)
def test_after_an_action_only_an_approval_of_what_still_holds_and_is_new_is_approved(
    *, action: str, expired: bool, duplicate: bool, code: str
) -> None:
    found = reviewed(action, expired=expired, duplicate=duplicate)
    assert found.code == code
    assert (found.tier == "tier_1") is (code == "human_approved")


@pytest.mark.parametrize(("reason", "is_one"), [("not_true", True), ("it is not true", False), ("", False)])
def test_a_reviewers_reason_is_a_code_and_no_text(*, reason: str, is_one: bool) -> None:
    assert is_code(reason) is is_one


@pytest.mark.parametrize(("place", "joins"), [(Place.NOT_NEEDED, True), (Place.FREE, False)])
def test_a_claim_joins_a_pending_one_only_where_it_has_no_place_of_its_own(
    *, place: Place, joins: bool
) -> None:
    match = DedupMatch(subject_id="m", inter=9, union=9, difference="none", match_class="pending")  # type: ignore[call-arg, arg-type]
    found = judged(matches=[match], place=place)
    assert found.joins is joins
    assert (found.outcome().code == "pending_duplicate") is joins


@pytest.mark.parametrize("held", [False, True])
def test_state_is_told_of_a_cap_where_there_is_one(*, held: bool) -> None:
    claim = Claim(claim_id="c1", user_id="ada", content=CITED)
    policy = Policy(auto_approve_ai_synthesis=not held)
    found = prejudge(ClaimCase(claim, read_claim(CITED, policy), policy, Facts(clock=NOW), VERIFIED))
    assert (found.cap is not None) is held


def test_each_cap_has_a_sentence_of_its_own() -> None:
    assert (
        cap(ReasonCode.CITATION_UNVERIFIED).reason == "A citation could not be verified - needs verification"
    )
    assert cap(ReasonCode.AI_SYNTHESIS_HELD).reason == "AI synthesis is held for review by policy"

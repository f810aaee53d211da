"""The reason of a recorded tier follows from what state keeps, for whatever brought it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire.gate.claim_case import CheckFinding, ClaimCase, prejudge, read_claim
from groundwire.gate.claims import as_finding
from groundwire.gate.record import recorded_reason
from groundwire.gate.tree import cap, explain, is_code, reviewed
from groundwire.messages.decisions import (
    CitationState,
    DedupFacts,
    DedupMatch,
    Facts,
    IngestionTier,
    ParentFact,
    Place,
    ReasonCode,
)
from groundwire.messages.records import Claim
from groundwire.policy import Policy
from groundwire.verify.results import CitationCheck
from tests.unit.gate.world import NOW

policies = st.builds(
    Policy,
    verify_claim_relevance=st.booleans(),
    auto_approve_ai_synthesis=st.booleans(),
    failed_citation_overrides_trust=st.booleans(),
    trusted_technical_hedges=st.sampled_from(["review", "approve"]),
    grounded_speculation=st.sampled_from(["review", "block"]),
    attestation=st.sampled_from(["off", "hmac"]),
)


contents = st.sampled_from(
    [
        "Snow is white",
        "Maybe",
        "It may snow",
        "Per ADR-003 it snows",
        "ADR-003, ADR-999",
        "I think, per ADR-003",
    ]
)


matches = st.builds(
    DedupMatch,
    subject_id=st.sampled_from(["a", "b"]),
    inter=st.just(24),
    union=st.just(25),
    difference=st.sampled_from(["none", "number"]),
    match_class=st.sampled_from(["approved", "pending", "rejected"]),
)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(
    policy=policies,
    content=contents,
    source=st.sampled_from(["user", "conversation", "ai_synthesis"]),
    kind=st.sampled_from(["fact", "decision"]),
    expired=st.booleans(),
    error=st.sampled_from([None, None, None, "ValueError"]),
    status=st.sampled_from(["ok", "ok", "failed", "disabled"]),
    found=st.lists(matches, max_size=3),
    parent=st.sampled_from([None, "approved", "blocked"]),
    place=st.sampled_from(["free", "user_full", "total_full"]),
    relevant=st.booleans(),
)
def test_state_keeps_enough_to_tell_the_reason(  # noqa: PLR0917 - one for each thing that bears on it
    policy, content, source, kind, expired, error, status, found, parent, place, relevant
):
    horizon = {"validity_horizon": NOW} if expired else {}
    claim = Claim(claim_id="c", user_id="u", content=content, source=source, memory_type=kind, **horizon)
    findings = {"adr:003": CheckFinding(CitationState.VERIFIED, "", NOW)}
    relevance = [
        {"start": citation.start, "relevant": relevant} for citation in read_claim(content, policy).citations
    ]
    known = {"clock": NOW, "attestation": None, "relevance": relevance, "error": error}
    judged = prejudge(ClaimCase(claim, read_claim(content, policy), policy, Facts(**known), findings))
    status = "failed" if error else status
    facts = {
        **known,
        "dedup": DedupFacts(status=status, scheme="s", matches=found if status == "ok" else []),
        "parents": [ParentFact(id="p", state=parent)] if parent else [],
    }
    first = ClaimCase(claim, read_claim(content, policy), policy, Facts(**facts), findings)
    asks_for_place = first.before_queue().tier == "tier_2" and not first.matches.pending
    facts["place"] = Place(place) if asks_for_place else Place.NOT_NEEDED
    case = ClaimCase(claim, read_claim(content, policy), policy, Facts(**facts), findings)
    standing = case.outcome()
    joined = standing.code == "pending_duplicate"
    told = recorded_reason(case, standing.tier, judged.base.code, judged.cap, joined=joined)
    assert told == standing


def test_a_finding_keeps_a_short_detail_and_never_the_sources_text():
    check = CitationCheck(CitationState.VERIFIED, "x" * 400, NOW, text="secret")
    finding = as_finding(check)
    assert finding == CheckFinding(CitationState.VERIFIED, "x" * 100, NOW)


APPROVE, REVIEW, BLOCK = IngestionTier.AUTO_APPROVE, IngestionTier.FLAG_REVIEW, IngestionTier.BLOCK


def match(kind: str) -> DedupMatch:
    return DedupMatch(subject_id=kind, inter=24, union=25, difference="number", match_class=kind)


def told(
    tier: IngestionTier, base: str, late_cap: str | None = None, *, joined: bool = False, **facts: Any
) -> tuple[str, str]:
    matches = [match(kind) for kind in facts.pop("matches", ())]
    status = facts.pop("status", "ok")
    known = Facts(clock=NOW, dedup=DedupFacts(status=status, scheme="s", matches=matches), **facts)
    claim = Claim(claim_id="c", user_id="u", content="Snow is white", source="user", memory_type="fact")
    case = ClaimCase(claim, read_claim(claim.content, Policy()), Policy(), known, {})
    cap = ReasonCode(late_cap) if late_cap else None
    found = recorded_reason(case, tier, ReasonCode(base), cap, joined=joined)
    return str(found.tier), str(found.code)


@pytest.mark.parametrize(
    "base", ["trusted_source", "verified_citation", "stated_decision", "stated_preference"]
)
def test_what_was_approved_keeps_its_grounds(base: str) -> None:
    assert told(APPROVE, base, "citation_irrelevant", matches=["approved"]) == ("tier_1", base)


@pytest.mark.parametrize("base", ["expired", "personal_speculation"])
def test_what_blocks_by_itself_is_the_reason_whatever_state_said(base: str) -> None:
    assert told(BLOCK, base, place=Place.USER_FULL) == ("tier_3", base)
    assert told(BLOCK, base) == ("tier_3", base)


@pytest.mark.parametrize("place", list(Place))
def test_what_else_was_blocked_had_no_place_in_the_queue_or_else_was_a_duplicate(place: Place) -> None:
    free = place in {Place.FREE, Place.NOT_NEEDED}
    assert told(BLOCK, "trusted_source", place=place) == (
        "tier_3",
        "duplicate" if free else "review_queue_full",
    )


def test_what_follows_a_pending_claim_is_its_duplicate_before_anything_else() -> None:
    for base in ("technical_hedge", "ungrounded", "trusted_source"):
        assert told(REVIEW, base, joined=True, matches=["approved"]) == ("tier_2", "pending_duplicate")


@pytest.mark.parametrize("status", ["ok", "failed", "disabled"])
@pytest.mark.parametrize("base", ["technical_hedge", "internal_error"])
def test_what_stands_above_the_comparison_is_the_reason_even_where_that_failed(
    base: str, status: str
) -> None:
    matches = ["approved", "rejected"] if status == "ok" else []
    assert told(REVIEW, base, "citation_unverified", status=status, matches=matches) == ("tier_2", base)


@pytest.mark.parametrize("base", ["source_unattested", "citation_unverified", "ungrounded"])
def test_what_has_no_grounds_is_so_unless_the_comparison_failed(base: str) -> None:
    assert told(REVIEW, base, matches=["approved"]) == ("tier_2", base)
    assert told(REVIEW, base, status="disabled") == ("tier_2", base)
    assert told(REVIEW, base, status="failed") == ("tier_2", "dedup_unavailable")


def test_what_had_grounds_is_in_review_for_the_first_that_lowers_it() -> None:
    parents = [ParentFact(id="p", state="blocked")]
    grounds, late = "trusted_source", "citation_unverified"

    def lowered(**facts: Any) -> str:
        tier, code = told(REVIEW, grounds, late, parents=parents, **facts)
        assert tier == "tier_2"
        return code

    assert lowered(status="failed") == "dedup_unavailable"
    assert lowered(matches=["rejected", "approved"]) == "conflicting_near_duplicate"
    assert lowered(matches=["pending", "rejected"]) == "previously_rejected"
    assert lowered(matches=["pending"]) == lowered() == "derived_from_unapproved"
    hidden = told(REVIEW, grounds, "hidden_text", parents=parents, matches=["approved"])
    assert hidden == ("tier_2", "hidden_text")
    approved = [ParentFact(id="p", state="approved")]
    assert told(REVIEW, grounds, late, parents=approved) == ("tier_2", late)
    assert told(REVIEW, "ai_synthesis_held", None, parents=approved) == ("tier_2", "ai_synthesis_held")


@pytest.mark.parametrize(
    ("action", "tier", "code"),
    [
        ("approve", BLOCK, "duplicate"),
        ("approve", APPROVE, "human_approved"),
        ("approve", REVIEW, "human_approved"),
        ("reject", BLOCK, "human_rejected"),
        ("retract", BLOCK, "retracted"),
        ("expire", BLOCK, "review_expired"),
    ],
)
def test_what_a_person_decided_is_the_reason_and_an_approval_that_was_blocked_a_duplicate(
    action: str, tier: IngestionTier, code: str
) -> None:
    review = {"action": action, "reviewer": "lead", "reason": None}
    found = told(tier, "technical_hedge", review=review, matches=["rejected"])
    assert found == ("tier_1" if code == "human_approved" else "tier_3", code)


def test_an_approval_of_what_no_longer_holds_is_expired_even_where_it_is_a_duplicate() -> None:
    for duplicate in (False, True):
        assert reviewed("approve", expired=True, duplicate=duplicate).code == ReasonCode.EXPIRED
    assert reviewed("retract", expired=True, duplicate=True).code == ReasonCode.RETRACTED


def test_a_cap_says_what_its_branch_of_the_tree_says_but_for_a_citation_that_is_not_verified() -> None:
    for code in ReasonCode:
        same = cap(code) == explain(REVIEW, code)
        assert same == (code != ReasonCode.CITATION_UNVERIFIED)
        assert cap(code)[::2] == (REVIEW, code)
    assert (
        cap(ReasonCode.CITATION_UNVERIFIED).reason == "A citation could not be verified - needs verification"
    )


def test_a_reason_that_a_person_gives_is_a_short_code_of_plain_characters() -> None:
    assert all(map(is_code, ["outdated", "Not-True.2", "r" * 64, "7", "a_b"]))
    assert not any(map(is_code, ["", "a b", "ä", "a\n", "-a", ".a", "r" * 65, "<b>"]))

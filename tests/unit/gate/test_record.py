"""The reason of a recorded tier follows from what state keeps, for whatever caused it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire.gate.claim_case import CheckFinding, ClaimCase, prejudge, read_claim
from groundwire.gate.claims import as_finding
from groundwire.gate.record import recorded_reason
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
from tests.unit.gate.builders import match
from tests.unit.gate.world import NOW

APPROVE, REVIEW, BLOCK = IngestionTier


@pytest.mark.slow
@settings(max_examples=1500, deadline=None)
@given(st.data())
def test_state_keeps_enough_to_derive_the_reason(data):
    policy = data.draw(
        st.builds(
            Policy,
            verify_claim_relevance=st.booleans(),
            auto_approve_ai_synthesis=st.booleans(),
            failed_citation_overrides_trust=st.booleans(),
            trusted_technical_hedges=st.sampled_from(["review", "approve"]),
            grounded_speculation=st.sampled_from(["review", "block"]),
            attestation=st.sampled_from(["off", "hmac"]),
        )
    )
    texts = ["Snow is white", "Maybe", "It may snow", "Per ADR-003 it snows", "ADR-003, ADR-999"]
    content = data.draw(st.sampled_from([*texts, "I think, per ADR-003"]))
    claim = Claim(
        claim_id="c",
        user_id="u",
        content=content,
        source=data.draw(st.sampled_from(["user", "conversation", "ai_synthesis"])),
        memory_type=data.draw(st.sampled_from(["fact", "decision"])),
        validity_horizon=data.draw(st.sampled_from([None, NOW])),
    )
    reading = read_claim(content, policy)
    findings = {"adr:003": CheckFinding(CitationState.VERIFIED, "", NOW)}
    relevant = data.draw(st.booleans())
    error = data.draw(st.sampled_from([None, None, None, "ValueError"]))
    known = {
        "clock": NOW,
        "relevance": [{"start": citation.start, "relevant": relevant} for citation in reading.citations],
        "error": error,
    }
    judged = prejudge(ClaimCase(claim, reading, policy, Facts(**known), findings))
    status = "failed" if error else data.draw(st.sampled_from(["ok", "ok", "failed", "disabled"]))
    matches = st.builds(
        DedupMatch,
        subject_id=st.sampled_from(["a", "b"]),
        inter=st.just(24),
        union=st.just(25),
        difference=st.sampled_from(["none", "number"]),
        match_class=st.sampled_from(["approved", "pending", "rejected"]),
    )
    found = data.draw(st.lists(matches, max_size=3)) if status == "ok" else []
    parent = data.draw(st.sampled_from([None, "approved", "blocked"]))
    facts = known | {
        "dedup": DedupFacts(status=status, scheme="s", matches=found),
        "parents": [ParentFact(id="p", state=parent)] if parent else [],
    }
    first = ClaimCase(claim, reading, policy, Facts(**facts), findings)
    asks_for_place = first.before_queue().tier == "tier_2" and not first.matches.pending
    place = data.draw(st.sampled_from([Place.FREE, Place.USER_FULL, Place.TOTAL_FULL]))
    facts["place"] = place if asks_for_place else Place.NOT_NEEDED
    case = ClaimCase(claim, reading, policy, Facts(**facts), findings)
    outcome = case.outcome()
    joined = outcome.code == "pending_duplicate"
    assert recorded_reason(case, outcome.tier, judged.base.code, judged.cap, joined=joined) == outcome


def test_a_finding_keeps_a_short_detail_and_never_the_sources_text():
    check = CitationCheck(CitationState.VERIFIED, "x" * 400, NOW, text="secret")
    assert as_finding(check) == CheckFinding(CitationState.VERIFIED, "x" * 100, NOW)


def test_each_recorded_tier_keeps_its_reason():
    def reason(
        tier: IngestionTier, base: str, late_cap: str | None = None, *, joined: bool = False, **facts: Any
    ) -> str:
        matches = [match(kind, kind, "number", 24) for kind in facts.pop("matches", ())]
        dedup = DedupFacts(status=facts.pop("status", "ok"), scheme="s", matches=matches)
        claim = Claim(claim_id="c", user_id="u", content="Snow is white", source="user", memory_type="fact")
        known = Facts(clock=NOW, dedup=dedup, **facts)
        case = ClaimCase(claim, read_claim(claim.content, Policy()), Policy(), known, {})
        cap = ReasonCode(late_cap) if late_cap else None
        found = recorded_reason(case, tier, ReasonCode(base), cap, joined=joined)
        assert found.tier == tier or "review" in facts
        return str(found.code)

    blocked, approved = [ParentFact(id="p", state="blocked")], [ParentFact(id="p", state="approved")]
    lowered = (REVIEW, "trusted_source", "citation_unverified")
    table = [
        # an approval keeps its grounds
        ((APPROVE, "trusted_source", "citation_irrelevant"), {"matches": ["approved"]}, "trusted_source"),
        # what blocks by itself is the reason, whatever state said
        ((BLOCK, "expired"), {"place": Place.USER_FULL}, "expired"),
        ((BLOCK, "personal_speculation"), {"place": Place.USER_FULL}, "personal_speculation"),
        # anything else that was blocked had no place in the queue, or was a duplicate
        ((BLOCK, "trusted_source"), {"place": Place.USER_FULL}, "review_queue_full"),
        ((BLOCK, "trusted_source"), {"place": Place.TOTAL_FULL}, "review_queue_full"),
        ((BLOCK, "trusted_source"), {"place": Place.FREE}, "duplicate"),
        ((REVIEW, "technical_hedge"), {"joined": True, "matches": ["approved"]}, "pending_duplicate"),
        # these branches come before the comparison, even where that failed
        ((REVIEW, "technical_hedge", "citation_unverified"), {"status": "failed"}, "technical_hedge"),
        ((REVIEW, "internal_error", "citation_unverified"), {"status": "failed"}, "internal_error"),
        ((REVIEW, "technical_hedge"), {"matches": ["approved", "rejected"]}, "technical_hedge"),
        # a claim without grounds is that, unless the comparison failed
        ((REVIEW, "source_unattested"), {"matches": ["approved"]}, "source_unattested"),
        ((REVIEW, "citation_unverified"), {"status": "disabled"}, "citation_unverified"),
        ((REVIEW, "ungrounded"), {"status": "failed"}, "dedup_unavailable"),
        # a claim with grounds is in review for the first cap that lowers it
        (lowered, {"parents": blocked, "status": "failed"}, "dedup_unavailable"),
        (lowered, {"parents": blocked, "matches": ["rejected", "approved"]}, "conflicting_near_duplicate"),
        (lowered, {"parents": blocked, "matches": ["pending", "rejected"]}, "previously_rejected"),
        (lowered, {"parents": blocked, "matches": ["pending"]}, "derived_from_unapproved"),
        (lowered, {"parents": blocked}, "derived_from_unapproved"),
        (lowered, {"parents": approved}, "citation_unverified"),
        ((REVIEW, "ai_synthesis_held"), {"parents": approved}, "ai_synthesis_held"),
        (
            (REVIEW, "trusted_source", "hidden_text"),
            {"parents": blocked, "matches": ["approved"]},
            "hidden_text",
        ),
        # after an action the action is the reason; an approval that was blocked is a duplicate
        *(
            ((tier, "technical_hedge"), {"review": {"action": action}, "matches": ["rejected"]}, code)
            for action, tier, code in (
                ("approve", BLOCK, "duplicate"),
                ("approve", APPROVE, "human_approved"),
                ("approve", REVIEW, "human_approved"),
                ("reject", BLOCK, "human_rejected"),
                ("retract", BLOCK, "retracted"),
                ("expire", BLOCK, "review_expired"),
            )
        ),
    ]
    found = [(given, facts, reason(*given, **facts), code) for given, facts, code in table]
    assert [one for one in found if one[2] != one[3]] == []

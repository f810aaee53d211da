"""What a claim's decision says was looked at, and whom a cap leaves alone: each branch by itself."""

from __future__ import annotations

from typing import Any

import pytest

from groundwire.decide.checks import Checks, list_checks
from groundwire.decide.claims import ClaimCase, Finding
from groundwire.decide.reading import read
from groundwire.messages.claims import Claim
from groundwire.messages.decisions import CitationState, DedupFacts, DedupMatch, Facts, Place
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
    return ClaimCase(claim, read(content, policy), policy, facts, findings)


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
    verified = {"adr:003": Finding(CitationState.VERIFIED, "", NOW)}
    assert "relevance_skipped" in checks(content=CITED, findings=verified).skipped
    assert "relevance_skipped" in checks(content=CITED, policy=asked).skipped
    assert "relevance_skipped" not in checks(content=CITED, policy=asked, findings=verified).skipped


def test_a_duplicate_without_a_difference_is_no_conflict() -> None:
    match = DedupMatch(subject_id="m", inter=9, union=9, difference="none", match_class="approved")  # type: ignore[call-arg, arg-type]
    assert [name for name in checks(matches=[match]).failed if "duplicate" in name] == ["duplicate: m"]


def test_a_text_that_could_not_be_read_says_nothing_of_hedges_and_citations() -> None:
    found = judged(f"I think it may be so. {CITED}", error="ValueError")
    assert (found.reading.hedges, found.reading.citations, found.outcome().code) == ((), (), "internal_error")

"""What a decision holds of its case beside the checks: places in a chain, matches, sources, what is cut."""

from __future__ import annotations

from typing import Any

import pytest

from groundwire.decide.build import Envelope, build_decision, build_response_decision, primary_source
from groundwire.decide.claims import ClaimCase, Finding
from groundwire.decide.reading import read
from groundwire.messages.claims import Claim
from groundwire.messages.decisions import CitationState, Decision, DedupFacts, DedupMatch, Facts, Origin
from groundwire.messages.identity import Subject, decision_id
from groundwire.policy import Policy
from tests.unit.decide.test_response_case import clean_case, clean_reading, index_of
from tests.unit.gate.world import NOW


def envelope(revision: int = 1) -> Envelope:
    return Envelope(
        revision=revision,
        fingerprint="f" * 64,
        origin=Origin(topic="t", partition=0, offset=1, timestamp=NOW, sha256="0" * 64),
        subject_origin=None,
        decided_at=NOW,
        capture_time=NOW,
        metadata={},
        engine="1",
        policy_sha256="0" * 64,
        policy_version="v",
    )


def case_of(content: str, findings: dict[str, Finding] | None = None, **facts: Any) -> ClaimCase:
    claim = Claim(claim_id="c1", user_id="ada", content=content)
    policy = Policy()
    return ClaimCase(claim, read(content, policy), policy, Facts(clock=NOW, **facts), findings or {})


def built(case: ClaimCase, revision: int = 1) -> Decision:
    return build_decision(case, envelope(revision), case.outcome())


def test_the_first_decision_replaces_none_and_each_later_one_that_before_it() -> None:
    case = case_of("The API returns JSON")
    subject = Subject(case.claim.tenant_id, "ada", "claim", "c1")  # type: ignore[arg-type]
    assert [built(case, revision).supersedes for revision in (1, 2, 3)] == [
        None,
        decision_id(subject, 1),
        decision_id(subject, 2),
    ]


def test_a_decision_names_its_match_and_how_much_they_share_to_four_decimals() -> None:
    match = DedupMatch.model_validate(
        {"subject_id": "m", "inter": 19, "union": 21, "difference": "none", "match_class": "approved"}
    )
    found = built(case_of("It is so", dedup=DedupFacts(status="ok", scheme="s", matches=[match])))
    assert (found.conflicting_memory_id, found.similarity_score) == ("m", 0.9048)
    alone = built(case_of("It is so", dedup=DedupFacts(status="ok", scheme="s", matches=[])))
    assert (alone.conflicting_memory_id, alone.similarity_score) == (None, None)


def test_the_source_of_a_claim_is_its_first_verified_citation_and_else_its_first_one() -> None:
    text = "Per ADR-003 and ADR-004, we use it"
    verified = {"adr:004": Finding(CitationState.VERIFIED, "", NOW)}
    second, first = primary_source(case_of(text, verified)), primary_source(case_of(text))
    assert first is not None
    assert second is not None
    assert ("003" in first, "004" in second) == (True, True)
    assert primary_source(case_of("The API returns JSON")) is None


@pytest.mark.parametrize(("given", "told"), [(500, 500), (501, 500)])
def test_what_checking_a_citation_gave_is_told_in_five_hundred_characters(given: int, told: int) -> None:
    finding = Finding(CitationState.UNKNOWN, "d" * given, NOW)
    (citation,) = built(case_of("Per ADR-003, we use it", {"adr:003": finding})).citations
    assert citation.detail == "d" * told


def test_a_response_counts_what_its_report_leaves_out_and_says_nothing_where_that_is_nothing() -> None:
    for stale, left_out in ((100, None), (103, {"report.warnings": 3, "checks_failed": 3})):
        case = clean_case(reading=clean_reading(index=index_of([f"f{n}" for n in range(stale)], [])))
        decision = build_response_decision(case, envelope(), case.outcome())
        assert decision.truncated == left_out


def test_only_the_first_hundred_citations_of_a_text_are_verified() -> None:
    found = read(" ".join(f"ADR-{n}" for n in range(1, 104)), Policy())
    assert len(found.citations) == 103
    assert found.verifiable == found.citations[:100]

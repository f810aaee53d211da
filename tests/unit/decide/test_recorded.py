"""What another engine recorded can be told from what state keeps: the same tier, reason and code."""

from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire.decide.claims import ClaimCase, Finding, prejudge
from groundwire.decide.reading import read
from groundwire.decide.recorded import recorded_standing
from groundwire.gate.prepared import as_finding
from groundwire.messages.claims import Claim
from groundwire.messages.decisions import CitationState, DedupFacts, DedupMatch, Facts, ParentFact, Place
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
    findings = {"adr:003": Finding(CitationState.VERIFIED, "", NOW)}
    relevance = [
        {"start": citation.start, "relevant": relevant} for citation in read(content, policy).citations
    ]
    known = {"clock": NOW, "attestation": None, "relevance": relevance, "error": error}
    judged = prejudge(claim, read(content, policy), policy, findings, **known)
    status = "failed" if error else status
    facts = {
        **known,
        "dedup": DedupFacts(status=status, scheme="s", matches=found if status == "ok" else []),
        "parents": [ParentFact(id="p", state=parent)] if parent else [],
    }
    first = ClaimCase(claim, read(content, policy), policy, Facts(**facts), findings)
    asks_for_place = first.standing().tier == "tier_2" and not first.bearing.pending
    facts["place"] = Place(place) if asks_for_place else Place.NOT_NEEDED
    case = ClaimCase(claim, read(content, policy), policy, Facts(**facts), findings)
    standing = case.outcome()
    joined = standing.code == "pending_duplicate"
    told = recorded_standing(case, standing.tier, judged.base.code, judged.cap, joined=joined)
    assert told == standing


def test_a_finding_keeps_a_short_detail_and_never_the_sources_text():
    check = CitationCheck(CitationState.VERIFIED, "x" * 400, NOW, text="secret")
    finding = as_finding(check)
    assert finding == Finding(CitationState.VERIFIED, "x" * 100, NOW)

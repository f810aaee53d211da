"""The tree: nine branches, in this order, for every input (S0-04 to S0-20)."""

import itertools
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.hedges import HedgeAction
from groundwire.gate.tree import cap, determine_tier, explain, is_code, reviewed
from groundwire.messages.decisions import IngestionTier, ReasonCode, Tier
from groundwire.policy import TRUSTED_SOURCES, Policy


class Inputs(NamedTuple):
    hedge: HedgeAction
    duplicate: bool
    failed: bool
    verified: bool
    source: str
    kind: str


def test_every_input_gets_the_first_branch_that_applies():
    """The branches are written down from the requirements, apart from the code."""
    branches = [
        (lambda i: i.hedge == "block", "tier_3", "Contains personal speculation"),
        (lambda i: i.duplicate, "tier_3", "Duplicate of existing memory"),
        (lambda i: i.hedge == "review", "tier_2", "Contains technical hedges - needs verification"),
        (lambda i: i.failed, "tier_2", "Dedup check failed - cannot verify uniqueness"),
        (lambda i: i.verified, "tier_1", "Has verified citation"),
        (lambda i: i.source in TRUSTED_SOURCES, "tier_1", "From trusted source: {}"),
        (
            lambda i: (i.kind, i.source) == ("decision", "conversation"),
            "tier_1",
            "Decision stated in conversation",
        ),
        (
            lambda i: i.kind == "preference" and i.source in {"conversation", "chat"},
            "tier_1",
            "Preference stated by user",
        ),
        (lambda _: True, "tier_2", "Ungrounded assertion needs verification"),
    ]
    sources = [*sorted(TRUSTED_SOURCES), "conversation", "chat", "ai_synthesis", "User", ""]
    kinds = ["fact", "preference", "decision", "other"]
    flags = (True, False)
    wrong = []
    for one in itertools.product(HedgeAction, flags, flags, flags, sources, kinds):
        inputs = Inputs(*one)
        tier, reason = next((t, r) for holds, t, r in branches if holds(inputs))
        if determine_tier(*inputs) != (tier, reason.format(inputs.source)):
            wrong.append(inputs)
    assert wrong == []


def test_the_arguments_have_the_published_names_and_the_tiers_their_wire_values():
    """S0-01, S0-04."""
    assert determine_tier(
        hedge_result=HedgeAction.CONTINUE,
        is_duplicate=False,
        dedup_failed=False,
        has_verified_citation=True,
        source="ai_synthesis",
        memory_type="fact",
    ) == (Tier.AUTO_APPROVE, "Has verified citation")
    assert Tier is IngestionTier
    tiers = {tier.name: tier.value for tier in Tier}
    assert tiers == {"AUTO_APPROVE": "tier_1", "FLAG_REVIEW": "tier_2", "BLOCK": "tier_3"}


@given(st.sampled_from(HedgeAction), st.booleans(), st.booleans(), st.text(), st.text())
def test_taking_away_a_verified_citation_or_failing_dedup_never_raises_a_tier(
    hedge, dup, failed, source, kind
):
    """S0-21: fail-closed."""
    order = list(IngestionTier)
    inputs = Inputs(hedge, dup, failed, verified=True, source=source, kind=kind)
    best = order.index(determine_tier(*inputs)[0])
    assert order.index(determine_tier(*inputs._replace(verified=False))[0]) >= best
    assert order.index(determine_tier(*inputs._replace(failed=True))[0]) >= max(best, 1)


def test_trusted_sources_are_these_five_and_configurable():
    """S0-18."""
    assert {"user", "documentation", "adr", "commit", "manual"} == TRUSTED_SOURCES == Policy().trusted_sources
    inputs = Inputs(
        HedgeAction.CONTINUE, duplicate=False, failed=False, verified=False, source="user", kind=""
    )
    assert determine_tier(*inputs, trusted_sources={"wiki"})[0] == "tier_2"


def test_the_reasons_are_a_closed_list_and_each_has_a_sentence():
    codes = """
    expired personal_speculation duplicate technical_hedge dedup_unavailable verified_citation trusted_source
    stated_decision stated_preference ungrounded source_unattested citation_unverified hidden_text
    conflicting_near_duplicate grounding_unattested verification_bypassed previously_rejected
    derived_from_unapproved citation_irrelevant ai_synthesis_held pending_duplicate review_queue_full
    human_approved human_rejected review_expired retracted internal_error entity_grounding_failed
    relation_preservation_failed quotes_rejected critical_gap low_confidence check_unavailable phantom_source
    snippet_mismatch unverified_fields stale_index flagged_claims nothing_to_ground_on grounded
    """
    assert {str(code) for code in ReasonCode} == set(codes.split())
    sentences = {code: explain(IngestionTier.FLAG_REVIEW, code, "user").reason for code in ReasonCode}
    assert [code for code, sentence in sentences.items() if not sentence or "{" in sentence] == []
    braces = explain(IngestionTier.AUTO_APPROVE, ReasonCode.TRUSTED_SOURCE, "{x}")
    assert braces.reason == "From trusted source: {x}"


def test_a_cap_is_a_review_with_the_sentence_of_its_code_except_for_an_unverified_citation():
    for code in ReasonCode:
        same = cap(code) == explain(IngestionTier.FLAG_REVIEW, code)
        assert same == (code != ReasonCode.CITATION_UNVERIFIED)
        assert cap(code)[::2] == (IngestionTier.FLAG_REVIEW, code)
    sentence = "A citation could not be verified - needs verification"
    assert cap(ReasonCode.CITATION_UNVERIFIED).reason == sentence


def test_an_action_approves_only_what_still_holds_and_is_new():
    table = [
        ("approve", False, False, "human_approved"),
        ("approve", False, True, "duplicate"),
        ("approve", True, True, "expired"),
        ("edit", True, False, "expired"),
        ("reject", True, True, "human_rejected"),
        ("expire", False, False, "review_expired"),
        ("retract", True, True, "retracted"),
    ]
    for action, expired, duplicate, code in table:
        found = reviewed(action, expired=expired, duplicate=duplicate)
        assert (found.code, found.tier == "tier_1") == (code, code == "human_approved")


def test_a_reviewers_reason_is_a_short_code_of_plain_characters():
    assert all(map(is_code, ["outdated", "Not-True.2", "r" * 64, "7", "a_b"]))
    assert not any(map(is_code, ["", "a b", "ä", "a\n", "-a", ".a", "r" * 65, "<b>"]))

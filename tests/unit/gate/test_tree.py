"""The tree: nine branches, in this order, for every input (S0-04 to S0-20)."""

import itertools
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.checks.hedges import HedgeAction
from groundwire.gate.tree import cap, determine_tier, explain
from groundwire.messages.decisions import IngestionTier, ReasonCode, Tier
from groundwire.policy import TRUSTED_SOURCES, Policy

SOURCES = [*sorted(TRUSTED_SOURCES), "conversation", "chat", "ai_synthesis", "User", ""]
TYPES = ["fact", "preference", "decision", "other"]


class Inputs(NamedTuple):
    hedge: HedgeAction
    duplicate: bool
    failed: bool
    verified: bool
    source: str
    kind: str


# what a branch asks for, and what it answers: written down from the rows, apart from the code
BRANCHES = [
    (lambda i: i.hedge == "block", "tier_3", "Contains personal speculation"),
    (lambda i: i.duplicate, "tier_3", "Duplicate of existing memory"),
    (lambda i: i.hedge == "review", "tier_2", "Contains technical hedges - needs verification"),
    (lambda i: i.failed, "tier_2", "Dedup check failed - cannot verify uniqueness"),
    (lambda i: i.verified, "tier_1", "Has verified citation"),
    (lambda i: i.source in TRUSTED_SOURCES, "tier_1", "From trusted source: {}"),
    (
        lambda i: i.kind == "decision" and i.source == "conversation",
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


@pytest.mark.parametrize("hedge", HedgeAction)
def test_every_input_gets_the_first_branch_that_applies_and_the_same_twice(hedge):
    flags = (True, False)
    for inputs in itertools.product(flags, flags, flags, SOURCES, TYPES):
        arguments = Inputs(hedge, *inputs)
        tier, reason = next((t, r) for holds, t, r in BRANCHES if holds(arguments))
        assert determine_tier(*arguments) == (tier, reason.format(arguments.source)), arguments
        assert determine_tier(*arguments) == determine_tier(*arguments)


def test_the_arguments_have_the_published_names():
    """S0-04: they can be given by name."""
    assert determine_tier(
        hedge_result=HedgeAction.CONTINUE,
        is_duplicate=False,
        dedup_failed=False,
        has_verified_citation=True,
        source="ai_synthesis",
        memory_type="fact",
    ) == (Tier.AUTO_APPROVE, "Has verified citation")


@given(st.sampled_from(HedgeAction), st.booleans(), st.booleans(), st.text(), st.text())
def test_taking_away_a_verified_citation_or_failing_dedup_never_raises_a_tier(
    hedge, dup, failed, source, kind
):
    """S0-21: fail-closed."""
    order = list(IngestionTier)
    inputs = Inputs(hedge, dup, failed, verified=True, source=source, kind=kind)
    best = order.index(determine_tier(*inputs)[0])
    assert order.index(determine_tier(*inputs._replace(verified=False))[0]) >= best
    worst = order.index(determine_tier(*inputs._replace(failed=True))[0])
    assert worst >= max(best, 1)


@pytest.mark.parametrize(
    ("arguments", "tier"),
    [
        ((HedgeAction.BLOCK, False, False, True, "user", "fact"), "tier_3"),  # S0-14
        ((HedgeAction.REVIEW, False, False, True, "user", "fact"), "tier_2"),  # S0-15
        ((HedgeAction.CONTINUE, True, False, True, "user", "fact"), "tier_3"),  # S0-16
        ((HedgeAction.CONTINUE, False, True, True, "user", "fact"), "tier_2"),  # S0-17
        ((HedgeAction.CONTINUE, False, False, False, "chat", "decision"), "tier_2"),  # S0-19
        ((HedgeAction.CONTINUE, False, False, False, "chat", "preference"), "tier_1"),  # S0-19
        ((HedgeAction.CONTINUE, False, False, False, "conversation", "fact"), "tier_2"),  # S0-20
    ],
)
def test_precedence_examples(arguments, tier):
    assert determine_tier(*arguments)[0] == tier


def test_tiers_are_three_and_equal_their_wire_values():
    """S0-01."""
    assert Tier is IngestionTier
    assert {tier.name: tier.value for tier in Tier} == {
        "AUTO_APPROVE": "tier_1",
        "FLAG_REVIEW": "tier_2",
        "BLOCK": "tier_3",
    }
    assert Tier.BLOCK == "tier_3"


def test_trusted_sources_are_these_five_and_configurable():
    """S0-18."""
    five = {"user", "documentation", "adr", "commit", "manual"}
    assert five == TRUSTED_SOURCES == Policy().trusted_sources
    inputs = Inputs(
        HedgeAction.CONTINUE, duplicate=False, failed=False, verified=False, source="user", kind="fact"
    )
    only_wiki = determine_tier(*inputs, trusted_sources={"wiki"})
    assert only_wiki[0] == "tier_2"


@pytest.mark.parametrize("code", ReasonCode)
def test_every_reason_has_a_sentence(code):
    """The list of reasons is closed: each can be given to a person."""
    sentence = explain(IngestionTier.FLAG_REVIEW, code, "user").reason
    assert sentence
    assert "{" not in sentence


def test_a_cap_is_always_a_review():
    assert {cap(code).tier for code in ReasonCode} == {IngestionTier.FLAG_REVIEW}


def test_a_source_with_braces_is_named_as_it_is():
    assert (
        explain(IngestionTier.AUTO_APPROVE, ReasonCode.TRUSTED_SOURCE, "{x}").reason
        == "From trusted source: {x}"
    )


CONTRACT_REASONS = """
expired personal_speculation duplicate technical_hedge dedup_unavailable verified_citation trusted_source
stated_decision stated_preference ungrounded source_unattested citation_unverified hidden_text
conflicting_near_duplicate grounding_unattested verification_bypassed
previously_rejected derived_from_unapproved citation_irrelevant ai_synthesis_held pending_duplicate
review_queue_full human_approved human_rejected review_expired retracted internal_error
entity_grounding_failed relation_preservation_failed quotes_rejected critical_gap low_confidence check_unavailable
phantom_source snippet_mismatch unverified_fields stale_index flagged_claims nothing_to_ground_on grounded
"""


def test_the_reasons_are_a_closed_list():
    assert {str(code) for code in ReasonCode} == set(CONTRACT_REASONS.split())

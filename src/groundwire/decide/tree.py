"""The decision tree: exactly nine branches, first that applies (S0-04 to S0-20).

What stands around it (expiry, caps, places in the queue) is in `groundwire.decide.claims`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from groundwire.checks.hedges import HedgeAction
from groundwire.messages.decisions import ReasonCode
from groundwire.messages.tiers import IngestionTier
from groundwire.policy import TRUSTED_SOURCES

CONVERSATION = "conversation"
CONVERSATIONS = frozenset({CONVERSATION, "chat"})


class Standing(NamedTuple):
    """A tier, why in a sentence, and why in a code."""

    tier: IngestionTier
    reason: str
    code: ReasonCode


def determine_tier(
    hedge_result: HedgeAction,
    is_duplicate: bool,  # noqa: FBT001 - the published signature
    dedup_failed: bool,  # noqa: FBT001
    has_verified_citation: bool,  # noqa: FBT001
    source: str,
    memory_type: str,
    *,
    trusted_sources: Collection[str] = TRUSTED_SOURCES,
) -> tuple[IngestionTier, str]:
    """Determine the tier of a claim from its grounding evidence; pure.

    Args:
        hedge_result: the strictest hedge found.
        is_duplicate: an approved claim in scope says the same.
        dedup_failed: the claim could not be compared (S0-17: no grounding outranks that).
        has_verified_citation: a citation was checked and exists; a detected one is not enough (S0-22).
        source: who says so.
        memory_type: `fact`, `preference` or `decision`.
        trusted_sources: sources that ground a claim by themselves (S0-18).

    Returns:
        The tier and the sentence that gives the reason.
    """
    tier, reason, _ = grow(
        hedge_result,
        is_duplicate=is_duplicate,
        dedup_failed=dedup_failed,
        has_verified_citation=has_verified_citation,
        source=source,
        memory_type=memory_type,
        trusted_sources=trusted_sources,
    )
    return tier, reason


def grow(  # noqa: PLR0911 - nine branches, one exit each, read top down
    hedge: HedgeAction,
    *,
    is_duplicate: bool,
    dedup_failed: bool,
    has_verified_citation: bool,
    source: str,
    memory_type: str,
    trusted_sources: Collection[str],
) -> Standing:
    """Walk the tree; as `determine_tier`, with the reason's code."""
    if hedge == HedgeAction.BLOCK:
        return Standing(IngestionTier.BLOCK, "Contains personal speculation", ReasonCode.PERSONAL_SPECULATION)
    if is_duplicate:
        return Standing(IngestionTier.BLOCK, "Duplicate of existing memory", ReasonCode.DUPLICATE)
    if hedge == HedgeAction.REVIEW:
        reason = "Contains technical hedges - needs verification"
        return Standing(IngestionTier.FLAG_REVIEW, reason, ReasonCode.TECHNICAL_HEDGE)
    if dedup_failed:
        reason = "Dedup check failed - cannot verify uniqueness"
        return Standing(IngestionTier.FLAG_REVIEW, reason, ReasonCode.DEDUP_UNAVAILABLE)
    if has_verified_citation:
        return Standing(IngestionTier.AUTO_APPROVE, "Has verified citation", ReasonCode.VERIFIED_CITATION)
    if source in trusted_sources:
        return Standing(
            IngestionTier.AUTO_APPROVE, f"From trusted source: {source}", ReasonCode.TRUSTED_SOURCE
        )
    if memory_type == "decision" and source == CONVERSATION:
        reason = "Decision stated in conversation"
        return Standing(IngestionTier.AUTO_APPROVE, reason, ReasonCode.STATED_DECISION)
    if memory_type == "preference" and source in CONVERSATIONS:
        return Standing(IngestionTier.AUTO_APPROVE, "Preference stated by user", ReasonCode.STATED_PREFERENCE)
    reason = "Ungrounded assertion needs verification"
    return Standing(IngestionTier.FLAG_REVIEW, reason, ReasonCode.UNGROUNDED)

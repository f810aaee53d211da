"""The decision tree: exactly nine branches, first that applies (S0-04 to S0-20).

What stands around it (expiry, caps, places in the queue) is in `groundwire.decide.claims`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from groundwire.checks.hedges import HedgeAction
from groundwire.messages.decisions import ReasonCode
from groundwire.messages.tiers import IngestionTier
from groundwire.policy import TRUSTED_SOURCES

CONVERSATION = "conversation"
CONVERSATIONS = frozenset({CONVERSATION, "chat"})


_UNGROUNDED: Final = "Ungrounded assertion needs verification"
_SENTENCES: Final = {
    ReasonCode.EXPIRED: "The claim's validity horizon has passed",
    ReasonCode.PERSONAL_SPECULATION: "Contains personal speculation",
    ReasonCode.DUPLICATE: "Duplicate of existing memory",
    ReasonCode.TECHNICAL_HEDGE: "Contains technical hedges - needs verification",
    ReasonCode.DEDUP_UNAVAILABLE: "Dedup check failed - cannot verify uniqueness",
    ReasonCode.VERIFIED_CITATION: "Has verified citation",
    ReasonCode.TRUSTED_SOURCE: "From trusted source: {source}",
    ReasonCode.STATED_DECISION: "Decision stated in conversation",
    ReasonCode.STATED_PREFERENCE: "Preference stated by user",
    ReasonCode.UNGROUNDED: _UNGROUNDED,
    ReasonCode.SOURCE_UNATTESTED: _UNGROUNDED,
    ReasonCode.CITATION_UNVERIFIED: _UNGROUNDED,
    ReasonCode.CONFLICTING_NEAR_DUPLICATE: "Conflicts with existing memory - needs verification",
    ReasonCode.PREVIOUSLY_REJECTED: "Similar to a text that a person rejected - needs verification",
    ReasonCode.DERIVED_FROM_UNAPPROVED: "Rests on something not approved - needs verification",
    ReasonCode.CITATION_IRRELEVANT: "Verified citation does not support the claim - needs verification",
    ReasonCode.AI_SYNTHESIS_HELD: "AI synthesis is held for review by policy",
    ReasonCode.PENDING_DUPLICATE: "Same claim is already waiting for review",
    ReasonCode.REVIEW_QUEUE_FULL: "Review queue is full - send the claim again later",
    ReasonCode.HUMAN_APPROVED: "Approved by a reviewer",
    ReasonCode.HUMAN_REJECTED: "Rejected by a reviewer",
    ReasonCode.REVIEW_EXPIRED: "Not reviewed in time",
    ReasonCode.RETRACTED: "Approval was withdrawn",
    ReasonCode.INTERNAL_ERROR: "Internal error - needs verification",
    ReasonCode.ENTITY_GROUNDING_FAILED: "Names entities that the corpus does not hold",
    ReasonCode.RELATION_PRESERVATION_FAILED: "States relations that the sources do not hold",
    ReasonCode.QUOTES_REJECTED: "Quotes do not stand in the transcript",
    ReasonCode.CRITICAL_GAP: "A claim is not supported by its evidence",
    ReasonCode.LOW_CONFIDENCE: "Validation confidence is too low",
    ReasonCode.CHECK_UNAVAILABLE: "A check could not run - needs verification",
    ReasonCode.PHANTOM_SOURCE: "Cites a source that was not retrieved",
    ReasonCode.SNIPPET_MISMATCH: "Cites a passage that is not where it says",
    ReasonCode.UNVERIFIED_FIELDS: "Names fields that the sources do not hold",
    ReasonCode.STALE_INDEX: "Sources have changed since they were indexed",
    ReasonCode.FLAGGED_CLAIMS: "Parts of the answer are not supported - needs verification",
    ReasonCode.NOTHING_TO_GROUND_ON: "Nothing to ground the answer on - needs verification",
    ReasonCode.GROUNDED: "Grounded in its sources",
}


class Standing(NamedTuple):
    """A tier, why in a sentence, and why in a code."""

    tier: IngestionTier
    reason: str
    code: ReasonCode


def stand(tier: IngestionTier, code: ReasonCode, source: str = "") -> Standing:
    """Return a tier with its reason; `source` is named by the sentence for trusted sources."""
    return Standing(tier, _SENTENCES[code].replace("{source}", source), code)


def cap(code: ReasonCode) -> Standing:
    """Return the review that a cap turns an approval into."""
    if code == ReasonCode.CITATION_UNVERIFIED:  # as a branch of the tree it has the seed's sentence
        reason = "A citation could not be verified - needs verification"
        return Standing(IngestionTier.FLAG_REVIEW, reason, code)
    return stand(IngestionTier.FLAG_REVIEW, code)


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
        return stand(IngestionTier.BLOCK, ReasonCode.PERSONAL_SPECULATION)
    if is_duplicate:
        return stand(IngestionTier.BLOCK, ReasonCode.DUPLICATE)
    if hedge == HedgeAction.REVIEW:
        return stand(IngestionTier.FLAG_REVIEW, ReasonCode.TECHNICAL_HEDGE)
    if dedup_failed:
        return stand(IngestionTier.FLAG_REVIEW, ReasonCode.DEDUP_UNAVAILABLE)
    if has_verified_citation:
        return stand(IngestionTier.AUTO_APPROVE, ReasonCode.VERIFIED_CITATION)
    if source in trusted_sources:
        return stand(IngestionTier.AUTO_APPROVE, ReasonCode.TRUSTED_SOURCE, source)
    if memory_type == "decision" and source == CONVERSATION:
        return stand(IngestionTier.AUTO_APPROVE, ReasonCode.STATED_DECISION)
    if memory_type == "preference" and source in CONVERSATIONS:
        return stand(IngestionTier.AUTO_APPROVE, ReasonCode.STATED_PREFERENCE)
    return stand(IngestionTier.FLAG_REVIEW, ReasonCode.UNGROUNDED)

"""The tiers that a claim can get, each with its reason: the decision tree, and what people decide.

The tree has exactly nine branches, first that applies (S0-04 to S0-20). What stands around it (expiry, caps, places in
the queue) is in `groundwire.gate.claim_case`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final, NamedTuple

from groundwire.arguments import takes
from groundwire.checks.hedges import HedgeAction
from groundwire.messages.decisions import IngestionTier, ReasonCode
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
    ReasonCode.HIDDEN_TEXT: "Holds characters that hide text - needs verification",
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
    ReasonCode.GROUNDING_UNATTESTED: "Nobody vouches for what the model was given - needs verification",
    ReasonCode.PHANTOM_SOURCE: "Cites a source that was not retrieved",
    ReasonCode.SNIPPET_MISMATCH: "Cites a passage that is not where it says",
    ReasonCode.UNVERIFIED_FIELDS: "Names fields that the sources do not hold",
    ReasonCode.STALE_INDEX: "Sources have changed since they were indexed",
    ReasonCode.FLAGGED_CLAIMS: "Parts of the answer are not supported - needs verification",
    ReasonCode.VERIFICATION_BYPASSED: "Verification was bypassed - needs verification",
    ReasonCode.NOTHING_TO_GROUND_ON: "Nothing to ground the answer on - needs verification",
    ReasonCode.GROUNDED: "Grounded in its sources",
}


class TreeOutcome(NamedTuple):
    """A tier, why in a sentence, and why in a code."""

    tier: IngestionTier
    reason: str
    code: ReasonCode


def explain(tier: IngestionTier, code: ReasonCode, source: str = "") -> TreeOutcome:
    """Return a tier with the sentence for its reason; that for trusted sources names the `source`."""
    return TreeOutcome(tier, _SENTENCES[code].replace("{source}", source), code)


def cap(code: ReasonCode) -> TreeOutcome:
    """Return the review that a cap turns an approval into."""
    if code == ReasonCode.CITATION_UNVERIFIED:  # as a branch of the tree it has that of UNGROUNDED
        reason = "A citation could not be verified - needs verification"
        return TreeOutcome(IngestionTier.FLAG_REVIEW, reason, code)
    return explain(IngestionTier.FLAG_REVIEW, code)


@takes(
    hedge_result=HedgeAction,
    is_duplicate=bool,
    dedup_failed=bool,
    has_verified_citation=bool,
    source=str,
    memory_type=str,
)
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
    tier, reason, _ = evaluate_tree(
        hedge_result,
        is_duplicate=is_duplicate,
        dedup_failed=dedup_failed,
        has_verified_citation=has_verified_citation,
        source=source,
        memory_type=memory_type,
        trusted_sources=trusted_sources,
    )
    return tier, reason


def evaluate_tree(
    hedge: HedgeAction,
    *,
    is_duplicate: bool,
    dedup_failed: bool,
    has_verified_citation: bool,
    source: str,
    memory_type: str,
    trusted_sources: Collection[str],
) -> TreeOutcome:
    """Walk the tree; as `determine_tier`, with the reason's code."""
    if hedge == HedgeAction.BLOCK:
        return explain(IngestionTier.BLOCK, ReasonCode.PERSONAL_SPECULATION)
    if is_duplicate:
        return explain(IngestionTier.BLOCK, ReasonCode.DUPLICATE)
    if hedge == HedgeAction.REVIEW:
        return explain(IngestionTier.FLAG_REVIEW, ReasonCode.TECHNICAL_HEDGE)
    if dedup_failed:
        return explain(IngestionTier.FLAG_REVIEW, ReasonCode.DEDUP_UNAVAILABLE)
    if has_verified_citation:
        return explain(IngestionTier.AUTO_APPROVE, ReasonCode.VERIFIED_CITATION)
    if source in trusted_sources:
        return explain(IngestionTier.AUTO_APPROVE, ReasonCode.TRUSTED_SOURCE, source)
    if memory_type == "decision" and source == CONVERSATION:
        return explain(IngestionTier.AUTO_APPROVE, ReasonCode.STATED_DECISION)
    if memory_type == "preference" and source in CONVERSATIONS:
        return explain(IngestionTier.AUTO_APPROVE, ReasonCode.STATED_PREFERENCE)
    return explain(IngestionTier.FLAG_REVIEW, ReasonCode.UNGROUNDED)


_CODE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

_BLOCKED: Final = {
    "reject": ReasonCode.HUMAN_REJECTED,
    "expire": ReasonCode.REVIEW_EXPIRED,
    "retract": ReasonCode.RETRACTED,
}


def is_code(reason: str) -> bool:
    """Say whether a reviewer's reason is a code: 1 to 64 ASCII letters, digits, `_`, `.` or `-`, no text.

    Which codes there are is agreed between those who give them and those who count them: the console and the command
    have a list of theirs (`groundwire.review.actions.RejectReason`), other producers may have another.
    """
    return _CODE.fullmatch(reason) is not None


def reviewed(action: str, *, expired: bool, duplicate: bool) -> TreeOutcome:
    """Return tier and reason after an action."""
    if action in _BLOCKED:
        return explain(IngestionTier.BLOCK, _BLOCKED[action])
    if expired:
        return explain(IngestionTier.BLOCK, ReasonCode.EXPIRED)
    if duplicate:
        return explain(IngestionTier.BLOCK, ReasonCode.DUPLICATE)
    return explain(IngestionTier.AUTO_APPROVE, ReasonCode.HUMAN_APPROVED)

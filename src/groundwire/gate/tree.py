"""The tiers that a claim can get, each with its reason: the decision tree, and what people decide.

The tree has exactly nine branches, first that applies (S0-04 to S0-20). Expiry and caps are in
`groundwire.gate.claim_case`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from importlib.resources import files
from typing import Final, NamedTuple

from groundwire.arguments import takes
from groundwire.checks.hedges import HedgeAction
from groundwire.messages.decisions import IngestionTier, Place, ReasonCode
from groundwire.policy import TRUSTED_SOURCES

CONVERSATION = "conversation"
CONVERSATIONS = frozenset({CONVERSATION, "chat"})

TIERS: Final = tuple(IngestionTier)
_SENTENCES: Final = {
    ReasonCode(code): sentence
    for code, sentence in tomllib.loads((files(__package__) / "reasons.toml").read_text("utf-8")).items()
}


class TreeOutcome(NamedTuple):
    tier: IngestionTier
    reason: str
    code: ReasonCode

    @property
    def number(self) -> int:
        """The tier as state knows it: 1, 2 or 3."""
        return TIERS.index(self.tier) + 1


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
    grounds = evaluate_tree(
        hedge_result,
        has_verified_citation=has_verified_citation,
        source=source,
        memory_type=memory_type,
        trusted_sources=trusted_sources,
    )
    tier, reason, _ = compared(grounds, is_duplicate=is_duplicate, dedup_failed=dedup_failed)
    return tier, reason


def evaluate_tree(
    hedge: HedgeAction,
    *,
    has_verified_citation: bool,
    source: str,
    memory_type: str,
    trusted_sources: Collection[str],
) -> TreeOutcome:
    """Walk the tree as if the claim had been compared and were new; as `determine_tier`, with the reason's code."""
    if hedge == HedgeAction.BLOCK:
        return explain(IngestionTier.BLOCK, ReasonCode.PERSONAL_SPECULATION)
    if hedge == HedgeAction.REVIEW:
        return explain(IngestionTier.FLAG_REVIEW, ReasonCode.TECHNICAL_HEDGE)
    if has_verified_citation:
        return explain(IngestionTier.AUTO_APPROVE, ReasonCode.VERIFIED_CITATION)
    if source in trusted_sources:
        return explain(IngestionTier.AUTO_APPROVE, ReasonCode.TRUSTED_SOURCE, source)
    if memory_type == "decision" and source == CONVERSATION:
        return explain(IngestionTier.AUTO_APPROVE, ReasonCode.STATED_DECISION)
    if memory_type == "preference" and source in CONVERSATIONS:
        return explain(IngestionTier.AUTO_APPROVE, ReasonCode.STATED_PREFERENCE)
    return explain(IngestionTier.FLAG_REVIEW, ReasonCode.UNGROUNDED)


def compared(base: TreeOutcome, *, is_duplicate: bool, dedup_failed: bool) -> TreeOutcome:
    """Apply the tree's two branches of the comparison, each at its place among the others."""
    if base.tier == IngestionTier.BLOCK or base.code == ReasonCode.INTERNAL_ERROR:
        return base
    if is_duplicate:
        return explain(IngestionTier.BLOCK, ReasonCode.DUPLICATE)
    if dedup_failed and base.code != ReasonCode.TECHNICAL_HEDGE:
        return explain(IngestionTier.FLAG_REVIEW, ReasonCode.DEDUP_UNAVAILABLE)
    return base


def queued(judged: TreeOutcome, place: Place, *, joins: bool = False) -> TreeOutcome:
    """Apply the answer of the review queue; `joins`: the claim follows one that is pending (C-09)."""
    if judged.tier != IngestionTier.FLAG_REVIEW:
        return judged
    if joins:
        return explain(IngestionTier.FLAG_REVIEW, ReasonCode.PENDING_DUPLICATE)
    if place not in {Place.FREE, Place.NOT_NEEDED}:
        return explain(IngestionTier.BLOCK, ReasonCode.REVIEW_QUEUE_FULL)
    return judged


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
    if action == "overrule":
        return explain(IngestionTier.FLAG_REVIEW, ReasonCode.OVERRULED)
    if action in _BLOCKED:
        return explain(IngestionTier.BLOCK, _BLOCKED[action])
    if expired:
        return explain(IngestionTier.BLOCK, ReasonCode.EXPIRED)
    if duplicate:
        return explain(IngestionTier.BLOCK, ReasonCode.DUPLICATE)
    return explain(IngestionTier.AUTO_APPROVE, ReasonCode.HUMAN_APPROVED)

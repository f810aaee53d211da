"""The tier and reason that another engine recorded: they stand, whatever this one would decide."""

from __future__ import annotations

from typing import Final

from groundwire.decide.claims import ClaimCase
from groundwire.decide.people import reviewed
from groundwire.decide.tree import Standing, cap, stand
from groundwire.messages.decisions import MatchClass, Place, ReasonCode
from groundwire.messages.tiers import IngestionTier

_BLOCKING: Final = {ReasonCode.EXPIRED, ReasonCode.PERSONAL_SPECULATION}
_ABOVE_DEDUP: Final = {ReasonCode.TECHNICAL_HEDGE, ReasonCode.INTERNAL_ERROR}
_UNGROUNDED: Final = {ReasonCode.SOURCE_UNATTESTED, ReasonCode.CITATION_UNVERIFIED, ReasonCode.UNGROUNDED}


def recorded_standing(
    case: ClaimCase, tier: IngestionTier, base: ReasonCode, late_cap: ReasonCode | None, *, joined: bool
) -> Standing:
    """Return what another engine recorded, or this one under a policy that is not known any more.

    Args:
        case: the claim with the recorded facts; nothing in it that depends on the policy is used.
        tier: the recorded tier.
        base: the recorded reason before duplicates and caps, or that of a published decision.
        late_cap: the recorded cap that needs no state.
        joined: whether the claim follows a pending one.
    """
    if case.facts.review is not None:
        blocked = tier == IngestionTier.BLOCK
        return reviewed(case.facts.review["action"], expired=case.expired, duplicate=blocked)
    if tier == IngestionTier.AUTO_APPROVE:
        return stand(tier, base, case.claim.source)
    if tier == IngestionTier.BLOCK:
        full = case.facts.place not in {Place.FREE, Place.NOT_NEEDED}
        code = ReasonCode.REVIEW_QUEUE_FULL if full else ReasonCode.DUPLICATE
        return stand(tier, base if base in _BLOCKING else code)
    if joined:
        return stand(tier, ReasonCode.PENDING_DUPLICATE)
    if base in _ABOVE_DEDUP or (base in _UNGROUNDED and case.dedup.status != "failed"):
        return stand(tier, base)
    return _lowered(case, late_cap or base)


def _lowered(case: ClaimCase, late_cap: ReasonCode) -> Standing:
    """Return why what would have been approved is in review."""
    classes = {match.match_class for match in case.dedup.matches}
    if case.dedup.status == "failed":
        return stand(IngestionTier.FLAG_REVIEW, ReasonCode.DEDUP_UNAVAILABLE)
    if MatchClass.APPROVED in classes:  # in review, so there is a material difference
        return cap(ReasonCode.CONFLICTING_NEAR_DUPLICATE)
    if MatchClass.REJECTED in classes:
        return cap(ReasonCode.PREVIOUSLY_REJECTED)
    return cap(ReasonCode.DERIVED_FROM_UNAPPROVED if case.unapproved_parents else late_cap)

"""What a person decided of a claim or response, or the gate itself of one that nobody reviewed in time."""

from __future__ import annotations

from typing import Final

from groundwire.decide.tree import Standing, stand
from groundwire.messages.decisions import ReasonCode
from groundwire.messages.tiers import IngestionTier

PEOPLE: Final = frozenset(
    {
        ReasonCode.HUMAN_APPROVED,
        ReasonCode.HUMAN_REJECTED,
        ReasonCode.REVIEW_EXPIRED,
        ReasonCode.RETRACTED,
    }
)
"""Reasons of decisions that people made."""

_BLOCKED: Final = {
    "reject": ReasonCode.HUMAN_REJECTED,
    "expire": ReasonCode.REVIEW_EXPIRED,
    "retract": ReasonCode.RETRACTED,
}


def reviewed(action: str, *, expired: bool, duplicate: bool) -> Standing:
    """Return tier and reason after an action.

    Args:
        action: of the ReviewDecision.
        expired: the claim no longer holds at the time of the action.
        duplicate: it says what an approved claim says, without a material difference.
    """
    if action in _BLOCKED:
        return stand(IngestionTier.BLOCK, _BLOCKED[action])
    if expired:
        return stand(IngestionTier.BLOCK, ReasonCode.EXPIRED)
    if duplicate:
        return stand(IngestionTier.BLOCK, ReasonCode.DUPLICATE)
    return stand(IngestionTier.AUTO_APPROVE, ReasonCode.HUMAN_APPROVED)

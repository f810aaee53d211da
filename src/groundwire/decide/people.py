"""What a person decided of a claim or response, or the gate itself of one that nobody reviewed in time."""

from __future__ import annotations

import re
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

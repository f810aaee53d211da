"""What recorded facts cannot tell of another policy: it compares, or looks up, what nobody did then."""

from __future__ import annotations

from typing import Final

from groundwire.messages.decisions import CitationState, Decision, Kind, ReasonCode
from groundwire.policy import Policy

_THRESHOLDS: Final = ("dedup_threshold", "conflict_threshold", "rejected_threshold")
_WHATEVER_IS_NEAR: Final = {ReasonCode.EXPIRED, ReasonCode.PERSONAL_SPECULATION, ReasonCode.DUPLICATE}
"""Reasons that no near-duplicate more would change."""

RELEVANCE: Final = "verify_claim_relevance"


def untold(
    recorded: Decision, derived: Decision, policy: Policy, before: Policy | None, *, compared: bool = False
) -> tuple[str, ...]:
    """Return the policy's keys for which the facts of a claim do not tell what it would have come to.

    Args:
        recorded: holds the facts.
        derived: from them, under the policy.
        policy: another than the one that decided.
        before: the one that decided; None: it is not known, and near-duplicates are taken as recorded.
        compared: whether near-duplicates were found anew.
    """
    if recorded.kind != Kind.CLAIM or recorded.facts.review:
        return ()
    keys: list[str] = []
    if before is not None and not compared and derived.reason_code not in _WHATEVER_IS_NEAR:
        keys += _compares_more(before, policy)
    verified = any(citation.state == CitationState.VERIFIED for citation in recorded.citations)
    if policy.verify_claim_relevance and verified and recorded.facts.relevance is None:
        keys += [RELEVANCE] * (derived.reason_code == ReasonCode.CITATION_IRRELEVANT)
    return tuple(keys)


def _compares_more(before: Policy, policy: Policy) -> list[str]:
    """Return the keys by which a policy finds claims near to each other that the one before did not."""
    if not policy.enable_dedup:
        return []
    if not before.enable_dedup:
        return ["enable_dedup"]
    lower = [name for name in _THRESHOLDS if getattr(policy, name) < getattr(before, name)]
    return lower + ["dedup_scope"] * (policy.dedup_scope != before.dedup_scope)

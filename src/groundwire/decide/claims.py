"""The decision of a claim: the tree, what can only lower it, and the queue, each recorded as a check.

Python and the state's script both know the tier: the script needs it to keep the queue and the index, Python
to say why. `prejudge` gives the script its part; a test holds both to the same answer for every input.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple

from groundwire.checks.citations import Citation
from groundwire.checks.hedges import HedgeAction
from groundwire.decide.reading import UNREAD, Reading
from groundwire.decide.tree import CONVERSATIONS, Standing, grow
from groundwire.messages.claims import Claim
from groundwire.messages.decisions import (
    CitationState,
    DedupFacts,
    DedupMatch,
    Facts,
    MatchClass,
    Place,
    ReasonCode,
)
from groundwire.messages.tiers import IngestionTier
from groundwire.policy import Policy

AI_SYNTHESIS: Final = "ai_synthesis"

_SENTENCES: Final = {
    ReasonCode.EXPIRED: "The claim's validity horizon has passed",
    ReasonCode.CONFLICTING_NEAR_DUPLICATE: "Conflicts with existing memory - needs verification",
    ReasonCode.PREVIOUSLY_REJECTED: "Similar to a text that a person rejected - needs verification",
    ReasonCode.DERIVED_FROM_UNAPPROVED: "Rests on something not approved - needs verification",
    ReasonCode.CITATION_IRRELEVANT: "Verified citation does not support the claim - needs verification",
    ReasonCode.AI_SYNTHESIS_HELD: "AI synthesis is held for review by policy",
    ReasonCode.CITATION_UNVERIFIED: "A citation could not be verified - needs verification",
    ReasonCode.PENDING_DUPLICATE: "Same claim is already waiting for review",
    ReasonCode.REVIEW_QUEUE_FULL: "Review queue is full - send the claim again later",
    ReasonCode.INTERNAL_ERROR: "Internal error - needs verification",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """What checking a citation gave: state, why in a line, and when it was checked."""

    state: CitationState
    detail: str
    checked_at: datetime | None


Findings = Mapping[str, Finding]
"""Label of a citation -> finding; a citation that is missing was not checked."""

NOT_CHECKED: Final = Finding(CitationState.NOT_CHECKED, "", None)


class Bearing(NamedTuple):
    """What a decision's matches come to, the first of each kind in the order of the facts."""

    duplicate: DedupMatch | None
    conflict: DedupMatch | None
    rejected: DedupMatch | None
    pending: DedupMatch | None


def bearing(dedup: DedupFacts, policy: Policy) -> Bearing:
    """Sort the matches by what they mean under a policy (C-08, C-09)."""
    plain = [m for m in dedup.matches if m.difference == "none" or not policy.dedup_material_difference]
    material = [m for m in dedup.matches if m not in plain]

    def first(matches: Sequence[DedupMatch], kind: MatchClass) -> DedupMatch | None:
        return next((match for match in matches if match.match_class == kind), None)

    return Bearing(
        duplicate=first(plain, MatchClass.APPROVED),
        conflict=first(material, MatchClass.APPROVED),
        rejected=first(dedup.matches, MatchClass.REJECTED),
        pending=first(plain, MatchClass.PENDING),
    )


class ClaimCase:
    """A claim with everything that bears on it; properties and methods are pure.

    Args:
        claim: the record.
        reading: its hedges and citations.
        policy: the policy of the step that records.
        facts: what came from outside; the fields that state answers may still be empty for `prejudge`.
        findings: the citations' states.
    """

    def __init__(
        self, claim: Claim, reading: Reading, policy: Policy, facts: Facts, findings: Findings
    ) -> None:
        self.claim = claim
        self.reading = UNREAD if facts.error else reading
        self.policy = policy
        self.facts = facts
        self.findings = findings
        self.dedup = facts.dedup or DedupFacts(status="disabled", scheme="", matches=[])
        self.bearing = bearing(self.dedup, policy)
        self.unattested = self._unattested()
        self.source = AI_SYNTHESIS if self.unattested else claim.source
        self.expired = claim.validity_horizon is not None and claim.validity_horizon <= facts.clock

    def finding(self, citation: Citation) -> Finding:
        """Return what is known of a citation of this claim."""
        return self.findings.get(citation.label, NOT_CHECKED)

    @property
    def verified(self) -> list[Citation]:
        """The citations that were checked and exist."""
        return [c for c in self.reading.verifiable if self.finding(c).state == CitationState.VERIFIED]

    @property
    def unapproved_parents(self) -> list[str]:
        """Ids of `derived_from` that are not approved."""
        return [parent.id for parent in self.facts.parents or () if parent.state != "approved"]

    @property
    def ai_synthesis(self) -> bool:
        """Whether the source counts as AI synthesis: neither trusted nor a conversation."""
        return self.source not in self.policy.trusted_sources and self.source not in CONVERSATIONS

    @property
    def hedge(self) -> HedgeAction:
        """The hedges' action after the two options that soften it."""
        action = self.reading.action
        if action == HedgeAction.BLOCK and self.policy.grounded_speculation == "review" and self.verified:
            return HedgeAction.REVIEW
        trusted = self.source in self.policy.trusted_sources
        if action == HedgeAction.REVIEW and trusted and self.policy.trusted_technical_hedges == "approve":
            return HedgeAction.CONTINUE
        return action

    def standing(self) -> Standing:
        """Return tier and reason before the queue: expiry, the tree, the caps."""
        base = self.base()
        if base.tier != IngestionTier.AUTO_APPROVE:
            return base
        cap = self._state_cap() or self.late_cap()
        return Standing(IngestionTier.FLAG_REVIEW, _SENTENCES[cap], cap) if cap else base

    def base(self) -> Standing:
        """Return what expiry, an internal error and the tree say."""
        if self.expired:
            return Standing(IngestionTier.BLOCK, _SENTENCES[ReasonCode.EXPIRED], ReasonCode.EXPIRED)
        if self.facts.error:
            code = ReasonCode.INTERNAL_ERROR
            return Standing(IngestionTier.FLAG_REVIEW, _SENTENCES[code], code)
        tree = grow(
            self.hedge,
            is_duplicate=self.bearing.duplicate is not None,
            dedup_failed=self.dedup.status == "failed",
            has_verified_citation=bool(self.verified),
            source=self.source,
            memory_type=self.claim.memory_type,
            trusted_sources=self.policy.trusted_sources,
        )
        return tree._replace(code=self._ungrounded()) if tree.code == ReasonCode.UNGROUNDED else tree

    def late_cap(self) -> ReasonCode | None:
        """Return the cap that needs no state, if one applies to a tier 1."""
        if self.policy.verify_claim_relevance and self.verified and not self.relevant:
            return ReasonCode.CITATION_IRRELEVANT
        if self.ai_synthesis and not self.policy.auto_approve_ai_synthesis:
            return ReasonCode.AI_SYNTHESIS_HELD
        failed = len(self.verified) < len(self.reading.citations)
        return (
            ReasonCode.CITATION_UNVERIFIED if failed and self.policy.failed_citation_overrides_trust else None
        )

    @property
    def relevant(self) -> bool:
        """Whether a verified citation was found to share the claim's words."""
        return any(entry["relevant"] for entry in self.facts.relevance or ())

    def outcome(self) -> Standing:
        """Return tier and reason as published: the standing, then the queue."""
        standing = self.standing()
        if standing.tier != IngestionTier.FLAG_REVIEW:
            return standing
        if self.joins:
            return Standing(standing.tier, *_pair(ReasonCode.PENDING_DUPLICATE))
        if self.facts.place not in {Place.FREE, Place.NOT_NEEDED}:
            return Standing(IngestionTier.BLOCK, *_pair(ReasonCode.REVIEW_QUEUE_FULL))
        return standing

    @property
    def joins(self) -> bool:
        """Whether the claim, in review, follows one that is already pending (C-09)."""
        return self.bearing.pending is not None and self.facts.place == Place.NOT_NEEDED

    def conflicting(self, code: ReasonCode) -> DedupMatch | None:
        """Return the match that the decision names, by what it came to (S0-118)."""
        found = self.bearing
        if code == ReasonCode.PENDING_DUPLICATE:
            return found.pending
        return found.duplicate or found.conflict or found.rejected

    def _unattested(self) -> bool:
        outside_ai = self.claim.source in self.policy.trusted_sources or self.claim.source in CONVERSATIONS
        valid = (self.facts.attestation or {}).get("state") == "valid"
        return self.policy.attestation == "hmac" and outside_ai and not valid

    def _ungrounded(self) -> ReasonCode:
        if self.unattested:
            return ReasonCode.SOURCE_UNATTESTED
        return ReasonCode.CITATION_UNVERIFIED if self.reading.citations else ReasonCode.UNGROUNDED

    def _state_cap(self) -> ReasonCode | None:
        if self.bearing.conflict:
            return ReasonCode.CONFLICTING_NEAR_DUPLICATE
        if self.bearing.rejected:
            return ReasonCode.PREVIOUSLY_REJECTED
        return ReasonCode.DERIVED_FROM_UNAPPROVED if self.unapproved_parents else None


class Prejudgement(NamedTuple):
    """What the state's step is told: the tier as if nothing were a duplicate, and whether it is capped."""

    base_tier: int
    capped: bool


def prejudge(
    claim: Claim,
    reading: Reading,
    policy: Policy,
    findings: Findings,
    *,
    clock: datetime,
    attestation: dict[str, Any] | None,
    relevance: list[dict[str, Any]] | None,
    error: str | None = None,
) -> Prejudgement:
    """Judge a claim as if nothing were a duplicate and every parent were approved."""
    known = Facts(clock=clock, attestation=attestation, relevance=relevance, error=error)
    case = ClaimCase(claim, reading, policy, known, findings)
    return Prejudgement(list(IngestionTier).index(case.base().tier) + 1, case.late_cap() is not None)


def _pair(code: ReasonCode) -> tuple[str, ReasonCode]:
    return _SENTENCES[code], code

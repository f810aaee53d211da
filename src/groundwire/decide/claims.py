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
from groundwire.decide.people import reviewed
from groundwire.decide.reading import UNREAD, Reading
from groundwire.decide.tree import CONVERSATIONS, Standing, cap, grow, stand
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
_ORDER: Final = tuple(IngestionTier)


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


_NO_MATCH: Final = Bearing(None, None, None, None)
_DISABLED: Final = DedupFacts(status="disabled", scheme="", matches=[])


def bearing(dedup: DedupFacts, policy: Policy) -> Bearing:
    """Sort the matches by what they mean under a policy (C-08, C-09)."""
    if not dedup.matches:
        return _NO_MATCH
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
        self.dedup = facts.dedup or _DISABLED
        self.bearing = bearing(self.dedup, policy)
        self.unattested = self._unattested()
        self.source = AI_SYNTHESIS if self.unattested else claim.source
        self.expired = claim.validity_horizon is not None and claim.validity_horizon <= facts.clock
        self.verified = [
            c for c in self.reading.verifiable if self.finding(c).state == CitationState.VERIFIED
        ]
        """The citations that were checked and exist."""

    def finding(self, citation: Citation) -> Finding:
        """Return what is known of a citation of this claim."""
        return self.findings.get(citation.label, NOT_CHECKED)

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
        code = self.state_cap() or self.late_cap()
        return cap(code) if code else base

    def base(self) -> Standing:
        """Return what expiry, an internal error and the tree say."""
        if self.expired:
            return stand(IngestionTier.BLOCK, ReasonCode.EXPIRED)
        if self.facts.error:
            return stand(IngestionTier.FLAG_REVIEW, ReasonCode.INTERNAL_ERROR)
        tree = grow(
            self.hedge,
            is_duplicate=self.bearing.duplicate is not None,
            dedup_failed=self.dedup.status == "failed",
            has_verified_citation=bool(self.verified),
            source=self.source,
            memory_type=self.claim.memory_type,
            trusted_sources=self.policy.trusted_sources,
        )
        return stand(tree.tier, self._ungrounded()) if tree.code == ReasonCode.UNGROUNDED else tree

    def late_cap(self) -> ReasonCode | None:
        """Return the cap that needs no state, if one applies to a tier 1."""
        if self.policy.verify_claim_relevance and self.irrelevant:
            return ReasonCode.CITATION_IRRELEVANT
        if self.ai_synthesis and not self.policy.auto_approve_ai_synthesis:
            return ReasonCode.AI_SYNTHESIS_HELD
        failed = len(self.verified) < len(self.reading.citations)
        return (
            ReasonCode.CITATION_UNVERIFIED if failed and self.policy.failed_citation_overrides_trust else None
        )

    @property
    def irrelevant(self) -> list[str]:
        """Labels of the verified citations that were not shown to share the claim's words (S0-155)."""
        first = {citation.label: citation.start for citation in reversed(self.verified)}
        relevant = {entry["start"] for entry in self.facts.relevance or () if entry["relevant"]}
        return [c.label for c in self.verified if c.start == first[c.label] and c.start not in relevant]

    def outcome(self) -> Standing:
        """Return tier and reason as published: what a person decided, else the standing, then the queue."""
        if self.facts.review is not None:
            duplicate = self.bearing.duplicate is not None
            return reviewed(self.facts.review["action"], expired=self.expired, duplicate=duplicate)
        standing = self.standing()
        if standing.tier != IngestionTier.FLAG_REVIEW:
            return standing
        if self.joins:
            return stand(IngestionTier.FLAG_REVIEW, ReasonCode.PENDING_DUPLICATE)
        if self.facts.place not in {Place.FREE, Place.NOT_NEEDED}:
            return stand(IngestionTier.BLOCK, ReasonCode.REVIEW_QUEUE_FULL)
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

    def state_cap(self) -> ReasonCode | None:
        """Return the cap that state's answer brings, if one applies to a tier 1."""
        if self.bearing.conflict:
            return ReasonCode.CONFLICTING_NEAR_DUPLICATE
        if self.bearing.rejected:
            return ReasonCode.PREVIOUSLY_REJECTED
        return ReasonCode.DERIVED_FROM_UNAPPROVED if self.unapproved_parents else None


class Prejudgement(NamedTuple):
    """What is known before state is asked: the tree as if nothing were a duplicate, and the cap on top of it.

    State's step is told the tier and whether it is capped; the codes are kept for a later engine.
    """

    base: Standing
    cap: ReasonCode | None

    @property
    def base_tier(self) -> int:
        """The tier as state counts it: 1, 2 or 3."""
        return _ORDER.index(self.base.tier) + 1

    @property
    def capped(self) -> bool:
        """Whether a tier 1 is lowered in any case."""
        return self.cap is not None


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
    return Prejudgement(case.base(), case.late_cap())

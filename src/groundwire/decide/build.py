"""The Decision record of a claim, within its limits of size."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from groundwire.decide.checks import list_checks
from groundwire.decide.claims import ClaimCase
from groundwire.decide.tree import Standing
from groundwire.messages.decisions import (
    CitationResult,
    Decision,
    EvidenceObject,
    HedgeMark,
    Kind,
    Origin,
    PolicyName,
    ReasonCode,
    Verdict,
)
from groundwire.messages.identity import Subject, decision_id, provisional_id
from groundwire.messages.tiers import IngestionTier

MAX_BYTES: Final = 256_000
MAX_ENTRIES: Final = 100
MAX_CHARACTERS: Final = 500

_CONFIDENCE: Final = {
    IngestionTier.AUTO_APPROVE: "high",
    IngestionTier.FLAG_REVIEW: "medium",
    IngestionTier.BLOCK: "low",
}


@dataclass(frozen=True, slots=True)
class Envelope:
    """What identifies a decision, beside record, policy and facts.

    `capture_time` and `metadata` are those of the record that was decided first: a re-send may differ in them.
    """

    revision: int
    fingerprint: str
    origin: Origin
    subject_origin: Origin | None
    decided_at: datetime
    capture_time: datetime
    metadata: dict[str, Any]
    engine: str
    policy_sha256: str
    policy_version: str


def claim_subject(case: ClaimCase) -> Subject:
    """Return the identity of the case's claim."""
    claim = case.claim
    return Subject(claim.tenant_id, claim.user_id, Kind.CLAIM, claim.claim_id)


def build_decision(case: ClaimCase, envelope: Envelope, recorded: Standing | None = None) -> Decision:
    """Build the Decision of a claim; equal arguments give equal bytes.

    Args:
        case: the claim with everything that bears on it.
        envelope: identity, times and origin.
        recorded: tier and reason that another engine version recorded: they stand.
    """
    limit = MAX_ENTRIES
    decision = _build(case, envelope, recorded or case.outcome(), limit)
    while len(decision.to_bytes()) > MAX_BYTES and limit:
        limit //= 2
        decision = _build(case, envelope, recorded or case.outcome(), limit)
    return decision


def _build(case: ClaimCase, envelope: Envelope, standing: Standing, limit: int) -> Decision:
    claim = case.claim
    subject = claim_subject(case)
    match = case.conflicting(standing.code)
    checks = list_checks(case)
    lists: dict[str, list[Any]] = {
        "checks_passed": [text[:MAX_CHARACTERS] for text in checks.passed],
        "checks_failed": [text[:MAX_CHARACTERS] for text in checks.failed],
        "checks_skipped": [text[:MAX_CHARACTERS] for text in checks.skipped],
        "hedges": _hedges(case),
        "citations": _citations(case),
    }
    truncated = {name: len(entries) - limit for name, entries in lists.items() if len(entries) > limit}
    return Decision(
        decision_id=_identify(subject, envelope),
        revision=envelope.revision,
        supersedes=decision_id(subject, envelope.revision - 1) if envelope.revision > 1 else None,
        kind=Kind.CLAIM,
        subject_id=claim.claim_id,
        tenant_id=claim.tenant_id,
        user_id=claim.user_id,
        fingerprint=envelope.fingerprint,
        memory_type=claim.memory_type,
        source=claim.source,
        derived_from=claim.derived_from,
        tier=standing.tier,
        verdict=Verdict.of(standing.tier),
        approved=standing.tier == IngestionTier.AUTO_APPROVE,
        reason=standing.reason,
        reason_code=standing.code,
        retryable=standing.code == ReasonCode.REVIEW_QUEUE_FULL,
        **{name: entries[:limit] for name, entries in lists.items()},
        similarity_score=round(match.inter / match.union, 4) if match else None,
        conflicting_memory_id=match.subject_id if match else None,
        evidence=EvidenceObject(
            claim=claim.content,
            capture_time=envelope.capture_time,
            confidence=_CONFIDENCE[standing.tier],
            source_id=claim.source_id if claim.source_id is not None else _primary_source(case),
            validity_horizon=claim.validity_horizon,
            metadata=envelope.metadata,
        ),
        report=None,
        facts=case.facts,
        policy=PolicyName(version=envelope.policy_version, sha256=envelope.policy_sha256),
        engine=envelope.engine,
        origin=envelope.origin,
        subject_origin=envelope.subject_origin,
        decided_at=envelope.decided_at,
        truncated=truncated or None,
        replay=None,
    )


def _identify(subject: Subject, envelope: Envelope) -> str:
    if envelope.revision:
        return decision_id(subject, envelope.revision)
    origin = envelope.origin
    place = (origin.topic, origin.partition, origin.offset)
    return provisional_id(subject, place, envelope.policy_sha256, envelope.engine)


def _hedges(case: ClaimCase) -> list[HedgeMark]:
    return [
        HedgeMark(
            text=hedge.text[:MAX_CHARACTERS],
            category=hedge.category,
            action=hedge.action,
            start=hedge.start,
            end=hedge.end,
        )
        for hedge in case.reading.hedges
    ]


def _citations(case: ClaimCase) -> list[CitationResult]:
    results = []
    for citation in case.reading.citations:
        finding = case.finding(citation)
        results.append(
            CitationResult(
                type=citation.type,
                value=citation.value[:MAX_CHARACTERS],
                start=citation.start,
                end=citation.end,
                state=finding.state,
                detail=finding.detail[:MAX_CHARACTERS],
                checked_at=finding.checked_at,
            )
        )
    return results


def _primary_source(case: ClaimCase) -> str | None:
    """Return the id of the first verified citation, else of the first detected one (S0-55)."""
    citation = next(iter(case.verified or case.reading.citations), None)
    return citation.source_id if citation else None

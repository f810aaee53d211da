"""Groundwire: the streaming gate between AI agents and the knowledge base they write to.

The names below are the library's; each is imported when it is first asked for, so that a program pays only for
what it uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from groundwire.lazy import lazily

if TYPE_CHECKING:
    from groundwire.checks.citations import Citation, CitationDetector
    from groundwire.checks.fields import FieldChecker
    from groundwire.checks.hedges import HedgeAction, HedgeDetector, HedgeResult
    from groundwire.checks.prompts import grounded_prompt
    from groundwire.checks.similarity import jaccard_similarity
    from groundwire.checks.sources import SourceVerifier
    from groundwire.decide.tree import determine_tier
    from groundwire.dedup import DedupChecker, DuplicateResult
    from groundwire.epistemic import (
        ClaimVerification,
        EpistemicGap,
        HallucinationReport,
        ModelCall,
        ReasoningTraces,
        UncoveredWord,
        VerificationConfig,
        VerifiedResponse,
        annotate,
        audit_reasoning,
        detect_hallucinations,
        evidence_dependence,
        evidence_gap_bits,
        gap_band,
        verify_claim,
        verify_response,
    )
    from groundwire.errors import StateUnavailable
    from groundwire.fallback import execute_with_fallback
    from groundwire.guards import EntityGroundingGuard, RelationPreservationGuard
    from groundwire.messages.decisions import EvidenceObject
    from groundwire.messages.tiers import IngestionTier, Tier
    from groundwire.policy import GroundedIngestionConfig
    from groundwire.query_cache import QueryCache
    from groundwire.query_cache.redis import RedisQueryCache
    from groundwire.quotes import (
        EvidenceGroundingError,
        EvidenceGroundingStats,
        normalize_for_quote_match,
        validate_evidence_grounding,
    )
    from groundwire.review_queue import (
        MemoryReviewStore,
        PendingMemory,
        RedisReviewStore,
        ReviewEvent,
        ReviewNotFound,
        ReviewOvertaken,
        ReviewQueue,
        ReviewQueueFull,
        ReviewStoreFailed,
        ReviewUnauthorized,
    )
    from groundwire.validator import IngestionValidator, ValidationResult
    from groundwire.verify import verify_citation
    from groundwire.verify.results import VerificationResult
    from groundwire.version import __version__

__all__ = [
    "Citation",
    "CitationDetector",
    "ClaimVerification",
    "DedupChecker",
    "DuplicateResult",
    "EntityGroundingGuard",
    "EpistemicGap",
    "EvidenceGroundingError",
    "EvidenceGroundingStats",
    "EvidenceObject",
    "FieldChecker",
    "GroundedIngestionConfig",
    "HallucinationReport",
    "HedgeAction",
    "HedgeDetector",
    "HedgeResult",
    "IngestionTier",
    "IngestionValidator",
    "MemoryReviewStore",
    "ModelCall",
    "PendingMemory",
    "QueryCache",
    "ReasoningTraces",
    "RedisQueryCache",
    "RedisReviewStore",
    "RelationPreservationGuard",
    "ReviewEvent",
    "ReviewNotFound",
    "ReviewOvertaken",
    "ReviewQueue",
    "ReviewQueueFull",
    "ReviewStoreFailed",
    "ReviewUnauthorized",
    "SourceVerifier",
    "StateUnavailable",
    "Tier",
    "UncoveredWord",
    "ValidationResult",
    "VerificationConfig",
    "VerificationResult",
    "VerifiedResponse",
    "__version__",
    "annotate",
    "audit_reasoning",
    "detect_hallucinations",
    "determine_tier",
    "evidence_dependence",
    "evidence_gap_bits",
    "execute_with_fallback",
    "gap_band",
    "grounded_prompt",
    "jaccard_similarity",
    "normalize_for_quote_match",
    "validate_evidence_grounding",
    "verify_citation",
    "verify_claim",
    "verify_response",
]

_HOMES = {
    "Citation": "checks.citations",
    "CitationDetector": "checks.citations",
    "ClaimVerification": "epistemic",
    "DedupChecker": "dedup",
    "DuplicateResult": "dedup",
    "EntityGroundingGuard": "guards",
    "EpistemicGap": "epistemic",
    "EvidenceGroundingError": "quotes",
    "EvidenceGroundingStats": "quotes",
    "EvidenceObject": "messages.decisions",
    "FieldChecker": "checks.fields",
    "GroundedIngestionConfig": "policy",
    "HallucinationReport": "epistemic",
    "HedgeAction": "checks.hedges",
    "HedgeDetector": "checks.hedges",
    "HedgeResult": "checks.hedges",
    "IngestionTier": "messages.tiers",
    "IngestionValidator": "validator",
    "MemoryReviewStore": "review_queue",
    "ModelCall": "epistemic",
    "PendingMemory": "review_queue",
    "QueryCache": "query_cache",
    "ReasoningTraces": "epistemic",
    "RedisQueryCache": "query_cache.redis",
    "RedisReviewStore": "review_queue",
    "RelationPreservationGuard": "guards",
    "ReviewEvent": "review_queue",
    "ReviewNotFound": "review_queue",
    "ReviewOvertaken": "review_queue",
    "ReviewQueue": "review_queue",
    "ReviewQueueFull": "review_queue",
    "ReviewStoreFailed": "review_queue",
    "ReviewUnauthorized": "review_queue",
    "SourceVerifier": "checks.sources",
    "StateUnavailable": "errors",
    "Tier": "messages.tiers",
    "UncoveredWord": "epistemic",
    "ValidationResult": "validator",
    "VerificationConfig": "epistemic",
    "VerificationResult": "verify.results",
    "VerifiedResponse": "epistemic",
    "__version__": "version",
    "annotate": "epistemic",
    "audit_reasoning": "epistemic",
    "detect_hallucinations": "epistemic",
    "determine_tier": "decide.tree",
    "evidence_dependence": "epistemic",
    "evidence_gap_bits": "epistemic",
    "execute_with_fallback": "fallback",
    "gap_band": "epistemic",
    "grounded_prompt": "checks.prompts",
    "jaccard_similarity": "checks.similarity",
    "normalize_for_quote_match": "quotes",
    "validate_evidence_grounding": "quotes",
    "verify_citation": "verify",
    "verify_claim": "epistemic",
    "verify_response": "epistemic",
}


__getattr__ = lazily(__name__, _HOMES)


def __dir__() -> list[str]:
    """List the public names, whether or not they were asked for yet."""
    return sorted(__all__)

"""Groundwire: the streaming gate between AI agents and the knowledge base they write to.

The names below are the library's; each is imported when it is first asked for, so that a program pays only for
what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from groundwire.checks.citations import Citation, CitationDetector
    from groundwire.checks.fields import FieldChecker
    from groundwire.checks.hedges import HedgeAction, HedgeDetector, HedgeResult
    from groundwire.checks.prompts import grounded_prompt
    from groundwire.checks.similarity import jaccard_similarity
    from groundwire.checks.sources import SourceVerifier
    from groundwire.decide.tree import determine_tier
    from groundwire.dedup import DedupChecker, DuplicateResult
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
    "DedupChecker",
    "DuplicateResult",
    "EntityGroundingGuard",
    "EvidenceGroundingError",
    "EvidenceGroundingStats",
    "EvidenceObject",
    "FieldChecker",
    "GroundedIngestionConfig",
    "HedgeAction",
    "HedgeDetector",
    "HedgeResult",
    "IngestionTier",
    "IngestionValidator",
    "MemoryReviewStore",
    "PendingMemory",
    "QueryCache",
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
    "ValidationResult",
    "VerificationResult",
    "__version__",
    "determine_tier",
    "execute_with_fallback",
    "grounded_prompt",
    "jaccard_similarity",
    "normalize_for_quote_match",
    "validate_evidence_grounding",
    "verify_citation",
]

_HOMES = {
    "Citation": "checks.citations",
    "CitationDetector": "checks.citations",
    "DedupChecker": "dedup",
    "DuplicateResult": "dedup",
    "EntityGroundingGuard": "guards",
    "EvidenceGroundingError": "quotes",
    "EvidenceGroundingStats": "quotes",
    "EvidenceObject": "messages.decisions",
    "FieldChecker": "checks.fields",
    "GroundedIngestionConfig": "policy",
    "HedgeAction": "checks.hedges",
    "HedgeDetector": "checks.hedges",
    "HedgeResult": "checks.hedges",
    "IngestionTier": "messages.tiers",
    "IngestionValidator": "validator",
    "MemoryReviewStore": "review_queue",
    "PendingMemory": "review_queue",
    "QueryCache": "query_cache",
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
    "ValidationResult": "validator",
    "VerificationResult": "verify.results",
    "__version__": "version",
    "determine_tier": "decide.tree",
    "execute_with_fallback": "fallback",
    "grounded_prompt": "checks.prompts",
    "jaccard_similarity": "checks.similarity",
    "normalize_for_quote_match": "quotes",
    "validate_evidence_grounding": "quotes",
    "verify_citation": "verify",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any of the names above
    """Import a public name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"groundwire.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names, whether or not they were asked for yet."""
    return sorted(__all__)

"""The records that cross a boundary: pydantic models, their decoding, keys, identities and headers.

Nothing in here imports anything else of Groundwire but its errors.
"""

from groundwire.messages.audit import AuditEvent, RegenerateRequest
from groundwire.messages.claims import Claim, MemoryType
from groundwire.messages.decisions import (
    CitationResult,
    CitationState,
    Decision,
    DedupFacts,
    DedupMatch,
    EvidenceObject,
    Facts,
    HedgeMark,
    Kind,
    MatchClass,
    Origin,
    ParentFact,
    Place,
    PolicyName,
    ReasonCode,
    Verdict,
)
from groundwire.messages.decode import decode_claim, decode_response, decode_review_decision, parse_json
from groundwire.messages.responses import LlmResponse
from groundwire.messages.reviews import Retraction, ReviewDecision
from groundwire.messages.tiers import IngestionTier, Tier

__all__ = [
    "AuditEvent",
    "CitationResult",
    "CitationState",
    "Claim",
    "Decision",
    "DedupFacts",
    "DedupMatch",
    "EvidenceObject",
    "Facts",
    "HedgeMark",
    "IngestionTier",
    "Kind",
    "LlmResponse",
    "MatchClass",
    "MemoryType",
    "Origin",
    "ParentFact",
    "Place",
    "PolicyName",
    "ReasonCode",
    "RegenerateRequest",
    "Retraction",
    "ReviewDecision",
    "Tier",
    "Verdict",
    "decode_claim",
    "decode_response",
    "decode_review_decision",
    "parse_json",
]

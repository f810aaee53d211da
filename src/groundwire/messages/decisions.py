"""The records that go out: Decision 1.0 with the evidence for it, AuditEvent 1.0 and RegenerateRequest 1.0.

Requirements S0-01, S0-146, S0-153, C-32, C-33, C-70.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field

from groundwire.messages.base import OutputRecord, Time


class IngestionTier(StrEnum):
    """Where a claim goes; compares equal to its wire value."""

    AUTO_APPROVE = "tier_1"
    FLAG_REVIEW = "tier_2"
    BLOCK = "tier_3"


Tier = IngestionTier


class Kind(StrEnum):
    """What was decided."""

    CLAIM = "claim"
    RESPONSE = "response"


class Verdict(StrEnum):
    """The tier in a word; names the output topic."""

    APPROVED = "approved"
    REVIEW = "review"
    BLOCKED = "blocked"

    @classmethod
    def of(cls, tier: IngestionTier) -> Verdict:
        """Return the verdict that belongs to a tier."""
        return _VERDICTS[tier]


_VERDICTS = {
    IngestionTier.AUTO_APPROVE: Verdict.APPROVED,
    IngestionTier.FLAG_REVIEW: Verdict.REVIEW,
    IngestionTier.BLOCK: Verdict.BLOCKED,
}


class ReasonCode(StrEnum):
    """Why a claim or a response got its tier; the list is closed."""

    EXPIRED = "expired"
    PERSONAL_SPECULATION = "personal_speculation"
    DUPLICATE = "duplicate"
    TECHNICAL_HEDGE = "technical_hedge"
    DEDUP_UNAVAILABLE = "dedup_unavailable"
    VERIFIED_CITATION = "verified_citation"
    TRUSTED_SOURCE = "trusted_source"
    STATED_DECISION = "stated_decision"
    STATED_PREFERENCE = "stated_preference"
    UNGROUNDED = "ungrounded"
    SOURCE_UNATTESTED = "source_unattested"
    CITATION_UNVERIFIED = "citation_unverified"
    HIDDEN_TEXT = "hidden_text"
    CONFLICTING_NEAR_DUPLICATE = "conflicting_near_duplicate"
    PREVIOUSLY_REJECTED = "previously_rejected"
    DERIVED_FROM_UNAPPROVED = "derived_from_unapproved"
    CITATION_IRRELEVANT = "citation_irrelevant"
    AI_SYNTHESIS_HELD = "ai_synthesis_held"
    PENDING_DUPLICATE = "pending_duplicate"
    REVIEW_QUEUE_FULL = "review_queue_full"
    HUMAN_APPROVED = "human_approved"
    HUMAN_REJECTED = "human_rejected"
    REVIEW_EXPIRED = "review_expired"
    RETRACTED = "retracted"
    OVERRULED = "overruled"
    INTERNAL_ERROR = "internal_error"
    ENTITY_GROUNDING_FAILED = "entity_grounding_failed"
    RELATION_PRESERVATION_FAILED = "relation_preservation_failed"
    QUOTES_REJECTED = "quotes_rejected"
    CRITICAL_GAP = "critical_gap"
    LOW_CONFIDENCE = "low_confidence"
    CHECK_UNAVAILABLE = "check_unavailable"
    GROUNDING_UNATTESTED = "grounding_unattested"
    PHANTOM_SOURCE = "phantom_source"
    SNIPPET_MISMATCH = "snippet_mismatch"
    UNVERIFIED_FIELDS = "unverified_fields"
    STALE_INDEX = "stale_index"
    QUOTE_POLARITY = "quote_polarity"
    FLAGGED_CLAIMS = "flagged_claims"
    SOURCE_TAGS_MISSING = "source_tags_missing"
    WARNINGS = "warnings"
    VERIFICATION_BYPASSED = "verification_bypassed"
    NOTHING_TO_GROUND_ON = "nothing_to_ground_on"
    GROUNDED = "grounded"


class CitationState(StrEnum):
    """What is known of a citation; everything but `verified` gives no credit."""

    VERIFIED = "verified"
    NOT_FOUND = "not_found"
    UNKNOWN = "unknown"
    NOT_CHECKED = "not_checked"


class MatchClass(StrEnum):
    """What became of the text that a claim is near to."""

    APPROVED = "approved"
    PENDING = "pending"
    REJECTED = "rejected"


class Place(StrEnum):
    """What the review queue answered."""

    FREE = "free"
    USER_FULL = "user_full"
    TENANT_FULL = "tenant_full"
    TOTAL_FULL = "total_full"
    NOT_NEEDED = "not_needed"


@dataclass(slots=True)
class EvidenceObject:
    """Where a claim comes from and how far it can be trusted (S0-143).

    Attributes:
        claim: the text.
        capture_time: when it was captured, UTC.
        confidence: `high`, `medium` or `low`, by tier (S0-144).
        source_id: `ADR-003`, `commit:a1b2c3d`, a URL, `issue:123`, or what the producer gave.
        validity_horizon: from when on the claim no longer holds, or None.
        metadata: what the producer attached, as it came.
    """

    claim: str
    capture_time: Time
    confidence: str
    source_id: str | None = None
    validity_horizon: Time | None = None
    metadata: dict[str, Any] = field(default_factory=dict)

    def is_expired(self, at: datetime) -> bool:
        """Say whether the claim no longer holds at the time `at` (S0-145)."""
        return self.validity_horizon is not None and self.validity_horizon <= at


class HedgeMark(OutputRecord):
    """A hedge in its place; positions are characters of the original text."""

    text: str
    category: str
    action: str
    start: int
    end: int


class CitationResult(OutputRecord):
    """A citation in its place, and what checking it gave."""

    type: str
    value: str
    start: int
    end: int
    state: CitationState
    detail: str
    checked_at: Time | None


class DedupMatch(OutputRecord):
    """A stored text near to the claim, with its exact Jaccard similarity as a fraction."""

    subject_id: str
    inter: int
    union: int
    difference: str
    match_class: Annotated[MatchClass, Field(alias="class")]


class DedupFacts(OutputRecord):
    """What state answered of near-duplicates; `status` is `ok`, `failed` or `disabled`."""

    status: str
    scheme: str
    matches: list[DedupMatch]


class ParentFact(OutputRecord):
    """The state of something that the claim is derived from."""

    id: str
    state: str


class Facts(OutputRecord):
    """All that came from outside the record, beside the citations' states.

    A decision is a pure function of (record, policy, facts).

    Attributes:
        entities: a resolver's entries of the corpus by entity id, where the response carries no index.
        relations: a resolver's ground truth, where the response carries none.
        extraction: the claims that a response's answer was found to make; None where nobody asked.
        reply_to: of a response that answers a RegenerateRequest: `response_id`, the asked `mode` and the
            `attempt` of the response that it replaces; both None where that one is not known.
        review: from revision 2 on, the action that brought the decision: `action`, `action_id`, `reviewer`,
            `reason`, `key_id`, and `edited` where the text is a reviewer's.
        error: the class of an exception inside the gate; of a response `check=class`, separated by commas.
    """

    clock: Time
    dedup: DedupFacts | None = None
    parents: list[ParentFact] | None = None
    place: Place = Place.NOT_NEEDED
    attestation: dict[str, Any] | None = None
    relevance: list[dict[str, Any]] | None = None
    verifier: dict[str, Any] | None = None
    entities: dict[str, Any] | None = None
    relations: list[dict[str, Any]] | None = None
    extraction: list[str] | None = None
    reply_to: dict[str, Any] | None = None
    review: dict[str, Any] | None = None
    error: str | None = None

    @property
    def attested(self) -> bool:
        """Whether the record had a valid signature."""
        return (self.attestation or {}).get("state") == "valid"


class PolicyName(OutputRecord):
    """The policy that decided."""

    version: str
    sha256: str


class Origin(OutputRecord):
    """The Kafka record that was decided; `sha256` is that of its value."""

    topic: str | None
    partition: int
    offset: int
    timestamp: Time
    sha256: str


LAST_REVISION: Final = 2_147_483_647
"""A larger number was not written by a gate."""


class Decision(OutputRecord):
    """The outcome of a subject at a revision."""

    ce_type: ClassVar = "groundwire.decision.v1"

    decision_id: str
    revision: int
    supersedes: str | None
    kind: Kind
    subject_id: str
    tenant_id: str
    user_id: str
    fingerprint: str
    memory_type: str | None
    source: str | None
    derived_from: list[str] | None
    tier: IngestionTier
    verdict: Verdict
    approved: bool
    reason: str
    reason_code: str
    retryable: bool
    checks_passed: list[str]
    checks_failed: list[str]
    checks_skipped: list[str]
    hedges: list[HedgeMark]
    citations: list[CitationResult]
    similarity_score: float | None
    conflicting_memory_id: str | None
    evidence: EvidenceObject | None
    report: dict[str, Any] | None
    facts: Facts
    policy: PolicyName
    engine: str
    origin: Origin
    subject_origin: Origin | None
    decided_at: Time
    truncated: dict[str, int] | None
    replay: str | None

    def to_bytes(self) -> bytes:
        """Serialise for the wire: compact UTF-8 JSON, unescaped; equal decisions give equal bytes."""
        return self.wire

    @cached_property
    def wire(self) -> bytes:
        """Cached result of `to_bytes`."""
        return self.__pydantic_serializer__.to_json(self, by_alias=True)

    def __copy__(self) -> Self:
        """Return a copy, which may be given other fields: its bytes are its own."""
        copied = super().__copy__()
        copied.__dict__.pop("wire", None)
        return copied


AuditType = Literal[
    "enqueue",
    "review_action",
    "refused_action",
    "retraction",
    "dead_letter",
    "state_lost",
    "state_rebuilt",
    "policy_loaded",
    "evidence_failure",
    "records_lost",
    "seal",
]


class AuditEvent(OutputRecord):
    """What happened to whom and when: ids, counts, codes and keyed hashes only, never text."""

    ce_type: ClassVar = "groundwire.audit.v1"

    event_id: str
    type: AuditType
    at: Time
    tenant_id: str
    actor: str
    subject_id: str | None
    decision_id: str | None
    detail: dict[str, Any]

    @classmethod
    def of_type(cls, value: bytes | None, *types: AuditType) -> Self | None:
        """Return the event of a value; None where it has none of these types, or cannot be read."""
        # most need not be parsed; with a backslash a name can be written otherwise
        if value is None or not (b"\\" in value or any(f'"{one}"'.encode() in value for one in types)):
            return None
        event = cls.try_parse(value)
        return event if event is not None and event.type in types else None


class RegenerateRequest(OutputRecord):
    """A grounded prompt with which a generator is asked to answer again."""

    ce_type: ClassVar = "groundwire.regenerate.v1"

    request_id: str
    response_id: str
    decision_id: str
    tenant_id: str
    user_id: str
    query: str | None
    mode: Literal["instant", "auto", "thinking"]
    attempt: int
    why: Literal["low_confidence", "critical_gap"]
    prompt: str
    flagged: list[str]

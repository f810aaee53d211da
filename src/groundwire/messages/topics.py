"""Names of the topics and keys of the records on them."""

from __future__ import annotations

from enum import StrEnum

from groundwire.messages.decisions import Verdict


class TopicName(StrEnum):
    """Every topic, without the deployment's prefix."""

    CLAIMS = "claims"
    LLM_RESPONSES = "llm-responses"
    REVIEW_DECISIONS = "review-decisions"
    DEFERRED = "deferred"
    APPROVED = "approved"
    REVIEW = "review"
    BLOCKED = "blocked"
    RETRACTIONS = "retractions"
    REGENERATE = "regenerate"
    AUDIT = "audit"
    DEAD_LETTER = "dead-letter"

    @classmethod
    def of(cls, verdict: Verdict) -> TopicName:
        """Return the topic on which decisions with a verdict are published."""
        return cls(str(verdict))


def record_key(tenant_id: str, user_id: str) -> bytes:
    """Return the key of a user's records: it keeps them on one partition, in order."""
    return f"{tenant_id}:{user_id}".encode()

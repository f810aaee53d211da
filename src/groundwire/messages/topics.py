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

    @property
    def retention_days(self) -> int | None:
        """For how long the topic is declared to keep its records; None: for ever."""
        return _RETENTION_DAYS.get(self, 30)

    @classmethod
    def of(cls, verdict: Verdict) -> TopicName:
        """Return the topic on which decisions with a verdict are published."""
        return _OF_VERDICTS[verdict]


_OF_VERDICTS = {verdict: TopicName(str(verdict)) for verdict in Verdict}

_RETENTION_DAYS = {
    TopicName.REVIEW_DECISIONS: 90,
    TopicName.APPROVED: None,
    TopicName.REVIEW: 90,
    TopicName.RETRACTIONS: None,
    TopicName.AUDIT: 365,
}
"""Of topics that keep records longer than inputs, or for ever."""


def record_key(tenant_id: str, user_id: str) -> bytes:
    """Return the key of a user's records: it keeps them on one partition, in order."""
    return f"{tenant_id}:{user_id}".encode()

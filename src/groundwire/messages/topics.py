"""Names of the topics and keys of the records on them."""

from __future__ import annotations

import struct
from enum import StrEnum
from functools import lru_cache
from typing import Final

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
    HEADS = "heads"
    DEAD_LETTER = "dead-letter"

    @property
    def is_of_users(self) -> bool:
        """Whether its records have a user's key: all such topics have one number of partitions."""
        return self not in {TopicName.AUDIT, TopicName.HEADS, TopicName.DEAD_LETTER}

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
    TopicName.HEADS: None,
}
"""Of topics that keep records longer than inputs, or for ever."""


def record_key(tenant_id: str, user_id: str) -> bytes:
    """Return the key of a user's records: it keeps them on one partition, in order."""
    return f"{tenant_id}:{user_id}".encode()


def partition_of(tenant_id: str, user_id: str, partitions: int) -> int:
    """Return the partition of a user's records, of so many."""
    return key_hash(record_key(tenant_id, user_id)) % partitions


_M: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_MASK: Final = 0xFFFFFFFF


@lru_cache(1 << 14)
def key_hash(key: bytes) -> int:
    """Return the number from which Java's default partitioner takes the remainder: murmur2, as a positive integer.

    As `aiokafka.partitioner.murmur2`, which state in Redis does without.
    """
    whole = len(key) & ~3
    hashed = _SEED ^ len(key)
    for (part,) in struct.iter_unpack("<I", key[:whole]):
        mixed = part * _M & _MASK
        mixed = (mixed ^ mixed >> 24) * _M & _MASK
        hashed = hashed * _M & _MASK ^ mixed
    if whole < len(key):
        hashed = (hashed ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    hashed = (hashed ^ hashed >> 13) * _M & _MASK
    return (hashed ^ hashed >> 15) & 0x7FFFFFFF

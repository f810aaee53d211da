"""Every topic with its retention, schema and settings; names and keys come from `groundwire.messages`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from groundwire.kafka.connection import MAX_LETTER_BYTES
from groundwire.messages.topics import TopicName

_DAY_MS: Final = 24 * 60 * 60 * 1000
MAX_MESSAGE_BYTES: Final = 1_048_588
"""Largest record batch of a topic: Kafka's default, above the limit on input values."""

_LARGEST_LETTER: Final = MAX_LETTER_BYTES + 1_000
"""The same for `dead-letter`: a letter contains the record."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it is declared.

    Attributes:
        days: retention; None: for ever.
        schema: under `schemas/`; None: raw bytes.
        broker_time: timestamps are set by the broker (LogAppendTime).
    """

    name: TopicName
    days: int | None
    schema: str | None
    broker_time: bool = False

    @property
    def config(self) -> dict[str, str]:
        """The topic's configuration; only of heads does a record replace an earlier one, so that they are compacted."""
        largest = _LARGEST_LETTER if self.name is TopicName.DEAD_LETTER else MAX_MESSAGE_BYTES
        return {
            "cleanup.policy": "compact" if self.name is TopicName.HEADS else "delete",
            "retention.ms": str(-1 if self.days is None else self.days * _DAY_MS),
            "retention.bytes": "-1",
            "max.message.bytes": str(largest),
            "message.timestamp.type": "LogAppendTime" if self.broker_time else "CreateTime",
        }


CATALOG: Final = tuple(
    TopicSpec(name, name.retention_days, schema, broker_time=name == TopicName.REVIEW_DECISIONS)
    for name, schema in (
        (TopicName.CLAIMS, "claim"),
        (TopicName.LLM_RESPONSES, "llm-response"),
        (TopicName.REVIEW_DECISIONS, "review-decision"),
        (TopicName.DEFERRED, None),
        (TopicName.APPROVED, "decision"),
        (TopicName.REVIEW, "decision"),
        (TopicName.BLOCKED, "decision"),
        (TopicName.RETRACTIONS, "retraction"),
        (TopicName.REGENERATE, "regenerate"),
        (TopicName.AUDIT, "audit"),
        (TopicName.HEADS, None),
        (TopicName.DEAD_LETTER, None),
    )
)
"""All topics.

A review decision takes effect at its record's time, which decides whether a claim has expired and a key is valid. The
broker sets it on `review-decisions`, so that nobody backdates. **The embedded broker of demo and tests does not**: it
keeps the producer's time; only the validity of keys is safe there, as the worker uses the later of that and its clock.
"""

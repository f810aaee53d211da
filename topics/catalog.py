"""Every topic with its retention, schema and meaning. Names and keys come from `groundwire.messages`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from groundwire.kafka.connection import MAX_LETTER_BYTES
from groundwire.messages.topics import TopicName

_DAY_MS: Final = 24 * 60 * 60 * 1000
MAX_MESSAGE_BYTES: Final = 1_048_588
"""Largest record batch of a topic: Kafka's own default, which the limit on input values stays below."""

_LARGEST_LETTER: Final = MAX_LETTER_BYTES + 1_000
"""The same of `dead-letter`: a letter is larger than the record that it holds."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as it is declared.

    Attributes:
        days: retention in days; None keeps records for ever.
        schema: name of the record's schema under `schemas/`; None for bytes as they came in.
        broker_time: records bear the time at which the broker took them, whatever their producer says.
    """

    name: TopicName
    days: int | None
    schema: str | None
    broker_time: bool = False

    @property
    def config(self) -> dict[str, str]:
        """The topic's configuration; no topic is compacted, since a later record never replaces an earlier one."""
        largest = _LARGEST_LETTER if self.name is TopicName.DEAD_LETTER else MAX_MESSAGE_BYTES
        return {
            "cleanup.policy": "delete",
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
        (TopicName.DEAD_LETTER, None),
    )
)
"""All topics.

What a person decides is decided at the time of its record: by it a claim has expired or not, and a key is valid or not.
So that nobody back-dates a decision, the broker sets it on `review-decisions`. Apache Kafka does. **The embedded broker
of the demo and the tests does not**: it accepts the setting and keeps the time that the producer wrote. There, only the
validity of keys is safe, because the reviews agent takes the later of the record's time and its own clock for it.
"""

"""Erases a user: retracts approvals, writes a tombstone, and reports what topics still hold (X-19).

A topic cannot delete single records; consumers and state follow the tombstone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from groundwire.config import Settings
from groundwire.errors import UsageError
from groundwire.kafka.connection import producer
from groundwire.kafka.produce import naming_refusal
from groundwire.kafka.reader import Start, follow
from groundwire.messages.base import format_time, from_milliseconds
from groundwire.messages.decisions import AuditEvent, Decision
from groundwire.messages.erasure import Erasure
from groundwire.messages.events import text_hash
from groundwire.messages.headers import InboundRecord, event_headers
from groundwire.messages.identity import Subject, decision_id, event_id, retraction_id, subject_of_decision
from groundwire.messages.records import Retraction
from groundwire.messages.topics import TopicName, record_key
from groundwire.replay.reading import PATIENCE

_DECISIONS: Final = {TopicName.APPROVED, TopicName.REVIEW, TopicName.BLOCKED}


class Remains(NamedTuple):
    """What a topic still holds of a user; `gone`: when retention removes the last of it, None: never."""

    topic: TopicName
    records: int
    gone: datetime | None


@dataclass(slots=True)
class UserRecords:
    """What topics hold of a user: count and latest timestamp by topic, and the latest decisions."""

    found: dict[TopicName, tuple[int, datetime]] = field(default_factory=dict)
    decisions: dict[Subject, Decision] = field(default_factory=dict)

    def note(self, topic: TopicName, record: InboundRecord) -> None:
        count, latest = self.found.get(topic, (0, from_milliseconds(0)))
        self.found[topic] = count + 1, max(latest, from_milliseconds(record.timestamp))
        decision = Decision.try_parse(record.value) if topic in _DECISIONS else None
        if decision is None or decision.replay is not None:
            return
        subject = subject_of_decision(decision)
        if subject not in self.decisions or self.decisions[subject].revision < decision.revision:
            self.decisions[subject] = decision

    def remains(self) -> Iterator[Remains]:
        for topic, (count, latest) in self.found.items():
            days = topic.retention_days
            yield Remains(topic, count, None if days is None else latest + timedelta(days=days))


async def records_of(settings: Settings, tenant_id: str, user_id: str) -> UserRecords:
    """Read all topics for the records under a user's key; records under other keys are not found."""
    key = record_key(tenant_id, user_id)
    held = UserRecords()
    for topic in TopicName:
        starts: dict[str, Start] = {settings.topic_prefix + topic: "earliest"}
        async with aclosing(follow(settings.brokers, starts, PATIENCE, until_end=True)) as records:
            async for record in records:
                if record.key == key:
                    held.note(topic, record)
    return held


async def withdraw(settings: Settings, held: UserRecords, erasure: Erasure, actor: str) -> int:
    """Publish the tombstone, a Retraction for each approved decision that it covers, and an audit event."""
    if erasure.until > max([datetime.now(UTC), *(one.decided_at for one in held.decisions.values())]):
        raise UsageError("what is decided later cannot be erased now")
    topic = f"{settings.topic_prefix}{TopicName.RETRACTIONS}"
    key = record_key(erasure.tenant_id, erasure.user_id)
    at = format_time(erasure.until)
    approved = [one for one in held.decisions.values() if one.approved and one.decided_at <= erasure.until]
    async with producer(settings.brokers, PATIENCE) as client:
        with naming_refusal("the erasure", topic):
            await client.send_and_wait(topic, None, key, headers=erasure.headers)
            sent = []
            for decision in approved:
                retraction = retraction_of(decision, erasure, actor)
                name = retraction_id(retraction.decision_id)
                headers = event_headers("retraction", name, at, retraction.subject_id, [])
                value = retraction.model_dump_json().encode()
                sent.append(await client.send(topic, value, key, headers=headers))
            await asyncio.gather(*sent)
            detail = {
                "action": "erase",
                "tombstone": erasure.id,  # leads to the user as long as it is kept; the id is not written once more
                "user": text_hash(erasure.user_id) if settings.hash_key else None,
                "withdrawn": len(approved),
                "remains": {topic.value: count for topic, (count, _) in held.found.items()},
            }
            event = AuditEvent(
                event_id=event_id("retraction", erasure.id),
                type="retraction",
                at=erasure.until,
                tenant_id=erasure.tenant_id,
                actor=actor,
                subject_id=None,
                decision_id=None,
                detail=detail,
            )
            headers = event_headers("audit", event.event_id, at, "", [])
            name = f"{settings.topic_prefix}{TopicName.AUDIT}"
            value = event.model_dump_json().encode()
            await client.send_and_wait(name, value, event.tenant_id.encode(), headers=headers)
    return len(approved)


def retraction_of(decision: Decision, erasure: Erasure, actor: str) -> Retraction:
    """Return the Retraction of an approval, with the id that a reviewer's retraction would have."""
    return Retraction(
        decision_id=decision_id(subject_of_decision(decision), decision.revision + 1),
        supersedes=decision.decision_id,
        kind=decision.kind.value,
        subject_id=decision.subject_id,
        tenant_id=decision.tenant_id,
        user_id=decision.user_id,
        reason="erased",
        actor=actor,
        at=erasure.until,
        affected=[],
    )

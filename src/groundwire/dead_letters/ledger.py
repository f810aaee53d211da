"""What the audit topic remembers of redriving: which letters went back, by whom, and where they stand now.

Each redriving leaves two events: one before the record is sent, one when it is acknowledged. A run that ended in
between leaves the first alone; whether the record was sent then is found out on its topic.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from groundwire.dead_letters.letters import Failure, Letter
from groundwire.messages.audit import AuditEvent
from groundwire.messages.base import format_time
from groundwire.messages.headers import event_headers
from groundwire.messages.identity import event_id
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import TopicName

_MARK: Final = b'"redrive'
"""Stands in every event that counts here: the others, nearly all, need not be parsed."""


class Stands(NamedTuple):
    """Where a redriven record stands now."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        """Write it as tables do."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True, slots=True)
class Redriven:
    """A letter that was sent back, when, by whom and to where."""

    at: datetime
    actor: str
    stands: Stands


class Begun(NamedTuple):
    """A letter that was about to be sent: when, by whom, to which topic."""

    at: datetime
    actor: str
    topic: str


class Outgoing(NamedTuple):
    """A record to be sent; `topic` with its prefix."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


@dataclass(slots=True)
class History:
    """What was redriven, by the letter's id, and by its failure: of two letters of one failure, one is enough.

    Attributes:
        redriven: letters whose record was acknowledged.
        begun: those that were about to be sent, and of which no more is known.
    """

    redriven: dict[str | Failure, Redriven] = field(default_factory=dict)
    begun: dict[str | Failure, Begun] = field(default_factory=dict)

    def redriven_of(self, letter: Letter) -> Redriven | None:
        """Return when and to where a letter was sent back, or another letter of the same failure."""
        found = self.redriven.get(letter.id)
        return found or (self.redriven.get(letter.failure) if letter.failure else None)

    def begun_of(self, letter: Letter) -> Begun | None:
        """Return when a letter was about to be sent, or another letter of the same failure."""
        found = self.begun.get(letter.id)
        return found or (self.begun.get(letter.failure) if letter.failure else None)

    def remember(self, letter: Letter, redriven: Redriven) -> None:
        """Note that a letter was sent back."""
        if letter.failure:
            self.redriven.setdefault(letter.failure, redriven)

    def add(self, record: InboundRecord) -> None:
        """Take in a record of the audit topic."""
        if record.value is None or _MARK not in record.value:
            return
        try:
            event = AuditEvent.model_validate_json(record.value)
        except ValidationError:
            return
        letter = event.detail.get("letter")
        if event.type != "dead_letter" or not isinstance(letter, str):
            return
        names: list[str | Failure] = [letter, *_failure(event.detail)]
        match event.detail:
            case {"action": "redriven", "stands": {"topic": str(t), "partition": int(p), "offset": int(o)}}:
                for name in names:
                    self.redriven.setdefault(name, Redriven(event.at, event.actor, Stands(t, p, o)))
                    self.begun.pop(name, None)
            case {"action": "redrive", "origin": {"topic": str(topic)}}:
                for name in names:
                    if name not in self.redriven:
                        self.begun.setdefault(name, Begun(event.at, event.actor, topic))


def _failure(detail: dict[str, Any]) -> list[Failure]:
    """Return the failure that an event names, if it does."""
    match detail:
        case {
            "origin": {"topic": str(topic), "partition": int(partition), "offset": int(offset)},
            "attempts": int(attempts),
        }:
            return [Failure(topic, partition, offset, attempts)]
    return []


async def read_history(audit: AsyncIterator[InboundRecord]) -> History:
    """Read what the audit topic says; memory grows with the letters that were redriven, not with the topic."""
    history = History()
    async for record in audit:
        history.add(record)
    return history


def audit_record(prefix: str, letter: Letter, noted: Begun | Redriven) -> Outgoing:
    """Return the event of a redriving: of no tenant, as the gate's own of a dead letter, and without text."""
    stands = noted.stands if isinstance(noted, Redriven) else None
    action = "redriven" if stands else "redrive"
    origin = letter.record.origin.model_dump(mode="json")
    failed = letter.failed
    detail: dict[str, Any] = {
        "action": action,
        "letter": letter.id,
        "partition": letter.place.partition,
        "offset": letter.place.offset,
        "code": failed.code,
        "attempts": letter.attempts,
        "origin": {"topic": failed.topic, "partition": failed.partition, "offset": failed.offset},
        "stands": stands._asdict() if stands else None,
    }
    event = AuditEvent(
        event_id=letter.id if action == "redriven" else event_id("dead_letter", [action, origin]),
        type="dead_letter",
        at=noted.at,
        tenant_id="",
        actor=noted.actor,
        subject_id=None,
        decision_id=None,
        detail=detail,
    )
    headers = event_headers("audit", event.event_id, format_time(noted.at), "", letter.headers)
    return Outgoing(f"{prefix}{TopicName.AUDIT}", b"", event.model_dump_json().encode(), headers)

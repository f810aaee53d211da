"""What the checker judges: all records of all topics, what was sent, and when it was seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from groundwire.errors import RecordError
from groundwire.messages.decisions import Kind
from groundwire.messages.decode import decode_claim, decode_response, decode_review_decision
from groundwire.messages.identity import Subject
from groundwire.messages.records import Claim, LlmResponse, ReviewDecision
from tests.stream.harness import DECISIONS, Seen

Place = tuple[str, int, int]
"""Topic without its prefix, partition, offset."""

CLAIMS, RESPONSES, REVIEWS = "claims", "llm-responses", "review-decisions"
TOPICS = (
    *(CLAIMS, RESPONSES, REVIEWS, "deferred", *DECISIONS),
    *("retractions", "regenerate", "audit", "dead-letter"),
)


_DECODERS: Mapping[str, Callable[[bytes | None], Claim | LlmResponse | ReviewDecision]] = {
    CLAIMS: decode_claim,
    RESPONSES: decode_response,
    REVIEWS: decode_review_decision,
}


@dataclass(frozen=True)
class Violation:
    """A promise that was broken: which, by which record, and how."""

    rule: str
    record: str
    detail: str


@dataclass(frozen=True)
class Sent:
    """An input that the broker acknowledged."""

    place: Place
    value: bytes | None
    bad: bool = False
    """Whether no reader can make a record of it."""


@dataclass(frozen=True)
class Limits:
    """Places in the review queue."""

    user: int
    tenant: int
    total: int


@dataclass(frozen=True)
class Pending:
    """A time in which a subject certainly waited for a person: from when its Decision was read until one acted."""

    subject: Subject
    begin: float
    end: float


@dataclass(frozen=True)
class History:
    """All that a run left behind.

    `records`: by topic without its prefix, from the beginning. `sent`: what the broker acknowledged. `seen_at`,
    `acted_at`, `ended`: when records were read while the run went on, actions were sent, and it ended, in seconds of
    one clock. `forged`: ids of actions that were not signed, or not by whom they name. `page_exists`: whether a cited
    URL answers 200.
    """

    prefix: str
    records: Mapping[str, Sequence[Seen]]
    sent: Sequence[Sent] = ()
    limits: Limits = field(default_factory=lambda: Limits(100, 10_000, 10_000))
    seen_at: Mapping[Place, float] = field(default_factory=dict)
    acted_at: Mapping[str, float] = field(default_factory=dict)
    forged: frozenset[str] = frozenset()
    ended: float = 0.0
    page_exists: Callable[[str], bool] = lambda _url: False

    def of(self, topic: str) -> Sequence[Seen]:
        return self.records.get(topic, ())

    @cached_property
    def decisions(self) -> list[Seen]:
        return [seen for topic in DECISIONS for seen in self.of(topic)]

    @cached_property
    def subjects(self) -> dict[Subject, dict[int, Seen]]:
        """Each subject's decisions by revision, from 1 on; of repeats the first that was read."""
        found: dict[Subject, dict[int, Seen]] = {}
        for seen in self.decisions:
            if seen.json["revision"] > 0:
                found.setdefault(subject_of(seen.json), {}).setdefault(seen.json["revision"], seen)
        return found

    @cached_property
    def letters(self) -> dict[Place, list[Seen]]:
        """Dead letters by the place of the record that they hold."""
        found: dict[Place, list[Seen]] = {}
        for seen in self.of("dead-letter"):
            found.setdefault(self._named(seen, "__connect.errors."), []).append(seen)
        return found

    @cached_property
    def audit(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for seen in self.of("audit"):
            found.setdefault(seen.json["type"], []).append(seen.json)
        return found

    @cached_property
    def causes(self) -> dict[tuple[str | None, Subject], Place]:
        """Inputs that can be read, by `traceparent` and subject: claims of a response have that of the response."""
        found: dict[tuple[str | None, Subject], Place] = {}
        for topic, decode in _DECODERS.items():
            for seen in self.of(topic):
                with suppress(RecordError):
                    found.setdefault(
                        (seen.header("traceparent"), subject_in(decode(seen.value))), place_of(seen)
                    )
        return found

    def cause(self, seen: Seen) -> Place | None:
        """The input for which a worker published a decision, be it the decision's origin or a repeat."""
        return self.causes.get((seen.header("traceparent"), subject_of(seen.json)))

    @cached_property
    def deferred(self) -> dict[Place, Place]:
        """Places of inputs on `deferred`, the first of each."""
        found: dict[Place, Place] = {}
        for seen in self.of("deferred"):
            found.setdefault(self._named(seen, "gw-origin-"), place_of(seen))
        return found

    def _named(self, seen: Seen, prefix: str) -> Place:
        parts = (seen.header(f"{prefix}{part}") or "" for part in ("topic", "partition", "offset"))
        topic, partition, offset = parts
        return self.short(topic), int(partition), int(offset)

    def short(self, topic: str) -> str:
        return topic.removeprefix(self.prefix)

    def origin(self, decision: Mapping[str, Any]) -> Place:
        origin = decision["origin"]
        return self.short(origin["topic"]), origin["partition"], origin["offset"]

    def by_people(self, decision: Mapping[str, Any]) -> bool:
        """Whether a person brought a revision about: what was refused for want of a place may be sent again."""
        return self.origin(decision)[0] == REVIEWS

    def revisions(self) -> Iterator[tuple[Subject, int, Seen]]:
        for subject, by_revision in self.subjects.items():
            for revision, seen in sorted(by_revision.items()):
                yield subject, revision, seen


def place_of(seen: Seen) -> Place:
    return seen.topic, seen.partition, seen.offset


def traceparent(sender: int, number: int) -> tuple[str, bytes]:
    """The header that tells an input's outputs from those of other inputs of its subject."""
    return "traceparent", f"00-{sender:08x}{number:024x}-{number:016x}-01".encode()


def subject_of(decision: Mapping[str, Any]) -> Subject:
    return Subject(decision["tenant_id"], decision["user_id"], Kind(decision["kind"]), decision["subject_id"])


def subject_in(record: Claim | LlmResponse | ReviewDecision) -> Subject:
    match record:
        case Claim():
            return Subject(record.tenant_id, record.user_id, Kind.CLAIM, record.claim_id)
        case LlmResponse():
            return Subject(record.tenant_id, record.user_id, Kind.RESPONSE, record.response_id)
    return Subject(record.tenant_id, record.user_id, Kind(record.kind), record.subject_id)


def name(what: Seen | Place) -> str:
    topic, partition, offset = what if isinstance(what, tuple) else place_of(what)
    return f"{topic}/{partition}@{offset}"


def keep(history: History, path: Path) -> None:
    """Write all records to a file, one JSON a line, so that a broken promise can be looked into."""
    with path.open("w") as file:
        for seen in (seen for records in history.records.values() for seen in records):
            fields = {
                "at": name(seen),
                "timestamp": seen.timestamp,
                "seen": history.seen_at.get(place_of(seen)),
                "key": repr(seen.key),
                "headers": [(key, value.decode(errors="replace")) for key, value in seen.headers],
                "value": (seen.value or b"").decode(errors="replace"),
            }
            file.write(json.dumps(fields) + "\n")

"""The inputs of a decision: the records that it names, found by hash, and the envelope that frames it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from groundwire.errors import RegistryUnavailable, SchemaMissing
from groundwire.gate.build import Envelope, Stamp
from groundwire.gate.types import PreparedReview
from groundwire.messages.base import sha256_hex, to_milliseconds
from groundwire.messages.decisions import Decision, Kind, Origin
from groundwire.messages.decode import read_value, validate
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject, decision_id, fingerprint, subject_of_decision
from groundwire.messages.records import Claim, LlmResponse, ReviewDecision
from groundwire.policy import Policy
from groundwire.state.model import NOTING, RecordOrigin, ReviewAction


def origin_of(recorded: Decision, value: bytes) -> Origin:
    """Return the record's origin with the recorded clock and the hash of its bytes."""
    place = recorded.origin
    return Origin(
        topic=place.topic or None,
        partition=max(place.partition, 0),
        offset=max(place.offset, 0),
        timestamp=recorded.facts.clock,
        sha256=sha256_hex(value),
    )


def inbound_of(recorded: Decision, value: bytes) -> InboundRecord:
    place = recorded.origin
    clock = to_milliseconds(recorded.facts.clock)
    return InboundRecord(place.topic, place.partition, place.offset, clock, None, value)


def envelope(recorded: Decision, origin: Origin, policy: Policy, revision: int, fingerprint: str) -> Envelope:
    return Envelope(
        revision=revision,
        fingerprint=fingerprint,
        origin=origin,
        subject_origin=recorded.subject_origin if revision > 1 else None,
        stamp=Stamp.of(policy, recorded.decided_at),
    )


def revision_of(recorded: Decision, subject: Subject) -> int | None:
    """Return the revision that the decision's id was derived from; None where none fits."""
    candidates = range(1, 20)  # a subject that is refused again and again may have more
    named = (recorded.revision,) if recorded.revision > 0 else ()
    return next((n for n in (*named, *candidates) if decision_id(subject, n) == recorded.decision_id), None)


def review_fact(recorded: Decision, value: bytes, review: ReviewDecision, *, edited: bool) -> dict[str, Any]:
    key_id = (recorded.facts.review or {}).get("key_id")
    return PreparedReview(inbound_of(recorded, value), review, "", key_id).fact(edited=edited)


Record = Claim | LlmResponse | ReviewDecision


class Missing(Exception):
    """An input of a decision was not found; the message names it."""


class Mismatch(Exception):
    """Records and facts contradict the decision, whatever else is derived; `path`: JSON path of the wrong field."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class InputRevision(NamedTuple):
    """The record behind a revision from 2 on: its hash, its time, and whether a person decided."""

    sha256: str
    clock: datetime
    by_people: bool


class Records(Protocol):
    def value(self, sha256: str) -> bytes | None: ...

    def revision(self, decision: Decision, number: int) -> InputRevision | None: ...


@dataclass(frozen=True, slots=True)
class Inputs:
    """The records behind a decision, read.

    Of a person's decision, `first` is the subject's first record, `again` a later record that the gate decided in its
    place, and `edit` the text that an earlier reviewer gave it.
    """

    value: bytes
    record: Record
    first: Claim | LlmResponse | None = None
    again: tuple[Claim, datetime] | None = None
    edit: str | None = None


def stored_origin(origin: Origin) -> RecordOrigin:
    timestamp = to_milliseconds(origin.timestamp)
    return RecordOrigin(origin.topic or "", origin.partition, origin.offset, timestamp, origin.sha256)


def beyond_numbers(decision: Decision) -> list[str]:
    """Return the fields with integers that canonical JSON cannot hold (RFC 8785); no gate writes such."""
    numbers = {"$.revision": decision.revision}
    for name, origin in ("$.origin", decision.origin), ("$.subject_origin", decision.subject_origin):
        if origin is not None:
            numbers |= {f"{name}.partition": origin.partition, f"{name}.offset": origin.offset}
    return [path for path, number in numbers.items() if abs(number) >= 2**53]


def named(record: Claim | LlmResponse) -> Subject:
    if isinstance(record, LlmResponse):
        return Subject(record.tenant_id, record.user_id, Kind.RESPONSE, record.response_id)
    return Subject(record.tenant_id, record.user_id, Kind.CLAIM, record.claim_id)


def read_record(value: bytes) -> Record:
    """Read an input record of any of the three kinds. Raises: RecordError; Missing, its schema."""
    try:
        parsed, _ = read_value(value)
    except (SchemaMissing, RegistryUnavailable) as exc:
        raise Missing(f"schema of record {sha256_hex(value)}: {exc}") from exc
    fields = parsed if isinstance(parsed, dict) else {}
    model: type[Record] = LlmResponse if "response_id" in fields else Claim
    if "action_id" in fields:  # only one kind of record has it
        model = ReviewDecision
    return validate(model, parsed)


def gather(decision: Decision, records: Records) -> Inputs:
    """Find the inputs of a decision. Raises: Missing, Mismatch, RecordError."""
    value = records.value(decision.origin.sha256)
    if value is None:
        raise Missing(f"record {decision.origin.sha256} (origin)")
    record = read_record(value)
    if not isinstance(record, ReviewDecision):
        if (
            decision.revision > 1
            and revision_of(decision, subject_of_decision(decision)) == decision.revision
        ):
            if decision.subject_origin is None:
                raise Mismatch("$.subject_origin", "the gate decided again, so the first record is named")
            first = _first(decision.subject_origin.sha256, records)
            if named(first) != named(record) or fingerprint(first) != fingerprint(record):
                raise Mismatch("$.subject_origin.sha256", "the first record is not of what was decided")
        return Inputs(value, record)
    if ReviewAction(record.action) in NOTING:
        raise Mismatch("$.origin", f"a {record.action} decides nothing")
    if decision.subject_origin is None:
        raise Mismatch("$.subject_origin", "a person decided, so the first record is named")
    first = _first(decision.subject_origin.sha256, records)
    if isinstance(first, LlmResponse):  # which nobody edits, and of which a later record changes nothing
        return Inputs(value, record, first)
    again, edit = _between(decision, record.expected_revision, records)
    return Inputs(value, record, first, again, edit)


def _first(sha256: str, records: Records) -> Claim | LlmResponse:
    value = records.value(sha256)
    if value is None:
        raise Missing(f"record {sha256} (subject_origin)")
    first = read_record(value)
    if isinstance(first, ReviewDecision):
        raise Mismatch(
            "$.subject_origin.sha256", "it names what a person decided, not what they decided about"
        )
    return first


def _between(
    decision: Decision, number: int, records: Records
) -> tuple[tuple[Claim, datetime] | None, str | None]:
    edit = None
    while number > 1:
        revision = records.revision(decision, number)
        if revision is None:
            raise Missing(f"decision of revision {number}")
        value = records.value(revision.sha256)
        if value is None:
            kind = "approval or edit" if revision.by_people else "claim"
            raise Missing(f"record {revision.sha256[:64]} ({kind} of revision {number})")
        record = read_record(value)
        if isinstance(record, Claim):
            return (record, revision.clock), edit
        if isinstance(record, ReviewDecision) and edit is None:
            edit = record.content
        number -= 1
    return None, edit

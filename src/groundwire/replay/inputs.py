"""What a decision is derived from again: the records that it names, found by the hash of their bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from groundwire.messages.claims import Claim
from groundwire.messages.decisions import Decision
from groundwire.messages.decode import parse_json, validate
from groundwire.messages.identity import Subject
from groundwire.messages.responses import LlmResponse
from groundwire.messages.reviews import ReviewDecision

Record = Claim | LlmResponse | ReviewDecision


class Missing(Exception):
    """Something that a decision is derived from is not at hand; the message says what."""


class Mismatch(Exception):
    """A decision cannot be what it says it is, whatever else is derived.

    Attributes:
        path: JSON path of the field at fault.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path


class DecidedAgain(NamedTuple):
    """A claim that was refused or joined, and decided on a later record: that record's hash and time."""

    sha256: str
    clock: datetime


class Records(Protocol):
    """Records at hand."""

    def value(self, sha256: str) -> bytes | None:
        """Return the value with this hash, or None."""
        ...

    def edits(self, subject: Subject, revision: int) -> Sequence[str]:
        """Return the texts by which reviewers wanted to replace that of a subject at a revision."""
        ...

    def decided_again(self, subject: Subject, revision: int) -> DecidedAgain | None:
        """Return the latest revision from 2 to `revision` that the gate itself decided, where it is known."""
        ...


@dataclass(frozen=True, slots=True)
class Inputs:
    """The records behind a decision, read.

    Attributes:
        value: the bytes of the record that brought the decision about.
        record: the same, read.
        first: of what a person decided, the record that they decided.
        again: the later record that was decided in the place of the first, where there is one.
        edits: texts that reviewers gave the subject before this action.
    """

    value: bytes
    record: Record
    first: Claim | LlmResponse | None = None
    again: tuple[Claim, datetime] | None = None
    edits: Sequence[str] = ()


def subject_of(decision: Decision) -> Subject:
    """Return the identity of what was decided."""
    return Subject(decision.tenant_id, decision.user_id, decision.kind, decision.subject_id)


def read_record(value: bytes) -> Record:
    """Read an input record, whichever of the three it is. Raises: RecordError."""
    parsed = parse_json(value)
    return validate(_model(parsed), parsed)


def gather(decision: Decision, records: Records) -> Inputs:
    """Find what a decision is derived from.

    Raises:
        Missing: a record is not at hand.
        Mismatch: a record is not what the decision makes of it.
        RecordError: a record cannot be read.
    """
    value = records.value(decision.origin.sha256)
    if value is None:
        raise Missing(f"record {decision.origin.sha256} (origin)")
    record = read_record(value)
    if not isinstance(record, ReviewDecision):
        return Inputs(value, record)
    if decision.subject_origin is None:
        raise Mismatch("$.subject_origin", "a person decided, so the first record is named")
    first = _first(decision.subject_origin.sha256, records)
    subject = subject_of(decision)
    edits: Sequence[str] = ()
    if record.action == "retract" and (decision.facts.review or {}).get("edited"):
        edits = records.edits(subject, record.expected_revision - 1)
        if not edits:
            raise Missing(f"record of the edit of revision {record.expected_revision - 1}")
    return Inputs(value, record, first, _again(subject, record, records), edits)


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


def _again(subject: Subject, review: ReviewDecision, records: Records) -> tuple[Claim, datetime] | None:
    found = records.decided_again(subject, review.expected_revision)
    value = records.value(found.sha256) if found else None
    again = read_record(value) if value is not None else None
    return (again, found.clock) if found and isinstance(again, Claim) else None


def _model(parsed: Any) -> type[Record]:  # noqa: ANN401 - any JSON value
    """Say what a value is by a field that only one kind of record has, and must have."""
    if isinstance(parsed, dict) and "action_id" in parsed:
        return ReviewDecision
    return LlmResponse if isinstance(parsed, dict) and "response_id" in parsed else Claim

"""What a decision is derived from again: the records that it names, found by the hash of their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol

from groundwire.messages.claims import Claim
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.decode import parse_json, validate
from groundwire.messages.identity import Subject, fingerprint
from groundwire.messages.responses import LlmResponse
from groundwire.messages.reviews import ReviewDecision
from groundwire.replay.frame import revision_of

_END: Final = 2**53

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


class Revision(NamedTuple):
    """What brought a revision from 2 on about: hash and time of its record, and whether people decided."""

    sha256: str
    clock: datetime
    by_people: bool


class Records(Protocol):
    """Records at hand."""

    def value(self, sha256: str) -> bytes | None:
        """Return the value with this hash, or None."""
        ...

    def revision(self, subject: Subject, number: int) -> Revision | None:
        """Return what a decision at hand says of a revision from 2 on, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Inputs:
    """The records behind a decision, read.

    Attributes:
        value: the bytes of the record that brought the decision about.
        record: the same, read.
        first: of what a person decided, the record that they decided.
        again: the later record that was decided in the place of the first, where there is one.
        edit: text that a reviewer gave the subject before this action, where one did.
    """

    value: bytes
    record: Record
    first: Claim | LlmResponse | None = None
    again: tuple[Claim, datetime] | None = None
    edit: str | None = None


def subject_of(decision: Decision) -> Subject:
    """Return the identity of what was decided."""
    return Subject(decision.tenant_id, decision.user_id, decision.kind, decision.subject_id)


def beyond_numbers(decision: Decision) -> list[str]:
    """Return the fields with numbers that canonical JSON has not (RFC 8785): no revision and no place is such."""
    numbers = {"$.revision": decision.revision}
    for name, origin in ("$.origin", decision.origin), ("$.subject_origin", decision.subject_origin):
        if origin is not None:
            numbers |= {f"{name}.partition": origin.partition, f"{name}.offset": origin.offset}
    return [path for path, number in numbers.items() if abs(number) >= _END]


def named(record: Claim | LlmResponse) -> Subject:
    """Return the identity of what a record brings to be decided."""
    if isinstance(record, LlmResponse):
        return Subject(record.tenant_id, record.user_id, Kind.RESPONSE, record.response_id)
    return Subject(record.tenant_id, record.user_id, Kind.CLAIM, record.claim_id)


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
        if decision.revision > 1 and revision_of(decision, subject_of(decision)) == decision.revision:
            _check_first(decision, record, records)
        return Inputs(value, record)
    if decision.subject_origin is None:
        raise Mismatch("$.subject_origin", "a person decided, so the first record is named")
    first = _first(decision.subject_origin.sha256, records)
    if isinstance(first, LlmResponse):  # which nobody edits, and of which a later record changes nothing
        return Inputs(value, record, first)
    again, edit = _between(subject_of(decision), record.expected_revision, records)
    return Inputs(value, record, first, again, edit)


def _check_first(decision: Decision, record: Claim | LlmResponse, records: Records) -> None:
    """Look whether a subject that the gate decided again began with the record that the decision names."""
    if decision.subject_origin is None:
        raise Mismatch("$.subject_origin", "the gate decided again, so the first record is named")
    first = _first(decision.subject_origin.sha256, records)
    if named(first) != named(record) or fingerprint(first) != fingerprint(record):
        raise Mismatch("$.subject_origin.sha256", "the first record is not of what was decided")


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
    subject: Subject, number: int, records: Records
) -> tuple[tuple[Claim, datetime] | None, str | None]:
    """Return what stands between a claim's first record and a revision: the record decided again, and an edit."""
    edit = None
    while number > 1:
        found = records.revision(subject, number)
        if found is None:
            raise Missing(f"decision of revision {number}")
        value = records.value(found.sha256)
        if value is None:
            kind = "approval or edit" if found.by_people else "claim"
            raise Missing(f"record {found.sha256[:64]} ({kind} of revision {number})")
        record = read_record(value)
        if isinstance(record, Claim):
            return (record, found.clock), edit
        if isinstance(record, ReviewDecision) and edit is None:
            edit = record.content
        number -= 1
    return None, edit


def _model(parsed: Any) -> type[Record]:  # noqa: ANN401 - any JSON value
    """Say what a value is by a field that only one kind of record has, and must have."""
    if isinstance(parsed, dict) and "action_id" in parsed:
        return ReviewDecision
    return LlmResponse if isinstance(parsed, dict) and "response_id" in parsed else Claim

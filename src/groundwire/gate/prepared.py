"""A record before state is asked: decoded, read, and what it rests on looked up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Self

from groundwire.decide.build import response_subject
from groundwire.decide.claims import Finding, Findings
from groundwire.decide.fan_out import RESPONSE_PARENT
from groundwire.decide.reading import UNREAD, Reading
from groundwire.decide.response_claims import ClaimReport
from groundwire.decide.response_reading import Broken, ResponseReading, Skipped
from groundwire.decide.responses import list_broken
from groundwire.errors import ErrorCode, RecordError
from groundwire.gate.faults import report_fault
from groundwire.gate.recorded import Payload
from groundwire.messages.base import InputRecord, canonical_json, from_milliseconds
from groundwire.messages.claims import Claim
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject, decisive
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.responses import LlmResponse
from groundwire.state.model import DedupQuery, RecordOrigin
from groundwire.verify.results import CitationCheck

MAX_DETAIL = 100
"""Characters: a hundred details have to fit into a decision beside everything else."""


@dataclass(slots=True)
class PreparedClaim:
    """What is known of a claim when state is asked.

    `wait` says that a citation has to ask the network; `error` names an exception in the gate's own code; `asked` is
    what state was last asked to record with it.
    """

    record: InboundRecord
    claim: Claim
    fingerprint: str
    reading: Reading
    dedup: DedupQuery | None
    attestation: dict[str, Any] | None
    error: str | None
    findings: Findings
    relevance: list[dict[str, Any]] | None = None
    wait: bool = False
    asked: Payload | None = None

    @classmethod
    def unread(cls, record: InboundRecord, claim: Claim) -> Self:
        """Return a claim of which nothing is known yet but its fields."""
        return cls(record, claim, "", UNREAD, None, None, None, findings={})

    def fail(self, error: Exception) -> None:
        """Give up on judging the claim: it goes to review, as an internal error (S0-23)."""
        self.reading, self.dedup, self.error = UNREAD, None, type(error).__name__
        self.findings, self.relevance, self.wait = {}, None, False

    @property
    def subject(self) -> Subject:
        """The claim's identity."""
        return Subject(self.claim.tenant_id, self.claim.user_id, Kind.CLAIM, self.claim.claim_id)

    @property
    def origin(self) -> RecordOrigin:
        """Where the record stood, as state keeps it."""
        return record_origin(self.record)

    @property
    def parents(self) -> list[tuple[str, Subject]]:
        """The subjects that the claim rests on."""
        return parents_of(self.claim)

    @property
    def clock(self) -> datetime:
        """The gate's clock for this record."""
        return from_milliseconds(self.record.timestamp)


@dataclass(slots=True)
class PreparedResponse:
    """What is known of a response when state is asked.

    Attributes:
        reading: what the checks found.
        entities: a resolver's entries of the corpus by id, where the response carries no index.
        relations: a resolver's ground truth, where the response carries none.
        verifier: what a model said of its claims; None where none was asked.
        by_rules: what the rules alone found of its claims, once a model was asked, or need not be; None before.
        broken: check -> class of the error that broke it.
        extraction: the claims of its answer, where they are to be fanned out.
        reply_to: of a reply to a RegenerateRequest, what is known of the response that it replaces.
        resolved: whether a resolver was asked, or need not be.
    """

    record: InboundRecord
    response: LlmResponse
    fingerprint: str
    reading: ResponseReading
    entities: dict[str, Any] | None = None
    relations: list[dict[str, Any]] | None = None
    verifier: dict[str, Any] | None = None
    by_rules: ClaimReport | Skipped | Broken | None = None
    broken: dict[str, str] = field(default_factory=dict)
    extraction: list[str] | None = None
    reply_to: dict[str, Any] | None = None
    resolved: bool = False

    @property
    def subject(self) -> Subject:
        """The response's identity."""
        return response_subject(self.response)

    @property
    def parent(self) -> Subject | None:
        """The response that this one replaces."""
        replaced = self.response.in_reply_to
        return self.subject._replace(subject_id=replaced) if replaced is not None else None

    @property
    def origin(self) -> RecordOrigin:
        """Where the record stood, as state keeps it."""
        return record_origin(self.record)

    @property
    def clock(self) -> datetime:
        """The gate's clock for this record."""
        return from_milliseconds(self.record.timestamp)

    def take_in(self, reading: ResponseReading) -> None:
        """Keep what the checks found, and tell of those that have just broken."""
        self.reading = reading
        for check, broken in reading.broken:
            if check not in self.broken and broken.cause is not None:
                report_fault("check.broken", broken.cause, check=check, offset=self.record.offset)
            self.broken[check] = broken.error

    @property
    def error(self) -> str | None:
        """What broke, as `facts.error` has it."""
        return list_broken(self.broken)


Prepared = PreparedClaim | PreparedResponse

_FREE: Final = ("evidence", "current_revisions", "context", "hop_results")
"""Fields of a response that hold objects with keys of the sender's."""


def parents_of(claim: Claim) -> list[tuple[str, Subject]]:
    """Return (id as sent, subject) of each thing that a claim rests on."""
    result = []
    for parent in claim.derived_from:
        kind = Kind.RESPONSE if parent.startswith(RESPONSE_PARENT) else Kind.CLAIM
        name = parent.removeprefix(RESPONSE_PARENT)
        result.append((parent, Subject(claim.tenant_id, claim.user_id, kind, name)))
    return result


def record_origin(record: InboundRecord) -> RecordOrigin:
    """Return where a record stood, as state keeps it."""
    return RecordOrigin(record.topic or "", record.partition, record.offset, record.timestamp, record.sha256)


def in_canonical_order(response: LlmResponse, canonical: Mapping[str, Any]) -> LlmResponse:
    """Return a response whose free parts stand in the order and spelling of its canonical form.

    The same fingerprint must give the same decision, whatever order its keys were sent in.
    """
    update = {name: canonical[name] for name in _FREE if getattr(response, name) is not None}
    for name in ("claims", "relations"):
        if statements := getattr(response, name):
            update[name] = [
                statement.model_copy(update={"qualifiers": plain["qualifiers"]})
                if statement.qualifiers
                else statement
                for statement, plain in zip(statements, canonical[name], strict=True)
            ]
    return response.model_copy(update=update)


def canonical_form(record: InputRecord) -> bytes:
    """Return what decides a record in its canonical form, whose hash is its fingerprint.

    Raises:
        RecordError: it has none.
    """
    try:
        return canonical_json(decisive(record))
    except ValueError as exc:
        message = f"cannot be put into canonical form: {exc}"
        raise RecordError(ErrorCode.INVALID_RECORD, message) from None


def as_finding(check: CitationCheck) -> Finding:
    """Keep of a verification what a decision may carry: a short detail, never the source's text."""
    return Finding(check.state, check.detail[:MAX_DETAIL], check.checked_at)

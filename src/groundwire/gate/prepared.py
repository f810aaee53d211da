"""A claim before state is asked: decoded, read, its citations looked up."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self

from groundwire.decide.claims import Finding, Findings
from groundwire.decide.reading import UNREAD, Reading
from groundwire.messages.base import from_milliseconds
from groundwire.messages.claims import Claim
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject
from groundwire.messages.inbound import InboundRecord
from groundwire.state.model import DedupQuery, RecordOrigin
from groundwire.verify.results import CitationCheck

RESPONSE_PARENT = "response:"
MAX_DETAIL = 100
"""Characters: a hundred details have to fit into a decision beside everything else."""


@dataclass(slots=True)
class Prepared:
    """What is known of a claim when state is asked.

    `wait` says that a citation has to ask the network; `error` names an exception in the gate's own code.
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
        record = self.record
        return RecordOrigin(
            record.topic or "", record.partition, record.offset, record.timestamp, record.sha256
        )

    @property
    def parents(self) -> list[tuple[str, Subject]]:
        """The subjects that the claim rests on."""
        tenant, user = self.claim.tenant_id, self.claim.user_id
        result = []
        for parent in self.claim.derived_from:
            kind = Kind.RESPONSE if parent.startswith(RESPONSE_PARENT) else Kind.CLAIM
            result.append((parent, Subject(tenant, user, kind, parent.removeprefix(RESPONSE_PARENT))))
        return result

    @property
    def clock(self) -> datetime:
        """The gate's clock for this record."""
        return from_milliseconds(self.record.timestamp)


def as_finding(check: CitationCheck) -> Finding:
    """Keep of a verification what a decision may carry: a short detail, never the source's text."""
    return Finding(check.state, check.detail[:MAX_DETAIL], check.checked_at)

"""What state keeps so that a decision can be derived again, and the derivation.

The payload is one line with what a record that is sent again may lack or have differently: when it was
captured, decided and by which engine and policy, its metadata, what citations, attestation and relevance gave.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic_core import to_json

from groundwire.checks.citations import CitationDetector
from groundwire.decide.build import MAX_SOURCE_ID, Envelope, build_decision
from groundwire.decide.claims import ClaimCase, Finding, Findings
from groundwire.decide.reading import Reading
from groundwire.decide.recorded import recorded_standing
from groundwire.messages.base import (
    format_time,
    from_microseconds,
    from_milliseconds,
    parse_time,
    to_microseconds,
)
from groundwire.messages.claims import Claim
from groundwire.messages.decisions import (
    CitationState,
    Decision,
    DedupFacts,
    Facts,
    Origin,
    ReasonCode,
)
from groundwire.messages.identity import fingerprint
from groundwire.messages.tiers import IngestionTier
from groundwire.policy import Policy
from groundwire.state.model import Outcome, RecordOrigin, SubjectState
from groundwire.version import __version__

TIERS = {
    SubjectState.APPROVED: IngestionTier.AUTO_APPROVE,
    SubjectState.PENDING: IngestionTier.FLAG_REVIEW,
    SubjectState.JOINED: IngestionTier.FLAG_REVIEW,
    SubjectState.REVIEW: IngestionTier.FLAG_REVIEW,
    SubjectState.REFUSED: IngestionTier.BLOCK,
    SubjectState.BLOCKED: IngestionTier.BLOCK,
}
"""The tier that a decision in a state has."""

_TIMES = ("t", "d")


@dataclass(frozen=True, slots=True)
class Payload:
    """The facts that state does not answer itself.

    `scheme` is that of the deduplication; `base` and `cap`, the reason before duplicates and the cap that needs
    no state, are for a later engine. Once a person decided, `review` is the fact of that name, `content` the text
    as they edited it, and `record` the claim as it was sent: its next revisions are derived from these.
    """

    capture_time: datetime
    decided_at: datetime
    engine: str
    policy_sha256: str
    policy_version: str
    scheme: str
    base: ReasonCode
    cap: ReasonCode | None
    metadata: dict[str, Any]
    findings: Findings
    attestation: dict[str, Any] | None
    relevance: list[dict[str, Any]] | None
    error: str | None
    review: dict[str, Any] | None = None
    content: str | None = None
    record: str | None = None

    def as_decided(self, claim: Claim) -> Claim:
        """Return a claim with the text that was decided: a reviewer may have edited it."""
        return claim if self.content is None else claim.model_copy(update={"content": self.content})

    def to_bytes(self) -> bytes:
        """Serialise to a line of `write_line`, without what is empty."""
        found = {
            label: [f.state, f.detail, format_time(f.checked_at) if f.checked_at else None]
            for label, f in self.findings.items()
        }
        fields = {
            "t": to_microseconds(self.capture_time),
            "d": to_microseconds(self.decided_at),
            "b": str(self.base),
            "k": str(self.cap) if self.cap else None,
            "m": self.metadata,
            "c": found,
            "a": self.attestation,
            "r": self.relevance,
            "x": self.error,
            "w": self.review,
            "y": self.content,
            "z": self.record,
        }
        context = {
            "e": self.engine,
            "p": self.policy_sha256,
            "v": self.policy_version,
            "s": self.scheme,
        }
        return write_line(context, {name: value for name, value in fields.items() if value or name in _TIMES})

    @classmethod
    def from_bytes(cls, data: bytes) -> Payload:
        """Read back what `to_bytes` wrote."""
        fields = read_line(data)
        return cls(
            capture_time=from_microseconds(fields["t"]),
            decided_at=from_microseconds(fields["d"]),
            engine=fields["e"],
            policy_sha256=fields["p"],
            policy_version=fields["v"],
            scheme=fields["s"],
            base=ReasonCode(fields["b"]),
            cap=ReasonCode(fields["k"]) if "k" in fields else None,
            metadata=fields.get("m", {}),
            findings={
                label: Finding(CitationState(state), detail, parse_time(at) if at else None)
                for label, (state, detail, at) in fields.get("c", {}).items()
            },
            attestation=fields.get("a"),
            relevance=fields.get("r"),
            error=fields.get("x"),
            review=fields.get("w"),
            content=fields.get("y"),
            record=fields.get("z"),
        )


def write_line(context: dict[str, Any], own: dict[str, Any]) -> bytes:
    """Write what re-derives a decision as state wants it: JSON, a tab behind what many have alike, and JSON."""
    return to_json(context) + b"\t" + to_json(own)


def read_line(data: bytes) -> dict[str, Any]:
    """Read back what `write_line` wrote, as one."""
    context, own = data.split(b"\t")
    fields: dict[str, Any] = json.loads(context) | json.loads(own)
    return fields


def derive(
    claim: Claim,
    reading: Reading,
    policy: Policy | None,
    current: Policy,
    outcome: Outcome,
    payload: Payload,
) -> Decision:
    """Derive a subject's decision from the record and its recorded outcome.

    Args:
        claim: a record with the recorded fingerprint, with the text that was decided (`Payload.as_decided`).
        reading: its hedges and citations.
        policy: the policy that decided; None where it is not known here any more.
        current: this process's own policy, which then stands in for it.
        outcome: what state recorded.
        payload: that of the outcome.

    Returns:
        The decision, byte for byte the published one under the same engine and a known policy. Else tier,
        reason and facts stay as recorded.
    """
    case = ClaimCase(claim, reading, policy or current, _facts(outcome, payload), payload.findings)
    envelope = Envelope(
        revision=outcome.revision,
        fingerprint=outcome.fingerprint,
        origin=as_origin(outcome.origin),
        subject_origin=as_origin(outcome.first_origin) if outcome.first_origin else None,
        decided_at=payload.decided_at,
        capture_time=payload.capture_time,
        metadata=payload.metadata,
        engine=payload.engine,
        policy_sha256=payload.policy_sha256,
        policy_version=payload.policy_version,
    )
    tier = TIERS[outcome.state]
    standing = case.outcome()
    own = payload.engine == __version__ and policy is not None
    if not own or standing.tier != tier:
        joined = outcome.state is SubjectState.JOINED
        standing = recorded_standing(case, tier, payload.base, payload.cap, joined=joined)
    return build_decision(case, envelope, standing)


def _facts(outcome: Outcome, payload: Payload) -> Facts:
    return Facts(
        clock=from_milliseconds(outcome.origin.timestamp),
        dedup=DedupFacts(status=outcome.dedup_status, scheme=payload.scheme, matches=list(outcome.matches)),
        parents=list(outcome.parents),
        place=outcome.place,
        attestation=payload.attestation,
        relevance=payload.relevance,
        review=payload.review,
        error=payload.error,
    )


def as_origin(origin: RecordOrigin) -> Origin:
    """Return where a record stood, as a decision names it."""
    return Origin(
        topic=origin.topic or None,
        partition=origin.partition,
        offset=origin.offset,
        timestamp=from_milliseconds(origin.timestamp),
        sha256=origin.sha256,
    )


def claim_of(decision: Decision) -> Claim:
    """Return the claim of a published decision, with the text that was decided; without when it was captured.

    A `source_id` that was derived from the text's citations (S0-55) is not the claim's own: another text has others.
    """
    evidence = decision.evidence
    fields: dict[str, Any] = {
        "claim_id": decision.subject_id,
        "tenant_id": decision.tenant_id,
        "user_id": decision.user_id,
        "content": evidence.claim if evidence else "",
        "memory_type": decision.memory_type,
        "source": decision.source,
        "source_id": evidence.source_id if evidence else None,
        "validity_horizon": evidence.validity_horizon if evidence else None,
        "derived_from": decision.derived_from or [],
        "metadata": evidence.metadata if evidence else {},
    }
    claim = Claim.model_construct(**fields)
    if claim.source_id is None or claim.source_id != _derived_source(decision, claim.content):
        return claim
    if fingerprint(claim) == decision.fingerprint:
        return claim  # its own, and the same
    return claim.model_copy(update={"source_id": None})


def _derived_source(decision: Decision, content: str) -> str | None:
    """Return what `evidence.source_id` is where the claim has none: that of its first verified citation, or first."""
    verified = (each for each in decision.citations if each.state == CitationState.VERIFIED)
    primary = next(verified, next(iter(decision.citations), None))
    if primary is None:
        return None
    found = CitationDetector().detect(content)  # a long citation is cut in the decision
    place = primary.type, primary.start
    return next((each.source_id[:MAX_SOURCE_ID] for each in found if (each.type, each.start) == place), None)


def record_of(claim: Claim) -> bytes:
    """Return a claim as a record that gives it when it is decoded."""
    return claim.model_dump_json(exclude_none=True).encode()

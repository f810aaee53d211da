"""What state keeps so that a decision can be derived again, and the derivation.

A payload is one line with what a record that is sent again may lack or have differently: when it was captured and
decided, by which engine and policy, its metadata, and what came from outside.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from groundwire import __version__
from groundwire.checks.citations import CitationDetector
from groundwire.gate.build import (
    MAX_SOURCE_ID,
    Envelope,
    Stamp,
    build_decisions,
    build_response_decision,
    within_limits,
)
from groundwire.gate.claim_case import REVIEW_PLACE, CheckFinding, ClaimCase, ClaimInputs
from groundwire.gate.response_case import ResponseCase
from groundwire.gate.response_checks import NO_INPUTS, CheckInputs
from groundwire.gate.tree import TreeOutcome, cap, explain, reviewed
from groundwire.messages.base import (
    format_time,
    from_microseconds,
    from_milliseconds,
    immutable,
    parse_time,
    to_microseconds,
)
from groundwire.messages.decisions import (
    CitationState,
    Decision,
    DedupFacts,
    Facts,
    IngestionTier,
    MatchClass,
    Origin,
    Place,
    ReasonCode,
    Verdict,
)
from groundwire.messages.identity import Subject, decision_id, fingerprint
from groundwire.messages.records import Claim
from groundwire.state.model import Outcome, RecordOrigin, SubjectState

TIERS: Final = {
    SubjectState.APPROVED: IngestionTier.AUTO_APPROVE,
    SubjectState.PENDING: IngestionTier.FLAG_REVIEW,
    SubjectState.JOINED: IngestionTier.FLAG_REVIEW,
    SubjectState.REVIEW: IngestionTier.FLAG_REVIEW,
    SubjectState.REFUSED: IngestionTier.BLOCK,
    SubjectState.BLOCKED: IngestionTier.BLOCK,
}
"""The tier that a decision in a state has."""

_TIMES: Final = ("t", "d")


class HumanDecision(NamedTuple):
    review: dict[str, Any]  # `facts.review`
    content: str | None  # the text as the reviewer edited it, None where nobody did
    record: str  # the claim as it was sent, from which further revisions are derived


@immutable
class ClaimPayload:
    """The facts of a claim that state does not answer itself."""

    stamp: Stamp
    scheme: str  # that of the deduplication
    base: ReasonCode  # the reason before duplicates and caps, for a later engine
    cap: ReasonCode | None  # the cap that needs no state, likewise
    capture_time: datetime
    metadata: dict[str, Any]
    inputs: ClaimInputs
    human: HumanDecision | None = None

    def as_decided(self, claim: Claim) -> Claim:
        """Return a claim with the text that was decided: a reviewer may have edited it."""
        edited = self.human.content if self.human else None
        return claim if edited is None else claim.model_copy(update={"content": edited})

    def to_bytes(self) -> bytes:
        found = {
            label: [f.state, f.detail, format_time(f.checked_at) if f.checked_at else None]
            for label, f in self.inputs.findings.items()
        }
        fields = {
            "t": to_microseconds(self.capture_time),
            "d": to_microseconds(self.stamp.decided_at),
            "b": str(self.base),
            "k": str(self.cap) if self.cap else None,
            "m": self.metadata,
            "c": found,
            "a": self.inputs.attestation,
            "r": self.inputs.relevance,
            "x": self.inputs.error,
        }
        if self.human:
            fields |= {"w": self.human.review, "y": self.human.content, "z": self.human.record}
        kept = {name: value for name, value in fields.items() if value or name in _TIMES}
        return _write_line(_context(*self.stamp[1:], self.scheme), kept)

    @classmethod
    def from_bytes(cls, data: bytes) -> ClaimPayload:
        fields = _read_line(data)
        findings = {
            label: CheckFinding(CitationState(state), detail, parse_time(at) if at else None)
            for label, (state, detail, at) in fields.get("c", {}).items()
        }
        human = HumanDecision(fields["w"], fields.get("y"), fields.get("z", "")) if "w" in fields else None
        return cls(
            stamp=_stamp(fields),
            scheme=fields["s"],
            base=ReasonCode(fields["b"]),
            cap=ReasonCode(fields["k"]) if "k" in fields else None,
            capture_time=from_microseconds(fields["t"]),
            metadata=fields.get("m", {}),
            inputs=ClaimInputs(findings, fields.get("a"), fields.get("r"), fields.get("x")),
            human=human,
        )


class ReplyAttempt(NamedTuple):
    """What a reply to a response has to know of it."""

    # the mode in which its generator was asked for another answer; None where it was not
    asked_mode: str | None
    number: int | None  # which attempt the response was; None where that is not known


@dataclass(frozen=True, slots=True)
class ResponsePayload:
    """The facts of a response that state does not answer itself."""

    stamp: Stamp
    code: ReasonCode  # the reason before the queue
    attempt: ReplyAttempt
    inputs: CheckInputs = NO_INPUTS
    extraction: list[str] | None = None
    reply_to: dict[str, Any] | None = None
    review: dict[str, Any] | None = None  # once a person decided, the action
    superseded_at: datetime | None = None  # then, when the revision before was decided

    def to_bytes(self) -> bytes:
        fields = {
            "d": to_microseconds(self.stamp.decided_at),
            "b": self.code,
            "g": self.attempt.asked_mode,
            "n": self.attempt.number,
            "i": self.inputs.entities,
            "r": self.inputs.relations,
            "m": self.inputs.verifier,
            "c": self.extraction,
            "o": self.reply_to,
            "x": self.inputs.error,
            "a": self.inputs.attestation,
            "w": self.review,
            "q": to_microseconds(self.superseded_at) if self.superseded_at else None,
        }
        kept = {name: value for name, value in fields.items() if value is not None}
        return _write_line(_context(*self.stamp[1:]), kept)

    @classmethod
    def from_bytes(cls, data: bytes) -> ResponsePayload:
        fields = _read_line(data)
        return cls(
            stamp=_stamp(fields),
            code=ReasonCode(fields["b"]),
            attempt=ReplyAttempt(fields.get("g"), fields.get("n")),
            inputs=CheckInputs(*map(fields.get, ("i", "r", "m", "x", "a"))),
            extraction=fields.get("c"),
            reply_to=fields.get("o"),
            review=fields.get("w"),
            superseded_at=from_microseconds(fields["q"]) if "q" in fields else None,
        )


@lru_cache(16)
def _context(engine: str, policy_sha256: str, policy_version: str, scheme: str | None = None) -> bytes:
    """Return what many lines have alike; responses have no scheme."""
    context = {"e": engine, "p": policy_sha256, "v": policy_version}
    return to_json(context if scheme is None else context | {"s": scheme})


def _stamp(fields: dict[str, Any]) -> Stamp:
    return Stamp(from_microseconds(fields["d"]), fields["e"], fields["p"], fields["v"])


def _write_line(context: bytes, own: dict[str, Any]) -> bytes:
    """Write what re-derives a decision as state wants it: JSON, a tab behind what many have alike, and JSON."""
    return context + b"\t" + to_json(own)


def _read_line(data: bytes) -> dict[str, Any]:
    context, own = data.split(b"\t")
    fields: dict[str, Any] = json.loads(context) | json.loads(own)
    return fields


def recorded_facts(recorded: Outcome, payload: ClaimPayload) -> Facts:
    dedup = DedupFacts.made(
        status=recorded.dedup_status, scheme=payload.scheme, matches=list(recorded.matches)
    )
    return Facts.made(
        clock=from_milliseconds(recorded.origin.timestamp),
        dedup=dedup,
        parents=list(recorded.parents),
        place=recorded.place,
        attestation=payload.inputs.attestation,
        relevance=payload.inputs.relevance,
        review=payload.human.review if payload.human else None,
        error=payload.inputs.error,
    )


def recorded_response_facts(recorded: Outcome, payload: ResponsePayload) -> Facts:
    return Facts(
        clock=from_milliseconds(recorded.origin.timestamp),
        place=recorded.place,
        extraction=payload.extraction,
        reply_to=payload.reply_to,
        review=payload.review,
        **payload.inputs._asdict(),
    )


class Derivation(NamedTuple):
    case: ClaimCase  # with the text that was decided (`ClaimPayload.as_decided`) and the recorded facts
    recorded: Outcome
    payload: ClaimPayload
    known_policy: bool  # whether the case's policy is the one that decided


def derive(given: Derivation) -> Decision:
    return derive_all([given])[0]


def derive_all(given: Sequence[Derivation]) -> list[Decision]:
    """Derive claims' decisions from their records and recorded outcomes, each step for all before the next one.

    They are byte for byte the published ones under the same engine and a known policy; else tier, reason and facts
    stay as recorded.
    """
    judged = list(map(_judged, given))
    envelopes = [
        _envelope(recorded, payload.stamp, payload.capture_time, payload.metadata)
        for _, recorded, payload, _ in given
    ]
    return build_decisions([one.case for one in given], envelopes, judged)


def _judged(given: Derivation) -> TreeOutcome:
    case, recorded, payload, known_policy = given
    tier = TIERS[recorded.state]
    judged = case.outcome()
    if known_policy and payload.stamp.engine == __version__ and judged.tier == tier:
        return judged
    return recorded_reason(
        case, tier, payload.base, payload.cap, joined=recorded.state is SubjectState.JOINED
    )


def derive_response(
    case: ResponseCase, recorded: Outcome, payload: ResponsePayload, *, known_policy: bool
) -> Decision:
    envelope = _envelope(recorded, payload.stamp, payload.stamp.decided_at, {})
    tier = TIERS[recorded.state]
    judged = case.outcome()
    if not known_policy or payload.stamp.engine != __version__ or judged.tier != tier:
        refused = recorded.state is SubjectState.REFUSED
        judged = explain(tier, ReasonCode.REVIEW_QUEUE_FULL if refused else payload.code)
    return build_response_decision(case, envelope, judged)


def _envelope(recorded: Outcome, stamp: Stamp, capture_time: datetime, metadata: dict[str, Any]) -> Envelope:
    return Envelope(
        revision=recorded.revision,
        fingerprint=recorded.fingerprint,
        origin=as_origin(recorded.origin),
        subject_origin=as_origin(recorded.first_origin) if recorded.first_origin else None,
        stamp=stamp,
        capture_time=capture_time,
        metadata=metadata,
    )


_BLOCKING: Final = {ReasonCode.EXPIRED, ReasonCode.PERSONAL_SPECULATION}
_ABOVE_DEDUP: Final = {ReasonCode.TECHNICAL_HEDGE, ReasonCode.INTERNAL_ERROR}
_UNGROUNDED: Final = {ReasonCode.SOURCE_UNATTESTED, ReasonCode.CITATION_UNVERIFIED, ReasonCode.UNGROUNDED}


def recorded_reason(
    case: ClaimCase, tier: IngestionTier, base: ReasonCode, late_cap: ReasonCode | None, *, joined: bool
) -> TreeOutcome:
    """Return tier and reason that another engine recorded, or this one under a policy that is not known any more."""
    if case.facts.review is not None:
        blocked = tier == IngestionTier.BLOCK
        return reviewed(case.facts.review["action"], expired=case.expired, duplicate=blocked)
    if tier == IngestionTier.AUTO_APPROVE:
        return explain(tier, base, case.claim.source)
    if tier == IngestionTier.BLOCK:
        full = case.facts.place not in {Place.FREE, Place.NOT_NEEDED}
        code = ReasonCode.REVIEW_QUEUE_FULL if full else ReasonCode.DUPLICATE
        return explain(tier, base if base in _BLOCKING else code)
    if joined:
        return explain(tier, ReasonCode.PENDING_DUPLICATE)
    if base in _ABOVE_DEDUP or (base in _UNGROUNDED and case.dedup.status != "failed"):
        return explain(tier, base)
    late_cap = late_cap or base
    classes = {match.match_class for match in case.dedup.matches}
    if case.dedup.status == "failed":
        return explain(IngestionTier.FLAG_REVIEW, ReasonCode.DEDUP_UNAVAILABLE)
    if late_cap == ReasonCode.HIDDEN_TEXT:
        return cap(late_cap)
    if MatchClass.APPROVED in classes:  # in review, so there is a material difference
        return cap(ReasonCode.CONFLICTING_NEAR_DUPLICATE)
    if MatchClass.REJECTED in classes:
        return cap(ReasonCode.PREVIOUSLY_REJECTED)
    return cap(ReasonCode.DERIVED_FROM_UNAPPROVED if case.unapproved_parents else late_cap)


def as_origin(origin: RecordOrigin) -> Origin:
    return Origin.made(
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
    verified = (each for each in decision.citations if each.state == CitationState.VERIFIED)
    primary = next(verified, next(iter(decision.citations), None))
    if claim.source_id is None or primary is None:
        return claim
    found = CitationDetector().detect(claim.content)  # a long citation is cut in the decision
    at = [each.source_id for each in found if (each.type, each.start) == (primary.type, primary.start)]
    if not at or claim.source_id != at[0][:MAX_SOURCE_ID]:
        return claim
    if fingerprint(claim) == decision.fingerprint:
        return claim  # its own, and the same
    return claim.model_copy(update={"source_id": None})


def record_of(claim: Claim) -> bytes:
    return claim.__pydantic_serializer__.to_json(claim, exclude_none=True)


def next_decision(before: Decision, recorded: Outcome, payload: ResponsePayload) -> Decision:
    """Return the decision that a person's action brought, from the published one that it supersedes.

    A response's text stands on no output topic. What its checks found is carried over, and so are the engine and
    the policy that found it. What was said of the action may take more room than there was: lists give way.
    """
    review = payload.review or {}
    subject = Subject(before.tenant_id, before.user_id, before.kind, before.subject_id)
    judged = reviewed(review["action"], expired=False, duplicate=False)
    facts = before.facts.model_copy(
        update={
            "clock": from_milliseconds(recorded.origin.timestamp),
            "place": recorded.place,
            "review": review,
        }
    )
    after = before.model_copy(
        update={
            "decision_id": decision_id(subject, recorded.revision),
            "revision": recorded.revision,
            "supersedes": before.decision_id,
            "tier": judged.tier,
            "verdict": Verdict.of(judged.tier),
            "approved": judged.tier == IngestionTier.AUTO_APPROVE,
            "reason": judged.reason,
            "reason_code": judged.code,
            "checks_passed": [check for check in before.checks_passed if check != REVIEW_PLACE],
            "facts": facts,
            "origin": as_origin(recorded.origin),
            "subject_origin": as_origin(recorded.first_origin) if recorded.first_origin else None,
            "decided_at": payload.stamp.decided_at,
        }
    )
    return within_limits(after)

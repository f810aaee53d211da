"""What state keeps so that a decision can be derived again, and the derivation.

A payload is one line with what a record that is sent again may lack or have differently: when it was captured and
decided, by which engine and policy, its metadata, and what came from outside.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from pydantic_core import to_json

from groundwire.checks.citations import CitationDetector
from groundwire.gate.build import (
    MAX_SOURCE_ID,
    REVIEW_PLACE,
    Build,
    Case,
    Checks,
    Envelope,
    Fields,
    Limits,
    Stamp,
    draft,
    fit,
    response_fields,
)
from groundwire.gate.claim_case import CheckFinding, ClaimCase, ClaimInputs, ClaimReading
from groundwire.gate.response_checks import NO_INPUTS, CheckInputs
from groundwire.gate.tree import TIERS, TreeOutcome, queued, reviewed
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
    Origin,
    ReasonCode,
)
from groundwire.messages.identity import fingerprint, subject_of_decision
from groundwire.messages.records import Claim
from groundwire.policy import Policy
from groundwire.state.model import Outcome, RecordOrigin, SubjectState

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
    base_code: ReasonCode  # see `ClaimCase.base`
    cap: ReasonCode | None  # see `ClaimCase.own_cap`
    capture_time: datetime
    metadata: dict[str, Any]
    inputs: ClaimInputs
    human: HumanDecision | None = None

    @property
    def review(self) -> dict[str, Any] | None:
        return self.human.review if self.human else None

    def facts(self, recorded: Outcome) -> Facts:
        dedup = DedupFacts.made(
            status=recorded.dedup_status, scheme=self.scheme, matches=list(recorded.matches)
        )
        return self.inputs.facts(
            from_milliseconds(recorded.origin.timestamp),
            dedup=dedup,
            parents=list(recorded.parents),
            place=recorded.place,
            review=self.review,
        )

    def case(self, claim: Claim, reading: ClaimReading, policy: Policy, recorded: Outcome) -> ClaimCase:
        """Return the case of a recorded decision, of the text that was decided."""
        case = ClaimCase(claim, reading, policy, self.facts(recorded), self.inputs.findings)
        return case.recorded_as(self.base_code, self.cap)

    def as_decided(self, claim: Claim) -> Claim:
        """Return a claim as it was decided: a re-send may differ in some fields, and a reviewer may edit its text."""
        first = {"captured_at": self.capture_time, "metadata": self.metadata}
        edited = self.human.content if self.human else None
        return claim.model_copy(update=first if edited is None else first | {"content": edited})

    def to_bytes(self) -> bytes:
        found = {
            label: [f.state, f.detail, format_time(f.checked_at) if f.checked_at else None]
            for label, f in self.inputs.findings.items()
        }
        fields = {
            "t": to_microseconds(self.capture_time),
            "d": to_microseconds(self.stamp.decided_at),
            "b": str(self.base_code),
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
            base_code=ReasonCode(fields["b"]),
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
    base_code: ReasonCode  # the reason before the queue
    attempt: ReplyAttempt
    inputs: CheckInputs = NO_INPUTS
    extraction: list[str] | None = None
    reply_to: dict[str, Any] | None = None
    review: dict[str, Any] | None = None  # once a person decided, the action
    gate_decided_at: datetime | None = None  # then, when the gate did

    def facts(self, recorded: Outcome) -> Facts:
        return Facts(
            clock=from_milliseconds(recorded.origin.timestamp),
            place=recorded.place,
            extraction=self.extraction,
            reply_to=self.reply_to,
            review=self.review,
            **self.inputs._asdict(),
        )

    def to_bytes(self) -> bytes:
        fields = {
            "d": to_microseconds(self.stamp.decided_at),
            "b": self.base_code,
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
            "q": to_microseconds(self.gate_decided_at) if self.gate_decided_at else None,
        }
        kept = {name: value for name, value in fields.items() if value is not None}
        return _write_line(_context(*self.stamp[1:]), kept)

    @classmethod
    def from_bytes(cls, data: bytes) -> ResponsePayload:
        fields = _read_line(data)
        return cls(
            stamp=_stamp(fields),
            base_code=ReasonCode(fields["b"]),
            attempt=ReplyAttempt(fields.get("g"), fields.get("n")),
            inputs=CheckInputs(*map(fields.get, ("i", "r", "m", "x", "a"))),
            extraction=fields.get("c"),
            reply_to=fields.get("o"),
            review=fields.get("w"),
            gate_decided_at=from_microseconds(fields["q"]) if "q" in fields else None,
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


Payload = ClaimPayload | ResponsePayload
Recorded = tuple[Case, Payload, Outcome]
"""A record with the text that was decided, and what state recorded of it."""


def derive(given: Sequence[Recorded]) -> list[Decision]:
    """Derive decisions from their records and from what state recorded.

    They are byte for byte the published ones under the same engine and a known policy; else tier, reason and facts
    stay.
    """
    return fit([_drafted(*one) for one in given])


def derive_one(known: Recorded) -> Decision:
    return derive([known])[0]


def _drafted(case: Case, payload: Payload, recorded: Outcome) -> Build:
    tier, review = TIERS[recorded.tier - 1], payload.review
    if review is not None:
        outcome = reviewed(review["action"], expired=case.expired, duplicate=tier == IngestionTier.BLOCK)
    else:
        outcome = queued(case.judged(tier), recorded.place, joins=recorded.state is SubjectState.JOINED)
    envelope = Envelope(
        revision=recorded.revision,
        fingerprint=recorded.fingerprint,
        origin=as_origin(recorded.origin),
        subject_origin=as_origin(recorded.first_origin) if recorded.first_origin else None,
        stamp=payload.stamp,
    )
    return draft(case, envelope, outcome)


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
    if primary.type == "ticket":  # which texts are tickets, the policy says
        at = [primary.value]
    if not at or claim.source_id != at[0][:MAX_SOURCE_ID]:
        return claim
    if fingerprint(claim) == decision.fingerprint:
        return claim  # its own, and the same
    return claim.model_copy(update={"source_id": None})


def record_of(claim: Claim) -> bytes:
    return claim.__pydantic_serializer__.to_json(claim, exclude_none=True)


class PublishedCase(Case):
    """A response as its published decision shows it: its text is on no output topic, what was found carries over."""

    def __init__(self, decision: Decision) -> None:
        self.subject = subject_of_decision(decision)
        self.decision = decision
        self.facts = decision.facts

    def judged(self, tier: IngestionTier | None = None) -> TreeOutcome:
        before = self.decision
        return TreeOutcome(tier or before.tier, before.reason, ReasonCode(before.reason_code))

    def fields(self, _outcome: TreeOutcome, limits: Limits) -> Fields:
        before = self.decision
        passed = [check for check in before.checks_passed if check != REVIEW_PLACE]
        checks = Checks(passed, before.checks_failed, before.checks_skipped)
        fields, more = response_fields(checks, before.report or {}, self.facts, limits)
        truncated = Counter(before.truncated or {})
        truncated.update(more)
        return fields, dict(truncated)


def next_decision(before: Decision, recorded: Outcome, payload: ResponsePayload) -> Decision:
    """Return the decision that a person's action brought, from the published one that it supersedes.

    What was said of the action may take more room than there was: lists give way.
    """
    facts = before.facts.model_copy(
        update={
            "clock": from_milliseconds(recorded.origin.timestamp),
            "place": recorded.place,
            "review": payload.review,
        }
    )
    return derive_one((PublishedCase(before).with_facts(facts), payload, recorded))

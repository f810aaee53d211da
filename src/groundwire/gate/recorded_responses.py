"""What state keeps of a response so that its decision can be derived again, and the derivation."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from groundwire.decide.build import Envelope, build_response_decision, within_limits
from groundwire.decide.checks import REVIEW_PLACE
from groundwire.decide.people import reviewed
from groundwire.decide.response_reading import ResponseReading
from groundwire.decide.responses import ResponseCase
from groundwire.decide.tree import stand
from groundwire.gate.recorded import TIERS, as_origin, read_line, write_line
from groundwire.messages.base import from_microseconds, from_milliseconds, to_microseconds
from groundwire.messages.decisions import Decision, Facts, ReasonCode, Verdict
from groundwire.messages.identity import Subject, decision_id
from groundwire.messages.responses import LlmResponse
from groundwire.messages.tiers import IngestionTier
from groundwire.policy import Policy
from groundwire.state.model import Outcome, SubjectState
from groundwire.version import __version__


@dataclass(frozen=True, slots=True)
class ResponsePayload:
    """The facts that state does not answer itself.

    `code` is the reason before the queue. `asked_mode` and `attempt` are what a reply to this response is told:
    the mode that its generator was asked for, None where it was asked nothing, and which attempt this one was,
    None where that is not known. Once a person decided, `superseded_at` is when the revision before was decided.
    """

    decided_at: datetime
    engine: str
    policy_sha256: str
    policy_version: str
    code: ReasonCode
    asked_mode: str | None
    attempt: int | None
    entities: dict[str, Any] | None = None
    relations: list[dict[str, Any]] | None = None
    verifier: dict[str, Any] | None = None
    extraction: list[str] | None = None
    reply_to: dict[str, Any] | None = None
    error: str | None = None
    review: dict[str, Any] | None = None
    superseded_at: datetime | None = None

    def to_bytes(self) -> bytes:
        """Serialise to a line of `write_line`, without what is not there."""
        fields = {
            "d": to_microseconds(self.decided_at),
            "b": self.code,
            "g": self.asked_mode,
            "n": self.attempt,
            "i": self.entities,
            "r": self.relations,
            "m": self.verifier,
            "c": self.extraction,
            "o": self.reply_to,
            "x": self.error,
            "w": self.review,
            "q": to_microseconds(self.superseded_at) if self.superseded_at else None,
        }
        context = {"e": self.engine, "p": self.policy_sha256, "v": self.policy_version}
        return write_line(context, {name: value for name, value in fields.items() if value is not None})

    @classmethod
    def from_bytes(cls, data: bytes) -> ResponsePayload:
        """Read back what `to_bytes` wrote."""
        fields = read_line(data)
        return cls(
            decided_at=from_microseconds(fields["d"]),
            engine=fields["e"],
            policy_sha256=fields["p"],
            policy_version=fields["v"],
            code=ReasonCode(fields["b"]),
            asked_mode=fields.get("g"),
            attempt=fields.get("n"),
            entities=fields.get("i"),
            relations=fields.get("r"),
            verifier=fields.get("m"),
            extraction=fields.get("c"),
            reply_to=fields.get("o"),
            error=fields.get("x"),
            review=fields.get("w"),
            superseded_at=from_microseconds(fields["q"]) if "q" in fields else None,
        )


def recorded_case(
    response: LlmResponse,
    reading: ResponseReading,
    policy: Policy,
    outcome: Outcome,
    payload: ResponsePayload,
) -> ResponseCase:
    """Return a response with what state recorded of it; `payload` is the outcome's, read back."""
    facts = Facts(
        clock=from_milliseconds(outcome.origin.timestamp),
        place=outcome.place,
        entities=payload.entities,
        relations=payload.relations,
        verifier=payload.verifier,
        extraction=payload.extraction,
        reply_to=payload.reply_to,
        review=payload.review,
        error=payload.error,
    )
    return ResponseCase(response, reading, policy, facts)


def derive_response(
    case: ResponseCase, outcome: Outcome, payload: ResponsePayload, *, known_policy: bool
) -> Decision:
    """Derive a response's decision from the record and its recorded outcome.

    Args:
        case: from `recorded_case`.
        outcome: what state recorded.
        payload: the outcome's, read back.
        known_policy: whether the case's policy is the one that decided; else tier, reason and facts stay as
            recorded, as they do under another engine.
    """
    envelope = Envelope(
        revision=outcome.revision,
        fingerprint=outcome.fingerprint,
        origin=as_origin(outcome.origin),
        subject_origin=as_origin(outcome.first_origin) if outcome.first_origin else None,
        decided_at=payload.decided_at,
        capture_time=payload.decided_at,
        metadata={},
        engine=payload.engine,
        policy_sha256=payload.policy_sha256,
        policy_version=payload.policy_version,
    )
    tier = TIERS[outcome.state]
    standing = case.outcome()
    if payload.engine != __version__ or not known_policy or standing.tier != tier:
        refused = outcome.state is SubjectState.REFUSED
        standing = stand(tier, ReasonCode.REVIEW_QUEUE_FULL if refused else payload.code)
    return build_response_decision(case, envelope, standing)


def next_decision(before: Decision, outcome: Outcome, payload: ResponsePayload) -> Decision:
    """Return the decision that a person's action brought, from the published one that it supersedes.

    A response's text stands on no output topic. What its checks found is carried over, and so are the engine and
    the policy that found it. What was said of the action may take more room than there was: lists give way.
    """
    review = payload.review or {}
    subject = Subject(before.tenant_id, before.user_id, before.kind, before.subject_id)
    standing = reviewed(review["action"], expired=False, duplicate=False)
    facts = before.facts.model_copy(
        update={
            "clock": from_milliseconds(outcome.origin.timestamp),
            "place": outcome.place,
            "review": review,
        }
    )
    after = before.model_copy(
        update={
            "decision_id": decision_id(subject, outcome.revision),
            "revision": outcome.revision,
            "supersedes": before.decision_id,
            "tier": standing.tier,
            "verdict": Verdict.of(standing.tier),
            "approved": standing.tier == IngestionTier.AUTO_APPROVE,
            "reason": standing.reason,
            "reason_code": standing.code,
            "checks_passed": [check for check in before.checks_passed if check != REVIEW_PLACE],
            "facts": facts,
            "origin": as_origin(outcome.origin),
            "subject_origin": as_origin(outcome.first_origin) if outcome.first_origin else None,
            "decided_at": payload.decided_at,
        }
    )
    return within_limits(after)

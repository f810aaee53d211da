"""Decisions of LLM responses derived again: provisional ones, the gate's own, and those that people made."""

from __future__ import annotations

from dataclasses import fields
from types import NoneType
from typing import Any, Final, get_args

from groundwire.decide.build import build_response_decision
from groundwire.decide.fan_out import extract
from groundwire.decide.response_claims import why_skipped
from groundwire.decide.response_reading import ResponseReading, read_response
from groundwire.decide.responses import INTERNAL, STATE, ResponseCase, broken_checks, list_broken
from groundwire.gate.prepared import PreparedResponse
from groundwire.gate.recorded_responses import ResponsePayload, next_decision
from groundwire.gate.responses import kept, provisional_response, reply_to, take_over
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import Decision, Facts, Origin, Place, ReasonCode, Verdict
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.responses import LlmResponse, Mode
from groundwire.messages.reviews import ReviewDecision
from groundwire.messages.tiers import IngestionTier
from groundwire.policy import Policy
from groundwire.replay.frame import envelope, inbound_of, origin_of, review_fact, revision_of
from groundwire.replay.inputs import Inputs, Mismatch
from groundwire.state.model import Outcome, RecordOrigin, SubjectState
from groundwire.version import __version__

_MAY_BREAK: Final = {INTERNAL, STATE, *(check.name for check in fields(ResponseReading))}
_UNAVAILABLE: Final = "StateUnavailable"


def decide(recorded: Decision, value: bytes, response: LlmResponse, policy: Policy) -> Decision:
    """Derive what the gate decided of a response by itself."""
    entry = take_over(inbound_of(recorded, value), response)
    revision = revision_of(recorded, entry.subject)
    if revision is None:
        broken = _broken(recorded.facts) | {STATE: _UNAVAILABLE}
        known = {check: error for check, error in broken.items() if check != STATE}
        entry.reading = read_response(entry.response, policy, broken=known)
        provisional = provisional_response(entry, policy, broken)
        if recorded.revision == 0 or recorded.decision_id == provisional.decision_id:
            return provisional
    origin = origin_of(recorded, value)
    return _own(recorded, entry, origin, policy, revision or recorded.revision, recorded.facts.place)


def review(recorded: Decision, inputs: Inputs, action: ReviewDecision, policy: Policy) -> Decision:
    """Derive what a person's action, or an expiry, made of a response: from the decision that it superseded."""
    first, place = inputs.first, recorded.subject_origin
    if not isinstance(first, LlmResponse) or place is None:
        raise Mismatch("$.subject_origin", "no response stands there")
    then = InboundRecord(
        place.topic, place.partition, place.offset, to_milliseconds(place.timestamp), None, None
    )
    entry = take_over(then, first)
    revision = action.expected_revision
    before = _own(recorded, entry, place, policy, revision, Place.NOT_NEEDED)
    if before.tier == IngestionTier.FLAG_REVIEW:
        before = _own(recorded, entry, place, policy, revision, Place.FREE)
    fact = review_fact(recorded, inputs.value, action, edited=False)
    payload = ResponsePayload(
        decided_at=recorded.decided_at,
        engine=__version__,
        policy_sha256=policy.sha256,
        policy_version=policy.version,
        code=ReasonCode(before.reason_code),
        asked_mode=None,
        attempt=None,
        review=fact,
    )
    return next_decision(before, _outcome(recorded, inputs.value, revision + 1, before), payload)


def _own(
    recorded: Decision,
    entry: PreparedResponse,
    origin: Origin,
    policy: Policy,
    revision: int,
    place: Place,
) -> Decision:
    facts, response = recorded.facts, entry.response
    entities = facts.entities if response.entities is not None and response.corpus_index is None else None
    relations = facts.relations if response.claims is not None and response.relations is None else None
    broken = {check: error for check, error in _broken(facts).items() if check != STATE}
    verifier = facts.verifier if why_skipped(response, policy.verification) is None else None
    reading = read_response(
        response, policy, entities=entities, relations=relations, verifier=verifier, broken=broken
    )
    given = Facts(
        clock=origin.timestamp,
        place=place,
        entities=entities,
        relations=relations,
        verifier=verifier,
        reply_to=_reply_to(entry, facts),
        error=list_broken(broken),
    )
    case = _case(entry, reading, policy, given, recorded)
    frame = envelope(
        recorded,
        origin,
        policy,
        revision=revision,
        fingerprint=entry.fingerprint,
        capture_time=recorded.decided_at,
        metadata={},
    )
    return build_response_decision(case, frame, case.outcome())


def _case(
    entry: PreparedResponse, reading: ResponseReading, policy: Policy, given: Facts, recorded: Decision
) -> ResponseCase:
    """Return the case with what follows from its tier: whether it asked for a place, and fanned claims out."""
    tier = ResponseCase(entry.response, reading, policy, given).standing().tier
    extraction = None
    if entry.response.fan_out and recorded.facts.extraction is not None:
        limit = policy.limits.max_claims_per_response
        given_up = INTERNAL in broken_checks(given.error)
        extraction = kept([] if given_up else extract(entry.response.answer, limit), tier)
    asks = tier == IngestionTier.FLAG_REVIEW and policy.verification.on_failure == "ask"
    update: dict[str, Any] = {"extraction": extraction}
    if not asks:
        update["place"] = Place.NOT_NEEDED
    return ResponseCase(entry.response, reading, policy, given.model_copy(update=update))


def _broken(facts: Facts) -> dict[str, str]:
    """Return what is recorded as broken: checks that there are, the whole gate, or state."""
    found = broken_checks(facts.error)
    return {check: error for check, error in found.items() if check in _MAY_BREAK}


def _reply_to(entry: PreparedResponse, facts: Facts) -> dict[str, Any] | None:
    if entry.parent is None:
        return None
    known = facts.reply_to or {}
    mode, attempt = known.get("mode"), known.get("attempt")
    if mode not in {None, *get_args(Mode)} or type(attempt) not in {int, NoneType}:
        raise Mismatch("$.facts.reply_to", "there is no such mode or attempt")
    return reply_to(entry.parent, None) | {"mode": mode, "attempt": attempt}


def _outcome(recorded: Decision, value: bytes, revision: int, before: Decision) -> Outcome:
    """Return what state recorded of the action, as far as its decision names it."""
    origin, first = origin_of(recorded, value), recorded.subject_origin
    return Outcome(
        state=SubjectState.APPROVED if recorded.verdict == Verdict.APPROVED else SubjectState.BLOCKED,
        tier=1 if recorded.verdict == Verdict.APPROVED else 3,
        revision=revision,
        fresh=False,
        origin=_as_recorded(origin),
        first_origin=_as_recorded(first) if first else None,
        fingerprint=before.fingerprint,
        dedup_status="disabled",
        matches=[],
        parents=[],
        place=Place.NOT_NEEDED,
        payload=b"",
        record=b"",
    )


def _as_recorded(origin: Origin) -> RecordOrigin:
    timestamp = to_milliseconds(origin.timestamp)
    return RecordOrigin(origin.topic or "", origin.partition, origin.offset, timestamp, origin.sha256)

"""Derives a recorded decision again: a pure function of record, policy and facts, by the code of the gate.

Only what came from outside is taken from the recorded decision: `facts`, the states of citations, record positions
and the time of the decision. What follows from record and policy is derived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from types import NoneType
from typing import Any, Final, get_args

from groundwire.checks.dedup.signature import Difference, Thresholds, is_near
from groundwire.gate.build import Stamp, build_decision
from groundwire.gate.claim_case import (
    UNREAD,
    CheckFinding,
    ClaimCase,
    ClaimInputs,
    ClaimReading,
    Findings,
    dedup_scheme,
    match_rules,
    read_claim,
)
from groundwire.gate.claims import provisional_claim
from groundwire.gate.record import ReplyAttempt, ResponsePayload, next_decision
from groundwire.gate.response_case import STATE, ResponseCase, extract
from groundwire.gate.response_checks import (
    INTERNAL,
    CheckInputs,
    ResponseReading,
    broken_checks,
    list_broken,
    read_response,
    why_skipped,
)
from groundwire.gate.responses import prepare_response, provisional_response, publishable, reply_to
from groundwire.gate.types import PreparedClaim, PreparedResponse
from groundwire.keys.attestation import AttestationState
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import (
    CitationState,
    Decision,
    DedupFacts,
    DedupMatch,
    Facts,
    IngestionTier,
    Kind,
    MatchClass,
    Origin,
    ParentFact,
    Place,
    ReasonCode,
    Verdict,
)
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject, fingerprint
from groundwire.messages.records import Claim, LlmResponse, Mode, ReviewDecision
from groundwire.policy import Policy
from groundwire.replay.inputs import (
    Inputs,
    Mismatch,
    envelope,
    inbound_of,
    named,
    origin_of,
    review_fact,
    revision_of,
    stored_origin,
)
from groundwire.state.model import MAX_MATCHES, Outcome, SubjectState

_DIFFERENCES: Final = frozenset(Difference)
_PARENT_STATES: Final = {"unknown", *(state.name.lower() for state in SubjectState)}


def rederive(recorded: Decision, inputs: Inputs, policy: Policy) -> Decision:
    """Derive a decision again. Raises: Mismatch, RecordError."""
    record = inputs.record
    if isinstance(record, ReviewDecision):
        first = inputs.first
        if first is None:
            raise Mismatch("$.subject_origin", "a person decided, so the first record is named")
        if named(first) != Subject(record.tenant_id, record.user_id, Kind(record.kind), record.subject_id):
            raise Mismatch("$.subject_origin.sha256", "the first record is not what the person decided about")
        review = review_response if isinstance(first, LlmResponse) else review_claim
        return review(recorded, inputs, record, policy)
    if recorded.facts.review is not None:
        raise Mismatch("$.facts.review", "the record is not what a person decided")
    if isinstance(record, Claim):
        return decide_claim(recorded, inputs.value, record, policy)
    return decide_response(recorded, inputs.value, record, policy)


def decide_claim(recorded: Decision, value: bytes, claim: Claim, policy: Policy) -> Decision:
    record = inbound_of(recorded, value)
    facts = recorded.facts
    reading = UNREAD if facts.error else read_claim(claim.content, policy)
    inputs = ClaimInputs({}, attestation_of(facts), error=facts.error)
    entry = PreparedClaim(record, claim, fingerprint(claim), reading, None, inputs)
    revision = revision_of(recorded, entry.subject)
    if revision is None:
        provisional = provisional_claim(entry, policy)
        if recorded.revision == 0 or recorded.decision_id == provisional.decision_id:
            return provisional
    findings = findings_of(recorded, reading)
    given = Facts(
        clock=facts.clock,
        dedup=_dedup_under(facts.dedup, policy, broken=facts.error is not None),
        parents=_parents(claim, facts),
        place=facts.place,
        attestation=attestation_of(facts),
        relevance=relevance_of(facts, reading, findings, policy),
        error=facts.error,
    )
    case = ClaimCase(claim, reading, policy, given, findings)
    if given.place != Place.NOT_NEEDED and case.judged().tier != IngestionTier.FLAG_REVIEW:
        without_place = given.model_copy(update={"place": Place.NOT_NEEDED})
        case = ClaimCase(claim, reading, policy, without_place, findings)
    origin, number = origin_of(recorded, value), revision or recorded.revision
    frame = envelope(recorded, origin, policy, number, entry.fingerprint)
    return build_decision(case, frame, case.outcome())


def review_claim(recorded: Decision, inputs: Inputs, action: ReviewDecision, policy: Policy) -> Decision:
    first = inputs.first
    if not isinstance(first, Claim) or recorded.subject_origin is None:
        raise Mismatch("$.subject_origin", "no claim is there")
    content = action.content if action.content is not None else inputs.edit
    edited = content is not None
    deciding, clock = inputs.again or (first, recorded.subject_origin.timestamp)
    decided = {"captured_at": deciding.captured_at or clock, "metadata": deciding.metadata}
    claim = first.model_copy(update=decided | {"content": content} if edited else decided)
    expired = claim.validity_horizon is not None and claim.validity_horizon <= recorded.facts.clock
    facts = recorded.facts
    reading = UNREAD if facts.error else read_claim(claim.content, policy)
    findings = findings_of(recorded, reading)
    # relevance may have been decided under an earlier policy
    known = {entry["start"]: entry for entry in facts.relevance or ()}
    kept = [
        _relevance(start, known[start]["score"], relevant=known[start]["relevant"] is True)
        for start in _verified(reading, findings)
        if start in known
    ] or None
    given = Facts(
        clock=facts.clock,
        dedup=_human_dedup(facts.dedup, policy, anew=action.action in {"approve", "edit"} and not expired),
        parents=_parents(claim, facts),
        place=Place.FREE if action.action == "overrule" else Place.NOT_NEEDED,
        attestation=attestation_of(facts),
        relevance=None if edited else kept,
        review=review_fact(recorded, inputs.value, action, edited=edited),
        error=facts.error,
    )
    case = ClaimCase(claim, reading, policy, given, findings)
    origin = origin_of(recorded, inputs.value)
    frame = envelope(recorded, origin, policy, action.expected_revision + 1, fingerprint(first))
    return build_decision(case, frame, case.outcome())


def findings_of(recorded: Decision, reading: ClaimReading) -> dict[str, CheckFinding]:
    """Return the recorded states of the citations in the text, by label; the first of a label counts."""
    places: dict[tuple[str, int], str] = {(c.type, c.start): c.label for c in reading.verifiable}
    findings: dict[str, CheckFinding] = {}
    for citation in recorded.citations:
        label = places.get((citation.type, citation.start))
        if label is not None and citation.state != CitationState.NOT_CHECKED:
            findings.setdefault(label, CheckFinding(citation.state, citation.detail, citation.checked_at))
    return findings


def attestation_of(facts: Facts) -> dict[str, Any] | None:
    recorded = facts.attestation
    if recorded is None:
        return None
    if recorded.get("state") not in set(AttestationState):
        raise Mismatch("$.facts.attestation", "there is no such state")
    return {"key_id": recorded.get("key_id"), "state": recorded["state"]}


def relevance_of(
    facts: Facts, reading: ClaimReading, findings: Findings, policy: Policy
) -> list[dict[str, Any]] | None:
    if not policy.verify_claim_relevance or facts.error or not reading.citations:
        return None
    scores = {entry["start"]: entry["score"] for entry in facts.relevance or ()}
    found = [(start, scores.get(start)) for start in _verified(reading, findings)]
    least = policy.relevance_minimum
    return [
        _relevance(at, score, relevant=score is not None and score >= least) for at, score in found
    ] or None


def _verified(reading: ClaimReading, findings: Findings) -> list[int]:
    return [
        start
        for label, start in reading.first_places.items()
        if label in findings and findings[label].state == CitationState.VERIFIED
    ]


def _relevance(start: int, score: float | None, *, relevant: bool) -> dict[str, Any]:
    return {"start": start, "score": score, "relevant": relevant and score is not None}


def _dedup_under(dedup: DedupFacts | None, policy: Policy, *, broken: bool) -> DedupFacts:
    """Apply a policy to the recorded comparison; one that was not made counts as failed."""
    scheme = dedup_scheme(policy)
    if broken or (policy.enable_dedup and (dedup is None or dedup.status != "ok")):
        return DedupFacts(status="failed", scheme=scheme, matches=[])
    if dedup is None or not policy.enable_dedup:
        return DedupFacts(status="disabled", scheme=scheme, matches=[])
    thresholds = match_rules(policy).thresholds
    found = [match for match in _well_formed(dedup.matches) if _counts(match, thresholds)]
    return DedupFacts(status="ok", scheme=scheme, matches=found)


def _counts(match: DedupMatch, thresholds: Thresholds) -> bool:
    """Say whether a match counts under other thresholds, by the recorded similarity of all words.

    Similarity by content words alone is not recorded.
    """
    if match.match_class is MatchClass.REJECTED:
        return is_near(match.inter, match.union, min(thresholds.duplicate, thresholds.rejected))
    near = is_near(match.inter, match.union, thresholds.duplicate)
    return near or match.difference not in {Difference.NONE, Difference.WORD}


def _well_formed(matches: Sequence[DedupMatch]) -> list[DedupMatch]:
    possible = [
        match
        for match in matches[:MAX_MATCHES]
        if 0 < match.inter <= match.union and match.difference in _DIFFERENCES
    ]
    return sorted(possible, key=lambda match: -match.inter / match.union)


def _human_dedup(dedup: DedupFacts | None, policy: Policy, *, anew: bool) -> DedupFacts:
    recorded = dedup or DedupFacts(status="disabled", scheme="", matches=[])
    if recorded.status not in {"ok", "failed", "disabled"}:
        raise Mismatch("$.facts.dedup.status", "there is no such status")
    if anew:
        return _dedup_under(recorded, policy, broken=recorded.status == "failed")
    update = {"scheme": dedup_scheme(policy), "matches": _well_formed(recorded.matches)}
    return recorded.model_copy(update=update)


def _parents(claim: Claim, facts: Facts) -> list[ParentFact]:
    states = [parent.state for parent in facts.parents or ()]
    if len(states) != len(claim.derived_from):
        raise Mismatch("$.facts.parents", f"{len(states)} parents are recorded of {len(claim.derived_from)}")
    if not _PARENT_STATES.issuperset(states):
        raise Mismatch("$.facts.parents", "there is no such state")
    return [ParentFact(id=name, state=state) for name, state in zip(claim.derived_from, states, strict=True)]


def decide_response(recorded: Decision, value: bytes, response: LlmResponse, policy: Policy) -> Decision:
    entry = prepare_response(inbound_of(recorded, value), response)
    revision = revision_of(recorded, entry.subject)
    if revision is None:
        broken = _broken(recorded.facts) | {STATE: "StateUnavailable"}
        known = {check: error for check, error in broken.items() if check != STATE}
        reading = read_response(entry.response, policy, CheckInputs(error=list_broken(known)))
        attested = entry.inputs._replace(attestation=attestation_of(recorded.facts))
        entry = entry._replace(reading=reading, inputs=attested)
        provisional = provisional_response(entry, policy, broken)
        if recorded.revision == 0 or recorded.decision_id == provisional.decision_id:
            return provisional
    origin = origin_of(recorded, value)
    return _own(recorded, entry, origin, policy, revision or recorded.revision, recorded.facts.place)


def review_response(recorded: Decision, inputs: Inputs, action: ReviewDecision, policy: Policy) -> Decision:
    first, place = inputs.first, recorded.subject_origin
    if not isinstance(first, LlmResponse) or place is None:
        raise Mismatch("$.subject_origin", "no response is there")
    then = InboundRecord(
        place.topic, place.partition, place.offset, to_milliseconds(place.timestamp), None, None
    )
    entry = prepare_response(then, first)
    revision = action.expected_revision
    before = _own(recorded, entry, place, policy, revision, Place.NOT_NEEDED)
    if before.tier == IngestionTier.FLAG_REVIEW:
        before = _own(recorded, entry, place, policy, revision, Place.FREE)
    fact = review_fact(recorded, inputs.value, action, edited=False)
    payload = ResponsePayload(
        stamp=Stamp.of(policy, recorded.decided_at),
        base_code=ReasonCode(before.reason_code),
        attempt=ReplyAttempt(None, None),
        review=fact,
    )
    approved = recorded.verdict == Verdict.APPROVED
    outcome = Outcome(  # what state recorded of the action, as far as its decision names it
        state=SubjectState.APPROVED if approved else SubjectState.BLOCKED,
        tier=1 if approved else 3,
        revision=revision + 1,
        fresh=False,
        origin=stored_origin(origin_of(recorded, inputs.value)),
        first_origin=stored_origin(place),
        fingerprint=before.fingerprint,
        dedup_status="disabled",
        matches=[],
        parents=[],
        place=Place.NOT_NEEDED,
        payload=b"",
        record=b"",
    )
    return next_decision(before, outcome, payload)


def _own(
    recorded: Decision, entry: PreparedResponse, origin: Origin, policy: Policy, revision: int, place: Place
) -> Decision:
    facts, response = recorded.facts, entry.response
    entities = facts.entities if response.entities is not None else None
    relations = facts.relations if response.claims is not None else None
    broken = {check: error for check, error in _broken(facts).items() if check != STATE}
    verifier = facts.verifier if why_skipped(response, policy.verification) is None else None
    inputs = CheckInputs(entities, relations, verifier, list_broken(broken), attestation_of(facts))
    reading = read_response(response, policy, inputs)
    reply = None
    if entry.parent is not None:
        known = facts.reply_to or {}
        mode, attempt = known.get("mode"), known.get("attempt")
        if mode not in {None, *get_args(Mode)} or type(attempt) not in {int, NoneType}:
            raise Mismatch("$.facts.reply_to", "there is no such mode or attempt")
        reply = reply_to(entry.parent, None) | {"mode": mode, "attempt": attempt}
    given = Facts(clock=origin.timestamp, place=place, reply_to=reply, **inputs._asdict())
    # its tier decides whether it asked for a queue place, and fanned claims out
    tier = ResponseCase(response, reading, policy, given).before_queue().tier
    extraction = None
    if response.fan_out and facts.extraction is not None:
        given_up = INTERNAL in broken_checks(given.error)
        claims = [] if given_up else extract(response, policy.limits.max_claims_per_response)
        extraction = publishable(claims, tier)
    asks = tier == IngestionTier.FLAG_REVIEW and policy.verification.on_failure == "ask"
    update = {"extraction": extraction, "place": place if asks else Place.NOT_NEEDED}
    case = ResponseCase(response, reading, policy, given.model_copy(update=update))
    frame = envelope(recorded, origin, policy, revision, entry.fingerprint)
    return build_decision(case, frame, case.outcome())


def _broken(facts: Facts) -> dict[str, str]:
    known = {INTERNAL, STATE, *(check.name for check in fields(ResponseReading))}
    return {check: error for check, error in broken_checks(facts.error).items() if check in known}

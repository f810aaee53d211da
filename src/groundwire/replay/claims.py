"""Decisions of claims derived again: provisional ones, the gate's own, and those that people made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from groundwire.attestation import AttestationState
from groundwire.checks.citations import Citation
from groundwire.checks.difference import Difference
from groundwire.checks.similarity import threshold_parts
from groundwire.decide.build import build_decision
from groundwire.decide.claims import ClaimCase, Finding, Findings
from groundwire.decide.reading import UNREAD, Reading, read
from groundwire.gate.claims import provisional_claim
from groundwire.gate.dedup import dedup_scheme
from groundwire.gate.prepared import PreparedClaim
from groundwire.messages.claims import Claim
from groundwire.messages.decisions import (
    CitationState,
    Decision,
    DedupFacts,
    DedupMatch,
    Facts,
    ParentFact,
    Place,
)
from groundwire.messages.identity import fingerprint
from groundwire.messages.reviews import ReviewDecision
from groundwire.messages.tiers import IngestionTier
from groundwire.policy import Policy
from groundwire.replay.frame import envelope, inbound_of, origin_of, review_fact, revision_of
from groundwire.replay.inputs import Inputs, Mismatch
from groundwire.state.model import MAX_MATCHES, SubjectState

_PARTS: Final = 10_000
_DIFFERENCES: Final = frozenset(Difference)
_PARENT_STATES: Final = {"unknown", *(state.name.lower() for state in SubjectState)}


def decide(recorded: Decision, value: bytes, claim: Claim, policy: Policy) -> Decision:
    """Derive what the gate decided of a claim by itself."""
    record = inbound_of(recorded, value)
    facts = recorded.facts
    reading = UNREAD if facts.error else read(claim.content, policy)
    entry = PreparedClaim(
        record, claim, fingerprint(claim), reading, None, attestation_of(facts), facts.error, findings={}
    )
    revision = revision_of(recorded, entry.subject)
    if revision is None:
        provisional = provisional_claim(entry, policy)
        if recorded.revision == 0 or recorded.decision_id == provisional.decision_id:
            return provisional
    findings = findings_of(recorded, reading)
    given = Facts(
        clock=facts.clock,
        dedup=_compared(facts.dedup, policy, broken=facts.error is not None),
        parents=_parents(claim, facts),
        place=facts.place,
        attestation=attestation_of(facts),
        relevance=relevance_of(facts, reading, findings, policy),
        error=facts.error,
    )
    case = ClaimCase(claim, reading, policy, given, findings)
    if given.place != Place.NOT_NEEDED and case.standing().tier != IngestionTier.FLAG_REVIEW:
        unasked = given.model_copy(update={"place": Place.NOT_NEEDED})
        case = ClaimCase(claim, reading, policy, unasked, findings)
    frame = envelope(
        recorded,
        origin_of(recorded, value),
        policy,
        revision=revision or recorded.revision,
        fingerprint=entry.fingerprint,
        capture_time=claim.captured_at or facts.clock,
        metadata=claim.metadata,
    )
    return build_decision(case, frame, case.outcome())


def review(recorded: Decision, inputs: Inputs, action: ReviewDecision, policy: Policy) -> Decision:
    """Derive what a person's action, or an expiry, made of a claim."""
    first = inputs.first
    if not isinstance(first, Claim) or recorded.subject_origin is None:
        raise Mismatch("$.subject_origin", "no claim stands there")
    claim = _as_decided(first, inputs, action)
    edited = claim is not first
    facts = recorded.facts
    reading = UNREAD if facts.error else read(claim.content, policy)
    findings = findings_of(recorded, reading)
    given = Facts(
        clock=facts.clock,
        dedup=_compared_by_people(facts.dedup, policy, anew=_is_compared(claim, action, facts)),
        parents=_parents(claim, facts),
        place=Place.NOT_NEEDED,
        attestation=attestation_of(facts),
        relevance=None if edited else _kept_relevance(facts, reading, findings),
        review=review_fact(recorded, inputs.value, action, edited=edited),
        error=facts.error,
    )
    case = ClaimCase(claim, reading, policy, given, findings)
    deciding, clock = inputs.again or (first, recorded.subject_origin.timestamp)
    frame = envelope(
        recorded,
        origin_of(recorded, inputs.value),
        policy,
        revision=action.expected_revision + 1,
        fingerprint=fingerprint(first),
        capture_time=deciding.captured_at or clock,
        metadata=deciding.metadata,
    )
    return build_decision(case, frame, case.outcome())


def findings_of(recorded: Decision, reading: Reading) -> dict[str, Finding]:
    """Return the recorded states of the citations that the text holds, by label; the first of a label counts."""
    places: dict[tuple[str, int], str] = {(c.type, c.start): c.label for c in reading.verifiable}
    findings: dict[str, Finding] = {}
    for citation in recorded.citations:
        label = places.get((citation.type, citation.start))
        if label is not None and citation.state != CitationState.NOT_CHECKED:
            findings.setdefault(label, Finding(citation.state, citation.detail, citation.checked_at))
    return findings


def attestation_of(facts: Facts) -> dict[str, Any] | None:
    """Return the fact of the signature."""
    found = facts.attestation
    if found is None:
        return None
    if found.get("state") not in set(AttestationState):
        raise Mismatch("$.facts.attestation", "there is no such state")
    return {"key_id": found.get("key_id"), "state": found["state"]}


def relevance_of(
    facts: Facts, reading: Reading, findings: Findings, policy: Policy
) -> list[dict[str, Any]] | None:
    """Return `facts.relevance` with the recorded scores; a score that was not taken counts for nothing."""
    if not policy.verify_claim_relevance or facts.error or not reading.citations:
        return None
    scores = {entry["start"]: entry["score"] for entry in facts.relevance or ()}
    verified = _verified(reading, findings)
    return [_relevance(start, scores.get(start), policy) for start in verified] or None


def _kept_relevance(facts: Facts, reading: Reading, findings: Findings) -> list[dict[str, Any]] | None:
    """Return what a person's decision keeps of `facts.relevance`: what is relevant, an earlier policy may have said."""
    known = {entry["start"]: entry for entry in facts.relevance or ()}
    return [
        {"start": start, "score": known[start]["score"], "relevant": _was_relevant(known[start])}
        for start in _verified(reading, findings)
        if start in known
    ] or None


def _was_relevant(entry: dict[str, Any]) -> bool:
    return entry["relevant"] is True and entry["score"] is not None


def _verified(reading: Reading, findings: Findings) -> list[int]:
    """Return where the citations stand that were verified, each the first of its label."""
    first: dict[str, Citation] = {}
    for citation in reading.verifiable:
        first.setdefault(citation.label, citation)
    return [
        citation.start
        for label, citation in first.items()
        if label in findings and findings[label].state == CitationState.VERIFIED
    ]


def _relevance(start: int, score: float | None, policy: Policy) -> dict[str, Any]:
    relevant = score is not None and score >= policy.relevance_minimum
    return {"start": start, "score": score, "relevant": relevant}


def _compared(dedup: DedupFacts | None, policy: Policy, *, broken: bool) -> DedupFacts:
    """Return what the recorded comparison comes to under a policy; what was not compared counts as failed."""
    scheme = dedup_scheme(policy)
    if broken or (policy.enable_dedup and (dedup is None or dedup.status != "ok")):
        return DedupFacts(status="failed", scheme=scheme, matches=[])
    if dedup is None or not policy.enable_dedup:
        return DedupFacts(status="disabled", scheme=scheme, matches=[])
    parts = threshold_parts(policy.dedup_threshold)
    near = [match for match in _well_formed(dedup.matches) if _PARTS * match.inter >= parts * match.union]
    return DedupFacts(status="ok", scheme=scheme, matches=near)


def _well_formed(matches: Sequence[DedupMatch]) -> list[DedupMatch]:
    """Return the matches that can be: in their order, most alike first."""
    possible = [
        match
        for match in matches[:MAX_MATCHES]
        if 0 < match.inter <= match.union and match.difference in _DIFFERENCES
    ]
    return sorted(possible, key=lambda match: -match.inter / match.union)


def _is_compared(claim: Claim, action: ReviewDecision, facts: Facts) -> bool:
    """Say whether an action had the text compared: an approval, unless the claim no longer holds."""
    expired = claim.validity_horizon is not None and claim.validity_horizon <= facts.clock
    return action.action in {"approve", "edit"} and not expired


def _compared_by_people(dedup: DedupFacts | None, policy: Policy, *, anew: bool) -> DedupFacts:
    """Return the comparison that a person's decision names: made `anew`, or that of the revision before."""
    found = dedup or DedupFacts(status="disabled", scheme="", matches=[])
    if found.status not in {"ok", "failed", "disabled"}:
        raise Mismatch("$.facts.dedup.status", "there is no such status")
    if anew:
        return _compared(found, policy, broken=found.status == "failed")
    update = {"scheme": dedup_scheme(policy), "matches": _well_formed(found.matches)}
    return found.model_copy(update=update)


def _parents(claim: Claim, facts: Facts) -> list[ParentFact]:
    """Return the parents that the claim names, in their recorded states."""
    states = [parent.state for parent in facts.parents or ()]
    if len(states) != len(claim.derived_from):
        raise Mismatch("$.facts.parents", f"{len(states)} parents are recorded of {len(claim.derived_from)}")
    if not _PARENT_STATES.issuperset(states):
        raise Mismatch("$.facts.parents", "there is no such state")
    return [ParentFact(id=name, state=state) for name, state in zip(claim.derived_from, states, strict=True)]


def _as_decided(first: Claim, inputs: Inputs, action: ReviewDecision) -> Claim:
    """Return the claim with the text that was decided: by this action, or by an edit before it."""
    if action.content is not None:
        return first.model_copy(update={"content": action.content})
    return first if inputs.edit is None else first.model_copy(update={"content": inputs.edit})

"""The Decision record of a claim or a response, within its limits of size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from groundwire import __version__
from groundwire.checks.citations import Citation
from groundwire.checks.hedges import Hedge
from groundwire.gate.claim_case import ClaimCase
from groundwire.gate.report import Checks, list_checks, list_response_checks, report_of, shorten
from groundwire.gate.response_case import ResponseCase
from groundwire.gate.tree import TreeOutcome
from groundwire.messages.base import immutable
from groundwire.messages.decisions import (
    CitationResult,
    Decision,
    EvidenceObject,
    Facts,
    HedgeMark,
    IngestionTier,
    Origin,
    ParentFact,
    PolicyName,
    ReasonCode,
    Verdict,
)
from groundwire.messages.identity import Subject, decision_id, provisional_id
from groundwire.policy import Policy

MAX_BYTES: Final = 256_000
MAX_ENTRIES: Final = 100
MAX_CHARACTERS: Final = 500
MAX_SOURCE_ID: Final = 2_048
"""Characters of `evidence.source_id`: the longest URL that is verified."""

_CHECK_CHARACTERS: Final = 40  # the longest name of a check has 33


class _Limits(NamedTuple):
    """How much of its lists a decision holds.

    Only what content and facts give back is shortened: a decision that is read again, as state is rebuilt from
    it, must derive the same bytes. So no citation is left out for lack of space, as its state is a fact.
    """

    entries: int
    characters: int


_LIMITS: Final = (
    _Limits(MAX_ENTRIES, MAX_CHARACTERS),
    _Limits(MAX_ENTRIES, 200),
    _Limits(50, 80),
    _Limits(20, 40),
    _Limits(5, 12),
)
"""The first is the contract's; the others are for texts of 20,000 control characters and the like."""

CONFIDENCE: Final = {
    IngestionTier.AUTO_APPROVE: "high",
    IngestionTier.FLAG_REVIEW: "medium",
    IngestionTier.BLOCK: "low",
}


class Stamp(NamedTuple):
    """When a decision was made, by which engine and policy; recorded with it."""

    decided_at: datetime
    engine: str
    policy_sha256: str
    policy_version: str

    @classmethod
    def of(cls, policy: Policy, decided_at: datetime) -> Stamp:
        return cls(decided_at, __version__, policy.sha256, policy.version)


@immutable
class Envelope:
    """What identifies a decision, beside record, policy and facts.

    `capture_time` and `metadata` are those of the record that was decided first: a re-send may differ in them.
    """

    revision: int
    fingerprint: str
    origin: Origin
    subject_origin: Origin | None
    stamp: Stamp
    capture_time: datetime
    metadata: dict[str, Any]


def build_decision(case: ClaimCase, envelope: Envelope, judged: TreeOutcome) -> Decision:
    """Build the Decision of a claim; equal arguments give equal bytes."""
    return build_decisions([case], [envelope], [judged])[0]


def build_decisions(
    cases: Sequence[ClaimCase], envelopes: Sequence[Envelope], judged: Sequence[TreeOutcome]
) -> list[Decision]:
    """Return what `build_decision` does for each claim, each step for all claims before the next one."""
    checks = [
        list_checks(case, joined=one.code == ReasonCode.PENDING_DUPLICATE)
        for case, one in zip(cases, judged, strict=True)
    ]
    builders = [partial(_build, *given) for given in zip(cases, envelopes, judged, checks, strict=True)]
    decisions = [build(_LIMITS[0]) for build in builders]
    fitting = [len(decision.to_bytes()) <= MAX_BYTES for decision in decisions]
    return [
        decision if fits else _within_limits(build, _LIMITS[1:])
        for decision, fits, build in zip(decisions, fitting, builders, strict=True)
    ]


def build_response_decision(case: ResponseCase, envelope: Envelope, judged: TreeOutcome) -> Decision:
    """Build the Decision of a response; equal arguments give equal bytes."""
    checks = list_response_checks(case)
    report = report_of(case)
    return _within_limits(lambda limits: _build_response(case, envelope, judged, (checks, report), limits))


def within_limits(decision: Decision) -> Decision:
    """Cut the lists of a response's decision, which was made from a published one, where it is too large."""
    if len(decision.to_bytes()) <= MAX_BYTES:
        return decision
    return _within_limits(lambda limits: _cut(decision, limits))


def _within_limits(build: Callable[[_Limits], Decision], allowed: Sequence[_Limits] = _LIMITS) -> Decision:
    for limits in allowed:
        decision = build(limits)
        if len(decision.to_bytes()) <= MAX_BYTES:
            break
    return decision


def _build(
    case: ClaimCase, envelope: Envelope, judged: TreeOutcome, checks: Checks, limits: _Limits
) -> Decision:
    claim = case.claim
    match = case.conflicting(judged.code)
    lists, truncated = _check_lists(checks, limits)
    marks, marks_truncated = _marks(case, limits)
    source_id = claim.source_id if claim.source_id is not None else primary_source(case)
    return Decision.made(
        **_frame(claim.subject, envelope, judged),
        memory_type=claim.memory_type,
        source=claim.source,
        derived_from=claim.derived_from,
        **lists,
        **marks,
        similarity_score=round(match.inter / match.union, 4) if match else None,
        conflicting_memory_id=match.subject_id if match else None,
        evidence=EvidenceObject(
            claim=claim.content,
            capture_time=envelope.capture_time,
            confidence=CONFIDENCE[judged.tier],
            source_id=source_id[:MAX_SOURCE_ID] if source_id is not None else None,
            validity_horizon=claim.validity_horizon,
            metadata=envelope.metadata,
        ),
        report=None,
        facts=_short_facts(case.facts, limits),
        truncated=truncated | marks_truncated or None,
    )


def _build_response(
    case: ResponseCase,
    envelope: Envelope,
    judged: TreeOutcome,
    found: tuple[Checks, dict[str, Any]],
    limits: _Limits,
) -> Decision:
    checks, whole = found
    lists, truncated = _check_lists(checks, limits)
    report, report_truncated = shorten(whole, limits.entries, limits.characters)
    return Decision(
        **_frame(case.response.subject, envelope, judged),
        memory_type=None,
        source=None,
        derived_from=None,
        **lists,
        hedges=[],
        citations=[],
        similarity_score=None,
        conflicting_memory_id=None,
        evidence=None,
        report=report,
        facts=case.facts,
        truncated=truncated | report_truncated or None,
    )


def _cut(decision: Decision, limits: _Limits) -> Decision:
    lists, more = _check_lists(
        Checks(decision.checks_passed, decision.checks_failed, decision.checks_skipped), limits
    )
    report, report_more = shorten(decision.report or {}, limits.entries, limits.characters)
    counts = Counter(decision.truncated or {})
    counts.update(more | report_more)
    changed = {**lists, "report": report, "truncated": dict(counts) or None}
    return decision.model_copy(update=changed)


def _frame(subject: Subject, envelope: Envelope, judged: TreeOutcome) -> dict[str, Any]:
    stamp = envelope.stamp
    return {
        "decision_id": _identify(subject, envelope),
        "revision": envelope.revision,
        "supersedes": decision_id(subject, envelope.revision - 1) if envelope.revision > 1 else None,
        "kind": subject.kind,
        "subject_id": subject.subject_id,
        "tenant_id": subject.tenant_id,
        "user_id": subject.user_id,
        "fingerprint": envelope.fingerprint,
        "tier": judged.tier,
        "verdict": Verdict.of(judged.tier),
        "approved": judged.tier == IngestionTier.AUTO_APPROVE,
        "reason": judged.reason,
        "reason_code": str(judged.code),
        "retryable": judged.code == ReasonCode.REVIEW_QUEUE_FULL,
        "policy": _policy_name(stamp.policy_version, stamp.policy_sha256),
        "engine": stamp.engine,
        "origin": envelope.origin,
        "subject_origin": envelope.subject_origin,
        "decided_at": stamp.decided_at,
        "replay": None,
    }


@lru_cache(16)
def _policy_name(policy_version: str, sha256: str) -> PolicyName:
    return PolicyName(version=policy_version, sha256=sha256)


def _check_lists(checks: Checks, limits: _Limits) -> tuple[dict[str, list[str]], dict[str, int]]:
    """Return the lists of checks, and how many entries of each are left out."""
    characters = max(limits.characters, _CHECK_CHARACTERS)
    full = {
        "checks_passed": checks.passed,
        "checks_failed": checks.failed,
        "checks_skipped": checks.skipped,
    }
    texts = [*checks.passed, *checks.failed, *checks.skipped]
    if len(texts) <= limits.entries and max(map(len, texts), default=0) <= characters:
        return full, {}  # as nearly always
    lists = {name: [text[:characters] for text in texts[: limits.entries]] for name, texts in full.items()}
    return lists, _left_out(full, lists)


def _marks(case: ClaimCase, limits: _Limits) -> tuple[dict[str, list[Any]], dict[str, int]]:
    """Return hedges and citations in their places, and how many of each are left out."""
    full: dict[str, Sequence[Any]] = {"hedges": case.reading.hedges, "citations": case.reading.citations}
    lists: dict[str, list[Any]] = {
        "hedges": [_hedge(hedge, limits) for hedge in case.reading.hedges[: limits.entries]],
        "citations": [_citation(case, c, limits) for c in case.reading.citations[:MAX_ENTRIES]],
    }
    return lists, _left_out(full, lists)


def _left_out(full: Mapping[str, Sequence[Any]], kept: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    return {
        name: len(full[name]) - len(entries)
        for name, entries in kept.items()
        if len(full[name]) > len(entries)
    }


def _short_facts(facts: Facts, limits: _Limits) -> Facts:
    """Cut the ids of parents, which `derived_from` holds in the same order; the other facts are short."""
    if not facts.parents or limits.characters >= max(len(parent.id) for parent in facts.parents):
        return facts
    parents = [ParentFact(id=parent.id[: limits.characters], state=parent.state) for parent in facts.parents]
    return facts.model_copy(update={"parents": parents})


def _identify(subject: Subject, envelope: Envelope) -> str:
    if envelope.revision:
        return decision_id(subject, envelope.revision)
    origin = envelope.origin
    place = (origin.topic, origin.partition, origin.offset)
    return provisional_id(subject, place, envelope.stamp.policy_sha256, envelope.stamp.engine)


def _hedge(hedge: Hedge, limits: _Limits) -> HedgeMark:
    return HedgeMark(
        text=hedge.text[: limits.characters],
        category=hedge.category,
        action=hedge.action,
        start=hedge.start,
        end=hedge.end,
    )


def _citation(case: ClaimCase, citation: Citation, limits: _Limits) -> CitationResult:
    finding = case.finding(citation)
    return CitationResult(
        type=citation.type,
        value=citation.value[: limits.characters],
        start=citation.start,
        end=citation.end,
        state=finding.state,
        detail=finding.detail[:MAX_CHARACTERS],
        checked_at=finding.checked_at,
    )


def primary_source(case: ClaimCase) -> str | None:
    """Return the id of the first verified citation, else of the first detected one (S0-55)."""
    citation = next(iter(case.verified or case.reading.citations), None)
    return citation.source_id if citation else None

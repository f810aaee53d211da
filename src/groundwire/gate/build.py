"""The Decision record of a claim or a response, within its limits of size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from groundwire import __version__
from groundwire.gate.claim_case import Checks, ClaimCase, list_checks
from groundwire.gate.response_case import ResponseCase, list_response_checks, report_of
from groundwire.gate.tree import TreeOutcome
from groundwire.messages.base import immutable
from groundwire.messages.decisions import (
    CitationResult,
    Decision,
    EvidenceObject,
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
    return build_decisions([case], [envelope], [judged])[0]


def build_decisions(
    cases: Sequence[ClaimCase], envelopes: Sequence[Envelope], judged: Sequence[TreeOutcome]
) -> list[Decision]:
    """Build the Decisions of claims, each step for all before the next one; equal arguments give equal bytes."""
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
    checks, whole = list_response_checks(case), report_of(case)

    def build(limits: _Limits) -> Decision:
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

    return _within_limits(build)


def within_limits(decision: Decision) -> Decision:
    """Cut the lists of a response's decision, which was made from a published one, where it is too large."""
    if len(decision.to_bytes()) <= MAX_BYTES:
        return decision
    checks = Checks(decision.checks_passed, decision.checks_failed, decision.checks_skipped)

    def cut(limits: _Limits) -> Decision:
        lists, more = _check_lists(checks, limits)
        report, report_more = shorten(decision.report or {}, limits.entries, limits.characters)
        counts = Counter(decision.truncated or {})
        counts.update(more | report_more)
        return decision.model_copy(update={**lists, "report": report, "truncated": dict(counts) or None})

    return _within_limits(cut)


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
    all_hedges, all_citations = case.reading.hedges, case.reading.citations
    hedges = [
        HedgeMark(
            text=hedge.text[: limits.characters],
            category=hedge.category,
            action=hedge.action,
            start=hedge.start,
            end=hedge.end,
        )
        for hedge in all_hedges[: limits.entries]
    ]
    citations = [
        CitationResult(
            type=citation.type,
            value=citation.value[: limits.characters],
            start=citation.start,
            end=citation.end,
            state=finding.state,
            detail=finding.detail[:MAX_CHARACTERS],
            checked_at=finding.checked_at,
        )
        for citation in all_citations[:MAX_ENTRIES]
        for finding in [case.finding(citation)]
    ]
    full = {"hedges": all_hedges, "citations": all_citations}
    truncated |= _left_out(full, {"hedges": hedges, "citations": citations})
    facts = case.facts
    if facts.parents and limits.characters < max(len(parent.id) for parent in facts.parents):
        # `derived_from` holds the ids whole, in the same order; the other facts are short
        parents = [
            ParentFact(id=parent.id[: limits.characters], state=parent.state) for parent in facts.parents
        ]
        facts = facts.model_copy(update={"parents": parents})
    source_id = claim.source_id if claim.source_id is not None else primary_source(case)
    return Decision.made(
        **_frame(claim.subject, envelope, judged),
        memory_type=claim.memory_type,
        source=claim.source,
        derived_from=claim.derived_from,
        **lists,
        hedges=hedges,
        citations=citations,
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
        facts=facts,
        truncated=truncated or None,
    )


def _frame(subject: Subject, envelope: Envelope, judged: TreeOutcome) -> dict[str, Any]:
    stamp, origin = envelope.stamp, envelope.origin
    if envelope.revision:
        name = decision_id(subject, envelope.revision)
    else:
        place = (origin.topic, origin.partition, origin.offset)
        name = provisional_id(subject, place, stamp.policy_sha256, stamp.engine)
    return {
        "decision_id": name,
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


def _left_out(full: Mapping[str, Sequence[Any]], kept: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    return {
        name: len(full[name]) - len(entries)
        for name, entries in kept.items()
        if len(full[name]) > len(entries)
    }


def primary_source(case: ClaimCase) -> str | None:
    """Return the id of the first verified citation, else of the first detected one (S0-55)."""
    citation = next(iter(case.verified or case.reading.citations), None)
    return citation.source_id if citation else None


_DETAILS: Final = "details"
_OPEN = frozenset({"validated", "rejected_by_domain", "hop_evidence", _DETAILS})
"""Parts whose keys come from the record: they are shortened like lists, at any depth."""
_CODES = frozenset(
    {
        *("type", "reason", "category", "severity", "stage", "mode", "why", "fallback"),
        *("gap_type", "flag_reason", "method", "kind", "suggested_action"),
    }
)
"""Parts that hold words of ours: they are short, and a consumer compares them."""
_KEY: Final = 40  # characters of a key that stay, however little room there is: our own are shorter
_NODES: Final = 100
"""Values of such a part for each entry that a list may have: lists of five within lists of five have no end."""


def shorten(
    report: Mapping[str, Any], entries: int, characters: int
) -> tuple[dict[str, Any], dict[str, int]]:
    """Cut lists and strings of a report; the second result counts by dotted name what is left out of a list.

    Parts whose keys come from the record may nest: of each, `_NODES` values for each entry that a list may have
    are kept, depth first.
    """
    cutter = _Cutter(entries, characters)
    return {
        name: cutter.cut(value, f"report.{name}", name) for name, value in report.items()
    }, cutter.left_out


class _Cutter:
    def __init__(self, entries: int, characters: int) -> None:
        self.left_out: dict[str, int] = {}
        self._entries = entries
        self._characters = characters
        self._nodes = 0  # that the open part may still have
        self._key = characters  # that its keys may have

    def cut(self, value: Any, path: str, name: str) -> Any:  # noqa: ANN401 - any JSON value
        if name in _OPEN:
            self._nodes = _NODES * self._entries
            self._key = max(self._characters, _KEY) if name == _DETAILS else self._characters
            return self._cut_open(value, path)
        if isinstance(value, str):
            return value if name in _CODES else value[: self._characters]
        if value is None or isinstance(value, int | float):  # before what takes longer to tell
            return value
        if isinstance(value, list | tuple):
            self._count(path, len(value) - self._entries)
            return [self.cut(item, path, "") for item in value[: self._entries]]
        if isinstance(value, Mapping):
            return {key: self.cut(item, f"{path}.{key}", key) for key, item in value.items()}
        return value

    def _cut_open(self, value: Any, path: str) -> Any:  # noqa: ANN401 - any JSON value
        self._nodes -= 1
        if isinstance(value, list | tuple):
            kept = []
            for item in value[: self._entries]:
                if self._nodes <= 0:
                    break
                kept.append(self._cut_open(item, path))
            self._count(path, len(value) - len(kept))
            return kept
        if isinstance(value, Mapping):
            named: dict[str, Any] = {}
            for key, item in value.items():
                if self._nodes <= 0 or len(named) == self._entries:
                    break
                # of two keys that begin alike only the first is kept: it would be overwritten unseen
                if (name := str(key)[: self._key]) not in named:
                    named[name] = self._cut_open(item, path)
            self._count(path, len(value) - len(named))
            return named
        return value[: self._characters] if isinstance(value, str) else value

    def _count(self, path: str, more: int) -> None:
        if more > 0:
            self.left_out[path] = self.left_out.get(path, 0) + more

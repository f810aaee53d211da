"""The Decision record of a claim or a response, within its limits of size."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, Self

from groundwire import __version__
from groundwire.gate.tree import TreeOutcome, queued, reviewed
from groundwire.messages.base import immutable
from groundwire.messages.decisions import (
    Decision,
    Facts,
    IngestionTier,
    Origin,
    Place,
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


class Limits(NamedTuple):
    """How much of its lists a decision holds.

    Only what content and facts give back is shortened: a decision that is read again, as state is rebuilt from
    it, must derive the same bytes. So no citation is left out for lack of space, as its state is a fact.
    """

    entries: int
    characters: int


_LIMITS: Final = (
    Limits(MAX_ENTRIES, MAX_CHARACTERS),
    Limits(MAX_ENTRIES, 200),
    Limits(50, 80),
    Limits(20, 40),
    Limits(5, 12),
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
    """What identifies a decision, beside record, policy and facts."""

    revision: int
    fingerprint: str
    origin: Origin
    subject_origin: Origin | None
    stamp: Stamp


REVIEW_PLACE: Final = "review_place"
"""The check of what has a place in the queue, and only of that."""

_FULL: Final = {Place.USER_FULL: "user", Place.TENANT_FULL: "tenant", Place.TOTAL_FULL: "total"}


@dataclass(slots=True)
class Checks:
    """The checks that passed, failed or were skipped, in the order of the contract's table.

    Each check is in one of the lists, once or more (S0-03, S0-149, S0-150, S0-159, X-02).
    """

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add(self, passed: str, failed: list[str]) -> None:
        if failed:
            self.failed += failed
        else:
            self.passed.append(passed)

    def add_place(self, place: Place) -> None:
        if place in _FULL:
            self.failed.append(f"review_queue_full: {_FULL[place]}")
        elif place == Place.FREE:
            self.passed.append(REVIEW_PLACE)

    def within(self, limits: Limits) -> Fields:
        characters = max(limits.characters, _CHECK_CHARACTERS)
        full = {
            "checks_passed": self.passed,
            "checks_failed": self.failed,
            "checks_skipped": self.skipped,
        }
        texts = [*self.passed, *self.failed, *self.skipped]
        if len(texts) <= limits.entries and max(map(len, texts), default=0) <= characters:
            return full, {}  # as nearly always
        lists = {
            name: [text[:characters] for text in texts[: limits.entries]] for name, texts in full.items()
        }
        return lists, left_out(full, lists)


Fields = tuple[dict[str, Any], dict[str, int]]
"""Fields of a decision by name; how many entries of them are left out, for `truncated`."""


class Case(ABC):
    """A record with everything that bears on its decision; pure."""

    subject: Subject
    facts: Facts
    expired = False
    duplicate = False  # of an approved claim
    joins = False  # the claim follows one that is pending (C-09)

    def with_facts(self, facts: Facts) -> Self:
        """Return the case with the answers of state; what state does not answer is equal."""
        case = self.__class__.__new__(self.__class__)  # a third of the time of `copy`
        case.__dict__.update(self.__dict__, facts=facts)
        return case

    def failed(self, error: Exception) -> Self:
        """Return the case as one that could not be judged: a review, as an internal error (S0-23)."""
        raise error

    @abstractmethod
    def judged(self, tier: IngestionTier | None = None, /) -> TreeOutcome:
        """Return tier and reason before the queue: the tier that state decided, or that by the facts alone."""

    def outcome(self) -> TreeOutcome:
        """Return tier and reason as published, by the facts alone: what a person decided, else judged and queued."""
        if self.facts.review is not None:
            return reviewed(self.facts.review["action"], expired=self.expired, duplicate=self.duplicate)
        return queued(self.judged(), self.facts.place, joins=self.joins)

    @abstractmethod
    def fields(self, outcome: TreeOutcome, limits: Limits, /) -> Fields:
        """Return the fields that say what was found of the record, checks included, within limits."""


Build = Callable[[Limits], Decision]


def build_decision(case: Case, envelope: Envelope, outcome: TreeOutcome) -> Decision:
    """Build the Decision of a claim or a response; equal arguments give equal bytes."""
    return fit([draft(case, envelope, outcome)])[0]


def draft(case: Case, envelope: Envelope, outcome: TreeOutcome) -> Build:
    frame = _frame(case.subject, envelope, outcome)

    def build(limits: Limits) -> Decision:
        fields, truncated = case.fields(outcome, limits)
        return Decision.made(**frame, **fields, truncated=truncated or None)

    return build


def fit(builds: Sequence[Build]) -> list[Decision]:
    """Build decisions within the largest limits that keep them below `MAX_BYTES`.

    All are built before the first is encoded: what a step needs stays in the processor's caches meanwhile.
    """
    decisions = [build(_LIMITS[0]) for build in builds]
    for limits in _LIMITS[1:]:
        large = [n for n, decision in enumerate(decisions) if len(decision.to_bytes()) > MAX_BYTES]
        if not large:
            break
        for n in large:
            decisions[n] = builds[n](limits)
    return decisions


def _frame(subject: Subject, envelope: Envelope, outcome: TreeOutcome) -> dict[str, Any]:
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
        "tier": outcome.tier,
        "verdict": Verdict.of(outcome.tier),
        "approved": outcome.tier == IngestionTier.AUTO_APPROVE,
        "reason": outcome.reason,
        "reason_code": str(outcome.code),
        "retryable": outcome.code == ReasonCode.REVIEW_QUEUE_FULL,
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


def left_out(full: Mapping[str, Sequence[Any]], kept: Mapping[str, Any]) -> dict[str, int]:
    """Count the entries of each list that are not kept."""
    return {
        name: len(entries) - len(kept[name])
        for name, entries in full.items()
        if len(entries) > len(kept[name])
    }


def response_fields(checks: Checks, report: Mapping[str, Any], facts: Facts, limits: Limits) -> Fields:
    lists, truncated = checks.within(limits)
    short, left = shorten(report, *limits)
    nothing = dict.fromkeys(
        ("memory_type", "source", "derived_from", "similarity_score", "conflicting_memory_id", "evidence")
    )
    return {
        **lists,
        **nothing,
        "hedges": [],
        "citations": [],
        "report": short,
        "facts": facts,
    }, truncated | left


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

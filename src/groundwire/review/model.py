"""Queries and answers of the board, and the risk by which pending items are ordered.

The risk of an item is the gravest of its reason and its failed checks: contradictions first, then what could not be
checked, then what lacks support, then what lacks a source. Of equal risk the oldest comes first. The reason alone is
the first that applied in the gate's tree, which has another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Literal, TypeVar

from groundwire.messages.decisions import Kind, ReasonCode, Verdict
from groundwire.messages.topics import TopicName

Level = Literal["high", "medium", "low"]
LEVELS: Final[tuple[Level, ...]] = ("high", "medium", "low")
_ORDER: Final[tuple[tuple[ReasonCode, Level, str], ...]] = (
    (ReasonCode.CONFLICTING_NEAR_DUPLICATE, "high", "contradicts an approved or pending memory"),
    (ReasonCode.PREVIOUSLY_REJECTED, "high", "similar to a text that a person rejected"),
    (ReasonCode.HIDDEN_TEXT, "high", "contains hidden characters"),
    (ReasonCode.CRITICAL_GAP, "high", "a critical statement is not supported by the evidence"),
    (ReasonCode.PHANTOM_SOURCE, "high", "names a source that does not exist"),
    (ReasonCode.SNIPPET_MISMATCH, "high", "quotes what the source does not say"),
    (ReasonCode.QUOTES_REJECTED, "high", "quotes are not in their source"),
    (ReasonCode.QUOTE_POLARITY, "high", "a quote leaves out a negation of the transcript"),
    (ReasonCode.INTERNAL_ERROR, "high", "a check failed, so it was not fully checked"),
    (ReasonCode.CHECK_UNAVAILABLE, "high", "a check was not available"),
    (ReasonCode.DEDUP_UNAVAILABLE, "high", "could not be compared with what is stored"),
    (ReasonCode.OVERRULED, "medium", "blocked by the gate; a person put it back for review"),
    (ReasonCode.DERIVED_FROM_UNAPPROVED, "medium", "based on a claim that is not approved"),
    (ReasonCode.FLAGGED_CLAIMS, "medium", "statements are wrong or unsupported"),
    (ReasonCode.CITATION_IRRELEVANT, "medium", "the citation is about something else"),
    (ReasonCode.CITATION_UNVERIFIED, "medium", "the citation could not be verified"),
    (ReasonCode.SOURCE_UNATTESTED, "medium", "claims a trusted source without a signature"),
    (ReasonCode.GROUNDING_UNATTESTED, "medium", "the sources are not signed"),
    (ReasonCode.VERIFICATION_BYPASSED, "medium", "its sender switched verification off"),
    (ReasonCode.SOURCE_TAGS_MISSING, "medium", "statements have no citation"),
    (ReasonCode.WARNINGS, "medium", "a check warned"),
    (ReasonCode.UNVERIFIED_FIELDS, "medium", "names fields that the sources do not have"),
    (ReasonCode.STALE_INDEX, "medium", "based on an outdated index"),
    (ReasonCode.LOW_CONFIDENCE, "medium", "confidence is low"),
    (ReasonCode.TECHNICAL_HEDGE, "low", "worded as uncertain"),
    (ReasonCode.NOTHING_TO_GROUND_ON, "low", "there was nothing to check it against"),
    (ReasonCode.UNGROUNDED, "low", "no evidence"),
    (ReasonCode.AI_SYNTHESIS_HELD, "low", "written by AI; held by policy"),
    (ReasonCode.PENDING_DUPLICATE, "low", "says the same as another pending item"),
)
WAITING: Final = tuple(str(code) for code, _, _ in _ORDER)
"""Reasons for which something waits, in this order."""
_CHECKS: Final = {
    "citation_missing": ReasonCode.UNGROUNDED,
    "dedup_check_failed": ReasonCode.DEDUP_UNAVAILABLE,
    "hedge_words_detected": ReasonCode.TECHNICAL_HEDGE,
    "phantom_file": ReasonCode.PHANTOM_SOURCE,
    "previously_rejected_unavailable": ReasonCode.DEDUP_UNAVAILABLE,
    "source_tag_phantom": ReasonCode.PHANTOM_SOURCE,
    "values_unsupported": ReasonCode.FLAGGED_CLAIMS,
}
"""Reasons of equal weight for failed checks; others have the name of a reason, or end in `_unavailable`."""
_UNINFORMATIVE: Final = "source_not_trusted"
"""Fails for every claim without a trusted source, so it says nothing about the risk."""
Sort = Literal["risk", "oldest", "newest"]
ListedTopic = Literal[TopicName.APPROVED, TopicName.BLOCKED, TopicName.REVIEW]
T = TypeVar("T")
MAX_PAGE: Final = 200
SORTS: Final[tuple[Sort, ...]] = ("risk", "oldest", "newest")
_BLOCKED: Final = {"retracted": "retracted", "human_rejected": "rejected"}


@dataclass(frozen=True, slots=True)
class Risk:
    """How grave something is; `code` is the reason that makes it so, empty where that is unknown."""

    rank: int
    level: Level
    why: str
    code: str = ""


_RISKS: Final = {
    str(code): Risk(rank, level, why, str(code)) for rank, (code, level, why) in enumerate(_ORDER, start=1)
}


_UNKNOWN: Final = Risk(0, "high", "unknown reason")


_BY_RANK: Final = [_UNKNOWN, *_RISKS.values()]


def risk_of(reason_code: str, checks_failed: Iterable[str] = ()) -> Risk:
    """Return the gravest risk of a reason and of failed checks, `name` or `name: detail`; unknown is gravest."""
    names = {check.partition(":")[0] for check in checks_failed} - {_UNINFORMATIVE}
    unavailable = str(ReasonCode.CHECK_UNAVAILABLE)
    codes = {_CHECKS.get(name, unavailable if name.endswith("_unavailable") else name) for name in names}
    return min((_RISKS.get(code, _UNKNOWN) for code in {reason_code, *codes}), key=lambda risk: risk.rank)


def risk_at(rank: int) -> Risk:
    return _BY_RANK[rank] if 0 <= rank < len(_BY_RANK) else _UNKNOWN


@dataclass(frozen=True, slots=True)
class Query:
    """Which pending items, in which order; a field that is None filters nothing. Raises: ValueError.

    `text`: words that all begin words of the text or id; `cursor`: `Page.next` of the page before.
    """

    reason: str | None = None
    tenant: str | None = None
    user: str | None = None
    source: str | None = None
    memory_type: str | None = None
    kind: Kind | None = None
    min_age: timedelta | None = None
    max_age: timedelta | None = None
    text: str = ""
    sort: Sort = "risk"
    limit: int = 50
    cursor: str | None = None

    def __post_init__(self) -> None:
        check_limit(self.limit)
        if self.sort not in SORTS:
            raise ValueError(f"sort: must be one of {', '.join(SORTS)}")


def check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE:
        raise ValueError(f"limit: must be from 1 to {MAX_PAGE}")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Rows, how many there are in all, and the cursor of the next page or None."""

    rows: Sequence[T]
    total: int
    next: str | None


@dataclass(frozen=True, slots=True)
class Row:
    """A subject at its highest revision, decided at `since`; `excerpt`: of a response its reason."""

    decision_id: str
    revision: int
    tenant_id: str
    user_id: str
    kind: Kind
    subject_id: str
    verdict: Verdict
    reason_code: str
    source: str | None
    memory_type: str | None
    since: datetime
    excerpt: str
    risk: Risk

    @property
    def headline(self) -> str:
        """The gravest reason for which it waits: one that the tree gives first may hide a contradiction."""
        return (self.verdict == Verdict.REVIEW and self.risk.code) or self.reason_code


@dataclass(frozen=True, slots=True)
class Revision:
    """An entry of a subject's history; action, reviewer and reason where a person, or expiry, made it."""

    revision: int
    decision_id: str
    verdict: Verdict
    reason_code: str
    decided_at: datetime
    action: str | None
    reviewer: str | None
    review_reason: str | None


@dataclass(frozen=True, slots=True)
class ActionAttempt:
    """An action on a subject as the audit recorded it; `outcome` is a code, `note` what the person wrote."""

    action_id: str
    at: datetime
    actor: str
    applied: bool
    action: str
    outcome: str
    decision_id: str | None = None
    note: str | None = None


def state_of(verdict: Verdict, reason_code: str) -> str:
    if verdict == Verdict.BLOCKED:
        return _BLOCKED.get(reason_code, "blocked")
    return "approved" if verdict == Verdict.APPROVED else "pending"


@dataclass(frozen=True, slots=True)
class Related:
    """A parent or dependent of an item.

    `name`: as in `derived_from`; `decision_id`: of its highest revision, None where the person sees none.
    """

    name: str
    decision_id: str | None = None
    state: str = ""
    excerpt: str = ""
    reason_code: str = ""


@dataclass(frozen=True, slots=True)
class Nearest:
    """A memory that the gate compared a claim with.

    `difference`: none, or how they differ: negation, number, order, ...; `match_class`: its state at that time. The
    rest is its current state, where the board holds it.
    """

    subject_id: str
    difference: str
    match_class: str
    similarity: float
    decision_id: str | None = None
    verdict: Verdict | None = None
    text: str | None = None
    reason_code: str = ""
    revision: int = 0
    source: str | None = None
    decided_at: datetime | None = None

    @property
    def state(self) -> str:
        """Its current state, as far as the board knows."""
        return self.match_class if self.verdict is None else state_of(self.verdict, self.reason_code)

    @property
    def is_contradicted(self) -> bool:
        return self.difference != "none" and self.state == "approved"

    @property
    def since(self) -> str:
        """Its state then and now; one word where nothing changed."""
        same = self.state == self.match_class
        return self.state if same else f"{self.match_class} then; {self.state} since"


@dataclass(frozen=True, slots=True)
class SourceRecord:
    approved: int = 0
    human_approved: int = 0
    human_rejected: int = 0
    blocked: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """A Decision asked for, its subject's highest revision, and whether a person may decide it now."""

    decision_id: str
    current: Row
    pending: bool

    @property
    def is_current(self) -> bool:
        return self.current.decision_id == self.decision_id


@dataclass(frozen=True, slots=True)
class Item(Standing):
    """A Decision with its context.

    `history`: all revisions, lowest first; `attempts`: actions in the audit, oldest first; `memories`: what the gate
    compared it with, the conflicting one first.
    """

    decision: Mapping[str, Any]
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    history: Sequence[Revision]
    attempts: Sequence[ActionAttempt]
    nearest: Nearest | None
    source_record: SourceRecord
    parents: Sequence[Related] = ()
    memories: Sequence[Nearest] = ()


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The free items next to one in the queue, under its filters and order.

    `then`: the next one after this is decided: `after`, or the first; `place`: its position from 1, None: not queued.
    """

    before: str | None = None
    after: str | None = None
    then: str | None = None
    place: int | None = None
    total: int = 0


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """A record that could not be decided; tenant and user are None where its owner is not certain."""

    code: str
    message: str
    topic: str
    partition: int | None
    offset: int | None
    tenant_id: str | None
    user_id: str | None
    excerpt: str


@dataclass(frozen=True, slots=True)
class DeadLetterRow(FailedRecord):
    """A dead letter on the board; `name`: its own position, as `groundwire dead-letters` shows it."""

    name: str
    at: datetime


@dataclass(frozen=True, slots=True)
class Counts:
    """How many items are pending, by tenant; `total`: None for who sees no whole tenant."""

    own: Mapping[str, int]
    tenants: Mapping[str, int]
    total: int | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """Items of the fullest user and tenant, of the deployment, and since when the oldest waits."""

    user: int
    tenant: int
    total: int
    since: datetime | None


@dataclass(frozen=True, slots=True)
class DecisionCounts:
    """People's decisions on items in review for a reason, or of a source, and how long they took."""

    name: str
    approved: int
    edited: int
    rejected: int
    median: timedelta | None
    p90: timedelta | None

    @property
    def decided(self) -> int:
        return self.approved + self.edited + self.rejected


@dataclass(frozen=True, slots=True)
class Agreement:
    """People's decisions compared with the gate's; most frequent first."""

    total: DecisionCounts
    by_reason: Sequence[DecisionCounts]
    by_source: Sequence[DecisionCounts]

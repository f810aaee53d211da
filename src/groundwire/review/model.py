"""What the board is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Generic, Literal, TypeVar

from groundwire.messages.decisions import Kind, Verdict
from groundwire.messages.topics import TopicName
from groundwire.review.risk import Risk

Sort = Literal["risk", "oldest", "newest"]
Opinion = Literal["approve", "reject"]
LookedUp = Literal[TopicName.APPROVED, TopicName.BLOCKED, TopicName.REVIEW]
T = TypeVar("T")

MAX_PAGE: Final = 200
SORTS: Final[tuple[Sort, ...]] = ("risk", "oldest", "newest")


@dataclass(frozen=True, slots=True)
class Query:
    """Which pending items, in which order. None: whatever.

    Attributes:
        source: that the producer named.
        min_age: waiting at least so long.
        text: words that all stand in the text or id, each from its beginning; whatever a person typed.
        sort: `risk` by `groundwire.review.risk`, then oldest first.
        limit: rows of a page, 1 to 200.
        cursor: `Page.next` of the page before, under the same sort.

    Raises:
        ValueError: naming the field, of limit and sort.
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
        """Refuse what no page can be."""
        check_limit(self.limit)
        if self.sort not in SORTS:
            raise ValueError(f"sort: must be one of {', '.join(SORTS)}")


def check_limit(limit: int) -> None:
    """Raise ValueError for a number of rows that no page has."""
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
    """A subject at a glance, at its highest revision.

    Attributes:
        since: when that revision was decided.
        excerpt: the beginning of the text in one line; of a response the reason, for its text is not published.
        risk: how soon it is to be looked at.
    """

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


@dataclass(frozen=True, slots=True)
class Revision:
    """One entry of a subject's history; action, reviewer and review_reason where people (or expiry) made it."""

    revision: int
    decision_id: str
    verdict: Verdict
    reason_code: str
    decided_at: datetime
    action: str | None
    reviewer: str | None
    review_reason: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the audit tells of an action on a subject; `outcome` is a code."""

    action_id: str
    at: datetime
    actor: str
    applied: bool
    action: str
    outcome: str


_BLOCKED: Final = {"retracted": "retracted", "human_rejected": "rejected"}


def state_of(verdict: Verdict, reason_code: str) -> str:
    """Return how something stands in one word: approved, pending, rejected, retracted or blocked."""
    if verdict == Verdict.BLOCKED:
        return _BLOCKED.get(reason_code, "blocked")
    return "approved" if verdict == Verdict.APPROVED else "pending"


@dataclass(frozen=True, slots=True)
class Related:
    """What an item rests on, or what rests on it.

    Attributes:
        name: as `derived_from` has it: a claim id, or `response:` and its id.
        decision_id: of its highest revision; None where the board has none that the person sees.
        state: how that stands; empty where nothing tells.
        excerpt: of its text.
    """

    name: str
    decision_id: str | None = None
    state: str = ""
    excerpt: str = ""


@dataclass(frozen=True, slots=True)
class Nearest:
    """The memory that a claim is nearest to.

    Attributes:
        difference: none, negation, number, unit or order.
        match_class: approved, pending or rejected: how it stood when the claim was compared with it.
        similarity: 0 to 1.
        decision_id: of the memory as it stands now, where the board holds it, with its verdict, text and reason code.
    """

    subject_id: str
    difference: str
    match_class: str
    similarity: float
    decision_id: str | None = None
    verdict: Verdict | None = None
    text: str | None = None
    reason_code: str = ""

    @property
    def state(self) -> str:
        """How it stands now, as far as the board knows."""
        return self.match_class if self.verdict is None else state_of(self.verdict, self.reason_code)

    @property
    def since(self) -> str:
        """How it stood then and stands now; one word where nothing changed."""
        same = self.state == self.match_class
        return self.state if same else f"{self.match_class} then; {self.state} since"


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """What became so far of a source's claims in a tenant, of those that the person sees."""

    approved: int = 0
    human_approved: int = 0
    human_rejected: int = 0
    blocked: int = 0


@dataclass(frozen=True, slots=True)
class Item:
    """A Decision with all that bears on it.

    Attributes:
        current: the subject's highest revision; `current.decision_id` differs where this one is superseded.
        pending: whether a person may decide it now.
        decision: the Decision asked for, as published.
        topic: without the prefix; with partition and offset where that Decision stands.
        history: all revisions, lowest first.
        attempts: actions that the audit tells of, oldest first.
        parents: what the Decision asked for rests on, as it stands now.
    """

    current: Row
    pending: bool
    decision: Mapping[str, Any]
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    history: Sequence[Revision]
    attempts: Sequence[Attempt]
    nearest: Nearest | None
    source_record: SourceRecord
    parents: Sequence[Related] = ()


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be decided; `topic`, `partition`, `offset` say where it failed.

    Attributes:
        name: where the letter itself stands, `partition@offset`, as `groundwire dead-letters` names it.
    """

    name: str
    code: str
    message: str
    topic: str
    partition: int | None
    offset: int | None
    tenant_id: str
    user_id: str
    at: datetime
    excerpt: str


@dataclass(frozen=True, slots=True)
class Counts:
    """How many items are pending.

    Attributes:
        own: of the person, by tenant.
        tenants: in all, of tenants that the person sees as a whole.
        total: of the deployment; None for who sees no whole tenant.
    """

    own: Mapping[str, int]
    tenants: Mapping[str, int]
    total: int | None


@dataclass(frozen=True, slots=True)
class Backlog:
    """How near the queue is to its limits, and how long its oldest item has waited.

    Attributes:
        user: items of the user who has most.
        tenant: items of the tenant that has most.
        total: items of the deployment.
        since: when the oldest was put there; None where there is none.
    """

    user: int
    tenant: int
    total: int
    since: datetime | None


@dataclass(frozen=True, slots=True)
class Tally:
    """What people decided of items that were in review for a reason, or came from a source.

    Attributes:
        median: from review to decision; None where there is none.
        p90: the same for nine of ten.
    """

    name: str
    approved: int
    edited: int
    rejected: int
    median: timedelta | None
    p90: timedelta | None

    @property
    def decided(self) -> int:
        """How many in all."""
        return self.approved + self.edited + self.rejected


@dataclass(frozen=True, slots=True)
class Blind:
    """Opinions of people who did not see the verdict: how many agree with the gate, of how many."""

    approved_agreed: int
    approved: int
    blocked_agreed: int
    blocked: int


@dataclass(frozen=True, slots=True)
class Agreement:
    """How people's decisions compare with the gate's; most frequent first."""

    total: Tally
    by_reason: Sequence[Tally]
    by_source: Sequence[Tally]
    blind: Blind


@dataclass(frozen=True, slots=True)
class Sampled:
    """An item of the blind sample: without verdict, reason and topic."""

    decision_id: str
    tenant_id: str
    user_id: str
    subject_id: str
    source: str | None
    memory_type: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Revealed:
    """What the gate had decided, told once an opinion stands; `opinion` is the first that the person gave."""

    decision_id: str
    opinion: Opinion
    verdict: Verdict
    reason_code: str

    @property
    def agrees(self) -> bool:
        """Whether person and gate are of one mind."""
        return (self.opinion == "approve") == (self.verdict == Verdict.APPROVED)

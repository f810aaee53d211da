"""Requests to state, its answers, and the protocol of its implementations (S0-122, S0-123, X-09, C-10).

A step takes the claims and responses of a batch in order, each atomically: it returns a recorded outcome, or finds
near-duplicates in the scope, looks up parents, applies what only lowers a tier, asks for a place in the review queue,
and records the outcome. Pure code derives the rest from the answer.

A record that was answered gets the same answer again, or its subject's later outcome; it is never decided afresh. A
worker that asks again after losing its partition so starts nothing that nobody would finish.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from groundwire.checks.dedup.signature import Thresholds
from groundwire.messages.base import immutable
from groundwire.messages.decisions import DedupMatch, Kind, MatchClass, ParentFact, Place
from groundwire.messages.identity import Subject

MAX_CANDIDATES: Final = 10_000
"""Stored claims to compare one claim with; above, its deduplication fails."""

CANDIDATE_BYTES: Final = 400
"""Mean bytes of signature per candidate; above, deduplication fails too."""

MAX_REJECTED: Final = 1_000
"""Latest rejected texts of a scope that every claim is compared with, whatever its keys."""

MAX_MATCHES: Final = 5
"""Near-duplicates that are reported."""

DECISIVE_BYTES: Final = 16

MAX_AFFECTED: Final = 1_000
"""Claims derived from a retracted one that are named."""


class ReviewAction(StrEnum):
    APPROVE = "approve"
    EDIT = "edit"
    REJECT = "reject"
    EXPIRE = "expire"
    RETRACT = "retract"
    OVERRULE = "overrule"
    COMMENT = "comment"
    UNSURE = "pass"


NOTING: Final = {ReviewAction.COMMENT, ReviewAction.UNSURE}
"""Actions that decide nothing."""


class SubjectState(StrEnum):
    """The state of a subject; the value is stored. JOINED follows a pending claim; REVIEW has no place and is final."""

    WAITING = "W"
    APPROVED = "A"
    PENDING = "P"
    JOINED = "J"
    REFUSED = "R"
    BLOCKED = "B"
    REVIEW = "V"


@immutable
class RecordOrigin:
    """The place of a record on its topic; `timestamp` in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    sha256: str


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Places in the review queue, and bytes of a tenant's pending records.

    Attributes:
        reserved: places that a tenant gets whatever the total.
        tenants: who may have more than the reserved places; empty: every tenant.
    """

    per_user: int = 100
    per_tenant: int = 2_000
    total: int = 10_000
    tenant_bytes: int = 64_000_000
    reserved: int = 0
    tenants: frozenset[str] = frozenset()

    def of_tenant(self, tenant: str) -> int:
        """Return the places that a tenant may have."""
        is_known = not self.tenants or tenant in self.tenants
        return self.per_tenant if is_known else min(self.per_tenant, self.reserved)

    def free(self, tenant: str, of_tenant: int, total: int) -> int:
        """Return the places that a tenant may still take, if it has `of_tenant` of `total` that are taken."""
        most = self.of_tenant(tenant)
        return max(min(most - of_tenant, self.total - total), min(most, self.reserved) - of_tenant)


DEFAULT_LIMITS: Final = QueueLimits()


@dataclass(frozen=True, slots=True)
class MatchRules:
    """When two claims say the same, and what a difference means.

    Attributes:
        material_difference: a materially different near-duplicate is a conflict.
        word_difference: another content word is a material difference.
    """

    thresholds: Thresholds
    material_difference: bool = True
    word_difference: bool = True


@immutable
class DedupQuery:
    """How a claim is compared.

    Attributes:
        scope: 16 bytes; claims are compared within a scope.
        stored: index keys once approved or pending, 8 bytes each.
        probed: keys to look up, 8 bytes each.
    """

    scope: bytes
    stored: Sequence[bytes]
    probed: Sequence[bytes]
    signature: bytes
    rules: MatchRules


@immutable
class StepRequest:
    """One claim or response of a step.

    Attributes:
        base_tier: 1, 2 or 3, as if nothing were a duplicate and every parent approved.
        capped: lowers a tier 1 (citations, AI synthesis).
        wait: a citation needs the network, so the claim goes to `deferred`.
        dedup: None if deduplication is disabled.
        dedup_failed: the claim could not be compared, so it cannot be tier 1.
        parents: (id as sent, subject) per entry of `derived_from`.
        horizon: milliseconds from which on the claim no longer holds, or 0.
        payload: one line that re-derives the decision; a prefix up to a tab is stored once for all that share it.
        record: in canonical form, kept while pending.
        queued: a tier 2 asks for a place in the review queue; else it is a final review.
        again: decide the revision of this very record anew: it could not be published.
    """

    subject: Subject
    fingerprint: str
    origin: RecordOrigin
    base_tier: int
    payload: bytes
    record: bytes = b""
    capped: bool = False
    wait: bool = False
    dedup: DedupQuery | None = None
    dedup_failed: bool = False
    parents: Sequence[tuple[str, Subject]] = ()
    horizon: int = 0
    queued: bool = True
    again: bool = False

    @property
    def ordered(self) -> bool:
        """Whether it waits behind waiting claims of its user; responses do not."""
        return self.subject.kind is Kind.CLAIM


@immutable
class Outcome:
    """The recorded outcome of a subject.

    Attributes:
        tier: before a refusal for lack of a place.
        fresh: recorded by this very step.
        first_origin: of the subject's first record, from revision 2 on.
        dedup_status: `ok`, `failed` or `disabled`.
        record: in canonical form while pending, else empty.
    """

    state: SubjectState
    tier: int
    revision: int
    fresh: bool
    origin: RecordOrigin
    first_origin: RecordOrigin | None
    fingerprint: str
    dedup_status: str
    matches: Sequence[DedupMatch]
    parents: Sequence[ParentFact]
    place: Place
    payload: bytes
    record: bytes


@dataclass(frozen=True, slots=True)
class Waiting:
    """The claim waits on `deferred`; `publish`: send this record there, else an earlier one is there."""

    publish: bool


@dataclass(frozen=True, slots=True)
class Conflict:
    """The subject exists with another fingerprint."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The record became a dead letter while its claim waited; a later record would be decided."""


StepAnswer = Outcome | Waiting | Conflict | GivenUp


@dataclass(frozen=True, slots=True)
class SubjectStatus:
    state: SubjectState
    revision: int


@dataclass(frozen=True, slots=True)
class HeldEntry:
    """A decided subject; see `Outcome` for the fields."""

    state: SubjectState
    revision: int
    fingerprint: str
    payload: bytes
    record: bytes


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """One action on a subject, by a person or by the gate.

    Attributes:
        refused: why the action is refused whatever state holds, or empty.
        origin: of the ReviewDecision; its timestamp is the clock of the action.
        expired: of approve and edit: the claim no longer holds.
        dedup: how the approved or rejected text is compared and indexed; None for responses, other actions, or if
            disabled.
        dedup_failed: the text could not be compared; an approval stands all the same.
        parents, horizon: as in StepRequest.
        payload: as in StepRequest, for the next revision.
        decisive: at most 16 bytes, a digest of reviewer, reason and text: another digest is another action.
        only_recorded: return what is recorded of the action; else refuse it without recording that.
        forget: do not record the refusal: it may be otherwise next time.
        record: of overrule: the claim in canonical form, kept while pending.
    """

    subject: Subject
    action_id: str
    action: ReviewAction
    expected_revision: int
    origin: RecordOrigin
    refused: str = ""
    expired: bool = False
    dedup: DedupQuery | None = None
    dedup_failed: bool = False
    parents: Sequence[tuple[str, Subject]] = ()
    horizon: int = 0
    payload: bytes = b""
    decisive: bytes = b""
    only_recorded: bool = False
    forget: bool = False
    record: bytes = b""

    def __post_init__(self) -> None:
        if len(self.decisive) > DECISIVE_BYTES:
            raise ValueError(f"decisive is at most {DECISIVE_BYTES} bytes, not {len(self.decisive)}")
        if self.only_recorded and not self.refused:
            raise ValueError("refused says what only_recorded answers where nothing is recorded")

    @property
    def forgets(self) -> bool:
        """Whether a refusal is not recorded."""
        return self.only_recorded or (self.forget and bool(self.refused))


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The action was carried out, now or before.

    Attributes:
        revision: that the action created.
        outcome: of that revision, or the current one if it is no longer stored.
        affected: of a retraction, at most 1,000 ids of approved claims derived from the subject, sorted.
        affected_total: how many there are; a lower bound above `MAX_CANDIDATES` derived claims.
        fresh: carried out by this very call.
        at: milliseconds since 1970 of its ReviewDecision.
        state: that the action created.
    """

    revision: int
    outcome: Outcome
    affected: Sequence[str] = ()
    affected_total: int = 0
    fresh: bool = field(default=False, compare=False)
    at: int = field(default=0, compare=False)
    state: SubjectState = field(default=SubjectState.BLOCKED, compare=False)


@dataclass(frozen=True, slots=True)
class RefusedAction:
    """The action changes nothing, now and on every redelivery.

    Attributes:
        code: `unknown`, `stale`, `not_pending`, `not_approved`, `not_overrulable`, `review_queue_full`, `waiting`,
            `action_id_reused`, or as requested.
        current: status at the refusal; None if unknown.
        at: milliseconds since 1970 of its ReviewDecision; 0 if the refusal is not recorded.
    """

    code: str
    current: SubjectStatus | None
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Noted:
    """A comment or a pass: the subject stays as it is.

    Attributes:
        current: status of the subject at the action.
        at: milliseconds since 1970 of its ReviewDecision.
    """

    current: SubjectStatus
    at: int = field(default=0, compare=False)


ReviewAnswer = Reviewed | RefusedAction | Noted


@immutable
class StoredOutcome:
    """An outcome read from the output topics, to load.

    Attributes:
        dedup: how it is indexed, without `probed`; None: not at all.
        rejected: blocked by a person's rejection or retraction.
        joined_to: the pending claim that a joined one follows.
        parents: subjects that the claim is derived from.
    """

    subject: Subject
    outcome: Outcome
    dedup: DedupQuery | None
    horizon: int
    rejected: bool = False
    joined_to: Subject | None = None
    parents: Sequence[Subject] = ()

    @property
    def by_people(self) -> bool:
        """Whether a person may have blocked it: it is then kept as long as their actions.

        Expiries and late approvals are no rejections, but are later revisions too.
        """
        blocked = self.outcome.state is SubjectState.BLOCKED
        return self.rejected or (blocked and self.outcome.revision > 1)

    @property
    def match_class(self) -> MatchClass | None:
        """The class under which later claims find it, or None."""
        if self.dedup is None:
            return None
        if self.rejected:
            return MatchClass.REJECTED
        return _CLASSES.get(self.outcome.state)


_CLASSES: Final = {SubjectState.APPROVED: MatchClass.APPROVED, SubjectState.PENDING: MatchClass.PENDING}


@dataclass(frozen=True, slots=True)
class InFlightMark:
    """Offsets `first` to `last` (inclusive) in flight on a partition, and the crashes over them."""

    first: int
    last: int
    crashes: int


class State(Protocol):
    """The state of a deployment.

    Every method raises StateUnavailable without an answer, StateLost if the epoch is missing or another one,
    SchemeMismatch if keys are of another scheme.
    """

    async def step(
        self, requests: Sequence[StepRequest], limits: QueueLimits, *, deferred: bool = False
    ) -> list[StepAnswer]:
        """Decide a batch, each record atomically and in the order of requests, which is that of the answers.

        `deferred`: the records come from `deferred`, and do not wait again.
        """
        ...

    async def reassert(self, outcomes: Sequence[StoredOutcome]) -> int:
        """Record published outcomes unless the subject has the same or a higher revision; return how many."""
        ...

    async def review(
        self, requests: Sequence[ReviewRequest], limits: QueueLimits = DEFAULT_LIMITS
    ) -> list[ReviewAnswer]:
        """Carry out actions in order, each atomically.

        The first outcome of an action id within a tenant stands while its ReviewDecision can be redelivered. Retract
        needs an approved subject, overrule one that the gate blocked and a place in the queue, the others a pending
        one, all at the expected revision. Approve and edit lead to approved, or to blocked if the claim has expired
        or duplicates an approved one; overrule leads to pending; comment and pass change nothing; the others lead to
        blocked. The text of what was rejected or retracted stays indexed as rejected.
        """
        ...

    async def held(self, subjects: Sequence[Subject]) -> list[HeldEntry | None]:
        """Return decided subjects; None if unknown or waiting."""
        ...

    async def statuses(self, subjects: Sequence[Subject]) -> list[SubjectStatus | None]:
        """Return the status of each subject or None; cheap for thousands."""
        ...

    async def waiting_count(self) -> int: ...

    async def queue_depth(self) -> int: ...

    async def close(self) -> None: ...

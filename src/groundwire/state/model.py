"""Requests to state, its answers, and the protocol of both implementations (S0-122, S0-123, X-09, C-10).

A step takes the claims and responses of a batch in order and does for each, atomically with all others (in a cluster,
with those of users in the same bucket): return the recorded outcome if there is one; else find near-duplicates in its
scope, look up its parents, apply what only lowers a tier, ask for a place in the review queue, and record the outcome.
Everything else is decided outside, from the answer, by pure code.

A record that was answered gets the same answer again, or what became of its subject since; it is never decided
afresh. So a worker that asks once more after it lost its partition starts nothing that no other worker would finish.
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
"""Stored claims with which one claim is compared at most; with more, its deduplication has failed."""

CANDIDATE_BYTES: Final = 400
"""Mean bytes of signature for each of these; with more, deduplication has failed as well."""

MAX_REJECTED: Final = 1_000
"""Rejected texts of a scope, the latest, with which every claim is compared, whatever keys they share."""

MAX_MATCHES: Final = 5
"""Near-duplicates that are reported."""

DECISIVE_BYTES: Final = 16

MAX_AFFECTED: Final = 1_000
"""Claims resting on a retracted one that are named."""


class ReviewAction(StrEnum):
    """What is done to a subject in review, or to one that was approved."""

    APPROVE = "approve"
    EDIT = "edit"
    REJECT = "reject"
    EXPIRE = "expire"
    RETRACT = "retract"


class SubjectState(StrEnum):
    """Where a subject stands; the value is the letter stored.

    A joined claim follows a pending one; a review without a place in the queue is final.
    """

    WAITING = "W"
    APPROVED = "A"
    PENDING = "P"
    JOINED = "J"
    REFUSED = "R"
    BLOCKED = "B"
    REVIEW = "V"


@immutable
class RecordOrigin:
    """Where a record stood on its topic; `timestamp` in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    sha256: str


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Places in the review queue: of a user, of a tenant, in all; and bytes of a tenant's pending records."""

    per_user: int = 100
    per_tenant: int = 2_000
    total: int = 10_000
    tenant_bytes: int = 64_000_000


@dataclass(frozen=True, slots=True)
class MatchRules:
    """From where on two claims say the same, and what comes of a difference.

    Attributes:
        thresholds: in basis points.
        material_difference: whether a claim that differs materially is a conflict, no duplicate.
        word_difference: whether a near-duplicate with another content word differs materially.
    """

    thresholds: Thresholds
    material_difference: bool = True
    word_difference: bool = True


@immutable
class DedupQuery:
    """How a claim is compared: its scope, the keys it is found by, and the signature that decides.

    Attributes:
        scope: 16 bytes; claims are compared within one scope only.
        stored: keys under which the claim is indexed once approved or pending, 8 bytes each.
        probed: keys that are looked up, 8 bytes each.
        signature: see `groundwire.checks.dedup.signature`.
        rules: what the claims that it is compared with count as.
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
        base_tier: 1, 2 or 3: the tree as if nothing were a duplicate and every parent approved.
        capped: whether a cap that needs no state (citations, AI synthesis) lowers a tier 1.
        wait: whether a citation has to ask the network, so that the claim must go to `deferred`.
        dedup: None where deduplication is disabled.
        dedup_failed: the claim could not be compared at all; it can then not be tier 1.
        parents: (id as sent, subject) of each entry of `derived_from`.
        horizon: milliseconds from when on the claim no longer holds, or 0.
        payload: one line that re-derives the decision; returned as it is. What stands before a tab is kept once for
            all that have it alike.
        record: the record in canonical form, kept while the subject is pending.
        queued: whether a tier 2 asks for a place in the review queue; else it is a review, and final there.
    """

    subject: Subject
    fingerprint: str
    origin: RecordOrigin
    base_tier: int
    capped: bool
    wait: bool
    dedup: DedupQuery | None
    dedup_failed: bool
    parents: Sequence[tuple[str, Subject]]
    horizon: int
    payload: bytes
    record: bytes
    queued: bool = True

    @property
    def ordered(self) -> bool:
        """Whether it waits behind waiting claims of its user; responses do not."""
        return self.subject.kind is Kind.CLAIM


@immutable
class Outcome:
    """The recorded outcome of a subject.

    Attributes:
        state: approved, pending, joined, refused, blocked or in review without a place.
        tier: the tier that state recorded, before a refusal for want of a place.
        fresh: whether this very step recorded it.
        first_origin: from revision 2 on, where the subject's first record stood.
        dedup_status: `ok`, `failed` or `disabled`.
        payload: what was given when it was recorded.
        record: the record in canonical form while pending, else empty.
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
    """The claim waits on `deferred`.

    `publish`: this record is to be sent there; else another record of the subject stands for it.
    """

    publish: bool


@dataclass(frozen=True, slots=True)
class Conflict:
    """The subject exists with another fingerprint."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The record became a dead letter while its claim waited; another, later record would be decided."""


StepAnswer = Outcome | Waiting | Conflict | GivenUp


@dataclass(frozen=True, slots=True)
class SubjectStatus:
    """Where a subject stands now."""

    state: SubjectState
    revision: int


@dataclass(frozen=True, slots=True)
class HeldEntry:
    """What state holds of a subject that was decided; see `Outcome` for the fields."""

    state: SubjectState
    revision: int
    fingerprint: str
    payload: bytes
    record: bytes


@dataclass(frozen=True, slots=True)
class ReviewRequest:
    """One action on a subject, of a person or of the gate itself.

    Attributes:
        refused: why the action cannot be, whatever state holds; empty where it can.
        origin: where the ReviewDecision stood; its timestamp is the clock of the action.
        expired: of approve and edit: whether the claim no longer holds at that time.
        dedup: of approve and edit: how the text that a person approves is compared and found; of reject: how the
            rejected text is found; None of responses, of other actions, and where deduplication is disabled.
        dedup_failed: the text could not be compared; a person's approval stands all the same.
        parents: (id as sent, subject) of each entry of the claim's `derived_from`.
        horizon: as in StepRequest.
        payload: as in StepRequest; re-derives the next revision.
        decisive: at most 16 bytes, a digest of what the action says beside subject and kind: who acts, why, which
            text. The same action id with another digest is another action.
        only_recorded: answer what was recorded of the action where there is something; else it is refused, as
            `refused` says, without being remembered.
        forget: a refusal as `refused` says is not remembered: it may be otherwise when the action comes again.
    """

    subject: Subject
    action_id: str
    action: ReviewAction
    expected_revision: int
    origin: RecordOrigin
    refused: str
    expired: bool
    dedup: DedupQuery | None
    dedup_failed: bool
    parents: Sequence[tuple[str, Subject]]
    horizon: int
    payload: bytes
    decisive: bytes = b""
    only_recorded: bool = False
    forget: bool = False

    def __post_init__(self) -> None:
        """Check what is said beside the action.

        Raises:
            ValueError: `decisive` is too long, or `refused` says nothing where only what was recorded is asked for.
        """
        if len(self.decisive) > DECISIVE_BYTES:
            raise ValueError(f"decisive is at most {DECISIVE_BYTES} bytes, not {len(self.decisive)}")
        if self.only_recorded and not self.refused:
            raise ValueError("refused says what only_recorded answers where nothing is recorded")

    @property
    def forgets(self) -> bool:
        """Whether a refusal is not remembered."""
        return self.only_recorded or (self.forget and bool(self.refused))


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The action was carried out, now or before.

    Attributes:
        revision: that the action brought about.
        outcome: of that revision; of the current one where state holds that no longer.
        affected: of a retraction, at most 1,000 ids of approved claims that rest on the subject, by id.
        affected_total: how many these are in all; at least, where more than `MAX_CANDIDATES` claims were ever
            derived from the subject: no more are looked at.
        fresh: whether this very call carried it out; no part of what the action came to.
        at: milliseconds since 1970 of the ReviewDecision that carried it out.
        state: what the action itself brought, whatever came later.
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
        code: `unknown`, `stale`, `not_pending`, `not_approved`, `waiting`, `action_id_reused`, or as requested.
        current: where the subject stood when it was refused; None where it is not known.
        at: milliseconds since 1970 of the ReviewDecision that was refused; 0 where that is not remembered.
    """

    code: str
    current: SubjectStatus | None
    at: int = field(default=0, compare=False)


ReviewAnswer = Reviewed | RefusedAction


@dataclass(frozen=True, slots=True)
class StoredOutcome:
    """An outcome as a rebuild loads it, read from the output topics.

    Attributes:
        dedup: how it is found and compared; None where it is not to be found. `probed` is not needed.
        horizon: as in StepRequest.
        rejected: blocked because a person rejected or retracted it.
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
        """Whether a person may have blocked it; it is then kept for as long as their actions are.

        An expiry, or an approval that came too late, is no rejection; but all of these are a later revision.
        """
        blocked = self.outcome.state is SubjectState.BLOCKED
        return self.rejected or (blocked and self.outcome.revision > 1)

    @property
    def match_class(self) -> MatchClass | None:
        """As what later claims find it, or None."""
        if self.dedup is None:
            return None
        if self.rejected:
            return MatchClass.REJECTED
        return _CLASSES.get(self.outcome.state)


_CLASSES: Final = {
    SubjectState.APPROVED: MatchClass.APPROVED,
    SubjectState.PENDING: MatchClass.PENDING,
}


@dataclass(frozen=True, slots=True)
class InFlightMark:
    """What a worker has in flight of a partition: offsets `first` to `last`, both included.

    `crashes`: how often a worker died with it.
    """

    first: int
    last: int
    crashes: int


class State(Protocol):
    """The state of a deployment.

    Every method raises StateUnavailable where state does not answer, StateLost where its epoch is missing or
    not the one that this process knows, SchemeMismatch where its keys are of another scheme.
    """

    async def step(
        self, requests: Sequence[StepRequest], limits: QueueLimits, *, deferred: bool = False
    ) -> list[StepAnswer]:
        """Decide a batch in one atomic step; the answers stand in the order of the requests.

        A batch gives what its claims would have given one after the other.

        `deferred`: the records come from `deferred`; they do not wait again.
        """
        ...

    async def reassert(self, outcomes: Sequence[StoredOutcome]) -> int:
        """Record outcomes that are known to be published, where state does not hold them (any more).

        A subject that state holds at the same or a higher revision stays as it is.

        Returns:
            How many were recorded.
        """
        ...

    async def payloads(self, subjects: Sequence[Subject]) -> list[bytes | None]:
        """Return the payload of the current outcome of each subject.

        None where there is no outcome: the subject is unknown, its entry has expired, or it waits.
        """
        ...

    async def review(self, requests: Sequence[ReviewRequest]) -> list[ReviewAnswer]:
        """Carry out actions of people in order, in one atomic step; the answers stand in the order of the requests.

        The first outcome of an action id within a tenant stands, for as long as its ReviewDecision can come again.
        Approve, edit, reject and expire need a pending subject, retract an approved one, all of them at the
        expected revision. Approve and edit come to approved; to blocked where the claim has expired or is, without
        material difference, the duplicate of an approved one. The others come to blocked; the text of what was
        rejected or retracted stays in the index as rejected.
        """
        ...

    async def held(self, subjects: Sequence[Subject]) -> list[HeldEntry | None]:
        """Return what state holds of decided subjects; None where it holds nothing, or the subject waits."""
        ...

    async def statuses(self, subjects: Sequence[Subject]) -> list[SubjectStatus | None]:
        """Return where subjects stand; None where state holds nothing. Cheap, for thousands at once."""
        ...

    async def waiting_count(self) -> int:
        """Return how many claims wait on `deferred`."""
        ...

    async def queue_depth(self) -> int:
        """Return how many claims and responses have a place in the review queue."""
        ...

    async def close(self) -> None:
        """Let go of connections."""
        ...

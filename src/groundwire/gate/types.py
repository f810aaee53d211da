"""The types that pass through the gate: prepared records and reviews, and the results of both.

All of them are immutable: a step that learns more returns a new value.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from groundwire.errors import ErrorCode, RecordError
from groundwire.gate.claim_case import UNREAD, ClaimInputs, ClaimReading
from groundwire.gate.response_checks import (
    NO_INPUTS,
    Broken,
    CheckInputs,
    ClaimReport,
    ResponseReading,
    Skipped,
)
from groundwire.messages.base import InputRecord, canonical_json, immutable, to_milliseconds
from groundwire.messages.decisions import Decision, Kind, RegenerateRequest, Verdict
from groundwire.messages.events import Event
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import Subject, decisive, digest
from groundwire.messages.records import Claim, LlmResponse, Retraction, ReviewDecision
from groundwire.policy import Policy
from groundwire.state.model import (
    DedupQuery,
    QueueLimits,
    RecordOrigin,
    ReviewAction,
    ReviewRequest,
    SubjectStatus,
)

_T = TypeVar("_T")

RESPONSE_PARENT: Final = "response:"
"""What stands before the id of a response in `derived_from`."""


def parents_of(claim: Claim) -> list[tuple[str, Subject]]:
    """Return (id as sent, subject) of each thing that a claim rests on."""
    result = []
    for parent in claim.derived_from:
        kind = Kind.RESPONSE if parent.startswith(RESPONSE_PARENT) else Kind.CLAIM
        name = parent.removeprefix(RESPONSE_PARENT)
        result.append((parent, Subject(claim.tenant_id, claim.user_id, kind, name)))
    return result


def horizon_of(claim: Claim) -> int:
    """Return the milliseconds since 1970 from which on a claim no longer holds, or 0."""
    return to_milliseconds(claim.validity_horizon) if claim.validity_horizon else 0


def record_origin(record: InboundRecord) -> RecordOrigin:
    return RecordOrigin(record.topic or "", record.partition, record.offset, record.timestamp, record.sha256)


def canonical_form(record: InputRecord) -> bytes:
    """Return what decides a record in its canonical form, whose hash is its fingerprint; RecordError without one."""
    try:
        return canonical_json(decisive(record))
    except ValueError as exc:
        message = f"cannot be put into canonical form: {exc}"
        raise RecordError(ErrorCode.INVALID_RECORD, message) from None


class PreparedClaim(NamedTuple):
    """A claim before state is asked: decoded, its text read, its citations looked up."""

    record: InboundRecord
    claim: Claim
    fingerprint: str
    reading: ClaimReading
    dedup: DedupQuery | None
    inputs: ClaimInputs
    wait: bool = False  # a citation has to ask the network, and the claim goes to `deferred`
    unanswered: tuple[str, ...] = ()  # labels of citations that a host failed to answer for now

    def failed(self, error: Exception) -> PreparedClaim:
        """Return the claim as one that could not be judged: a review, as an internal error (S0-23)."""
        inputs = ClaimInputs({}, self.inputs.attestation, None, type(error).__name__)
        return self._replace(reading=UNREAD, dedup=None, inputs=inputs, wait=False)

    @property
    def subject(self) -> Subject:
        return self.claim.subject


class PreparedResponse(NamedTuple):
    """A response before state is asked: decoded, and its checks run."""

    record: InboundRecord
    response: LlmResponse
    fingerprint: str
    reading: ResponseReading
    inputs: CheckInputs = NO_INPUTS
    by_rules: ClaimReport | Skipped | Broken | None = None
    """What the rules alone found of its claims, once a model was asked, or need not be; None before."""
    extraction: list[str] | None = None  # the claims of its answer, where they are to be fanned out
    reply_to: dict[str, Any] | None = None  # what is known of the response that it replaces

    def failed(self, error: Exception) -> PreparedResponse:
        """Return the response as one that could not be judged: a review, as an internal error (S0-23)."""
        reading, said = ResponseReading.failed(error)
        extraction: list[str] | None = [] if self.extraction is not None else None
        return self._replace(reading=reading, inputs=self.inputs._replace(error=said), extraction=extraction)

    @property
    def subject(self) -> Subject:
        return self.response.subject

    @property
    def parent(self) -> Subject | None:
        replaced = self.response.in_reply_to
        return self.subject._replace(subject_id=replaced) if replaced is not None else None


Prepared = PreparedClaim | PreparedResponse


_E = TypeVar("_E", bound="Prepared | PreparedReview")


def of_kind(entries: Iterable[object], *kinds: type[_T]) -> list[_T]:
    """Return the entries of these kinds, which are worked on together; `put_back` returns them to their places."""
    return [entry for entry in entries if isinstance(entry, kinds)]


def put_back(entries: Iterable[Any], made: Iterable[Any], *kinds: type) -> list[Any]:
    """Return the entries in their order, those of these kinds replaced by what was made of them."""
    remaining = iter(made)
    return [next(remaining) if isinstance(entry, kinds) else entry for entry in entries]


def portions(entries: Iterable[_E], rests_on: Callable[[_E], Subject | None]) -> Iterator[list[_E]]:
    """Cut a batch before each entry that rests on what an earlier one of the same portion leaves."""
    portion: list[_E] = []
    subjects: set[Subject] = set()
    for entry in entries:
        if rests_on(entry) in subjects:
            yield portion
            portion, subjects = [], set()
        portion.append(entry)
        subjects.add(entry.subject)
    if portion:
        yield portion


def queue_limits(policy: Policy) -> QueueLimits:
    limits = policy.limits
    return QueueLimits(
        limits.review_per_user,
        limits.review_per_tenant,
        limits.review_total,
        limits.pending_bytes_per_tenant,
        limits.review_reserved,
        frozenset(limits.tenants),
    )


LARGE: Final = 4_000
"""Bytes of a record from which on its checks run in a thread."""


async def run_in_thread(entry: Prepared, work: Callable[[], _T]) -> _T:
    """Do the work of a large record in a thread, which leaves the event loop its turns."""
    if len(entry.record.value or b"") < LARGE:
        return work()
    return await asyncio.to_thread(work)


@dataclass(frozen=True, slots=True)
class PreparedReview:
    record: InboundRecord
    review: ReviewDecision
    refused: str  # why it cannot be carried out, whatever state holds; empty where it can
    key_id: str | None  # that vouches for it

    @property
    def subject(self) -> Subject:
        return self.review.subject

    @property
    def action(self) -> ReviewAction:
        return ReviewAction(self.review.action)

    def request(self, refused: str = "", **more: Any) -> ReviewRequest:  # noqa: ANN401 - as of ReviewRequest
        """Return what state is asked; `refused`: why the action changes nothing, `more`: what it would come to."""
        review = self.review
        content = [] if review.content is None else [review.content]
        own = review.action, str(review.expected_revision), review.reviewer, review.reason or ""
        return ReviewRequest(
            subject=self.subject,
            action_id=review.action_id,
            action=self.action,
            expected_revision=review.expected_revision,
            origin=record_origin(self.record),
            decisive=digest(*own, *content),
            refused=refused,
            **more,
        )

    def fact(self, *, edited: bool) -> dict[str, Any]:
        review = self.review
        return {
            "action": str(review.action),
            "action_id": review.action_id,
            "reviewer": review.reviewer,
            "reason": review.reason,
            "key_id": self.key_id,
            "edited": edited,
        }


class DecisionQuery(NamedTuple):
    """A published decision that is looked for."""

    verdict: Verdict  # names its topic
    decision_id: str
    since: datetime | None  # it was published about then or later; None: nobody knows when


class Find(Protocol):
    """Finds published decisions."""

    async def __call__(self, wanted: Sequence[DecisionQuery]) -> dict[str, Decision]:
        """Return by id those on their topics; raises StateUnavailable where a topic cannot be read now."""
        ...


@immutable
class Decided:
    record: InboundRecord
    decision: Decision
    fresh: bool  # whether this record brought it about
    # of a response, what the gate's own revision asks its generator for, and when it was decided
    request: RegenerateRequest | None = None
    requested_at: datetime | None = None
    events: Sequence[Event] = ()  # what its checks have to report, where the decision is fresh


@dataclass(frozen=True, slots=True)
class Provisional:
    """State was out of reach: revision 0 is published, and the record goes to `deferred`."""

    record: InboundRecord
    decision: Decision


@dataclass(frozen=True, slots=True)
class Deferred:
    """The record goes to `deferred`, for the first time or again; nothing is decided yet.

    Attributes:
        key: of its user; None: it is the record's own.
    """

    record: InboundRecord
    key: bytes | None = None


@dataclass(frozen=True, slots=True)
class AlreadyDeferred:
    """Nothing to publish: another record of the same subject is on `deferred`, its decision will be this one's."""

    record: InboundRecord


@dataclass(frozen=True, slots=True)
class DeadLetter:
    record: InboundRecord
    error: RecordError


@dataclass(frozen=True, slots=True)
class Acted:
    """An action of a person, or of the gate itself, brought its subject's next revision.

    Attributes:
        decision: of that revision; of a later one where state holds that no longer.
        fresh: whether this record brought it about.
        revision: that the action brought about.
        at: milliseconds since 1970: the time of the record that was carried out, of which this may be a repeat.
        retraction: what is to be published beside the decision, where an approval was withdrawn.
    """

    record: InboundRecord
    review: ReviewDecision
    decision: Decision
    fresh: bool
    revision: int
    at: int
    retraction: Retraction | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """An action that changes nothing.

    Attributes:
        code: why, as in `groundwire.state.model.RefusedAction`, or `unattested`, `unauthorized`, `reserved`,
            `invalid_reason`, `personal_speculation`, `not_published`.
        current: the subject's state, where that is known.
        at: as of Acted; 0: that of the record, and another outcome may yet stand for the action's id.
    """

    record: InboundRecord
    review: ReviewDecision
    code: str
    current: SubjectStatus | None = None
    at: int = 0


@dataclass(frozen=True, slots=True)
class Commented:
    """A comment or a pass, which changes nothing; its text stays on `review-decisions` alone.

    Attributes:
        current, at: as of Refused.
    """

    record: InboundRecord
    review: ReviewDecision
    current: SubjectStatus
    at: int


Result = Decided | Provisional | Deferred | AlreadyDeferred | DeadLetter | Acted | Refused | Commented
"""What becomes of a record: every one ends as exactly one of these."""

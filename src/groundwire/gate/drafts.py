"""What an action on a claim or a response would come to, and the decision that it brought."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple, Protocol

from groundwire.checks.hedges import HedgeAction
from groundwire.decide.claims import ClaimCase
from groundwire.decide.people import reviewed
from groundwire.decide.reading import UNREAD, Reading, read
from groundwire.gate.claims import Policies, policy_that_decided
from groundwire.gate.dedup import dedup_query, dedup_scheme
from groundwire.gate.faults import report_fault
from groundwire.gate.prepared import parents_of, record_origin
from groundwire.gate.recorded import Payload, claim_of, derive, record_of
from groundwire.gate.recorded_responses import ResponsePayload, next_decision
from groundwire.messages.base import from_milliseconds, to_milliseconds
from groundwire.messages.claims import Claim
from groundwire.messages.decisions import Decision, Facts, Kind, Verdict
from groundwire.messages.decode import decode_claim
from groundwire.messages.identity import Subject, decision_id, digest
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.reviews import ReviewDecision
from groundwire.policy import Policy
from groundwire.state.model import DedupQuery, HeldEntry, Outcome, RecordOrigin, ReviewAction, SubjectState
from groundwire.version import __version__


class Wanted(NamedTuple):
    """A published decision that is looked for.

    `verdict` names its topic; it was published at about `since` or later, None: nobody knows when.
    """

    verdict: Verdict
    decision_id: str
    since: datetime | None


class Find(Protocol):
    """Finds published decisions."""

    async def __call__(self, wanted: Sequence[Wanted]) -> dict[str, Decision]:
        """Return by id those that stand on their topics.

        Raises:
            StateUnavailable: a topic cannot be read now.
        """
        ...


@dataclass(frozen=True, slots=True)
class PreparedReview:
    """A ReviewDecision that was read.

    Attributes:
        refused: why it cannot be, whatever state holds; empty where it can.
        key_id: the key that vouches for it.
    """

    record: InboundRecord
    review: ReviewDecision
    refused: str
    key_id: str | None

    @property
    def subject(self) -> Subject:
        """What is decided."""
        review = self.review
        return Subject(review.tenant_id, review.user_id, Kind(review.kind), review.subject_id)

    @property
    def action(self) -> ReviewAction:
        """What is done to it."""
        return ReviewAction(self.review.action)

    @property
    def origin(self) -> RecordOrigin:
        """Where the record stood."""
        return record_origin(self.record)

    @property
    def clock(self) -> datetime:
        """The time of the action."""
        return from_milliseconds(self.record.timestamp)

    @property
    def decisive(self) -> bytes:
        """16 bytes that tell another action under the same id."""
        review = self.review
        said = (review.action, str(review.expected_revision), review.reviewer, review.reason or "")
        return digest(*said, *([] if review.content is None else [review.content]))

    def fact(self, *, edited: bool) -> dict[str, Any]:
        """Return the entry for `facts.review`."""
        review = self.review
        return {
            "action": str(review.action),
            "action_id": review.action_id,
            "reviewer": review.reviewer,
            "reason": review.reason,
            "key_id": self.key_id,
            "edited": edited,
        }


@dataclass(frozen=True, slots=True)
class Draft:
    """What state is asked beside the action itself; see `groundwire.state.model.ReviewAsk`.

    `before` is the published decision that a response's next one is made from.
    """

    refused: str = ""
    only_recorded: bool = False
    forget: bool = False
    expired: bool = False
    dedup: DedupQuery | None = None
    dedup_failed: bool = False
    parents: Sequence[tuple[str, Subject]] = ()
    horizon: int = 0
    payload: bytes = b""
    before: Decision | None = None


class ClaimDrafts:
    """Actions on claims; see `groundwire.gate.reviews.ReviewGate` for the arguments."""

    def __init__(self, policy: Policy, policies: Policies, *, now: Callable[[], datetime]) -> None:
        self._policy = policy
        self._policies = policies
        self._now = now
        self._scheme = dedup_scheme(policy)

    def hopeless(self, held: HeldEntry, refused: str, *, only_recorded: bool) -> Draft:
        """Return the draft of an action that cannot be, unless it is one that was carried out before."""
        record = Payload.from_bytes(held.payload).record
        parents = parents_of(decode_claim(record.encode())) if record else ()
        return Draft(refused, only_recorded=only_recorded, parents=parents)

    def wanted(self, entry: PreparedReview, held: HeldEntry) -> Wanted | None:
        """Return the published decision that an action rests on: state keeps no text of what the gate approved."""
        payload = Payload.from_bytes(held.payload)
        if held.record or payload.record:
            return None
        return Wanted(Verdict.APPROVED, decision_id(entry.subject, held.revision), payload.decided_at)

    async def draft(self, entry: PreparedReview, held: HeldEntry, published: Decision | None) -> Draft:
        """Work out what an action on a claim would come to; `published` is what was wanted."""
        before = Payload.from_bytes(held.payload)
        record = held.record or (before.record or "").encode()
        if record:
            claim = decode_claim(record)
        elif published is not None:
            claim = claim_of(published)
        else:
            return NOT_PUBLISHED
        edits = entry.action is ReviewAction.EDIT
        content = entry.review.content if edits else before.content
        payload = replace(
            before,
            decided_at=self._now(),
            engine=__version__,
            policy_sha256=self._policy.sha256,
            policy_version=self._policy.version,
            scheme=self._scheme,
            relevance=None if edits else before.relevance,  # it names places in the text
            error=None if edits else before.error,
            review=entry.fact(edited=content is not None),
            content=content,
            record=record_of(claim).decode(),
        )
        claim = payload.as_decided(claim)
        reading, dedup, failed = self._read(claim)
        case = ClaimCase(claim, reading, self._policy, _early_facts(entry, payload), payload.findings)
        horizon = claim.validity_horizon
        return Draft(
            refused=_refused_edit(case, unread=failed) if edits else "",
            expired=case.expired,
            dedup=None if entry.action in _WITHOUT_TEXT else dedup,
            dedup_failed=failed,
            parents=parents_of(claim),
            horizon=to_milliseconds(horizon) if horizon else 0,
            payload=payload.to_bytes(),
        )

    async def decision(self, subject: Subject, outcome: Outcome, before: Decision | None) -> Decision | None:  # noqa: ARG002 - as of responses
        """Derive the decision of a claim that a person decided."""
        payload = Payload.from_bytes(outcome.payload)
        policy = await policy_that_decided(payload.policy_sha256, self._policy, self._policies)
        claim = payload.as_decided(decode_claim((payload.record or "").encode()))
        reading, _, _ = self._read(claim, policy)
        return derive(claim, reading, policy, self._policy, outcome, payload)

    def _read(self, claim: Claim, policy: Policy | None = None) -> tuple[Reading, DedupQuery | None, bool]:
        try:
            return read(claim.content, policy or self._policy), dedup_query(claim, self._policy), False
        except Exception as exc:  # noqa: BLE001 - a person may decide what the gate could not read
            report_fault("review.unreadable", exc)
        return UNREAD, None, True


class ResponseDrafts:
    """Actions on responses: their decisions are made from the published ones, text stands on no output topic."""

    def __init__(self, find: Find, *, now: Callable[[], datetime]) -> None:
        self._find = find
        self._now = now

    def hopeless(self, held: HeldEntry, refused: str, *, only_recorded: bool) -> Draft:  # noqa: ARG002 - as of claims
        """Return the draft of an action that cannot be, unless it is one that was carried out before."""
        return Draft(refused, only_recorded=only_recorded)

    def wanted(self, entry: PreparedReview, held: HeldEntry) -> Wanted | None:
        """Return the published decision that an action rests on."""
        verdict = Verdict.APPROVED if held.state is SubjectState.APPROVED else Verdict.REVIEW
        since = ResponsePayload.from_bytes(held.payload).decided_at
        return Wanted(verdict, decision_id(entry.subject, held.revision), since)

    async def draft(self, entry: PreparedReview, held: HeldEntry, published: Decision | None) -> Draft:
        """Work out what an action on a response would come to; `published` is what was wanted."""
        if entry.action is ReviewAction.EDIT:
            return Draft(refused="not_editable")
        if published is None:
            return NOT_PUBLISHED
        payload = ResponsePayload.from_bytes(held.payload)
        payload = replace(
            payload,
            decided_at=self._now(),
            code=reviewed(entry.action, expired=False, duplicate=False).code,
            review=entry.fact(edited=False),
            superseded_at=payload.decided_at,
        )
        return Draft(payload=payload.to_bytes(), before=published)

    async def decision(self, subject: Subject, outcome: Outcome, before: Decision | None) -> Decision | None:
        """Make the decision of a response that a person decided, or find it where the action comes again.

        Returns:
            None where no topic holds it any more, nor the one that it superseded.

        Raises:
            StateUnavailable: a topic cannot be read now.
        """
        payload = ResponsePayload.from_bytes(outcome.payload)
        if before is None:
            own = Wanted(_VERDICTS[outcome.state], decision_id(subject, outcome.revision), payload.decided_at)
            retracted = (payload.review or {}).get("action") == ReviewAction.RETRACT
            verdict = Verdict.APPROVED if retracted else Verdict.REVIEW
            superseded = decision_id(subject, outcome.revision - 1)
            found = await self._find([own, Wanted(verdict, superseded, payload.superseded_at)])
            if own.decision_id in found:
                return found[own.decision_id]
            before = found.get(superseded)
        return next_decision(before, outcome, payload) if before else None


NOT_PUBLISHED = Draft(refused="not_published", forget=True)
"""The decision that an action rests on is on no topic, yet: it may be when the action comes again."""

_VERDICTS = {SubjectState.APPROVED: Verdict.APPROVED, SubjectState.BLOCKED: Verdict.BLOCKED}
_WITHOUT_TEXT = {ReviewAction.EXPIRE, ReviewAction.RETRACT}


def _refused_edit(case: ClaimCase, *, unread: bool) -> str:
    """Say why an edited text cannot be approved: it speculates, or could not be read; empty where it can."""
    if unread:
        return "unreadable"
    return "personal_speculation" if case.hedge == HedgeAction.BLOCK else ""


def _early_facts(entry: PreparedReview, payload: Payload) -> Facts:
    return Facts(
        clock=entry.clock, attestation=payload.attestation, relevance=payload.relevance, error=payload.error
    )

"""What an action on a claim or a response would come to, and the decision that it brought."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from groundwire.checks.hedges import HedgeAction
from groundwire.decide.claims import ClaimCase
from groundwire.decide.people import reviewed
from groundwire.decide.reading import UNREAD, Reading, read
from groundwire.errors import StateUnavailable
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
from groundwire.messages.identity import Subject, decision_id
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.reviews import ReviewDecision
from groundwire.policy import Policy
from groundwire.state.model import DedupQuery, HeldEntry, Outcome, RecordOrigin, ReviewAction, SubjectState
from groundwire.version import __version__


class Find(Protocol):
    """Finds a published decision."""

    async def __call__(self, verdict: Verdict, decision_id: str, since: datetime | None) -> Decision | None:
        """Return the decision with this id from a verdict's topic; None where it is not on it.

        Args:
            verdict: names the topic.
            decision_id: of the decision.
            since: it was published at this time or later; None: at any time.

        Raises:
            StateUnavailable: the topic cannot be read now.
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
    expired: bool = False
    dedup: DedupQuery | None = None
    dedup_failed: bool = False
    parents: Sequence[tuple[str, Subject]] = ()
    horizon: int = 0
    payload: bytes = b""
    before: Decision | None = None


class ClaimDrafts:
    """Actions on claims; see `groundwire.gate.reviews.ReviewGate` for the arguments."""

    def __init__(
        self, policy: Policy, policies: Policies, find: Find, *, now: Callable[[], datetime]
    ) -> None:
        self._policy = policy
        self._policies = policies
        self._find = find
        self._now = now
        self._scheme = dedup_scheme(policy)

    def hopeless(self, held: HeldEntry, refused: str) -> Draft:
        """Return the draft of an action that cannot be, unless it is one that was carried out before."""
        record = Payload.from_bytes(held.payload).record
        return Draft(refused, parents=parents_of(decode_claim(record.encode())) if record else ())

    async def draft(self, entry: PreparedReview, held: HeldEntry) -> Draft:
        """Work out what an action on a claim would come to."""
        before = Payload.from_bytes(held.payload)
        claim = await self._claim(entry.subject, held, before)
        if claim is None:
            return Draft(refused="not_published")
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

    async def decision(self, subject: Subject, outcome: Outcome, draft: Draft) -> Decision:  # noqa: ARG002 - as of responses
        """Derive the decision of a claim that a person decided."""
        payload = Payload.from_bytes(outcome.payload)
        policy = await policy_that_decided(payload.policy_sha256, self._policy, self._policies)
        claim = payload.as_decided(decode_claim((payload.record or "").encode()))
        return derive(claim, read(claim.content, policy or self._policy), policy, self._policy, outcome)

    async def _claim(self, subject: Subject, held: HeldEntry, payload: Payload) -> Claim | None:
        """Return the claim as it was sent: state holds it while pending and once a person decided."""
        record = held.record or (payload.record or "").encode()
        if record:
            return decode_claim(record)
        published = await self._find(
            Verdict.APPROVED, decision_id(subject, held.revision), payload.decided_at
        )
        return claim_of(published) if published else None

    def _read(self, claim: Claim) -> tuple[Reading, DedupQuery | None, bool]:
        try:
            return read(claim.content, self._policy), dedup_query(claim, self._policy), False
        except Exception as exc:  # noqa: BLE001 - a person may decide what the gate could not read
            report_fault("review.unreadable", exc)
        return UNREAD, None, True


class ResponseDrafts:
    """Actions on responses: their decisions are made from the published ones, text stands on no output topic."""

    def __init__(self, find: Find, *, now: Callable[[], datetime]) -> None:
        self._find = find
        self._now = now

    def hopeless(self, held: HeldEntry, refused: str) -> Draft:  # noqa: ARG002 - as of claims
        """Return the draft of an action that cannot be, unless it is one that was carried out before."""
        return Draft(refused)

    async def draft(self, entry: PreparedReview, held: HeldEntry) -> Draft:
        """Work out what an action on a response would come to."""
        if entry.action is ReviewAction.EDIT:
            return Draft(refused="not_editable")
        payload = ResponsePayload.from_bytes(held.payload)
        verdict = Verdict.APPROVED if held.state is SubjectState.APPROVED else Verdict.REVIEW
        before = await self._find(verdict, decision_id(entry.subject, held.revision), payload.decided_at)
        if before is None:
            return Draft(refused="not_published")
        payload = replace(
            payload,
            decided_at=self._now(),
            code=reviewed(entry.action, expired=False, duplicate=False).code,
            review=entry.fact(edited=False),
            superseded_at=payload.decided_at,
        )
        return Draft(payload=payload.to_bytes(), before=before)

    async def decision(self, subject: Subject, outcome: Outcome, draft: Draft) -> Decision:
        """Make the decision of a response that a person decided. Raises: StateUnavailable."""
        payload = ResponsePayload.from_bytes(outcome.payload)
        before = draft.before
        if before is None:  # the action comes again: what it superseded is on its topic
            retracted = (payload.review or {}).get("action") == ReviewAction.RETRACT
            verdict = Verdict.APPROVED if retracted else Verdict.REVIEW
            superseded = decision_id(subject, outcome.revision - 1)
            before = await self._find(verdict, superseded, payload.superseded_at)
        if before is None:
            raise StateUnavailable(f"the decision before revision {outcome.revision} is on no topic any more")
        return next_decision(before, outcome, payload)


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

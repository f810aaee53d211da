"""People's decisions at the gate: who may decide, put to state, and the next revisions derived."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final

from groundwire.attestation import Keys
from groundwire.decide.people import is_code
from groundwire.errors import RecordError, StateError
from groundwire.gate.claims import Policies
from groundwire.gate.drafts import ClaimDrafts, Draft, Find, PreparedReview, ResponseDrafts
from groundwire.gate.finder import Finder
from groundwire.gate.results import Acted, DeadLetter, Refused, Result
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.decode import decode_review_decision
from groundwire.messages.headers import ATTESTATION, header
from groundwire.messages.identity import Subject, decision_id, expire_id
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.reviews import Retraction, ReviewDecision
from groundwire.policy import Policy
from groundwire.state.model import (
    HeldEntry,
    RefusedAction,
    ReviewAction,
    ReviewAnswer,
    ReviewAsk,
    Reviewed,
    State,
    SubjectState,
)

GATE: Final = "groundwire"
"""The reviewer of what expires."""

Entry = PreparedReview | DeadLetter


class ReviewGate:
    """Carries out what people decide; to a pipeline it is what `groundwire.gate.gate.Gate` is for claims.

    Args:
        policy: by which what people approve is compared, and edited texts are read.
        policies: earlier policies, for actions that come again after a change.
        state: the life cycle.
        keys: who signs for reviewers, and who is delegated.
        find: finds published decisions, of which state keeps no text.
        own_key: id of the key with which the gate itself signs what expires; None: nothing may.
        now: the wall clock, for `decided_at`.
    """

    def __init__(
        self,
        policy: Policy,
        policies: Policies,
        state: State,
        *,
        keys: Keys,
        find: Find,
        own_key: str | None,
        now: Callable[[], datetime],
    ) -> None:
        self._state = state
        self._keys = keys
        self._own_key = own_key
        self._find = Finder(find)
        self._now = now
        self._claims = ClaimDrafts(policy, policies, now=now)
        self._responses = ResponseDrafts(self._find, now=now)

    async def prepare(self, records: Sequence[InboundRecord], *, ask_network: bool = False) -> list[Entry]:  # noqa: ARG002 - as the Gate
        """Decode a batch and look at who signed it; state is not asked yet."""
        self._find.begin()
        return [self._read(record) for record in records]

    async def settle(self, batch: Sequence[Entry], *, deferred: bool = False) -> list[Result]:  # noqa: ARG002 - as the Gate
        """Carry out a prepared batch; may be repeated, with the same outcome.

        Raises:
            StateUnavailable: state is out of reach; nothing is known of the batch.
            StateLost: state has to be rebuilt first.
        """
        results: dict[int, Result] = {}
        possible: list[tuple[int, PreparedReview]] = []
        for number, entry in enumerate(batch):
            if isinstance(entry, DeadLetter):
                results[number] = entry
            else:
                possible.append((number, entry))
        try:
            for portion in _portions(possible):
                results.update(await self._carry_out(portion))
        except StateError:
            self._find.begin()  # until state answers again, what was not there may have been published
            raise
        return [results[number] for number in range(len(batch))]

    def provisional(self, batch: Sequence[Entry]) -> list[Result]:
        """Never: what people decide waits for state.

        Raises:
            NotImplementedError: always; the reviews agent has no grace.
        """
        raise NotImplementedError

    async def abandon(self, record: InboundRecord, give_up: Callable[[Subject], Awaitable[bool]]) -> bool:  # noqa: ARG002 - nothing waits for a review
        """Say whether a record that brings workers down may become a dead letter: not where it was carried out.

        Raises:
            RecordError: it is no ReviewDecision.
        """
        entry = self._read(record)
        if isinstance(entry, DeadLetter):
            raise entry.error
        (held,) = await self._state.held([entry.subject])
        if held is None:
            return True
        draft = self._desk(entry).hopeless(held, "worker_crash", only_recorded=True)
        (answer,) = await self._state.review([_ask(entry, draft)])
        return isinstance(answer, RefusedAction)

    def _read(self, record: InboundRecord) -> Entry:
        try:
            review = decode_review_decision(record.value)
        except RecordError as error:
            return DeadLetter(record, error)
        expires = ReviewAction(review.action) is ReviewAction.EXPIRE
        attestation = self._keys.check(
            header(record.headers, ATTESTATION),
            record.value or b"",
            tenant=None if expires else review.tenant_id,  # the gate's own key is of no tenant
            at=max(record.origin.timestamp, self._now()),  # who sends a record may choose its time
            role="reviewer",
        )
        key_id = attestation.key_id if attestation and attestation.valid else None
        return PreparedReview(record, review, self._refused(review, key_id), key_id)

    def _refused(self, review: ReviewDecision, key_id: str | None) -> str:
        if key_id is None:
            return "unattested"
        if review.reason is not None and not is_code(review.reason):
            return "invalid_reason"
        expires = ReviewAction(review.action) is ReviewAction.EXPIRE
        if expires or review.reviewer == GATE:
            own = expires and review.reviewer == GATE and key_id == self._own_key
            return "" if own and review.action_id == expiry_of(review) else "reserved"
        owner = review.reviewer == review.user_id
        return "" if owner or self._keys.delegated(review.tenant_id, review.reviewer) else "unauthorized"

    async def _carry_out(self, portion: Sequence[tuple[int, PreparedReview]]) -> dict[int, Result]:
        entries = [entry for _, entry in portion]
        held = await self._state.held([entry.subject for entry in entries])
        both = list(zip(entries, held, strict=True))
        wanted = [self._desk(e).wanted(e, each) for e, each in both if each and not _hopeless(e, each)]
        found = await self._find([one for one in wanted if one])
        drafts = [await self._draft(entry, each, found) for entry, each in both]
        asks = [_ask(entry, draft) for entry, draft in zip(entries, drafts, strict=True)]
        answers = await self._state.review(asks)
        return {
            number: await self._result(entry, draft, answer)
            for (number, entry), draft, answer in zip(portion, drafts, answers, strict=True)
        }

    async def _draft(
        self, entry: PreparedReview, held: HeldEntry | None, found: Mapping[str, Decision]
    ) -> Draft:
        """Work out what the action would come to; what state says in the end stands."""
        hopeless = _hopeless(entry, held)
        if held is None:
            return Draft(hopeless, only_recorded=bool(entry.refused))
        desk = self._desk(entry)
        if hopeless:
            return desk.hopeless(held, hopeless, only_recorded=bool(entry.refused))
        return await desk.draft(entry, held, found.get(decision_id(entry.subject, held.revision)))

    async def _result(self, entry: PreparedReview, draft: Draft, answer: ReviewAnswer) -> Result:
        if isinstance(answer, RefusedAction):
            waits = answer.current is not None and answer.current.state is SubjectState.WAITING
            code = "waiting" if waits and answer.code == "unknown" else answer.code
            return Refused(entry.record, entry.review, code, answer.current, answer.at)
        decision = await self._desk(entry).decision(entry.subject, answer.outcome, draft.before)
        if decision is None:
            return Refused(entry.record, entry.review, "not_published", None, answer.at)
        self._find.remember(decision)
        retraction = _retraction(entry, answer, decision)
        return Acted(
            entry.record, entry.review, decision, answer.fresh, answer.revision, answer.at, retraction
        )

    def _desk(self, entry: PreparedReview) -> ClaimDrafts | ResponseDrafts:
        return self._claims if entry.subject.kind is Kind.CLAIM else self._responses


def expiry_of(review: ReviewDecision) -> str:
    """Return the action id that expires the revision which a review expects."""
    subject = Subject(review.tenant_id, review.user_id, Kind(review.kind), review.subject_id)
    return expire_id(decision_id(subject, review.expected_revision))


def _hopeless(entry: PreparedReview, held: HeldEntry | None) -> str:
    """Say why an action cannot be, unless it was carried out before; empty where it can."""
    if entry.refused:
        return entry.refused
    if held is None:
        return "unknown"
    if held.revision != entry.review.expected_revision:
        return "stale"
    if entry.action is ReviewAction.RETRACT:
        return "" if held.state is SubjectState.APPROVED else "not_approved"
    return "" if held.state is SubjectState.PENDING else "not_pending"


def _portions(
    entries: Sequence[tuple[int, PreparedReview]],
) -> Iterator[Sequence[tuple[int, PreparedReview]]]:
    """Cut a batch before each action on a subject of the same portion: it rests on what the other one leaves."""
    portion: list[tuple[int, PreparedReview]] = []
    subjects: set[Subject] = set()
    for number, entry in entries:
        if entry.subject in subjects:
            yield portion
            portion, subjects = [], set()
        portion.append((number, entry))
        subjects.add(entry.subject)
    if portion:
        yield portion


def _ask(entry: PreparedReview, draft: Draft) -> ReviewAsk:
    return ReviewAsk(
        subject=entry.subject,
        action_id=entry.review.action_id,
        action=entry.action,
        expected_revision=entry.review.expected_revision,
        origin=entry.origin,
        refused=draft.refused,
        expired=draft.expired,
        dedup=draft.dedup,
        dedup_failed=draft.dedup_failed,
        parents=draft.parents,
        horizon=draft.horizon,
        payload=draft.payload,
        decisive=entry.decisive,
        only_recorded=draft.only_recorded,
        forget=draft.forget,
    )


def _retraction(entry: PreparedReview, answer: Reviewed, decision: Decision) -> Retraction | None:
    """Return the Retraction that goes with a decision; none where the action was another, or is superseded."""
    review = entry.review
    if entry.action is not ReviewAction.RETRACT or answer.revision != decision.revision:
        return None
    more = answer.affected_total - len(answer.affected)
    return Retraction(
        decision_id=decision.decision_id,
        supersedes=decision_id(entry.subject, decision.revision - 1),
        kind=review.kind,
        subject_id=review.subject_id,
        tenant_id=review.tenant_id,
        user_id=review.user_id,
        reason=review.reason,
        actor=review.reviewer,
        at=decision.decided_at,
        affected=list(answer.affected),
        truncated={"affected": more} if more else None,
    )

"""What people decide, at the gate: who may, put to state, and the next revisions derived."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Final

from cachetools import FIFOCache

from groundwire.errors import RecordError, StateError
from groundwire.gate.claims import ClaimReviews
from groundwire.gate.kinds import GateRules, Policies
from groundwire.gate.responses import ResponseReviews
from groundwire.gate.tree import is_code
from groundwire.gate.types import (
    Acted,
    Commented,
    DeadLetter,
    DecisionQuery,
    Find,
    PreparedReview,
    Refused,
    Result,
    of_kind,
    portions,
    put_back,
    queue_limits,
)
from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import Decision, Kind
from groundwire.messages.decode import decode_review_decision
from groundwire.messages.headers import ATTESTATION, InboundRecord, header
from groundwire.messages.identity import Subject, decision_id, expire_id
from groundwire.messages.records import Retraction, ReviewDecision
from groundwire.policy import Policy
from groundwire.state.lifecycle import wrong_state
from groundwire.state.model import (
    NOTING,
    HeldEntry,
    Noted,
    RefusedAction,
    ReviewAction,
    ReviewAnswer,
    Reviewed,
    ReviewRequest,
    State,
    SubjectState,
)

_REMEMBERED: Final = 500


class Finder:
    """Looks published decisions up, and remembers the latest.

    A search in vain may read a topic from its beginning, and answers of state that are older than it may not be
    published: it is made once for a batch, or the batch would be repeated for ever. What was derived a moment ago
    counts as published: nothing that rests on it is published before it is.
    """

    def __init__(self, find: Find) -> None:
        self._find = find
        self._known: FIFOCache[str, Decision] = FIFOCache(_REMEMBERED)
        self._missed: set[str] = set()

    def begin(self) -> None:
        """Search again for what was not there: another batch begins, or time has passed since."""
        self._missed.clear()

    async def __call__(self, wanted: Sequence[DecisionQuery]) -> dict[str, Decision]:
        missing = [one for one in wanted if one.decision_id not in self._known.keys() | self._missed]
        if missing:
            found = await self._find(missing)
            for decision in found.values():
                self.remember(decision)
            self._missed |= {one.decision_id for one in missing} - found.keys()
        return {
            one.decision_id: self._known[one.decision_id] for one in wanted if one.decision_id in self._known
        }

    def remember(self, decision: Decision) -> None:
        self._missed.discard(decision.decision_id)
        self._known[decision.decision_id] = decision


GATE: Final = "groundwire"
"""The reviewer of what expires."""

ReviewEntry = PreparedReview | DeadLetter


class ReviewGate:
    """Carries out what people decide; to a pipeline it is what `groundwire.gate.gate.Gate` is for claims.

    Args:
        policy: by which what people approve is compared, and edited texts are read.
        keys: who signs for reviewers, and who is delegated.
        find: finds published decisions, of which state keeps no text.
        own_key: id of the key with which the gate itself signs what expires; None: nothing may.
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
        self._limits = queue_limits(policy)
        self._keys = keys
        self._own_key = own_key
        self._find = Finder(find)
        self._now = now
        self._claims = ClaimReviews(GateRules(policy, policies, keys, now))
        self._responses = ResponseReviews(self._find, now=now)

    async def prepare(self, records: Sequence[InboundRecord]) -> list[ReviewEntry]:
        self._find.begin()
        return [self._prepare(record) for record in records]

    async def apply_step(self, batch: Sequence[ReviewEntry], *, deferred: bool = False) -> list[Result]:  # noqa: ARG002 - as the Gate
        results: list[Result] = []
        try:
            for portion in portions(of_kind(batch, PreparedReview), lambda entry: entry.subject):
                results += await self._carry_out(portion)
        except StateError:
            self._find.begin()  # until state answers again, what was not there may have been published
            raise
        return put_back(batch, results, PreparedReview)

    def provisional(self, batch: Sequence[ReviewEntry]) -> list[Result]:
        """Never: what people decide waits for state, and the reviews agent has no grace."""
        raise NotImplementedError

    async def abandon(self, record: InboundRecord, give_up: Callable[[Subject], Awaitable[bool]]) -> bool:  # noqa: ARG002 - nothing waits for a review
        """Say whether a record that crashes workers may become a dead letter: not where it was carried out."""
        entry = self._prepare(record)
        if isinstance(entry, DeadLetter):
            raise entry.error
        (held,) = await self._state.held([entry.subject])
        if held is None:
            return True
        parents = self._of_kind(entry).parents(held)
        request = entry.request("worker_crash", only_recorded=True, parents=parents)
        (answer,) = await self._state.review([request], self._limits)
        return isinstance(answer, RefusedAction)

    def _prepare(self, record: InboundRecord) -> ReviewEntry:
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
            expiry = expire_id(decision_id(review.subject, review.expected_revision))
            return "" if own and review.action_id == expiry else "reserved"
        if review.action == "overrule" and self._keys.produces(key_id):
            # nobody puts back what they sent themselves
            return "producer_key"
        owner = review.reviewer == review.user_id
        return "" if owner or self._keys.delegated(review.tenant_id, review.reviewer) else "unauthorized"

    async def _carry_out(self, portion: Sequence[PreparedReview]) -> list[Result]:
        held = await self._state.held([entry.subject for entry in portion])
        entries = list(zip(portion, held, strict=True))
        queries = [
            self._of_kind(entry).query(entry, found)
            for entry, found in entries
            if found and entry.action not in NOTING and not _already_refused(entry, found)
        ]
        published = await self._find([query for query in queries if query])
        before = [
            published.get(decision_id(entry.subject, found.revision)) if found else None
            for entry, found in entries
        ]
        requests = [self._request(*one, rests_on) for one, rests_on in zip(entries, before, strict=True)]
        answers = await self._state.review(requests, self._limits)
        return [await self._result(*one) for one in zip(portion, before, answers, strict=True)]

    def _request(
        self, entry: PreparedReview, held: HeldEntry | None, before: Decision | None
    ) -> ReviewRequest:
        refused = _already_refused(entry, held)
        if held is None or refused:
            parents = self._of_kind(entry).parents(held) if held else ()
            return entry.request(refused, only_recorded=bool(entry.refused), parents=parents)
        if entry.action in NOTING:
            return entry.request()
        return self._of_kind(entry).request(entry, held, before)

    async def _result(self, entry: PreparedReview, before: Decision | None, answer: ReviewAnswer) -> Result:
        if isinstance(answer, Noted):
            return Commented(entry.record, entry.review, answer.current, answer.at)
        if isinstance(answer, RefusedAction):
            waits = answer.current is not None and answer.current.state is SubjectState.WAITING
            code = "waiting" if waits and answer.code == "unknown" else answer.code
            return Refused(entry.record, entry.review, code, answer.current, answer.at)
        decision = await self._of_kind(entry).next_decision(entry.subject, answer.outcome, before)
        if decision is None:
            return Refused(entry.record, entry.review, "not_published", None, answer.at)
        self._find.remember(decision)
        retraction = None
        if entry.action is ReviewAction.RETRACT and answer.revision == decision.revision:
            retraction = _retraction(entry, answer, decision)
        return Acted(
            entry.record, entry.review, decision, answer.fresh, answer.revision, answer.at, retraction
        )

    def _of_kind(self, entry: PreparedReview) -> ClaimReviews | ResponseReviews:
        return self._claims if entry.subject.kind is Kind.CLAIM else self._responses


def _already_refused(entry: PreparedReview, held: HeldEntry | None) -> str:
    if entry.refused:
        return entry.refused
    if held is None:
        return "unknown"
    if held.revision != entry.review.expected_revision:
        return "stale"
    return wrong_state(entry.action, held.state)


def _retraction(entry: PreparedReview, answer: Reviewed, decision: Decision) -> Retraction:
    review = entry.review
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

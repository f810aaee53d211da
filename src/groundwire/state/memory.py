"""State in memory: the life cycle of Redis, for one process.

Used by `groundwire check` and `--simulate`, and the model that the scripts are tested against. Nothing expires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from groundwire.messages.decisions import MatchClass, ParentFact, Place
from groundwire.messages.identity import Subject
from groundwire.state.matching import EntryStore, Match, MatchKind, StoredEntry, history, user_of
from groundwire.state.model import (
    MAX_AFFECTED,
    MAX_CANDIDATES,
    Conflict,
    HeldEntry,
    Outcome,
    QueueLimits,
    RecordOrigin,
    RefusedAction,
    ReviewAction,
    ReviewAnswer,
    Reviewed,
    ReviewRequest,
    StepAnswer,
    StepRequest,
    StoredOutcome,
    SubjectState,
    SubjectStatus,
    Waiting,
)

_Key = tuple[str, str, Subject | None]

_APPROVING = {ReviewAction.APPROVE, ReviewAction.EDIT}
_REJECTING = {ReviewAction.REJECT, ReviewAction.RETRACT}


class MemoryState:
    def __init__(self, *, max_candidates: int = MAX_CANDIDATES) -> None:
        self._store = EntryStore(max_candidates)
        self._reviews = _Reviews(self._store)
        self._entries = self._store.entries
        self._superseded: dict[tuple[Subject, RecordOrigin], StoredEntry] = {}

    async def step(
        self, requests: Sequence[StepRequest], limits: QueueLimits, *, deferred: bool = False
    ) -> list[StepAnswer]:
        return [self._answer(request, limits, deferred=deferred) for request in requests]

    async def reassert(self, outcomes: Sequence[StoredOutcome]) -> int:
        taken = 0
        for stored in outcomes:
            outcome, before = stored.outcome, self._entries.get(stored.subject)
            if before and before.revision >= outcome.revision:
                continue
            entry = StoredEntry.of(outcome, outcome.origin.timestamp, joined_to=stored.joined_to)
            self._replace(stored, before, entry, (outcome.origin.timestamp, stored.horizon))
            taken += 1
        return taken

    async def payloads(self, subjects: Sequence[Subject]) -> list[bytes | None]:
        entries = [self._entries.get(subject) for subject in subjects]
        return [entry.outcome.payload if entry and entry.outcome else None for entry in entries]

    async def review(self, requests: Sequence[ReviewRequest]) -> list[ReviewAnswer]:
        return [self._reviews.answer(request) for request in requests]

    async def held(self, subjects: Sequence[Subject]) -> list[HeldEntry | None]:
        found = [entry and entry.outcome for entry in map(self._entries.get, subjects)]
        return [
            HeldEntry(one.state, one.revision, one.fingerprint, one.payload, one.record) if one else None
            for one in found
        ]

    async def statuses(self, subjects: Sequence[Subject]) -> list[SubjectStatus | None]:
        entries = [self._entries.get(subject) for subject in subjects]
        return [SubjectStatus(entry.state, entry.revision) if entry else None for entry in entries]

    async def waiting_count(self) -> int:
        return sum(map(len, self._store.waiting.values()))

    async def queue_depth(self) -> int:
        return self._store.places[""]

    async def close(self) -> None:
        pass

    def _answer(self, request: StepRequest, limits: QueueLimits, *, deferred: bool) -> StepAnswer:
        before = self._entries.get(request.subject)
        if before and before.fingerprint != request.fingerprint:
            return Conflict()
        recorded = self._recorded(request, before)
        if recorded is not None:
            return replace(recorded, fresh=False)
        if before and before.state is SubjectState.WAITING:
            if deferred:
                return self._decide(request, before, limits)
            self._note(request, before)
            return Waiting(publish=before.origin == request.origin)
        if deferred or not (
            request.wait or (request.ordered and self._store.waiting[user_of(request.subject)])
        ):
            return self._decide(request, before, limits)
        revision, first = history(before)
        at = request.origin.timestamp
        entry = StoredEntry(request.fingerprint, request.origin, at, SubjectState.WAITING, revision, first)
        self._supersede(request, before)
        self._store.put(request.subject, entry)
        return Waiting(publish=True)

    def _recorded(self, request: StepRequest, before: StoredEntry | None) -> Outcome | None:
        """Return the outcome of this record, even if superseded, else its subject's."""
        own = self._superseded.get((request.subject, request.origin))
        if own:
            return own.outcome
        if before is None or before.outcome is None:
            return None
        joined = before.state is SubjectState.JOINED
        if request.origin.timestamp > before.answered and (joined or before.state is SubjectState.REFUSED):
            leader = self._entries.get(before.joined_to) if before.joined_to else None
            if not leader or leader.state is not SubjectState.PENDING:
                return None  # it is decided again
        if joined:
            self._note(request, before)
        return before.outcome

    def _note(self, request: StepRequest, before: StoredEntry) -> None:
        """Record that a record was answered: it is not decided afresh when it comes again."""
        answered = max(before.answered, request.origin.timestamp)
        self._entries[request.subject] = replace(before, answered=answered)

    def _supersede(self, request: StepRequest, before: StoredEntry | None) -> None:
        """Keep the outcome of an earlier record, which may not be published yet."""
        if before and before.outcome:
            self._superseded[request.subject, before.origin] = before

    def _decide(self, request: StepRequest, before: StoredEntry | None, limits: QueueLimits) -> Outcome:
        status, matches, best = self._store.deduplicate(request)
        parents = [
            ParentFact(id=name, state=self._store.state_of(parent)) for name, parent in request.parents
        ]
        tier = request.base_tier
        if MatchKind.DUPLICATE in best:
            tier = 3
        elif tier == 1 and (
            request.capped
            or status == "failed"
            or MatchKind.CONFLICT in best
            or MatchKind.REJECTED in best
            or any(parent.state != "approved" for parent in parents)
        ):
            tier = 2
        state, place = self._state_and_place(request, tier, best, limits)
        revision, first = history(before)
        pending = state is SubjectState.PENDING
        outcome = Outcome(
            state=state,
            tier=tier,
            revision=revision + 1,
            fresh=True,
            origin=request.origin,
            first_origin=first,
            fingerprint=request.fingerprint,
            dedup_status=status,
            matches=[match.fact() for match in matches],
            parents=parents,
            place=place,
            payload=request.payload,
            record=request.record if pending else b"",
        )
        joined_to = best[MatchKind.PENDING].indexed.subject if state is SubjectState.JOINED else None
        answered = max(request.origin.timestamp, before.answered) if before else request.origin.timestamp
        entry = StoredEntry.of(outcome, answered, joined_to=joined_to)
        dedup = request.dedup if status == "ok" else None  # else it is not indexed either
        rests_on = [parent for _, parent in request.parents]
        stored = StoredOutcome(request.subject, outcome, dedup, request.horizon, parents=rests_on)
        self._supersede(request, before)
        self._replace(stored, before, entry, (request.origin.timestamp, request.horizon))
        return outcome

    def _replace(
        self, stored: StoredOutcome, before: StoredEntry | None, entry: StoredEntry, times: tuple[int, int]
    ) -> None:
        subject, match_class = stored.subject, stored.match_class
        self._store.leave_index(before)
        if stored.dedup and match_class:
            entry = replace(entry, indexed=self._store.index(stored.dedup, subject, match_class, times))
        self._store.put(subject, entry, stored.parents)

    def _state_and_place(
        self, request: StepRequest, tier: int, best: dict[MatchKind, Match], limits: QueueLimits
    ) -> tuple[SubjectState, Place]:
        if tier == 1:
            return SubjectState.APPROVED, Place.NOT_NEEDED
        if tier == 3:
            return SubjectState.BLOCKED, Place.NOT_NEEDED
        if not request.queued:
            return SubjectState.REVIEW, Place.NOT_NEEDED
        if MatchKind.PENDING in best:
            return SubjectState.JOINED, Place.NOT_NEEDED
        tenant, places = request.subject.tenant_id, self._store.places
        stored = self._store.bytes[tenant] + len(request.record)
        if places[user_of(request.subject)] >= limits.per_user:
            return SubjectState.REFUSED, Place.USER_FULL
        if places[tenant] >= limits.per_tenant or stored > limits.tenant_bytes:
            return SubjectState.REFUSED, Place.TENANT_FULL
        if places[""] >= limits.total:
            return SubjectState.REFUSED, Place.TOTAL_FULL
        return SubjectState.PENDING, Place.FREE


@dataclass(frozen=True, slots=True)
class _Recorded:
    """The outcome of an action: refused, or the revision and state that it created."""

    request: ReviewRequest
    refused: RefusedAction | None
    revision: int = 0
    state: SubjectState = SubjectState.BLOCKED

    def is_of(self, request: ReviewRequest) -> bool:
        """Return whether a request with the same id is the same action."""
        mine, theirs = ((a.subject, a.action, a.decisive) for a in (self.request, request))
        return mine == theirs

    def as_left(self, entry: StoredEntry, superseded: StoredEntry | None) -> tuple[StoredEntry | None, bool]:
        """Return the entry as the action left it, if known, and whether that is part of its past."""
        own = superseded if self.revision < entry.revision else entry
        if own and own.revision == self.revision:
            its = self.request.origin == own.origin
            return own if its else None, its
        final = self.request.action is not ReviewAction.RETRACT or entry.state is SubjectState.BLOCKED
        return None, self.revision < entry.revision and final


class _Reviews:
    """Carries out actions once each, as review.lua does."""

    def __init__(self, store: EntryStore) -> None:
        self._store = store
        self._actions: dict[_Key, _Recorded] = {}
        self._superseded: dict[Subject, StoredEntry] = {}

    def answer(self, request: ReviewRequest) -> ReviewAnswer:
        entry = self._store.entries.get(request.subject)
        before = self._recorded(request, entry)
        if before:
            return before
        code = _obstacle(request, entry)
        if entry is None or entry.outcome is None or code:
            refused = RefusedAction(code, SubjectStatus(entry.state, entry.revision) if entry else None)
            if not request.forgets and _key(request) not in self._actions:
                refused = replace(refused, at=request.origin.timestamp)
                self._actions[_key(request)] = _Recorded(request, refused)
            return refused
        self._carry_out(request, entry, entry.outcome)
        after = self._store.entries[request.subject]
        return replace(self._remember_carried_out(request, after), fresh=True)

    def _recorded(self, request: ReviewRequest, entry: StoredEntry | None) -> ReviewAnswer | None:
        """Return the answer to an action that came before, or None."""
        before = self._actions.get(_key(request))
        if before and request.only_recorded and before.request.origin != request.origin:
            before = None
        decided = entry if entry and entry.outcome else None
        if before and not before.is_of(request):
            return RefusedAction("action_id_reused", None)
        if before and before.refused:
            return before.refused
        if before and decided:
            own, stands = before.as_left(decided, self._superseded.get(request.subject))
            if stands:
                return self._reviewed(before, own or decided)
            if before.revision <= decided.revision and not request.only_recorded:
                del self._actions[_key(request)]  # another action has its revision
        if decided and decided.origin == request.origin:  # known from the topics alone
            return self._remember_carried_out(request, decided)
        return None

    def _remember_carried_out(self, request: ReviewRequest, entry: StoredEntry) -> Reviewed:
        carried_out = _Recorded(request, None, entry.revision, entry.state)
        if not request.only_recorded:
            self._actions[_key(request)] = carried_out
        return self._reviewed(carried_out, entry)

    def _reviewed(self, done: _Recorded, entry: StoredEntry) -> Reviewed:
        if entry.outcome is None:
            raise AssertionError("a decided subject does not wait again")
        outcome, request = replace(entry.outcome, fresh=False), done.request
        reviewed = Reviewed(done.revision, outcome, at=request.origin.timestamp, state=done.state)
        if request.action is not ReviewAction.RETRACT:
            return reviewed
        total, affected = entry.affected or self._affected_by(request.subject)
        return replace(reviewed, affected=tuple(affected), affected_total=total)

    def _carry_out(self, request: ReviewRequest, entry: StoredEntry, before: Outcome) -> None:
        after, match_class = self._review_outcome(request, before)
        if entry.state is SubjectState.APPROVED and entry.revision > 1:
            self._superseded[request.subject] = entry
        revision, first = history(entry)
        after = replace(
            after,
            tier=1 if after.state is SubjectState.APPROVED else 3,
            revision=revision + 1,
            origin=request.origin,
            first_origin=first,
            place=Place.NOT_NEEDED,
            payload=request.payload,
            record=b"",
        )
        known = StoredEntry.of(
            after,
            request.origin.timestamp,
            indexed=self._index_anew(request, entry, match_class),
            affected=self._affected_by(request.subject) if request.action is ReviewAction.RETRACT else None,
        )
        self._store.put(request.subject, known, [parent for _, parent in request.parents])

    def _review_outcome(self, request: ReviewRequest, before: Outcome) -> tuple[Outcome, MatchClass | None]:
        """Return the outcome that an action creates, and the class to index its text under."""
        blocked = replace(before, state=SubjectState.BLOCKED)
        if request.action in _REJECTING:
            return blocked, MatchClass.REJECTED
        if request.action not in _APPROVING or request.expired:
            return blocked, None
        status, matches, best = self._store.deduplicate(request)
        # parents stay as the person saw them
        compared = replace(blocked, dedup_status=status, matches=[match.fact() for match in matches])
        if MatchKind.DUPLICATE in best:
            return compared, None
        return replace(compared, state=SubjectState.APPROVED), MatchClass.APPROVED

    def _index_anew(
        self, request: ReviewRequest, entry: StoredEntry, match_class: MatchClass | None
    ) -> tuple[bytes, int] | None:
        """Change the class of the text in the index, or index it anew; only an edit changes the text."""
        times = request.origin.timestamp, request.horizon
        rejected = match_class is MatchClass.REJECTED
        if match_class is None or request.action is ReviewAction.EDIT:
            self._store.leave_index(entry)
        elif self._store.change_class(entry, match_class, times):
            return None if rejected else entry.indexed
        if match_class and request.dedup and (rejected or not request.dedup_failed):
            return self._store.index(request.dedup, request.subject, match_class, times)
        return None

    def _affected_by(self, subject: Subject) -> tuple[int, Sequence[str]]:
        """Return the number of approved claims derived from a subject, and their ids by bytes."""
        children = islice(self._store.children[subject], self._store.max_candidates)
        entries = self._store.entries
        ids = [
            child.subject_id
            for child in children
            if child != subject and child in entries and entries[child].state is SubjectState.APPROVED
        ]
        return len(ids), sorted(ids, key=str.encode)[:MAX_AFFECTED]


def _key(request: ReviewRequest) -> _Key:
    """Return the key of an action; expiries by the gate have keys that no person can use."""
    expired = request.subject if request.action is ReviewAction.EXPIRE else None
    return request.subject.tenant_id, request.action_id, expired


def _obstacle(request: ReviewRequest, entry: StoredEntry | None) -> str:
    """Return why the action is impossible, or nothing."""
    if request.refused or entry is None:
        return request.refused or "unknown"
    if entry.state is SubjectState.WAITING:
        return "waiting"
    if entry.revision != request.expected_revision:
        return "stale"
    retract = request.action is ReviewAction.RETRACT
    if retract and entry.state is not SubjectState.APPROVED:
        return "not_approved"
    if not retract and entry.state is not SubjectState.PENDING:
        return "not_pending"
    # no payload: it was decided after the requester looked it up
    return "" if request.payload else "unknown"

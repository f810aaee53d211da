"""State in memory: the same life cycle as in Redis, for one process and as long as it lives.

It serves `groundwire check`, and as the model that the script is tested against. Nothing expires in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from groundwire.messages.decisions import ParentFact, Place
from groundwire.messages.identity import Subject
from groundwire.state.matching import Kind, Match, Scope, choose, near_duplicates
from groundwire.state.model import (
    CANDIDATE_BYTES,
    MAX_CANDIDATES,
    Answer,
    Ask,
    Conflict,
    Limits,
    Outcome,
    RecordOrigin,
    StoredOutcome,
    SubjectState,
    Waiting,
)

User = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is kept of a subject; `outcome` is None while it waits.

    `answered`: the latest timestamp of its records that state has answered for.
    """

    fingerprint: str
    origin: RecordOrigin
    answered: int
    state: SubjectState
    revision: int
    first_origin: RecordOrigin | None
    outcome: Outcome | None = None
    joined_to: Subject | None = None
    indexed: tuple[bytes, int] | None = None


class MemoryState:
    """The state of one process.

    Args:
        max_candidates: as for `groundwire.state.redis.RedisState`.
    """

    def __init__(self, *, max_candidates: int = MAX_CANDIDATES) -> None:
        self._max_candidates = max_candidates
        self._entries: dict[Subject, _Entry] = {}
        self._scopes: defaultdict[bytes, Scope] = defaultdict(Scope)
        self._waiting: defaultdict[User, set[Subject]] = defaultdict(set)
        self._places: Counter[User | str] = Counter()

    async def step(self, asks: Sequence[Ask], limits: Limits, *, deferred: bool = False) -> list[Answer]:
        """Decide a batch; see `groundwire.state.model.State`. Atomic, because it awaits nothing."""
        return [self._answer(ask, limits, deferred=deferred) for ask in asks]

    async def reassert(self, outcomes: Sequence[StoredOutcome]) -> int:
        """Record outcomes that are known to be published; see `groundwire.state.model.State`."""
        taken = 0
        for stored in outcomes:
            outcome, before = stored.outcome, self._entries.get(stored.subject)
            if before and before.revision >= outcome.revision:
                continue
            entry = _Entry(
                outcome.fingerprint,
                outcome.origin,
                outcome.origin.timestamp,
                outcome.state,
                outcome.revision,
                outcome.first_origin,
                outcome,
                stored.joined_to,
            )
            approved_at = stored.approved_at or outcome.origin.timestamp
            self._replace(stored, before, entry, (approved_at, stored.horizon))
            taken += 1
        return taken

    async def payloads(self, subjects: Sequence[Subject]) -> list[bytes | None]:
        """Return what was recorded with each subject; see `groundwire.state.model.State`."""
        entries = [self._entries.get(subject) for subject in subjects]
        return [entry.outcome.payload if entry and entry.outcome else None for entry in entries]

    async def waiting_count(self) -> int:
        """Return how many claims wait on `deferred`."""
        return sum(map(len, self._waiting.values()))

    async def queue_depth(self) -> int:
        """Return how many claims and responses have a place in the review queue."""
        return self._places[""]

    async def close(self) -> None:
        """Nothing to let go of."""

    def _answer(self, ask: Ask, limits: Limits, *, deferred: bool) -> Answer:
        before = self._entries.get(ask.subject)
        if before and before.fingerprint != ask.fingerprint:
            return Conflict()
        if before and before.state is SubjectState.WAITING:
            if deferred:
                return self._decide(ask, before, limits)
            self._note(ask, before)
            return Waiting(publish=before.origin == ask.origin)
        if before and before.outcome and not self._may_be_decided_again(ask, before):
            if before.state is SubjectState.JOINED:
                self._note(ask, before)
            return replace(before.outcome, fresh=False)
        if not deferred and (ask.wait or (ask.ordered and self._waiting[_user(ask)])):
            return self._wait(ask, before)
        return self._decide(ask, before, limits)

    def _may_be_decided_again(self, ask: Ask, before: _Entry) -> bool:
        if ask.origin.timestamp <= before.answered:
            return False
        if before.state is SubjectState.JOINED:
            joined = before.joined_to and self._entries.get(before.joined_to)
            return not joined or joined.state is not SubjectState.PENDING
        return before.state is SubjectState.REFUSED

    def _note(self, ask: Ask, before: _Entry) -> None:
        """Remember what a record was answered: when it comes again, it is not decided afresh."""
        answered = max(before.answered, ask.origin.timestamp)
        self._entries[ask.subject] = replace(before, answered=answered)

    def _wait(self, ask: Ask, before: _Entry | None) -> Waiting:
        revision, first = _history(before)
        self._waiting[_user(ask)].add(ask.subject)
        self._entries[ask.subject] = _Entry(
            ask.fingerprint, ask.origin, ask.origin.timestamp, SubjectState.WAITING, revision, first
        )
        return Waiting(publish=True)

    def _decide(self, ask: Ask, before: _Entry | None, limits: Limits) -> Outcome:
        status, matches, best = self._deduplicate(ask)
        parents = [ParentFact(id=name, state=self._state_of(parent)) for name, parent in ask.parents]
        tier = _tier(ask, status, best, parents)
        state, place = self._settle(ask, tier, best, limits)
        revision, first = _history(before)
        pending = state is SubjectState.PENDING
        outcome = Outcome(
            state=state,
            tier=tier,
            revision=revision + 1,
            fresh=True,
            origin=ask.origin,
            first_origin=first,
            fingerprint=ask.fingerprint,
            dedup_status=status,
            matches=[match.fact() for match in matches],
            parents=parents,
            place=place,
            payload=ask.payload,
            record=ask.record if pending else b"",
        )
        joined_to = best[Kind.PENDING].indexed.subject if state is SubjectState.JOINED else None
        answered = max(ask.origin.timestamp, before.answered) if before else ask.origin.timestamp
        entry = _Entry(ask.fingerprint, ask.origin, answered, state, revision + 1, first, outcome, joined_to)
        # what could not be compared is not indexed either
        stored = StoredOutcome(ask.subject, outcome, ask.dedup if status == "ok" else None, ask.horizon)
        self._replace(stored, before, entry, (ask.origin.timestamp, ask.horizon))
        return outcome

    def _replace(
        self, stored: StoredOutcome, before: _Entry | None, entry: _Entry, times: tuple[int, int]
    ) -> None:
        """Put an entry in the place of the one before, with all that it holds beside itself."""
        subject, match_class = stored.subject, stored.match_class
        user = (subject.tenant_id, subject.user_id)
        self._waiting[user].discard(subject)
        if before and before.state is SubjectState.PENDING:
            self._places.subtract((user, subject.tenant_id, ""))
        if before and before.indexed:
            scope, number = before.indexed
            self._scopes[scope].claims.pop(number)
        if entry.state is SubjectState.PENDING:
            self._places.update((user, subject.tenant_id, ""))
        if stored.dedup and match_class:
            scope = stored.dedup.scope
            number = self._scopes[scope].add(stored.dedup, subject, match_class, times)
            entry = replace(entry, indexed=(scope, number))
        self._entries[subject] = entry

    def _deduplicate(self, ask: Ask) -> tuple[str, Sequence[Match], dict[Kind, Match]]:
        if ask.dedup_failed or ask.dedup is None:
            return "failed" if ask.dedup_failed else "disabled", (), {}
        query = ask.dedup
        candidates = self._scopes[query.scope].candidates(query)
        compared = sum(len(indexed.signature) for indexed in candidates)
        if len(candidates) > self._max_candidates or compared > CANDIDATE_BYTES * self._max_candidates:
            return "failed", (), {}
        near = near_duplicates(
            query, [c for c in candidates if not c.hides(ask.subject.subject_id, ask.origin.timestamp)]
        )
        return "ok", *choose(near, material_difference=query.material_difference)

    def _state_of(self, parent: Subject) -> str:
        entry = self._entries.get(parent)
        return entry.state.name.lower() if entry else "unknown"

    def _settle(
        self, ask: Ask, tier: int, best: dict[Kind, Match], limits: Limits
    ) -> tuple[SubjectState, Place]:
        if tier == 1:
            return SubjectState.APPROVED, Place.NOT_NEEDED
        if tier == 3:
            return SubjectState.BLOCKED, Place.NOT_NEEDED
        if not ask.queued:
            return SubjectState.REVIEW, Place.NOT_NEEDED
        if Kind.PENDING in best:
            return SubjectState.JOINED, Place.NOT_NEEDED
        place = self._ask_for_place(ask, limits)
        return SubjectState.PENDING if place is Place.FREE else SubjectState.REFUSED, place

    def _ask_for_place(self, ask: Ask, limits: Limits) -> Place:
        if self._places[_user(ask)] >= limits.per_user:
            return Place.USER_FULL
        if self._places[ask.subject.tenant_id] >= limits.per_tenant:
            return Place.TENANT_FULL
        if self._places[""] >= limits.total:
            return Place.TOTAL_FULL
        return Place.FREE


def _user(ask: Ask) -> User:
    return ask.subject.tenant_id, ask.subject.user_id


def _history(before: _Entry | None) -> tuple[int, RecordOrigin | None]:
    """Return the revision so far and, where there was one, the origin of the subject's first record."""
    if before is None or before.revision == 0:
        return 0, None
    return before.revision, before.first_origin or before.origin


def _tier(ask: Ask, status: str, best: dict[Kind, Match], parents: Sequence[ParentFact]) -> int:
    if ask.base_tier == 3 or Kind.DUPLICATE in best:
        return 3
    doubtful = (
        ask.capped
        or status == "failed"
        or Kind.CONFLICT in best
        or Kind.REJECTED in best
        or any(parent.state != "approved" for parent in parents)
    )
    return 2 if ask.base_tier == 1 and doubtful else ask.base_tier

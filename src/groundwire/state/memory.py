"""State in memory: the same life cycle as in Redis, for one process and as long as it lives.

It serves `groundwire check`, and as the model that the script is tested against. Nothing expires in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from groundwire.messages.decisions import ParentFact, Place
from groundwire.messages.identity import Subject
from groundwire.state.matching import Kind, Match
from groundwire.state.memory_reviews import Reviews
from groundwire.state.memory_store import Entry, Store, history, user_of
from groundwire.state.model import (
    MAX_CANDIDATES,
    Answer,
    Ask,
    Conflict,
    HeldEntry,
    Limits,
    Outcome,
    RecordOrigin,
    ReviewAnswer,
    ReviewAsk,
    Standing,
    StoredOutcome,
    SubjectState,
    Waiting,
)


class MemoryState:
    """The state of one process.

    Args:
        max_candidates: as for `groundwire.state.redis.RedisState`.
    """

    def __init__(self, *, max_candidates: int = MAX_CANDIDATES) -> None:
        self._store = Store(max_candidates)
        self._reviews = Reviews(self._store)
        self._entries = self._store.entries
        self._superseded: dict[tuple[Subject, RecordOrigin], Entry] = {}

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
            entry = Entry(
                outcome.fingerprint,
                outcome.origin,
                outcome.origin.timestamp,
                outcome.state,
                outcome.revision,
                outcome.first_origin,
                outcome,
                stored.joined_to,
            )
            self._replace(stored, before, entry, (outcome.origin.timestamp, stored.horizon))
            taken += 1
        return taken

    async def payloads(self, subjects: Sequence[Subject]) -> list[bytes | None]:
        """Return what was recorded with each subject; see `groundwire.state.model.State`."""
        entries = [self._entries.get(subject) for subject in subjects]
        return [entry.outcome.payload if entry and entry.outcome else None for entry in entries]

    async def review(self, asks: Sequence[ReviewAsk]) -> list[ReviewAnswer]:
        """Carry out actions of people; see `groundwire.state.model.State`."""
        return [self._reviews.answer(ask) for ask in asks]

    async def held(self, subjects: Sequence[Subject]) -> list[HeldEntry | None]:
        """Return what is held of decided subjects; see `groundwire.state.model.State`."""
        entries = [self._entries.get(subject) for subject in subjects]
        return [_held(entry.outcome) if entry and entry.outcome else None for entry in entries]

    async def standings(self, subjects: Sequence[Subject]) -> list[Standing | None]:
        """Return where subjects stand; see `groundwire.state.model.State`."""
        entries = [self._entries.get(subject) for subject in subjects]
        return [Standing(entry.state, entry.revision) if entry else None for entry in entries]

    async def waiting_count(self) -> int:
        """Return how many claims wait on `deferred`."""
        return sum(map(len, self._store.waiting.values()))

    async def queue_depth(self) -> int:
        """Return how many claims and responses have a place in the review queue."""
        return self._store.places[""]

    async def close(self) -> None:
        """Nothing to let go of."""

    def _answer(self, ask: Ask, limits: Limits, *, deferred: bool) -> Answer:
        before = self._entries.get(ask.subject)
        if before and before.fingerprint != ask.fingerprint:
            return Conflict()
        recorded = self._recorded(ask, before)
        if recorded is not None:
            return replace(recorded, fresh=False)
        if before and before.state is SubjectState.WAITING:
            if deferred:
                return self._decide(ask, before, limits)
            self._note(ask, before)
            return Waiting(publish=before.origin == ask.origin)
        if not deferred and (ask.wait or (ask.ordered and self._store.waiting[user_of(ask.subject)])):
            return self._wait(ask, before)
        return self._decide(ask, before, limits)

    def _recorded(self, ask: Ask, before: Entry | None) -> Outcome | None:
        """Return what the record came to, also where a later one took its place; else what its subject came to."""
        own = self._superseded.get((ask.subject, ask.origin))
        if own:
            return own.outcome
        if before is None or before.outcome is None or self._may_be_decided_again(ask, before):
            return None
        if before.state is SubjectState.JOINED:
            self._note(ask, before)
        return before.outcome

    def _may_be_decided_again(self, ask: Ask, before: Entry) -> bool:
        if ask.origin.timestamp <= before.answered:
            return False
        if before.state is SubjectState.JOINED:
            joined = before.joined_to and self._entries.get(before.joined_to)
            return not joined or joined.state is not SubjectState.PENDING
        return before.state is SubjectState.REFUSED

    def _note(self, ask: Ask, before: Entry) -> None:
        """Remember what a record was answered: when it comes again, it is not decided afresh."""
        answered = max(before.answered, ask.origin.timestamp)
        self._entries[ask.subject] = replace(before, answered=answered)

    def _wait(self, ask: Ask, before: Entry | None) -> Waiting:
        revision, first = history(before)
        origin = ask.origin
        entry = Entry(ask.fingerprint, origin, origin.timestamp, SubjectState.WAITING, revision, first)
        self._supersede(ask, before)
        self._store.put(ask.subject, entry)
        return Waiting(publish=True)

    def _supersede(self, ask: Ask, before: Entry | None) -> None:
        """Keep what an earlier record came to: its worker may have died before that was published."""
        if before and before.outcome:
            self._superseded[ask.subject, before.origin] = before

    def _decide(self, ask: Ask, before: Entry | None, limits: Limits) -> Outcome:
        status, matches, best = self._store.deduplicate(ask)
        parents = [ParentFact(id=name, state=self._store.state_of(parent)) for name, parent in ask.parents]
        tier = _tier(ask, status, best, parents)
        state, place = self._settle(ask, tier, best, limits)
        revision, first = history(before)
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
        entry = Entry(ask.fingerprint, ask.origin, answered, state, revision + 1, first, outcome, joined_to)
        # what could not be compared is not indexed either
        dedup = ask.dedup if status == "ok" else None
        rests_on = [parent for _, parent in ask.parents]
        stored = StoredOutcome(ask.subject, outcome, dedup, ask.horizon, parents=rests_on)
        self._supersede(ask, before)
        self._replace(stored, before, entry, (ask.origin.timestamp, ask.horizon))
        return outcome

    def _replace(
        self, stored: StoredOutcome, before: Entry | None, entry: Entry, times: tuple[int, int]
    ) -> None:
        """Put an entry in the place of the one before, with all that it holds beside itself."""
        subject, match_class = stored.subject, stored.match_class
        self._store.leave_index(before)
        if stored.dedup and match_class:
            entry = replace(entry, indexed=self._store.index(stored.dedup, subject, match_class, times))
        self._store.put(subject, entry, stored.parents)

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
        if self._store.places[user_of(ask.subject)] >= limits.per_user:
            return Place.USER_FULL
        if self._store.places[ask.subject.tenant_id] >= limits.per_tenant:
            return Place.TENANT_FULL
        if self._store.places[""] >= limits.total:
            return Place.TOTAL_FULL
        return Place.FREE


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


def _held(outcome: Outcome) -> HeldEntry:
    return HeldEntry(
        outcome.state,
        outcome.revision,
        outcome.fingerprint,
        outcome.payload,
        outcome.record,
    )

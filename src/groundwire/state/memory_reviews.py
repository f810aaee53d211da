"""Actions of people on state in memory; review.lua is the same on Redis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from groundwire.messages.decisions import MatchClass, Place
from groundwire.messages.identity import Subject
from groundwire.state.matching import Kind
from groundwire.state.memory_store import Entry, Store, history
from groundwire.state.model import (
    MAX_AFFECTED,
    Outcome,
    RefusedAction,
    ReviewAction,
    ReviewAnswer,
    ReviewAsk,
    Reviewed,
    Standing,
    SubjectState,
)

_APPROVING = {ReviewAction.APPROVE, ReviewAction.EDIT}
_REJECTING = {ReviewAction.REJECT, ReviewAction.RETRACT}


class Reviews:
    """Carries out actions, each once.

    Args:
        store: what they act on.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._actions: dict[tuple[str, str], tuple[Subject, ReviewAction, int | RefusedAction]] = {}

    def answer(self, ask: ReviewAsk) -> ReviewAnswer:
        """Carry out an action, or say what became of it when it came before."""
        key = ask.subject.tenant_id, ask.action_id
        if key in self._actions:
            subject, action, answer = self._actions[key]
            if (subject, action) != (ask.subject, ask.action):
                return RefusedAction("action_id_reused", None)
            if isinstance(answer, RefusedAction):
                return answer
            return self._reviewed(ask, answer, fresh=False)
        entry = self._store.entries.get(ask.subject)
        code = _obstacle(ask, entry)
        if entry is None or entry.outcome is None or code:
            current = Standing(entry.state, entry.revision) if entry else None
            refused = RefusedAction(code, current)
            self._actions[key] = ask.subject, ask.action, refused
            return refused
        self._carry_out(ask, entry, entry.outcome)
        self._actions[key] = ask.subject, ask.action, entry.revision + 1
        return self._reviewed(ask, entry.revision + 1, fresh=True)

    def _reviewed(self, ask: ReviewAsk, revision: int, *, fresh: bool) -> Reviewed:
        entry = self._store.entries[ask.subject]
        if entry.outcome is None:
            raise AssertionError("what a person decided does not wait again")
        outcome = replace(entry.outcome, fresh=False)
        if ask.action is not ReviewAction.RETRACT:
            return Reviewed(revision, outcome, fresh=fresh)
        total, affected = entry.affected or self._affected_by(ask.subject)
        return Reviewed(revision, outcome, tuple(affected), total, fresh=fresh)

    def _carry_out(self, ask: ReviewAsk, entry: Entry, before: Outcome) -> None:
        after, match_class = self._settle(ask, before)
        revision, first = history(entry)
        after = replace(
            after,
            tier=1 if after.state is SubjectState.APPROVED else 3,
            revision=revision + 1,
            origin=ask.origin,
            first_origin=first,
            place=Place.NOT_NEEDED,
            payload=ask.payload,
            record=b"",
        )
        known = Entry(
            entry.fingerprint,
            ask.origin,
            ask.origin.timestamp,
            after.state,
            after.revision,
            first,
            after,
            indexed=self._index_anew(ask, entry, match_class),
            affected=self._affected_by(ask.subject) if ask.action is ReviewAction.RETRACT else None,
        )
        self._store.put(ask.subject, known, [parent for _, parent in ask.parents])

    def _settle(self, ask: ReviewAsk, before: Outcome) -> tuple[Outcome, MatchClass | None]:
        """Return the outcome as far as the action makes it, and as what others find the text from now on."""
        blocked = replace(before, state=SubjectState.BLOCKED)
        if ask.action in _REJECTING:
            return blocked, MatchClass.REJECTED
        if ask.action not in _APPROVING or ask.expired:
            return blocked, None
        status, matches, best = self._store.deduplicate(ask)
        # what the person knew of the parents stays
        compared = replace(blocked, dedup_status=status, matches=[match.fact() for match in matches])
        if Kind.DUPLICATE in best:
            return compared, None
        return replace(compared, state=SubjectState.APPROVED), MatchClass.APPROVED

    def _index_anew(
        self, ask: ReviewAsk, entry: Entry, match_class: MatchClass | None
    ) -> tuple[bytes, int] | None:
        """Put the text where it now belongs; only an edit brings another one."""
        times = ask.origin.timestamp, ask.horizon
        rejected = match_class is MatchClass.REJECTED
        if match_class is None or ask.action is ReviewAction.EDIT:
            self._store.leave_index(entry)
        elif self._store.change_class(entry, match_class, times):
            return None if rejected else entry.indexed
        if match_class and ask.dedup and (rejected or not ask.dedup_failed):
            return self._store.index(ask.dedup, ask.subject, match_class, times)
        return None

    def _affected_by(self, subject: Subject) -> tuple[int, Sequence[str]]:
        """Return how many approved claims rest on a subject, and their ids, by their bytes."""
        entries = self._store.entries
        ids = [
            child.subject_id
            for child in self._store.children[subject]
            if child != subject and entries[child].state is SubjectState.APPROVED
        ]
        return len(ids), sorted(ids, key=str.encode)[:MAX_AFFECTED]


def _obstacle(ask: ReviewAsk, entry: Entry | None) -> str:
    """Return why the action cannot be, or nothing."""
    if ask.refused or entry is None:
        return ask.refused or "unknown"
    if entry.state is SubjectState.WAITING:
        return "waiting"
    if entry.revision != ask.expected_revision:
        return "stale"
    retract = ask.action is ReviewAction.RETRACT
    if retract and entry.state is not SubjectState.APPROVED:
        return "not_approved"
    if not retract and entry.state is not SubjectState.PENDING:
        return "not_pending"
    # without: it was decided after whoever asks looked it up
    return "" if ask.payload else "unknown"

"""Actions of people on state in memory; review.lua is the same on Redis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from groundwire.messages.decisions import MatchClass, Place
from groundwire.messages.identity import Subject
from groundwire.state.matching import Kind
from groundwire.state.memory_store import Entry, Store, history
from groundwire.state.model import (
    MAX_AFFECTED,
    Outcome,
    RecordOrigin,
    RefusedAction,
    ReviewAction,
    ReviewAnswer,
    ReviewAsk,
    Reviewed,
    Standing,
    SubjectState,
)

_Key = tuple[str, str, Subject | None]

_APPROVING = {ReviewAction.APPROVE, ReviewAction.EDIT}
_REJECTING = {ReviewAction.REJECT, ReviewAction.RETRACT}


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What became of an action: of the record at `origin`; `state` is what it brought."""

    ask: ReviewAsk
    refused: RefusedAction | None
    revision: int = 0
    state: SubjectState = SubjectState.BLOCKED

    @property
    def origin(self) -> RecordOrigin:
        return self.ask.origin

    def is_of(self, ask: ReviewAsk) -> bool:
        """Tell whether an action of the same id is the same action."""
        mine, theirs = ((a.subject, a.action, a.decisive) for a in (self.ask, ask))
        return mine == theirs

    def as_left(self, entry: Entry, superseded: Entry | None) -> tuple[Entry | None, bool]:
        """Return the entry as the action left it, where that is known, and whether that is part of its past."""
        own = superseded if self.revision < entry.revision else entry
        if own and own.revision == self.revision:
            its = self.origin == own.origin
            return own if its else None, its
        final = self.ask.action is not ReviewAction.RETRACT or entry.state is SubjectState.BLOCKED
        return None, self.revision < entry.revision and final


class Reviews:
    """Carries out actions, each once.

    Args:
        store: what they act on.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._actions: dict[_Key, _Recorded] = {}
        self._superseded: dict[Subject, Entry] = {}

    def answer(self, ask: ReviewAsk) -> ReviewAnswer:
        """Carry out an action, or say what became of it when it came before."""
        entry = self._store.entries.get(ask.subject)
        before = self._recorded(ask, entry)
        if before:
            return before
        code = _obstacle(ask, entry)
        if entry is None or entry.outcome is None or code:
            return self._refuse(
                ask, RefusedAction(code, Standing(entry.state, entry.revision) if entry else None)
            )
        self._carry_out(ask, entry, entry.outcome)
        after = self._store.entries[ask.subject]
        return replace(self._remember_carried_out(ask, after), fresh=True)

    def _recorded(self, ask: ReviewAsk, entry: Entry | None) -> ReviewAnswer | None:
        """Return what an action that came before was answered, or None."""
        before = self._actions.get(_key(ask))
        if before and ask.only_recorded and before.origin != ask.origin:
            before = None
        decided = entry if entry and entry.outcome else None
        if before and not before.is_of(ask):
            return RefusedAction("action_id_reused", None)
        if before and before.refused:
            return before.refused
        if before and decided:
            own, stands = before.as_left(decided, self._superseded.get(ask.subject))
            if stands:
                return self._reviewed(before, own or decided)
            if before.revision <= decided.revision and not ask.only_recorded:
                del self._actions[_key(ask)]  # its revision is another's: a later one is to prove nothing
        if decided and decided.origin == ask.origin:  # known from the topics alone
            return self._remember_carried_out(ask, decided)
        return None

    def _remember_carried_out(self, ask: ReviewAsk, entry: Entry) -> Reviewed:
        carried_out = _Recorded(ask, None, entry.revision, entry.state)
        if not ask.only_recorded:
            self._actions[_key(ask)] = carried_out
        return self._reviewed(carried_out, entry)

    def _refuse(self, ask: ReviewAsk, refused: RefusedAction) -> RefusedAction:
        """Remember a refusal, in the place of nothing."""
        if ask.forgets or _key(ask) in self._actions:
            return refused
        refused = replace(refused, at=ask.origin.timestamp)
        self._actions[_key(ask)] = _Recorded(ask, refused)
        return refused

    def _reviewed(self, done: _Recorded, entry: Entry) -> Reviewed:
        if entry.outcome is None:
            raise AssertionError("what a person decided does not wait again")
        outcome, ask = replace(entry.outcome, fresh=False), done.ask
        reviewed = Reviewed(done.revision, outcome, at=done.origin.timestamp, state=done.state)
        if ask.action is not ReviewAction.RETRACT:
            return reviewed
        total, affected = entry.affected or self._affected_by(ask.subject)
        return replace(reviewed, affected=tuple(affected), affected_total=total)

    def _carry_out(self, ask: ReviewAsk, entry: Entry, before: Outcome) -> None:
        after, match_class = self._settle(ask, before)
        if entry.state is SubjectState.APPROVED and entry.revision > 1:
            self._superseded[ask.subject] = entry
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
        """Return how many approved claims rest on a subject, and their ids, by their bytes.

        Of those that were derived from it, no more are looked at than one claim may be compared with.
        """
        children = islice(self._store.children[subject], self._store.max_candidates)
        entries = self._store.entries
        ids = [
            child.subject_id
            for child in children
            if child != subject and child in entries and entries[child].state is SubjectState.APPROVED
        ]
        return len(ids), sorted(ids, key=str.encode)[:MAX_AFFECTED]


def _key(ask: ReviewAsk) -> _Key:
    """Return the name of an action; the gate's own expiries have names that no person can take."""
    expired = ask.subject if ask.action is ReviewAction.EXPIRE else None
    return ask.subject.tenant_id, ask.action_id, expired


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

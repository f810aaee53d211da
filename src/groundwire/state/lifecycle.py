"""The life cycle: what a record or an action makes of its subject (contract, "Identity and life cycle").

The rules stand here alone. They run on a `Workspace`: all of state in memory, or what one fetch from Redis brought.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from groundwire.checks.dedup.signature import compare
from groundwire.messages.decisions import MatchClass, ParentFact, Place
from groundwire.messages.identity import Subject
from groundwire.state.matching import Match, MatchKind, choose
from groundwire.state.model import (
    CANDIDATE_BYTES,
    NOTING,
    Conflict,
    GivenUp,
    Noted,
    Outcome,
    QueueLimits,
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
from groundwire.state.workspace import RecordedAction, StoredEntry, Workspace, counter_names

_APPROVING: Final = {ReviewAction.APPROVE, ReviewAction.EDIT}
_REJECTING: Final = {ReviewAction.REJECT, ReviewAction.RETRACT}
_NEEDS: Final = {
    ReviewAction.RETRACT: (SubjectState.APPROVED, "not_approved"),
    ReviewAction.OVERRULE: (SubjectState.BLOCKED, "not_overrulable"),
}
"""The state that an action needs and the code of its refusal, where it does not need a pending subject."""
_TIERS: Final = {SubjectState.APPROVED: 1, SubjectState.PENDING: 2}
_AGAIN: Final = {SubjectState.REFUSED, SubjectState.JOINED}


def step(work: Workspace, request: StepRequest, limits: QueueLimits, *, deferred: bool) -> StepAnswer:
    """Answer a record of a claim or response: with what is recorded of it, or by deciding it."""
    digest = request.subject.digest
    before = work.entries.get(digest)
    if before and before.fingerprint != request.fingerprint:
        return Conflict()
    own = work.superseded.get((digest, request.origin)) if before else None
    if own and own.outcome and before and own.origin != before.origin:
        return replace(own.outcome, fresh=False)
    if before and before.waits:
        if deferred:
            return _decide(work, request, before, limits)
        _note(work, request, before)
        return Waiting(publish=before.origin == request.origin)
    if before and _is_anew(request, before):
        return _decide(work, request, before, limits)
    if before and not _may_be_decided_again(work, request, before):
        if before.state is SubjectState.JOINED:
            _note(work, request, before)
        return replace(before.outcome, fresh=False) if before.outcome else GivenUp()
    if not deferred and (request.wait or (request.ordered and work.has_waiting(request))):
        revision, first = before.history if before else (0, None)
        at = request.origin.timestamp
        work.supersede(request.subject, before)
        work.put(
            request.subject,
            StoredEntry(request.fingerprint, request.origin, at, SubjectState.WAITING, revision, first),
        )
        return Waiting(publish=True)
    return _decide(work, request, before, limits)


def _may_be_decided_again(work: Workspace, request: StepRequest, before: StoredEntry) -> bool:
    """Return whether a later record of a refused claim came, or of one that joined what is no longer pending."""
    if before.state not in _AGAIN or request.origin.timestamp <= before.answered:
        return False
    return before.joined_to is None or work.state_of(before.joined_to) is not SubjectState.PENDING


def _is_anew(request: StepRequest, before: StoredEntry) -> bool:
    return request.again and request.origin == before.origin


def _note(work: Workspace, request: StepRequest, before: StoredEntry) -> None:
    """Record that a record was answered.

    A worker that lost its partition may ask again, and must not have it decided afresh.
    """
    if request.origin.timestamp > before.answered:
        work.put(request.subject, replace(before, answered=request.origin.timestamp))


def _decide(
    work: Workspace, request: StepRequest, before: StoredEntry | None, limits: QueueLimits
) -> Outcome:
    status, matches, best = _deduplicate(work, request)
    parents = [ParentFact(id=name, state=_name_of(work, parent.digest)) for name, parent in request.parents]
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
    state, place = _state_and_place(work, request, tier, best, limits)
    if before and _is_anew(request, before):
        revision, first = before.revision - 1, before.first_origin
    else:
        revision, first = before.history if before else (0, None)
        work.supersede(request.subject, before)
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
        record=request.record if state is SubjectState.PENDING else b"",
    )
    at = request.origin.timestamp
    dedup = request.dedup if status == "ok" else None  # else it is not indexed either
    stored = StoredOutcome(
        request.subject, outcome, dedup, request.horizon, parents=[parent for _, parent in request.parents]
    )
    leader = best[MatchKind.PENDING].indexed.digest if state is SubjectState.JOINED else None
    _replace(work, stored, before, max(at, before.answered) if before else at, leader)
    return outcome


def _name_of(work: Workspace, subject: bytes) -> str:
    state = work.state_of(subject)
    return state.name.lower() if state else "unknown"


def _replace(
    work: Workspace, stored: StoredOutcome, before: StoredEntry | None, answered: int, leader: bytes | None
) -> None:
    work.leave_index(before)
    indexed = None
    if stored.dedup and (match_class := stored.match_class):
        times = stored.outcome.origin.timestamp, stored.horizon
        indexed = work.index(stored.dedup, stored.subject, match_class, times)
    entry = StoredEntry.of(stored.outcome, answered, joined_to=leader, indexed=indexed)
    work.put(stored.subject, entry, [parent.digest for parent in stored.parents], people=stored.by_people)


def _state_and_place(
    work: Workspace, request: StepRequest, tier: int, best: dict[MatchKind, Match], limits: QueueLimits
) -> tuple[SubjectState, Place]:
    if tier == 1:
        return SubjectState.APPROVED, Place.NOT_NEEDED
    if tier == 3:
        return SubjectState.BLOCKED, Place.NOT_NEEDED
    if not request.queued:
        return SubjectState.REVIEW, Place.NOT_NEEDED
    if MatchKind.PENDING in best:
        return SubjectState.JOINED, Place.NOT_NEEDED
    place = _place(work, request, limits)
    return SubjectState.PENDING if place is Place.FREE else SubjectState.REFUSED, place


def _place(work: Workspace, request: StepRequest | ReviewRequest, limits: QueueLimits) -> Place:
    """Return whether the review queue has a place for a record."""
    total, tenant, user, in_bytes = counter_names(request.subject)
    name = request.subject.tenant_id
    held = work.counts[in_bytes] + len(request.record)
    if work.counts[user] >= limits.per_user:
        return Place.USER_FULL
    if work.counts[tenant] >= limits.of_tenant(name) or held > limits.tenant_bytes:
        return Place.TENANT_FULL
    free = limits.free(name, work.counts[tenant], work.counts[total])
    return Place.FREE if free > 0 else Place.TOTAL_FULL


def _deduplicate(
    work: Workspace, request: StepRequest | ReviewRequest
) -> tuple[str, list[Match], dict[MatchKind, Match]]:
    """Compare a claim; return the status, the matches to report, and the best of each kind that decides."""
    query = request.dedup
    if request.dedup_failed or query is None:
        return "failed" if request.dedup_failed else "disabled", [], {}
    candidates = work.candidates(request, query)
    most = CANDIDATE_BYTES * work.max_candidates
    if candidates is None or sum(len(indexed.signature) for indexed in candidates) > most:
        return "failed", [], {}
    found: list[Match] = []
    for indexed in candidates:
        if not indexed.hides(request.subject.subject_id, request.origin.timestamp):
            rejected = indexed.match_class is MatchClass.REJECTED
            compared = compare(query.signature, indexed.signature, query.rules.thresholds, rejected=rejected)
            if compared:
                found.append(Match(indexed, *compared))
    matches, best = choose(found, query.rules) if found else ((), {})
    return "ok", list(matches), best


def load(work: Workspace, stored: StoredOutcome) -> bool:
    """Record a published outcome unless the subject has the same or a higher revision; return whether it did."""
    outcome, before = stored.outcome, work.entries.get(stored.subject.digest)
    if before and before.revision >= outcome.revision:
        return False
    leader = stored.joined_to.digest if stored.joined_to else None
    _replace(work, stored, before, outcome.origin.timestamp, leader)
    return True


def give_up(work: Workspace, subject: Subject) -> bool:
    """Release a waiting subject whose record becomes a dead letter; False if state holds an outcome of it."""
    entry = work.entries.get(subject.digest)
    if entry and entry.waits:
        work.put(subject, replace(entry, state=SubjectState.REFUSED))
    return entry is None or entry.outcome is None


def review(work: Workspace, request: ReviewRequest, key: bytes, limits: QueueLimits) -> ReviewAnswer:
    """Answer an action of a person or the gate; `key` names it."""
    entry = work.entries.get(request.subject.digest)
    if entry and not entry.waits and not entry.revision:
        entry = None  # its record was given up
    if before := _recorded_action(work, request, key, entry):
        return before
    code = _obstacle(request, entry) or _lacks_place(work, request, limits)
    if entry is None or entry.outcome is None or code:
        refused = RefusedAction(code, SubjectStatus(entry.state, entry.revision) if entry else None)
        if not request.forgets and key not in work.actions:
            refused = replace(refused, at=request.origin.timestamp)
            work.remember(key, _action(request, refused))
        return refused
    if request.action in NOTING:
        work.remember(key, _action(request, None, entry))
        return Noted(SubjectStatus(entry.state, entry.revision), request.origin.timestamp)
    _carry_out(work, request, entry, entry.outcome)
    after = work.entries[request.subject.digest]
    return replace(_remember_carried_out(work, request, key, after), fresh=True)


def _action(
    request: ReviewRequest, refused: RefusedAction | None, entry: StoredEntry | None = None
) -> RecordedAction:
    done = (entry.revision, entry.state) if entry else (0, SubjectState.BLOCKED)
    return RecordedAction(
        request.subject.digest, request.action, request.decisive, request.origin, refused, *done
    )


def _recorded_action(
    work: Workspace, request: ReviewRequest, key: bytes, entry: StoredEntry | None
) -> ReviewAnswer | None:
    """Return the answer to an action that came before, or None."""
    before = work.actions.get(key)
    if before and request.only_recorded and before.origin != request.origin:
        before = None
    decided = entry if entry and not entry.waits else None
    if before:
        same = request.subject.digest, request.action, request.decisive
        if (before.subject, before.action, before.decisive) != same:
            return RefusedAction("action_id_reused", None)
        if before.refused:
            return before.refused
        if before.action in NOTING:
            return Noted(SubjectStatus(before.state, before.revision), before.origin.timestamp)
        if decided:
            own, stands = _as_left(before, decided, work.earlier.get(before.subject))
            if stands:
                return _reviewed(work, request, before, own or decided)
            if before.revision <= decided.revision and not request.only_recorded:
                work.forget(key)  # another action has its revision
    if decided and decided.outcome and decided.origin == request.origin:  # known from the topics alone
        return _remember_carried_out(work, request, key, decided)
    return None


def _as_left(
    done: RecordedAction, entry: StoredEntry, earlier: StoredEntry | None
) -> tuple[StoredEntry | None, bool]:
    """Return the entry as an action left it, if known, and whether the action is part of its past.

    A lost action is carried out again, and its revision may be another's by now.
    """
    own = earlier if done.revision < entry.revision else entry
    if own and own.revision == done.revision:
        its = done.origin == own.origin
        return own if its else None, its
    final = done.action is not ReviewAction.RETRACT or entry.state is SubjectState.BLOCKED
    return None, done.revision < entry.revision and final


def _remember_carried_out(
    work: Workspace, request: ReviewRequest, key: bytes, entry: StoredEntry
) -> Reviewed:
    done = _action(request, None, entry)
    if not request.only_recorded:
        work.remember(key, done)
    return _reviewed(work, request, done, entry)


def _reviewed(work: Workspace, request: ReviewRequest, done: RecordedAction, entry: StoredEntry) -> Reviewed:
    if entry.outcome is None:
        raise AssertionError("a decided subject does not wait again")
    outcome = replace(entry.outcome, fresh=False)
    reviewed = Reviewed(done.revision, outcome, at=done.origin.timestamp, state=done.state)
    if request.action is not ReviewAction.RETRACT:
        return reviewed
    total, affected = entry.affected or work.affected_by(request.subject)
    return replace(reviewed, affected=tuple(affected), affected_total=total)


def _obstacle(request: ReviewRequest, entry: StoredEntry | None) -> str:
    """Return why the action is impossible, or nothing."""
    if request.refused or entry is None:
        return request.refused or "unknown"
    if entry.waits:
        return "waiting"
    if entry.revision != request.expected_revision:
        return "stale"
    if code := wrong_state(request.action, entry.state):
        return code
    # no payload: it was decided after the requester looked it up
    return "" if request.payload or request.action in NOTING else "unknown"


def wrong_state(action: ReviewAction, state: SubjectState) -> str:
    """Return the code with which a subject's state refuses an action, or nothing."""
    needed, code = _NEEDS.get(action, (SubjectState.PENDING, "not_pending"))
    return "" if state is needed else code


def _lacks_place(work: Workspace, request: ReviewRequest, limits: QueueLimits) -> str:
    overrules = request.action is ReviewAction.OVERRULE
    return "review_queue_full" if overrules and _place(work, request, limits) is not Place.FREE else ""


def _carry_out(work: Workspace, request: ReviewRequest, entry: StoredEntry, before: Outcome) -> None:
    after, match_class = _review_outcome(work, request, before)
    if entry.state in _TIERS and entry.revision > 1:
        work.keep_earlier(request.subject, entry)  # it may not be published yet
    revision, first = entry.history
    after = replace(
        after,
        tier=_TIERS.get(after.state, 3),
        revision=revision + 1,
        origin=request.origin,
        first_origin=first,
        place=Place.FREE if after.state is SubjectState.PENDING else Place.NOT_NEEDED,
        payload=request.payload,
        record=request.record,
    )
    retract = request.action is ReviewAction.RETRACT
    known = StoredEntry.of(
        after,
        request.origin.timestamp,
        indexed=_index_anew(work, request, entry, match_class),
        affected=work.affected_by(request.subject) if retract else None,
    )
    parents = [parent.digest for _, parent in request.parents]
    work.put(request.subject, known, parents, people=True)


def _review_outcome(
    work: Workspace, request: ReviewRequest, before: Outcome
) -> tuple[Outcome, MatchClass | None]:
    """Return the outcome that an action creates, and the class to index its text under."""
    blocked = replace(before, state=SubjectState.BLOCKED)
    if request.action in _REJECTING:
        return blocked, MatchClass.REJECTED
    if request.action is ReviewAction.OVERRULE:  # what it is near to stays as the gate saw it
        return replace(before, state=SubjectState.PENDING), MatchClass.PENDING
    if request.action not in _APPROVING or request.expired:
        return blocked, None
    status, matches, best = _deduplicate(work, request)
    # parents stay as the person saw them
    compared = replace(blocked, dedup_status=status, matches=[match.fact() for match in matches])
    if MatchKind.DUPLICATE in best:
        return compared, None
    return replace(compared, state=SubjectState.APPROVED), MatchClass.APPROVED


def _index_anew(
    work: Workspace, request: ReviewRequest, entry: StoredEntry, match_class: MatchClass | None
) -> tuple[bytes, int] | None:
    """Change the class of the text in the index, or index it anew; only an edit changes the text."""
    times = request.origin.timestamp, request.horizon
    rejected = match_class is MatchClass.REJECTED
    if match_class is None or request.action is ReviewAction.EDIT:
        work.leave_index(entry)
    elif work.change_class(request.subject, entry, match_class, times):
        return None if rejected else entry.indexed
    if match_class and request.dedup and (rejected or not request.dedup_failed):
        return work.index(request.dedup, request.subject, match_class, times)
    return None

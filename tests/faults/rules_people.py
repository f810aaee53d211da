"""Limits of the review queue, and what the audit topic has to tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from groundwire.errors import RecordError
from groundwire.messages.decode import decode_review_decision
from tests.faults.history import REVIEWS, History, Pending, Violation, name, place_of
from tests.stream.harness import Seen


def pending(history: History) -> Iterator[Pending]:
    """Say when subjects waited for certain: nobody takes a place before the step that published it, nor gives it
    back before an action is sent.
    """
    acted: dict[tuple[str, ...], float] = {}
    for seen in history.of(REVIEWS):
        try:
            review = decode_review_decision(seen.value)
        except RecordError:
            continue
        who = (review.tenant_id, review.user_id, str(review.kind), review.subject_id)
        at = history.acted_at.get(review.action_id, 0.0)
        acted[who] = min(acted.get(who, at), at)
    arrived: dict[str, float] = {}
    for seen in history.of("review"):
        at = history.seen_at.get(place_of(seen))
        if at is not None:
            identity = seen.header("ce_id") or ""
            arrived[identity] = min(arrived.get(identity, at), at)
    for subject, _, seen in history.revisions():
        begin = arrived.get(seen.json["decision_id"])
        if not takes_a_place(history, seen) or begin is None:
            continue
        end = acted.get((*subject[:2], str(subject.kind), subject.subject_id), history.ended)
        if end > begin:
            yield Pending(subject, begin, end)


def takes_a_place(history: History, seen: Seen) -> bool:
    """Whether a decision is one with which its subject begins to wait for a person."""
    return bool(seen.json["facts"]["place"] == "free" and not history.by_people(seen.json))


def limits_hold(history: History) -> Iterator[Violation]:
    """At no moment did more subjects wait than there are places, of a user, a tenant, and in all."""
    steps = [
        (at, change, stay) for stay in pending(history) for at, change in ((stay.begin, 1), (stay.end, -1))
    ]
    now: Counter[tuple[str, ...]] = Counter()
    told: set[tuple[str, ...]] = set()
    for _, change, stay in sorted(steps, key=lambda step: step[:2]):
        tenant, user = stay.subject.tenant_id, stay.subject.user_id
        for scope, limit in (
            ((tenant, user), history.limits.user),
            ((tenant,), history.limits.tenant),
            ((), history.limits.total),
        ):
            now[scope] += change
            if now[scope] > limit and scope not in told:
                told.add(scope)
                detail = f"{now[scope]} places are taken of {limit} ({'/'.join(scope) or 'total'})"
                yield Violation("limit", stay.subject.subject_id, detail)


def audit_is_complete(history: History) -> Iterator[Violation]:
    """Every place in the queue, action, retraction and dead letter is told of."""
    told = {
        kind: {event["decision_id"] for event in history.audit.get(kind, ())}
        for kind in ("enqueue", "review_action", "retraction")
    }
    for _, _, seen in history.revisions():
        decision = seen.json
        wanted = ["review_action"] if history.by_people(decision) else []
        if takes_a_place(history, seen):
            wanted.append("enqueue")
        if decision["reason_code"] == "retracted":
            wanted.append("retraction")
            yield from _retraction(history, seen)
        for kind in wanted:
            if decision["decision_id"] not in told[kind]:
                yield Violation("audit", name(seen), f"no {kind} event")
    yield from _actions(history)
    yield from _letters(history)


def _retraction(history: History, seen: Seen) -> Iterator[Violation]:
    if not any(each.json["decision_id"] == seen.json["decision_id"] for each in history.of("retractions")):
        yield Violation("audit", name(seen), "no record on retractions")


def _actions(history: History) -> Iterator[Violation]:
    """Every ReviewDecision that can be read has its outcome; every other one is a dead letter."""
    events = [*history.audit.get("review_action", ()), *history.audit.get("refused_action", ())]
    outcomes = {event["detail"]["action_id"] for event in events}
    for seen in history.of(REVIEWS):
        dead = place_of(seen) in history.letters
        try:
            action = decode_review_decision(seen.value).action_id
        except RecordError as error:
            if not dead:
                yield Violation("loss", name(seen), f"no dead letter, {error.code} expected")
            continue
        if action not in outcomes and not dead:
            yield Violation("audit", name(seen), f"action {action} has no outcome")


def _letters(history: History) -> Iterator[Violation]:
    told = {
        (history.short(detail["topic"]), detail["partition"], detail["offset"])
        for detail in (event["detail"] for event in history.audit.get("dead_letter", ()))
    }
    for place, letters in history.letters.items():
        if place not in told:
            yield Violation("audit", name(letters[0]), f"no dead_letter event of {name(place)}")

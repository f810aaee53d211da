"""Nothing is approved without its checks or twice, and what people decide keeps its limits and is audited."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from groundwire.errors import RecordError
from groundwire.messages.decisions import Kind
from groundwire.messages.decode import decode_review_decision
from groundwire.messages.identity import Subject
from groundwire.messages.records import ReviewDecision
from tests.faults.history import REVIEWS, History, Pending, Violation, name, place_of
from tests.stream.harness import Seen

MUST_PASS = ("no_speculation", "not_duplicate", "not_previously_rejected")
MUST_NOT_FAIL = (
    *("duplicate", "dedup_check_failed", "hedge_words_detected", "previously_rejected", "expired"),
    *("hidden_text", "conflicting_near_duplicate", "derived_from_unapproved", "review_queue_full"),
)
GROUNDS = {
    "verified_citation": "citation_verified",
    "trusted_source": "trusted_source",
    "stated_decision": None,
    "stated_preference": None,
}
"""Reason of a claim that the gate itself approves, and the check that must have passed for it."""


def approvals_are_checked(history: History) -> Iterator[Violation]:
    """Whatever is on `approved` is approved by its checks, or by a person who may."""
    people = {place_of(seen): seen for seen in history.of(REVIEWS)}
    for subject, revision, seen in history.revisions():
        if seen.topic != "approved" and not seen.json["approved"]:
            continue
        for problem in _unchecked(history, subject, revision, seen, people):
            yield Violation("unchecked", name(seen), problem)


def _unchecked(
    history: History, subject: Subject, revision: int, seen: Seen, people: Mapping[Any, Seen]
) -> Iterator[str]:
    decision = seen.json
    if (decision["verdict"], decision["tier"], decision["approved"]) != ("approved", "tier_1", True):
        yield "verdict, tier and approved do not agree"
    if revision > 1 and history.by_people(decision):
        yield from _by_a_person(history, subject, seen, people)
    elif subject.kind == Kind.CLAIM:
        yield from _claim(history, subject, decision)
    else:
        if decision["checks_failed"] or decision["reason_code"] != "grounded":
            yield f"a response is approved as {decision['reason_code']} with failed checks"
        if not decision["checks_passed"]:
            yield "a response is approved without a check"


def _claim(history: History, subject: Subject, decision: dict[str, Any]) -> Iterator[str]:
    passed = [check.split(":")[0] for check in decision["checks_passed"]]
    failed = {check.split(":")[0] for check in decision["checks_failed"]}
    yield from (f"{check} has not passed" for check in MUST_PASS if check not in passed)
    yield from (f"{check} has failed" for check in MUST_NOT_FAIL if check in failed)
    facts = decision["facts"]
    if facts["dedup"]["status"] != "ok":
        yield f"deduplication was {facts['dedup']['status']}"
    ground = GROUNDS.get(decision["reason_code"], "")
    if ground == "" or (ground and ground not in passed):
        yield f"the ground {decision['reason_code']} is not among the checks passed"
    for citation in decision["citations"]:
        exists = citation["type"] != "url" or history.page_exists(citation["value"])
        if citation["state"] == "verified" and not exists:
            yield "a citation is verified that does not exist"
    if decision["derived_from"] and "parents_approved" not in passed:
        yield "parents were not looked at"
    for parent in decision["derived_from"]:
        kind = Kind.RESPONSE if parent.startswith("response:") else Kind.CLAIM
        named = subject._replace(kind=kind, subject_id=parent.removeprefix("response:"))
        if not any(each.json["approved"] for each in history.subjects.get(named, {}).values()):
            yield f"it rests on {parent}, which was never approved"


def _by_a_person(history: History, subject: Subject, seen: Seen, people: Mapping[Any, Seen]) -> Iterator[str]:
    decision = seen.json
    source = people.get(history.origin(decision))
    if source is None:
        yield "no ReviewDecision is at its origin"
        return
    try:
        review = decode_review_decision(source.value)
    except RecordError:
        yield "its origin is no ReviewDecision"
        return
    if review.action_id in history.forged or source.header("gw-attestation") is None:
        yield "the ReviewDecision was not signed by somebody who may"
    if (review.tenant_id, review.user_id, review.kind, review.subject_id) != tuple(subject):
        yield "the ReviewDecision is of another subject"
    if review.expected_revision != decision["revision"] - 1:
        yield "the ReviewDecision was of another revision"
    yield from _text(history, subject, review, decision)


def _text(
    history: History, subject: Subject, review: ReviewDecision, decision: dict[str, Any]
) -> Iterator[str]:
    if review.action not in {"approve", "edit"}:
        yield f"a person's {review.action} approves"
    if subject.kind != Kind.CLAIM:
        return
    before = history.subjects[subject].get(decision["revision"] - 1)
    reviewed = before.json["evidence"]["claim"] if before else None
    wanted = review.content if review.action == "edit" else reviewed
    if decision["evidence"]["claim"] != wanted:
        yield "the text is not the one that the person approved"


def one_memory(history: History) -> Iterator[Violation]:
    """Of claims that say the same, one at most is approved in a scope."""
    standing: dict[tuple[Any, ...], Seen] = {}
    for subject, by_revision in history.subjects.items():
        last = by_revision[max(by_revision)]
        if subject.kind != Kind.CLAIM or not last.json["approved"]:
            continue
        text = " ".join(last.json["evidence"]["claim"].lower().split())
        scope = (subject.tenant_id, subject.user_id, last.json["memory_type"], text)
        other = standing.setdefault(scope, last)
        if other is not last:
            yield Violation("two_memories", name(last), f"says what {name(other)} says")


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
    reported: set[tuple[str, ...]] = set()
    for _, change, stay in sorted(steps, key=lambda step: step[:2]):
        tenant, user = stay.subject.tenant_id, stay.subject.user_id
        for scope, limit in (
            ((tenant, user), history.limits.user),
            ((tenant,), history.limits.tenant),
            ((), history.limits.total),
        ):
            now[scope] += change
            if now[scope] > limit and scope not in reported:
                reported.add(scope)
                detail = f"{now[scope]} places are taken of {limit} ({'/'.join(scope) or 'total'})"
                yield Violation("limit", stay.subject.subject_id, detail)


def audit_is_complete(history: History) -> Iterator[Violation]:
    """Every place in the queue, action, retraction and dead letter has its audit event."""
    audited = {
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
            if decision["decision_id"] not in audited[kind]:
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
    audited = {
        (history.short(detail["topic"]), detail["partition"], detail["offset"])
        for detail in (event["detail"] for event in history.audit.get("dead_letter", ()))
    }
    for place, letters in history.letters.items():
        if place not in audited:
            yield Violation("audit", name(letters[0]), f"no dead_letter event of {name(place)}")

"""Nothing is approved without its checks, or twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from groundwire.errors import RecordError
from groundwire.messages.decisions import Kind
from groundwire.messages.decode import decode_review_decision
from groundwire.messages.identity import Subject
from groundwire.messages.reviews import ReviewDecision
from tests.faults.history import REVIEWS, History, Violation, name, place_of
from tests.stream.harness import Seen

MUST_PASS = ("no_speculation", "not_duplicate", "not_previously_rejected")
MUST_NOT_FAIL = (
    *("duplicate", "dedup_check_failed", "hedge_words_detected", "previously_rejected", "expired"),
    *("conflicting_near_duplicate", "derived_from_unapproved", "review_queue_full"),
)
GROUNDS = {
    "verified_citation": "citation_verified",
    "trusted_source": "trusted_source",
    "stated_decision": None,
    "stated_preference": None,
}
"""Reason of a claim that the gate itself approves, and the check that must have passed for it."""


def approvals_are_checked(history: History) -> Iterator[Violation]:
    """Whatever stands on `approved` is approved by its checks, or by a person who may."""
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
        stands = citation["type"] != "url" or history.page_stands(citation["value"])
        if citation["state"] == "verified" and not stands:
            yield "a citation is verified that does not stand"
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
        yield "no ReviewDecision stands at its origin"
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
    """Of claims that say the same, one at most stands approved in a scope."""
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

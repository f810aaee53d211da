"""The checker of the fault suite finds what it is there to find, and nothing where all is well."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire.messages.identity import Subject
from groundwire.state.model import SubjectState, SubjectStatus
from tests.faults.checker import RULES, check, compare_state
from tests.faults.history import REVIEWS, History, Violation, name, place_of
from tests.faults.rules_approval import pending
from tests.faults.rules_seals import everything_is_sealed
from tests.stream.harness import Seen
from tests.unit.faults.unfaulted import LIMITS, PREFIX, a_run


@cache
def clean() -> tuple[History, dict[Subject, SubjectStatus | None]]:
    run, standings = a_run()
    return run.history(), standings


def broken(history: History) -> dict[str, list[Violation]]:
    return {promise: violations for promise, violations in check(history).items() if violations}


def rules(history: History) -> set[str]:
    return {violation.rule for violations in check(history).values() for violation in violations}


def holding(topic: str, records: Iterable[Seen]) -> History:
    """The history with other records on a topic."""
    return replace(clean()[0], records={**clean()[0].records, topic: list(records)})


def without(topic: str, *gone: Seen) -> History:
    return holding(topic, [seen for seen in clean()[0].of(topic) if seen not in gone])


def appended(seen: Seen, **fields: Any) -> History:
    """The history with a record at the end of its topic."""
    log = clean()[0].of(fields.get("topic", seen.topic))
    return holding(fields.get("topic", seen.topic), [*log, replace(seen, offset=len(log), **fields)])


def changed(seen: Seen, change: Callable[[dict[str, Any]], None]) -> bytes:
    fields = json.loads(seen.value or b"")
    change(fields)
    return json.dumps(fields).encode()


def rewritten(seen: Seen, change: Callable[[dict[str, Any]], None]) -> History:
    """The history with other bytes in a record's place."""
    other = replace(seen, value=changed(seen, change))
    return holding(seen.topic, [other if each is seen else each for each in clean()[0].of(seen.topic)])


def approved(reason: str = "trusted_source") -> Seen:
    return next(seen for seen in clean()[0].of("approved") if seen.json["reason_code"] == reason)


@settings(max_examples=8)
@given(st.integers(0, 10_000))
def test_a_run_in_which_nothing_breaks_passes(seed: int):
    run, standings = a_run(seed, 60)
    history = run.history()
    assert broken(history) == {}
    assert list(compare_state(history, standings)) == []


def test_such_a_run_has_something_of_everything_that_is_checked():
    history, _ = clean()
    assert {"approved", "review", "blocked", "dead-letter", "audit", "retractions"} <= set(history.records)
    reasons = {seen.json["reason_code"] for seen in history.decisions}
    wanted = {"human_approved", "human_rejected", "retracted", "duplicate", "review_queue_full", "grounded"}
    assert wanted | {"trusted_source", "verified_citation", "personal_speculation"} <= reasons
    assert {"enqueue", "review_action", "refused_action", "retraction", "dead_letter"} <= set(history.audit)
    assert any(seen.json["derived_from"] for seen in history.of("approved"))
    assert any(seen.json["kind"] == "response" for seen in history.of("approved"))
    assert list(pending(history))


def test_a_decision_that_is_missing_is_a_loss():
    lost = approved()
    found = broken(without("approved", lost))["every input is decided or a dead letter"]
    topic, partition, offset = clean()[0].origin(lost.json)
    assert ("loss", f"{topic}/{partition}@{offset}") in {(v.rule, v.record) for v in found}


def test_a_dead_letter_that_is_missing_is_a_loss():
    assert "loss" in rules(without("dead-letter", clean()[0].of("dead-letter")[0]))


def test_an_acknowledged_input_that_the_broker_has_lost_is_not_taken_for_ours():
    history = clean()[0]
    first = next(seen for seen in history.of("claims") if place_of(seen) == history.sent[0].place)
    assert "broker_lost" in rules(without("claims", first))


def test_a_repeat_with_the_same_bytes_is_allowed_and_one_with_other_bytes_is_found():
    seen = approved()
    assert broken(appended(seen)) == {}
    other = changed(seen, lambda decision: decision.update(decided_at="2026-01-31T12:00:01Z"))
    (violation,) = broken(appended(seen, value=other))["an id's bytes never change"]
    assert violation.detail.endswith("decided_at")


@pytest.mark.parametrize("kind", ["state_lost", "state_rebuilt", "policy_loaded", "enqueue"])
def test_an_audit_event_with_the_id_of_another_has_its_bytes(kind: str):
    """Whoever tells an event again tells it byte for byte; what is noticed later is another event."""
    log = list(clean()[0].of("audit"))
    for at in ("2026-01-31T12:00:00Z", "2026-01-31T12:00:01Z"):
        event = {"type": kind, "decision_id": None, "at": at, "detail": {"epoch": "x"}}
        log.append(
            replace(log[0], offset=len(log), headers=(("ce_id", b"e"),), value=json.dumps(event).encode())
        )
    assert "bytes" in rules(holding("audit", log))


def test_a_second_decision_of_another_topic_is_found():
    assert "bytes" in rules(appended(approved(), topic="blocked"))


def test_a_decision_under_an_id_that_is_not_its_subjects_is_found():
    assert "identity" in rules(rewritten(approved(), lambda d: d.update(decision_id="0" * 36)))


def test_a_record_that_is_a_dead_letter_and_decided_is_found():
    history = clean()[0]
    topic, partition, offset = history.origin(approved().json)
    place = {"topic": PREFIX + topic, "partition": str(partition), "offset": str(offset)}
    headers = [("gw-error", b"worker_crash")]
    headers += [(f"__connect.errors.{name}", value.encode()) for name, value in place.items()]
    assert "two_ends" in rules(appended(history.of("dead-letter")[0], headers=tuple(headers)))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["checks_passed"].remove("not_duplicate"),
        lambda d: d["checks_passed"].remove("no_speculation"),
        lambda d: d["checks_passed"].remove("trusted_source: " + d["source"]),
        lambda d: d["checks_failed"].append("dedup_check_failed"),
        lambda d: d["facts"]["dedup"].update(status="failed"),
        lambda d: d["derived_from"].append("never-heard-of"),
        lambda d: d.update(reason_code="ungrounded"),
        lambda d: d.update(tier="tier_2"),
    ],
)
def test_an_approval_without_its_checks_is_found(change: Callable[[dict[str, Any]], None]):
    assert "unchecked" in rules(rewritten(approved(), change))


def test_an_approval_by_a_citation_that_does_not_stand_is_found():
    history = replace(clean()[0], page_stands=lambda _url: False)
    assert {v.rule for v in broken(history)["nothing is approved without its checks"]} == {"unchecked"}


def test_an_approval_by_a_person_who_did_not_sign_is_found():
    seen = approved("human_approved")
    history = clean()[0]
    source = next(each for each in history.of(REVIEWS) if place_of(each) == history.origin(seen.json))
    unsigned = [replace(each, headers=()) if each is source else each for each in history.of(REVIEWS)]
    assert "unchecked" in rules(holding(REVIEWS, unsigned))
    assert "unchecked" in rules(replace(history, forged=frozenset({source.json["action_id"]})))
    assert "unchecked" in rules(without(REVIEWS, source))


def test_a_text_that_is_not_the_one_a_person_approved_is_found():
    change = lambda d: d["evidence"].update(claim="Something else")  # noqa: E731 - as the changes above
    assert "unchecked" in rules(rewritten(approved("human_approved"), change))


def test_a_provisional_approval_is_found():
    assert "unchecked" in rules(rewritten(approved(), lambda d: d.update(revision=0)))


def test_approvals_of_a_key_in_another_order_than_their_records_are_found():
    history = clean()[0]
    keys: dict[Any, list[Seen]] = {}
    for seen in history.of("approved"):
        if history.origin(seen.json)[0] == "claims":
            keys.setdefault(seen.key, []).append(seen)
    first, second = next(pair for pair in keys.values() if len(pair) > 1)[:2]
    swapped = {first: replace(second, offset=first.offset), second: replace(first, offset=second.offset)}
    assert "order" in rules(holding("approved", [swapped.get(seen, seen) for seen in history.of("approved")]))


def test_more_places_than_there_are_are_found():
    history = clean()[0]
    nobody_acts = replace(history, acted_at=dict.fromkeys(history.acted_at, history.ended))
    details = [violation.detail for violation in broken(nobody_acts)["review limits are never exceeded"]]
    assert any(
        f"{LIMITS.total + 1} places are taken of {LIMITS.total} (total)" in detail for detail in details
    )
    fewer = broken(replace(history, limits=replace(LIMITS, user=1)))["review limits are never exceeded"]
    assert fewer
    assert all("2 places are taken of 1" in violation.detail for violation in fewer)


def test_two_approvals_that_say_the_same_are_found():
    history = clean()[0]
    one = approved()
    other = next(
        seen
        for seen in history.of("approved")
        if seen.json["kind"] == "claim" and seen.subject != one.subject
    )

    def copied(decision: dict[str, Any]) -> None:
        decision["evidence"]["claim"] = one.json["evidence"]["claim"].upper()
        decision.update({name: one.json[name] for name in ("tenant_id", "user_id", "memory_type")})

    assert "two_memories" in rules(rewritten(other, copied))


@pytest.mark.parametrize("kind", ["enqueue", "review_action", "refused_action", "retraction", "dead_letter"])
def test_an_audit_event_that_is_missing_is_found(kind: str):
    gone = next(seen for seen in clean()[0].of("audit") if seen.json["type"] == kind)
    found = broken(without("audit", gone))["audit is complete"]
    assert {violation.rule for violation in found} == {"audit"}


def test_a_retraction_that_was_not_published_is_found():
    assert rules(without("retractions", clean()[0].of("retractions")[0])) == {"audit", "removed"}


def test_state_that_has_forgotten_or_adds_an_approval_is_found():
    history, standings = clean()
    subject = Subject(*(approved().json[n] for n in ("tenant_id", "user_id", "kind", "subject_id")))
    subject = next(each for each in history.subjects if each == subject)
    revision = max(history.subjects[subject])
    for wrong in (
        None,
        SubjectStatus(SubjectState.BLOCKED, revision),
        SubjectStatus(SubjectState.APPROVED, revision + 1),
    ):
        found = list(compare_state(history, {**standings, subject: wrong}))
        assert [violation.rule for violation in found] == ["state"]


def test_every_rule_has_a_name_of_its_own_that_says_what_it_promises():
    assert len(RULES) == len(check(clean()[0])) == 13


def seals() -> list[Seen]:
    return [seen for seen in clean()[0].of("audit") if seen.json["type"] == "seal"]


def test_a_decision_that_no_seal_names_is_found_and_so_are_an_event_and_other_bytes():
    alone = next(seal for seal in seals() if len(seal.json["detail"]["outputs"]) == 1)
    assert rules(without("audit", alone)) >= {"unsealed", "broken_chain"}
    event = next(seen for seen in clean()[0].of("audit") if seen.json["type"] == "review_action")
    name = "00000000-0000-5000-8000-000000000000"
    assert "unsealed" in rules(appended(event, headers=(("ce_id", name.encode()),)))
    assert "unsealed" in rules(rewritten(approved(), lambda told: told.update(engine="9.9.9")))


def test_an_unsealed_decision_that_a_sealed_one_supersedes_is_none_of_a_breach():
    """A killed worker's: whoever read the record again found what a person had made of it meanwhile."""
    history = clean()[0]
    by_revision = next(each for each in history.subjects.values() if {1, 2} <= set(each))

    def is_of_first(seal: Seen) -> bool:
        told = seal.json["detail"]["outputs"]
        return by_revision[1].json["decision_id"] in str(told)

    first = next(filter(is_of_first, seals()))
    found = list(everything_is_sealed(without("audit", first)))
    assert not [each for each in found if each.record.startswith("review/")], found
    second = next(
        s for s in seals() if by_revision[2].json["decision_id"] in str(s.json["detail"]["outputs"])
    )
    both = list(everything_is_sealed(without("audit", first, second)))
    assert {name(by_revision[1]), name(by_revision[2])} <= {each.record for each in both}


def test_a_sealed_record_that_is_gone_is_found():
    assert "removed" in rules(without("approved", approved()))


def test_a_seal_that_was_taken_out_changed_or_begins_anew_is_found():
    first, second, *_ = [each for each in seals() if each.json["detail"]["seal"]["topic"].endswith("claims")]
    assert "broken_chain" in rules(without("audit", first))
    assert "bad_seal" in rules(rewritten(second, lambda told: told["detail"]["outputs"].clear()))
    assert "broken_chain" in rules(
        rewritten(second, lambda told: told["detail"]["seal"].update(before=None, first=10**9))
    )

"""The order rule finds what the contract rules out, and nothing that it leaves open."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from agents.outputs import outputs
from groundwire.messages.headers import InboundRecord, deferred_headers
from tests.faults.history import CLAIMS, RESPONSES, REVIEWS, History, traceparent
from tests.faults.load import Input, Inputs
from tests.faults.rules_identity import order
from tests.stream.harness import Seen
from tests.unit.faults.unfaulted import PREFIX, Run

FIELDS = {
    CLAIMS: lambda subject: {"claim_id": subject, "content": f"Text of {subject}"},
    RESPONSES: lambda subject: {"response_id": subject, "answer": f"Answer {subject}"},
    REVIEWS: lambda subject: {
        "action_id": f"action on {subject}",
        "tenant_id": "default",
        "subject_id": subject,
        "expected_revision": 1,
        "action": "approve",
        "reviewer": "u",
        "at": "2026-01-31T12:00:00Z",
    },
}
INPUTS = (CLAIMS, RESPONSES, REVIEWS)


@dataclass
class Log:
    """Topics that a test writes, record by record."""

    records: dict[str, list[Seen]] = field(default_factory=dict)
    count: int = 0

    def stands(self, topic: str, subject: str, *, user: str = "u", partition: int = 0) -> Seen:
        """Append an input."""
        self.count += 1
        value = json.dumps({"user_id": user, **FIELDS[topic](subject)}).encode()
        headers = [traceparent(1, self.count)]
        return self._append(topic, partition, f"default:{user}".encode(), value, headers)

    def waits(self, cause: Seen) -> None:
        """Put an input on `deferred`."""
        record = InboundRecord(
            PREFIX + cause.topic, 0, cause.offset, cause.timestamp, cause.key, cause.value, cause.headers
        )
        self._append("deferred", 0, cause.key, cause.value, deferred_headers(record))

    def told(
        self, cause: Seen, *, origin: Seen | None = None, revision: int = 1, topic: str = "approved"
    ) -> None:
        """Publish a decision for an input."""
        record, origin = cause.json, origin or cause
        kind = record.get("kind", "response" if cause.topic == RESPONSES else "claim")
        decision = {
            "tenant_id": "default",
            "user_id": record["user_id"],
            "kind": "claim" if cause.topic == REVIEWS else kind,
            "subject_id": record.get("claim_id") or record.get("response_id") or record["subject_id"],
            "revision": revision,
            "origin": {
                "topic": PREFIX + origin.topic,
                "partition": origin.partition,
                "offset": origin.offset,
            },
        }
        self._append(topic, 0, cause.key, json.dumps(decision).encode(), cause.headers)

    def broken(self) -> list[str]:
        return [violation.record for violation in order(History(PREFIX, self.records))]

    def _append(self, topic: str, partition: int, key: bytes | None, value: bytes, headers: Any) -> Seen:
        log = self.records.setdefault(topic, [])
        seen = Seen(topic, partition, len(log), 1_769_860_800_000, key, value, tuple(headers))
        log.append(seen)
        return seen


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.mark.parametrize("topic", INPUTS)
def test_two_records_of_a_key_told_of_in_another_order_are_found_on_every_input_topic(log: Log, topic: str):
    first, second = log.stands(topic, "a"), log.stands(topic, "b")
    log.told(second)
    log.told(first)
    assert log.broken() == ["approved/0@1"]


def test_users_that_had_to_wait_are_no_excuse_for_records_that_had_not(log: Log):
    waiting, first, second = [log.stands(RESPONSES, each) for each in "wab"]
    log.waits(waiting)
    log.told(second)
    log.told(first)
    log.told(waiting)
    assert log.broken() == ["approved/0@1"]


def test_an_overtaker_is_found_though_both_are_told_of_again_in_the_right_order(log: Log):
    first, second = log.stands(CLAIMS, "a"), log.stands(CLAIMS, "b")
    for each in (second, first, first, second):
        log.told(each)
    assert log.broken() == ["approved/0@1"]


def test_repeats_of_what_was_told_in_order_are_allowed_as_another_worker_reads_again(log: Log):
    first, second = log.stands(CLAIMS, "a"), log.stands(CLAIMS, "b")
    for each in (first, second, first, second):
        log.told(each)
    assert log.broken() == []


def test_two_keys_two_partitions_and_two_topics_have_no_order_between_each_other(log: Log):
    a, b = log.stands(CLAIMS, "a"), log.stands(CLAIMS, "b", user="v")
    c, d = log.stands(CLAIMS, "c", user="w"), log.stands(CLAIMS, "d", user="w", partition=1)
    e, f = log.stands(CLAIMS, "e", user="x"), log.stands(RESPONSES, "f", user="x")
    for each in (b, a, d, c, f, e):
        log.told(each)
    assert log.broken() == []


@pytest.mark.parametrize("topic", [CLAIMS, RESPONSES])
def test_who_waits_on_deferred_is_overtaken_by_who_does_not(log: Log, topic: str):
    first, second = log.stands(topic, "a"), log.stands(topic, "b")
    log.told(first, revision=0, topic="review")
    log.waits(first)
    log.told(second)
    log.told(first)
    assert log.broken() == []


def test_two_that_wait_on_deferred_keep_the_order_that_they_have_there(log: Log):
    first, second = log.stands(CLAIMS, "a"), log.stands(RESPONSES, "b")
    log.waits(second)
    log.waits(first)
    log.told(first)
    log.told(second)
    assert log.broken() == ["approved/0@1"]


def test_one_that_waits_may_be_told_of_from_its_input_topic_which_is_read_again_before_its_turn_comes(
    log: Log,
):
    first, second = log.stands(CLAIMS, "a"), log.stands(CLAIMS, "b")
    log.waits(first)
    log.waits(second)
    log.told(second)
    log.told(first)
    assert log.broken() == ["approved/0@1"]
    log.told(second)
    assert log.broken() == []


def test_the_same_is_so_where_its_turn_brings_a_later_revision(log: Log):
    first, second = log.stands(CLAIMS, "a"), log.stands(CLAIMS, "b")
    log.waits(first)
    log.waits(second)
    log.told(second)
    log.told(first)
    log.told(second, revision=2, topic="blocked")
    assert log.broken() == []


def test_a_repeat_may_tell_what_people_decided_before_their_own_record_does(log: Log):
    claim = log.stands(CLAIMS, "b")
    first, second = log.stands(REVIEWS, "a"), log.stands(REVIEWS, "b")
    log.told(claim, origin=second, revision=2)
    log.told(first, revision=2)
    log.told(second, revision=2)
    assert log.broken() == []


def test_a_record_that_is_read_again_is_told_what_people_have_decided_since(log: Log):
    first, second = log.stands(CLAIMS, "a"), log.stands(CLAIMS, "b")
    log.told(first, topic="review")
    log.told(second)
    action = log.stands(REVIEWS, "a")
    log.told(action, revision=2)
    log.told(first, origin=action, revision=2)
    assert log.broken() == []


def test_a_repeat_of_what_waits_is_told_of_late_if_at_all(log: Log):
    waiting, repeat, other = log.stands(CLAIMS, "a"), log.stands(CLAIMS, "a"), log.stands(CLAIMS, "b")
    log.waits(waiting)
    log.told(other)
    log.told(waiting)
    log.told(repeat, origin=waiting)
    assert log.broken() == []


def test_an_approval_that_does_not_carry_the_traceparent_of_its_record_is_found(log: Log):
    log.told(replace(log.stands(CLAIMS, "a"), headers=()))
    log.told(replace(log.stands(CLAIMS, "b"), headers=(traceparent(9, 9),)))
    assert log.broken() == ["approved/0@0", "approved/0@1"]


async def test_a_response_of_an_outage_is_overtaken_by_one_of_its_user_that_came_after_it():
    run = Run()
    late, next_one = [run.stand(each.topic, each.key, each.value) for each in _two_responses()]
    await run.publish(late, outputs(run.gate.provisional(await run.gate.prepare([late]))))
    await run.gate_decides(next_one)
    await run.gate_decides(late)
    history = run.history()
    assert [history.cause(seen) for seen in history.of("approved")] == [(RESPONSES, 0, 1), (RESPONSES, 0, 0)]
    assert [seen.json["revision"] for seen in history.of("review")] == [0]
    assert list(order(history)) == []
    assert list(order(replace(history, records={**history.records, "deferred": []})))


def _two_responses() -> list[Input]:
    inputs = Inputs(1, "http://pages.example")
    made = (inputs.next() for _ in range(1000))
    found = [each for each in made if each.topic == RESPONSES and not each.bad]
    return [
        replace(
            each,
            value=json.dumps({**json.loads(each.value or b""), "user_id": "u", "confidence": 1.0}).encode(),
        )
        for each in found
        if b'"tenant_id": "acme"' in (each.value or b"")
    ][:2]

"""The order rule finds what the contract rules out, and nothing that it leaves open; faults follow from a seed."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from agents.outputs import outputs
from groundwire.messages.headers import InboundRecord, deferred_headers
from tests.faults.deployment import REDIS
from tests.faults.history import CLAIMS, RESPONSES, REVIEWS, History, traceparent
from tests.faults.load import Inputs
from tests.faults.nemesis import KINDS, schedule
from tests.faults.rules_identity import order
from tests.stream.harness import Seen
from tests.unit.faults.unfaulted import PREFIX, Run


def test_the_rule_finds_records_out_of_order_and_nothing_that_the_contract_leaves_open() -> None:
    """And approvals that do not carry the traceparent of their records."""

    class Log:
        """Topics that a test writes, record by record."""

        def __init__(self) -> None:
            self.records: dict[str, list[Seen]] = {}

        def append(self, topic: str, subject: str, *, user: str = "u", partition: int = 0) -> Seen:
            action = {"tenant_id": "default", "expected_revision": 1, "action": "approve", "reviewer": "u"}
            action |= {"action_id": f"on {subject}", "at": "2026-01-31T12:00:00Z", "subject_id": subject}
            fields = {
                CLAIMS: {"claim_id": subject, "content": f"Text of {subject}"},
                RESPONSES: {"response_id": subject, "answer": f"Answer {subject}"},
                REVIEWS: action,
            }[topic]
            headers = [traceparent(1, 1 + sum(map(len, self.records.values())))]
            value = json.dumps({"user_id": user, **fields}).encode()
            return self._append(topic, f"default:{user}".encode(), value, headers, partition)

        def waits(self, cause: Seen) -> None:
            place = (PREFIX + cause.topic, 0, cause.offset, cause.timestamp)
            record = InboundRecord(*place, cause.key, cause.value, cause.headers)
            self._append("deferred", cause.key, cause.value, deferred_headers(record))

        def publish(self, cause: Seen, origin: Seen, topic: str, revision: int) -> None:
            """Publish a decision for an input."""
            record = cause.json
            decision = {
                "tenant_id": "default",
                "user_id": record["user_id"],
                "kind": "response" if cause.topic == RESPONSES else "claim",
                "subject_id": record.get("claim_id") or record.get("response_id") or record["subject_id"],
                "revision": revision,
                "origin": {
                    "topic": PREFIX + origin.topic,
                    "partition": origin.partition,
                    "offset": origin.offset,
                },
            }
            self._append(topic, cause.key, json.dumps(decision).encode(), cause.headers)

        def broken(self) -> list[str]:
            return [violation.record for violation in order(History(PREFIX, self.records))]

        def _append(
            self, topic: str, key: Any, value: bytes | None, headers: Any, partition: int = 0
        ) -> Seen:
            log = self.records.setdefault(topic, [])
            log.append(Seen(topic, partition, len(log), 1_769_860_800_000, key, value, tuple(headers)))
            return log[-1]

    def played(inputs: str, steps: str) -> list[str]:
        """Write what a script says, and return the records that are out of order.

        Inputs: `a` is a claim of the subject a, `a.responses` a response; `a.claims.w.1` has a user and a partition of
        its own. Steps: `~a` puts a on `deferred`; `a`, `a.blocked.2` publish a decision about a, with a topic and a
        revision; `a<b` has the origin b.
        """
        log, placed = Log(), {}
        for word in inputs.split():
            name, topic, user, partition = (*word.split("."), *("", "", "")[word.count(".") :])
            full = {"reviews": REVIEWS, "responses": RESPONSES}.get(topic, CLAIMS)
            placed[name] = log.append(full, name[0], user=user or "u", partition=int(partition or 0))
        for step in steps.split():
            if step[0] == "~":
                log.waits(placed[step[1:]])
                continue
            who, topic, revision = (*step.split("."), *("", "")[step.count(".") :])
            cause, _, origin = who.partition("<")
            log.publish(placed[cause], placed[origin or cause], topic or "approved", int(revision or 1))
        return log.broken()

    def cases() -> Iterator[tuple[str, str, str, list[str]]]:
        """Yield what is shown, inputs, steps, and the records that are out of order."""
        late = ["approved/0@1"]
        for topic in ("claims", "responses", "reviews"):
            yield "two records of a key in another order", f"a.{topic} b.{topic}", "b a", late
        for topic in ("claims", "responses"):
            waits = "a.review.0 ~a b a"
            yield "a waiting record is overtaken by one that does not wait", f"a.{topic} b.{topic}", waits, []
        some = "w.responses a.responses b.responses"
        yield "waiting users are no excuse for records that did not wait", some, "~w b a w", late
        yield "an overtaker, though both are repeated in order", "a b", "b a a b", late
        yield "repeats of what was published in order", "a b", "a b a b", []
        apart = "a b.claims.v c.claims.w d.claims.w.1 e.claims.x f.responses.x"
        yield "two keys, two partitions and two topics have no order", apart, "b a d c f e", []
        yield "two waiting records keep the order of `deferred`", "a b.responses", "~b ~a a b", late
        yield "an early decision from the input topic, before its turn", "a b", "~a ~b b a", late
        yield "the same, repeated when its turn comes", "a b", "~a ~b b a b", []
        yield "the same, where its turn brings a later revision", "a b", "~a ~b b a b.blocked.2", []
        people = "b a*.reviews b*.reviews"
        yield "a repeat publishes a person's decision before its record", people, "b<b*..2 a*..2 b*..2", []
        again = "a b a*.reviews"
        yield "a record read again publishes what people decided since", again, "a.review b a*..2 a<a*..2", []
        yield "a repeat of a waiting record is published late, if at all", "a a2 b", "~a b a a2<a", []

    wrong = [case for case in cases() if played(*case[1:3]) != case[3]]
    assert wrong == []

    log = Log()
    for subject, headers in (("a", ()), ("b", (traceparent(9, 9),))):
        seen = log.append(CLAIMS, subject)
        log.publish(replace(seen, headers=headers), seen, "approved", 1)
    assert log.broken() == ["approved/0@0", "approved/0@1"]


async def test_a_response_of_an_outage_is_overtaken_by_one_of_its_user_that_came_after_it():
    inputs = Inputs(1, "http://pages.example")
    made = (inputs.next() for _ in range(1000))
    sound = (json.loads(each.value or b"") for each in made if each.topic == RESPONSES and not each.bad)
    run, two = Run(), [each for each in sound if each["tenant_id"] == "acme"][:2]
    late, next_one = [
        run.append(RESPONSES, b"acme:u", json.dumps(each | {"user_id": "u", "confidence": 1.0}).encode())
        for each in two
    ]
    await run.publish_and_seal([late], outputs(run.gate.provisional(await run.gate.prepare([late]))))
    await run.gate_decides(next_one)
    await run.gate_decides(late)
    history = run.history()
    assert [history.cause(seen) for seen in history.of("approved")] == [(RESPONSES, 0, 1), (RESPONSES, 0, 0)]
    assert [seen.json["revision"] for seen in history.of("review")] == [0]
    assert list(order(history)) == []
    assert list(order(replace(history, records={**history.records, "deferred": []})))


def test_a_seed_has_one_schedule_another_seed_has_another_and_a_long_one_has_every_kind_of_fault():
    found = {redis: schedule(1, 2500, nodes=3, redis=redis) for redis in REDIS}
    for redis, faults in found.items():
        assert faults == schedule(1, 2500, nodes=3, redis=redis)
        assert faults != schedule(2, 2500, nodes=3, redis=redis)
    kinds = {redis: {fault.kind for fault in faults} for redis, faults in found.items()}
    assert set().union(*kinds.values()) == set(KINDS)
    assert "kill_redis" in kinds["one"] - kinds["cluster"]
    of_clusters = kinds["cluster"] & kinds["replicated"]
    assert {"kill_shard", "move_slots", "outdate_worker"} <= of_clusters - kinds["one"]


@given(st.integers(), st.sampled_from((1, 3)), st.sampled_from(list(REDIS)))
def test_nothing_is_broken_twice_at_a_time_and_faults_begin_in_order_and_in_time(
    seed: int, nodes: int, redis: str
):
    faults = schedule(seed, 300, nodes=nodes, redis=redis)
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    until: Counter[str] = Counter()
    for fault in faults:
        assert KINDS[fault.kind].needs <= nodes
        assert 0 <= fault.at <= 300
        assert until[fault.holds] <= fault.at + 0.1
        until[fault.holds] = fault.at + fault.seconds  # type: ignore[assignment]


@given(st.integers(), st.sampled_from(("one", "cluster")))
def test_while_redis_loses_its_data_nothing_else_is_broken_where_state_is_rebuilt_early(
    seed: int, redis: str
):
    faults = schedule(seed, 2000, nodes=3, redis=redis)
    for number, fault in enumerate(faults):
        if fault.kind in {"lose_redis", "lose_shard"}:
            assert all(before.at + before.seconds + 9 < fault.at for before in faults[:number])
            assert all(after.at > fault.at + fault.seconds + 19 for after in faults[number + 1 :])

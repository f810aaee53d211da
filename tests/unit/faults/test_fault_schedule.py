"""What the fault suite breaks follows from its seed, and what recovery took from what was seen."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.figures import Stall, answers, by_kind, recoveries, stalls
from tests.faults.history import History
from tests.faults.nemesis import Nemesis, Struck
from tests.faults.schedule import KINDS, Fault, Plan, schedule
from tests.stream.harness import Seen

LONG = Plan(seconds=2000, every=3, session=6, nodes=3, apart=20)


@given(st.integers())
def test_a_seed_has_one_schedule(seed: int):
    assert schedule(seed, LONG) == schedule(seed, LONG)


def test_another_seed_has_another_and_a_long_one_has_every_kind_of_fault():
    assert schedule(1, LONG) != schedule(2, LONG)
    assert {fault.kind for fault in schedule(1, LONG)} == set(KINDS)


@settings(max_examples=30)
@given(st.integers(), st.sampled_from((1, 3)))
def test_nothing_is_broken_twice_at_a_time_and_faults_begin_in_order_and_in_time(seed: int, nodes: int):
    plan = Plan(seconds=300, every=2, session=6, nodes=nodes, apart=20)
    faults = schedule(seed, plan)
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    until: Counter[str] = Counter()
    for fault in faults:
        assert KINDS[fault.kind].needs <= nodes
        assert 0 <= fault.at <= plan.seconds
        assert until[fault.holds] <= fault.at + 0.1
        until[fault.holds] = fault.at + fault.seconds  # type: ignore[assignment]


@settings(max_examples=30)
@given(st.integers())
def test_while_redis_loses_its_data_nothing_else_is_broken_where_state_is_rebuilt_early(seed: int):
    faults = schedule(seed, LONG)
    for number, fault in enumerate(faults):
        if fault.kind == "lose_redis":
            assert all(before.at + before.seconds + 9 < fault.at for before in faults[:number])
            assert all(after.at > fault.at + fault.seconds + 19 for after in faults[number + 1 :])


def test_only_the_kinds_that_are_wanted_come():
    plan = Plan(seconds=300, every=5, session=15, only=("kill_worker",))
    assert {fault.kind for fault in schedule(1, plan)} == {"kill_worker"}


def lane(*pairs: tuple[float, float]) -> History:
    """A history of one partition: when each record was sent, and when it was seen to be decided."""
    claims, blocked, seen_at = [], [], {}
    for offset, (sent, answered) in enumerate(pairs):
        claims.append(Seen("claims", 0, offset, int(sent * 1000), b"k", b"{}", ()))
        value = b'{"revision": 1, "origin": {"topic": "p.claims", "partition": 0, "offset": %d}}' % offset
        blocked.append(Seen("blocked", 0, offset, 0, b"k", value, ()))
        seen_at["blocked", 0, offset] = answered
    return History("p.", {"claims": claims, "blocked": blocked}, seen_at=seen_at)


def test_time_without_decisions_is_counted_only_while_records_wait():
    quiet = lane((1, 2), (10, 11))
    assert stalls(quiet, 0) == [Stall(("claims", 0), 1, 2), Stall(("claims", 0), 10, 11)]
    waiting = lane((1, 2), (1.5, 11))
    assert stalls(waiting, 0) == [Stall(("claims", 0), 1, 2), Stall(("claims", 0), 2, 11)]


def test_what_is_deferred_waits_for_the_worker_of_deferred_and_an_action_for_its_event():
    where = [("gw-origin-topic", b"p.claims"), ("gw-origin-partition", b"0"), ("gw-origin-offset", b"0")]
    origin = {"topic": "p.claims", "partition": 0, "offset": 0}
    action = {
        **dict.fromkeys(("tenant_id", "user_id", "subject_id", "reviewer"), "x"),
        "action_id": str(uuid.UUID(int=1)),
        "kind": "claim",
        "expected_revision": 1,
        "action": "approve",
    }
    records = {
        "claims": [said("claims", 0)],
        "deferred": [said("deferred", 0, headers=tuple(where))],
        "blocked": [said("blocked", number, {"revision": number, "origin": origin}) for number in (0, 1)],
        "review-decisions": [said("review-decisions", 0, action)],
        "audit": [said("audit", 0, {"detail": {"action_id": action["action_id"]}})],
    }
    seen_at = {("deferred", 0, 0): 3.0, ("blocked", 0, 0): 2.0, ("blocked", 0, 1): 9.0, ("audit", 0, 0): 7.0}
    assert answers(History("p.", records, seen_at=seen_at)) == {
        ("claims", 0, 0): 2.0, ("deferred", 0, 0): 9.0, ("review-decisions", 0, 0): 7.0,
    }  # fmt: skip


def said(topic: str, offset: int, value: object = None, headers: tuple[tuple[str, bytes], ...] = ()) -> Seen:
    return Seen(topic, 0, offset, 0, b"k", json.dumps(value).encode(), headers)


def struck(number: int, kind: str, begin: float, end: float, target: str = "claims-0") -> Struck:
    return Struck(Fault(number, begin, kind, target, end - begin, 0.0), begin, end)


def test_a_fault_is_charged_with_the_longest_stall_that_it_can_have_caused():
    waits = [Stall(("claims", 0), 1, 2), Stall(("claims", 0), 9, 22), Stall(("claims", 1), 40, 60)]
    (one,) = recoveries([struck(1, "kill_worker", 10, 14)], waits, 0)
    assert (one.stall, one.after, one.alone) == (12, 8, True)


def test_a_worker_is_charged_with_what_waited_for_its_role_and_with_no_other_role_s_faults():
    waits = [Stall(("claims", 0), 9, 22), Stall(("llm-responses", 0), 11, 13), Stall(("deferred", 0), 11, 40)]
    claims, responses, pages = recoveries(
        [
            struck(1, "kill_worker", 10, 14),
            struck(2, "stop_worker", 10, 14, "responses-0"),
            struck(3, "hang_pages", 10, 14, "pages"),
        ],
        waits,
        0,
    )
    assert [(one.stall, one.alone) for one in (claims, responses, pages)] == [
        (12, True),
        (2, True),
        (29, True),
    ]


async def test_what_a_fault_still_holds_is_not_broken_by_the_next_however_late_it_is_mended():
    open_now: list[str] = []

    class Slow(Nemesis):
        async def _do(self, fault: Fault) -> None:
            assert fault.holds not in open_now
            open_now.append(fault.holds)
            await asyncio.sleep(0.02)
            open_now.remove(fault.holds)

    nobody: Any = None
    nemesis = Slow(nobody, nobody, nobody, nobody, nobody, nobody)
    kinds = ("kill_broker", "cut_broker", "kill_redis", "lose_redis")
    await nemesis.run([Fault(n, 0.001 * n, kind, "0", 0.0, 0.0) for n, kind in enumerate(kinds)])
    assert (nemesis.failed, len(nemesis.struck)) == ([], 4)


def test_a_fault_that_nobody_noticed_cost_nothing_and_one_among_others_is_not_measured():
    faults = [
        struck(1, "cut_redis", 10, 10),
        struck(2, "kill_redis", 30, 34),
        struck(3, "kill_worker", 33, 35),
    ]
    waits = [Stall(("claims", 0), 31, 36)]
    found = recoveries(faults, waits, 0)
    assert [(one.stall, one.alone) for one in found] == [(0, True), (5, False), (3, False)]
    sums = by_kind(
        [
            {"kind": one.kind, "stall": one.stall, "after": one.after, "alone": one.alone, "session": 6}
            for one in found
        ]
    )
    assert sums["cut_redis"]["stall"]["count"] == 1
    assert sums["kill_redis"] == {**sums["kill_redis"], "faults": 1, "stall": {"count": 0}}

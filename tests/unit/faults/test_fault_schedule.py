"""What the fault suite breaks follows from its seed, and what recovery took from what was seen."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.figures import Stall, by_kind, recoveries, stalls
from tests.faults.history import History
from tests.faults.nemesis import Struck
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
        kind = KINDS[fault.kind]
        assert kind.needs <= nodes
        assert 0 <= fault.at <= plan.seconds
        held = f"worker {fault.target}" if kind.holds == "worker" else kind.holds
        assert until[held] <= fault.at + 0.1
        until[held] = fault.at + fault.seconds  # type: ignore[assignment]


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
        value = b'{"origin": {"topic": "p.claims", "partition": 0, "offset": %d}}' % offset
        blocked.append(Seen("blocked", 0, offset, 0, b"k", value, ()))
        seen_at["blocked", 0, offset] = answered
    return History("p.", {"claims": claims, "blocked": blocked}, seen_at=seen_at)


def test_time_without_decisions_is_counted_only_while_records_wait():
    quiet = lane((1, 2), (10, 11))
    assert stalls(quiet, 0) == [Stall(("claims", 0), 1, 2), Stall(("claims", 0), 10, 11)]
    waiting = lane((1, 2), (1.5, 11))
    assert stalls(waiting, 0) == [Stall(("claims", 0), 1, 2), Stall(("claims", 0), 2, 11)]


def struck(number: int, kind: str, begin: float, end: float) -> Struck:
    return Struck(Fault(number, begin, kind, "claims-0", end - begin, 0.0), begin, end)


def test_a_fault_is_charged_with_the_longest_stall_that_it_can_have_caused():
    waits = [Stall(("claims", 0), 1, 2), Stall(("claims", 0), 9, 22), Stall(("claims", 1), 40, 60)]
    (one,) = recoveries([struck(1, "kill_worker", 10, 14)], waits, 0)
    assert (one.stall, one.after, one.alone) == (12, 8, True)


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

"""What the fault suite breaks follows from its seed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.faults.nemesis import KINDS, Plan, schedule
from tests.faults.services import REDIS

LONG = Plan(seconds=2000, every=3, session=6, nodes=3, apart=20)


def test_a_seed_has_one_schedule_another_seed_has_another_and_a_long_one_has_every_kind_of_fault():
    assert schedule(1, LONG) == schedule(1, LONG)
    assert schedule(1, LONG) != schedule(2, LONG)
    found = {redis: {fault.kind for fault in schedule(1, replace(LONG, redis=redis))} for redis in REDIS}
    assert set().union(*found.values()) == set(KINDS)
    assert "kill_redis" in found["one"] - found["cluster"]
    assert {"kill_shard", "move_slots", "outdate_worker"} <= found["cluster"] & found["replicated"] - found[
        "one"
    ]


@given(st.integers(), st.sampled_from((1, 3)), st.sampled_from(list(REDIS)))
def test_nothing_is_broken_twice_at_a_time_and_faults_begin_in_order_and_in_time(
    seed: int, nodes: int, redis: str
):
    plan = Plan(seconds=300, every=2, session=6, nodes=nodes, redis=redis, apart=20)
    faults = schedule(seed, plan)
    assert [fault.at for fault in faults] == sorted(fault.at for fault in faults)
    until: Counter[str] = Counter()
    for fault in faults:
        assert KINDS[fault.kind].needs <= nodes
        assert 0 <= fault.at <= plan.seconds
        assert until[fault.holds] <= fault.at + 0.1
        until[fault.holds] = fault.at + fault.seconds  # type: ignore[assignment]


@given(st.integers(), st.sampled_from(("one", "cluster")))
def test_while_redis_loses_its_data_nothing_else_is_broken_where_state_is_rebuilt_early(
    seed: int, redis: str
):
    faults = schedule(seed, replace(LONG, redis=redis))
    for number, fault in enumerate(faults):
        if fault.kind in {"lose_redis", "lose_shard"}:
            assert all(before.at + before.seconds + 9 < fault.at for before in faults[:number])
            assert all(after.at > fault.at + fault.seconds + 19 for after in faults[number + 1 :])

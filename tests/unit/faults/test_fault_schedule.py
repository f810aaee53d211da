"""What the fault suite breaks follows from its seed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tests.faults.deployment import REDIS
from tests.faults.nemesis import KINDS, schedule


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

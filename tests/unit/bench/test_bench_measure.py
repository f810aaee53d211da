"""How the benchmark measures, what it makes of its figures, and that no ratio has fallen far below its stated value."""

import random
from dataclasses import replace
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.capacity import Constants, busiest, fleet, one_row, partitions, shares_of_partitions
from bench.guard import TOLERANCE, Guarded, failures
from bench.measure import Figure, Race, Target
from bench.parts.dedup import THRESHOLDS, planted, recall
from bench.parts.growth import approved_claims
from bench.plot import goodness
from groundwire.checks.dedup.signature import compare, signature
from groundwire.policy import Policy


async def test_a_ratio_is_taken_within_a_round_and_above_one_is_quicker() -> None:
    for higher, ratio in ((True, 2.0), (False, 0.5)):
        slow, quick = iter([9.0, 1.0, 10.0]), iter([9.0, 2.0, 20.0])
        race = Race("x", higher=higher)
        race.add("baseline", lambda slow=slow: next(slow))
        race.add("ours", lambda quick=quick: next(quick))
        baseline, ours = await race.figures(2)
        assert baseline.ratio is None
        assert list(ours.ratios) == [ratio, ratio]


def test_a_target_holds_for_the_median_and_says_nothing_where_the_machine_is_too_small() -> None:
    figure = Figure("f", "ms", [1, 5, 100], (), Target("<=", 5, cores=4))
    assert figure.met(4) is True
    assert figure.met(2) is None
    assert Figure("f", "ms", [1, 6, 100], (), Target("<=", 5)).met(4) is False
    assert Figure("f", "x", [1], [0.4, 0.5, 0.6], Target(">=", 0.5, "ratio")).met(1) is True
    assert goodness(figure) == 1.0


@pytest.mark.slow
def test_growth_fills_state_with_approved_claims_of_different_texts_and_a_hundred_a_user() -> None:
    asked = list(islice(approved_claims(Policy(), one=False), 150))
    assert {(one.base_tier, one.capped, one.wait) for one in asked} == {(1, False, False)}
    assert len({one.dedup.signature for one in asked if one.dedup}) == len(asked)
    assert len({one.subject.user_id for one in asked}) == 2


def test_planted_pairs_repeat_or_contradict_and_the_partition_index_misses_none() -> None:
    pairs = list(planted(random.Random(1), 60))
    assert all(compare(signature(a), signature(b), THRESHOLDS) for a, b in pairs)
    assert any(a != b for a, b in pairs)
    assert recall("partition", pairs) == 1.0


def test_the_capacity_of_a_load_follows_from_the_constants() -> None:
    one = Constants(processor=250e-6, server=25e-6, call=20e-6, approved=300, decided=500, published=2_500)
    assert one_row(10_000, one) == ["10,000", "5", "16", "1", "432", "105", "25", "75", "3", "6.48"]
    assert one_row(100_000, one)[3] == "5"  # one Redis takes 20,000 claims a second
    for workers in (1, 3, 5, 100, 50_000):
        assert 2 * workers <= partitions(workers) <= max(8, 4 * workers)


@given(st.integers(1, 64), st.integers(1, 64))
def test_the_fullest_part_has_no_less_than_the_mean_and_no_more_than_with_fewer_parts(
    few: int, factor: int
) -> None:
    shares = shares_of_partitions()
    found = busiest(few, shares)
    assert found >= 1 / few - 1e-9
    assert busiest(min(few * factor, len(shares)), shares) <= found + shares.max() + 1e-9


def test_the_part_that_is_full_first_is_named() -> None:
    one = Constants(processor=1e-6, server=1e-6, call=0, approved=1_000, decided=0, published=1)
    shares = shares_of_partitions()
    assert fleet(one, shares, shards=1, workers=9, brokers=3).first == "Redis, memory"
    slow = replace(one, processor=1e-3, approved=1)
    assert fleet(slow, shares, shards=48, workers=9, brokers=3).first == "a worker"


@pytest.mark.slow
def test_no_ratio_to_a_baseline_is_well_below_what_is_stated() -> None:
    assert list(failures()) == []


def test_both_sides_run_in_turns_and_less_than_half_of_what_is_stated_is_a_fall() -> None:
    order: list[str] = []
    what = Guarded("x", 10.0, lambda: order.append("a"), lambda: order.append("b"))
    assert what.ratio(3) > 0
    assert order == ["a", "b"] * 4
    assert what.holds(TOLERANCE * 10)
    assert not what.holds(TOLERANCE * 9.9)

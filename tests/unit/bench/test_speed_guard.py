"""Nothing here has become slow in earnest: ratios of processor time in one process, against what is stated."""

from __future__ import annotations

import pytest

from bench.guard import TOLERANCE, Guarded, Measured, guarded, measure

GUARDED = list(guarded())


@pytest.mark.slow
@pytest.mark.parametrize("what", GUARDED, ids=[what.name for what in GUARDED])
def test_a_ratio_to_the_baseline_is_not_well_below_what_is_stated(what: Guarded) -> None:
    found = measure(what)
    if not found.holds:
        found = measure(what, 20)
    assert found.holds, str(found)


def test_what_is_twice_as_slow_as_stated_and_more_is_noticed() -> None:
    what = Guarded("x", 10.0, lambda: None, lambda: None)
    assert Measured(what, TOLERANCE * 10).holds
    assert not Measured(what, TOLERANCE * 9.9).holds


def test_both_sides_run_in_turns_and_the_slower_one_has_the_larger_time() -> None:
    order: list[str] = []

    def work(name: str, size: int) -> int:
        order.append(name)
        return sum(range(size))

    found = measure(Guarded("x", 1.0, lambda: work("a", 200_000), lambda: work("b", 200)), 3)
    assert order == ["a", "b"] * 4
    assert found.ratio > 1

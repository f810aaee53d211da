"""How the benchmark measures, and what it makes of what it measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.capacity import Constants, one_row, partitions, plan_table
from bench.claims import claims
from bench.measure import Figure, Race, Target, in_turns
from bench.parts import PARTS
from bench.parts.dedup import THRESHOLD, planted, recall
from bench.plot import goodness, svg
from bench.report import as_result, figures_of, merge, number, table, targets, write_page

MACHINE = {
    "at": "2026-01-01 00:00",
    "groundwire": "1",
    "python": "3",
    "system": "Linux",
    "processor": "one",
    "cores": 2,
    "load": 0.0,
    "packages": {},
}


async def test_contenders_run_in_turns_after_one_run_that_does_not_count() -> None:
    order: list[str] = []

    def run(name: str) -> float:
        order.append(name)
        return float(len(order))

    found = await in_turns({"a": lambda: run("a"), "b": lambda: run("b")}, 2)
    assert order == ["a", "b", "a", "b", "a", "b"]
    assert found == {"a": [3.0, 5.0], "b": [4.0, 6.0]}


@pytest.mark.parametrize(("higher", "ratio"), [(True, 2.0), (False, 0.5)])
async def test_a_ratio_is_taken_within_a_round_and_above_one_is_quicker(
    *, higher: bool, ratio: float
) -> None:
    slow, quick = iter([9.0, 1.0, 10.0]), iter([9.0, 2.0, 20.0])
    race = Race("x", higher=higher)
    race.add("baseline", lambda: next(slow))
    race.add("ours", lambda: next(quick))
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


def test_results_of_a_part_replace_those_before_and_leave_other_parts_alone(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    figure = Figure("f", "ms", [1.5], [2.0], Target("<=", 5, cores=4), "key")
    merge(path, {"a": as_result(MACHINE, 1, "quick", [figure])})
    merge(path, {"b": as_result(MACHINE, 1, "quick", [])})
    merged = merge(path, {"b": as_result(MACHINE, 2, "quick", [])})
    assert json.loads(path.read_text("utf-8")) == merged
    assert figures_of(merged["a"]) == [figure]
    assert merged["b"]["rounds"] == 2


def test_a_missed_target_stands_in_its_table_and_in_that_of_all_targets() -> None:
    missed = Figure("slow", "ms", [9.0], (), Target("<=", 5))
    needs = Figure("wide", "ms", [9.0], (), Target("<=", 5, cores=64))
    result = {"part": as_result(MACHINE, 1, "quick", [missed, needs])}
    for lines in (list(table([missed, needs], 2)), list(targets(result))):
        assert "**missed**" in lines[2]
        assert "needs 64 cores" in lines[3]
    assert svg(result).count("<rect") == 2  # the ground, and the one that could be met


def test_a_page_takes_tables_between_its_marks_and_names_those_without_a_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n<!-- table: one -->\nold\n<!-- end -->\nb\n", "utf-8")
    assert write_page(page, {"one": [r"\d | 1 |"], "two": ["x"]}) == ["two"]
    assert page.read_text("utf-8") == "a\n<!-- table: one -->\n\n\\d | 1 |\n\n<!-- end -->\nb\n"
    write_page(page, {"one": ["new"]})
    assert "\\d" not in page.read_text("utf-8")


def test_every_part_has_a_place_on_the_page() -> None:
    page = Path("docs/speed.md").read_text("utf-8")
    assert [name for name in PARTS if f"<!-- table: {name} -->" not in page] == []


@given(st.floats(1e-3, 1e9))
def test_a_number_keeps_three_digits_that_count(value: float) -> None:
    assert float(number(value).replace(",", "")) == pytest.approx(value, rel=0.06)


@given(st.integers(1, 50_000))
def test_every_worker_has_at_least_two_partitions(workers: int) -> None:
    assert partitions(workers) >= 2 * workers
    assert partitions(workers) <= max(8, 4 * workers)


def test_the_capacity_of_a_load_follows_from_the_constants() -> None:
    one = Constants(processor=250e-6, server=25e-6, approved=300, decided=500, published=2_500)
    assert one_row(10_000, one) == ["10,000", "5", "16", "1", "432", "105", "25", "75", "3"]
    assert one_row(100_000, one)[3] == "5"  # one Redis takes 20,000 claims a second
    assert len(list(plan_table(one))) > 8


def test_claims_to_measure_with_are_the_same_each_time_and_some_repeat() -> None:
    made = list(claims(400))
    assert made == list(claims(400))
    said = [json.loads(value)["content"] for _, value in made]
    assert len(set(said)) < len(said)
    assert all(8 <= len(text.split()) <= 48 for text in said)


def test_planted_pairs_are_near_and_the_partition_index_misses_none() -> None:
    import random  # noqa: PLC0415 - seeded for this test alone

    pairs = list(planted(random.Random(1), 300))
    assert all(10_000 * len(a & b) >= THRESHOLD * len(a | b) for a, b in pairs)
    assert any(a != b for a, b in pairs)
    assert recall("partition", pairs) == 1.0

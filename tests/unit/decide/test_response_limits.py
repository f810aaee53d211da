"""A decision of a response that is made from a published one: cut only where it is too large, and no more than that."""

from __future__ import annotations

from typing import Any

import pytest

from groundwire.decide.build import within_limits
from groundwire.decide.report import shorten
from groundwire.messages.decisions import Decision
from tests.unit.gate.world import World

LIMIT = 256_000
LISTS = 8


async def a_decision(**changed: Any) -> Decision:
    world = World()
    (decision,) = await world.decide(world.response())
    return decision.model_copy(update={"truncated": None, **changed})


def report_of(entries: int = 100) -> dict[str, Any]:
    """A report of eight lists of long strings, and room for what is missing."""
    lists = {f"list{n}": ["x" * 300] * entries for n in range(LISTS)}
    return {**lists, "confidence": 0.5, "filler": [""]}


async def exactly(size: int, **changed: Any) -> Decision:
    """A decision of so many bytes."""
    empty = await a_decision(report=report_of(), **changed)
    missing = size - len(empty.to_bytes())
    entries = missing // (300 + len('"",'))
    rest = missing - entries * (300 + len('"",'))
    report = report_of() | {"filler": ["y" * rest, *["z" * 300] * entries]}
    decision = empty.model_copy(update={"report": report})
    assert len(decision.to_bytes()) == size
    return decision


async def test_a_decision_of_just_the_limit_is_left_as_it_is_and_one_byte_more_is_cut() -> None:
    whole = await exactly(LIMIT)
    assert within_limits(whole) is whole
    larger = await exactly(LIMIT + 1)
    cut = within_limits(larger)
    assert len(cut.to_bytes()) < LIMIT
    assert cut.report is not None
    assert set(cut.report["list0"]) == {"x" * 200}, "the next room has strings of 200 characters"
    assert [len(cut.report[f"list{n}"]) for n in range(LISTS)] == [100] * LISTS


async def test_what_fits_after_its_long_lists_are_cut_is_not_cut_further() -> None:
    just = await exactly(LIMIT)
    assert just.report is not None
    long = just.report | {"list0": [*just.report["list0"], "one more, and long enough"]}
    counted = len(b'"truncated":{"report.list0":1}') - len(b'"truncated":null')
    shorter = [just.report["list1"][0][:-counted], *just.report["list1"][1:]]
    cut = within_limits(just.model_copy(update={"report": long | {"list1": shorter}}))
    assert len(cut.to_bytes()) == LIMIT
    assert cut.report == just.report | {"list1": shorter}
    assert cut.truncated == {"report.list0": 1}


async def test_what_was_left_out_before_is_counted_with_what_is_left_out_now() -> None:
    big = report_of(130)
    decision = await a_decision(
        report=big | {"filler": ["z" * 400] * 150}, truncated={"report.list0": 7, "checks_failed": 2}
    )
    cut = within_limits(decision)
    assert cut.truncated == {
        "checks_failed": 2,
        "report.list0": 37,
        **{f"report.list{n}": 30 for n in range(1, LISTS)},
        "report.filler": 50,
    }


async def test_a_decision_that_is_large_without_a_report_gets_an_empty_one_and_counts_nothing() -> None:
    plain = await a_decision(report=None, checks_failed=["x" * 600] * 100, reason="r" * (LIMIT - 40_000))
    assert len(plain.to_bytes()) > LIMIT
    cut = within_limits(plain)
    assert (cut.report, cut.truncated) == ({}, None)
    assert set(cut.checks_failed) == {"x" * 200}


# --- parts whose keys come from the record


def test_a_part_of_the_records_own_keys_is_cut_in_breadth_at_any_depth() -> None:
    report = {"quotes": {"validated": {"a": {str(n): ["q"] * 3 for n in range(5)}, "b": "s" * 9}}}
    short, left_out = shorten(report, 2, 4)
    assert short == {"quotes": {"validated": {"a": {"0": ["q", "q"], "1": ["q", "q"]}, "b": "ssss"}}}
    assert left_out == {"report.quotes.validated": 3 + 1 + 1}


def test_of_two_keys_that_begin_alike_the_first_is_kept_and_the_other_counted() -> None:
    short, left_out = shorten({"hop_evidence": {"abcde": 1, "abcdf": 2, "b": 3}}, 5, 4)
    assert (short, left_out) == ({"hop_evidence": {"abcd": 1, "b": 3}}, {"report.hop_evidence": 1})


def test_keys_of_details_keep_forty_characters_however_little_room_there_is() -> None:
    key = "k" * 41
    short, _ = shorten({"warnings": [{"details": {key: "v" * 50}}]}, 5, 12)
    assert short == {"warnings": [{"details": {key[:40]: "v" * 12}}]}
    roomy, _ = shorten({"warnings": [{"details": {key: "v"}}]}, 5, 50)
    assert roomy == {"warnings": [{"details": {key: "v"}}]}


def test_a_part_that_nests_without_end_keeps_a_hundred_values_for_each_entry_of_a_list() -> None:
    def nested(depth: int) -> Any:
        return [nested(depth - 1)] * 3 if depth else "x"

    def values(part: Any) -> int:
        return 1 + sum(map(values, part)) if isinstance(part, list) else 1

    short, left_out = shorten({"details": nested(6)}, 3, 9)
    assert values(short["details"]) == 300
    assert values(nested(6)) == 1093
    assert set(left_out) == {"report.details"}
    small, nothing = shorten({"details": nested(5)}, 4, 9)
    assert (small, nothing) == ({"details": nested(5)}, {})
    keyed = {str(n): {str(m): "x" for m in range(3)} for n in range(200)}
    held, _ = shorten({"details": keyed}, 200, 9)
    assert held == {"details": keyed}


@pytest.mark.parametrize("name", ["type", "reason", "gap_type", "suggested_action", "fallback"])
def test_our_own_words_are_never_cut_and_those_of_a_record_always(name: str) -> None:
    short, left_out = shorten({"part": [{name: "w" * 99, "text": "w" * 99}]}, 1, 9)
    assert (short, left_out) == ({"part": [{name: "w" * 99, "text": "w" * 9}]}, {})


def test_a_part_of_keys_within_keys_ends_as_soon_as_one_of_lists_within_lists() -> None:
    def depth(part: Any) -> int:
        return 1 + depth(next(iter(part.values()))) if isinstance(part, dict) and part else 0

    chain: Any = "x"
    for _ in range(150):
        chain = {"k": chain}
    short, left_out = shorten({"details": chain}, 1, 9)
    assert depth(short["details"]) == 99
    assert left_out == {"report.details": 1}

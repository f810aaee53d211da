"""Pictures stand on scales with round numbers, their bands lie on each other, and gaps stay gaps."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.console.charts import HEIGHT, REST, round_top, stacked
from groundwire.console.words import LEVERS
from groundwire.messages.decisions import ReasonCode
from groundwire.policy import Policy

values = st.lists(st.one_of(st.none(), st.floats(0, 1e6)), min_size=4, max_size=4)


def row(name: str, minutes: list[float | None]) -> dict[str, object]:
    return {"name": name, "minutes": minutes, "hour": round(sum(value or 0 for value in minutes))}


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", path)]


@pytest.mark.parametrize(
    ("value", "top"), [(0, 1), (0.03, 0.05), (0.2, 0.2), (1, 1), (3, 5), (51, 100), (1000, 1000)]
)
def test_the_upper_edge_of_a_scale_is_the_next_round_number(value, top) -> None:
    assert round_top(value) == top


@given(st.floats(1e-6, 1e12))
def test_a_scale_holds_its_value_and_is_at_most_two_and_a_half_times_as_high(value) -> None:
    assert value * (1 - 1e-6) <= round_top(value) <= value * 2.5 * (1 + 1e-6)


@given(st.lists(values, min_size=1, max_size=9))
def test_each_band_begins_where_the_one_below_it_ends_and_none_leaves_the_picture(rows) -> None:
    drawn = stacked([row(str(n), minutes) for n, minutes in enumerate(rows)])
    for below, above in pairwise(drawn["bands"]):
        lower, upper = points(below["path"]), points(above["path"])
        if (
            len(below["path"].split("M")) == 2
        ):  # one run without a gap: the second half is its lower edge, backwards
            assert upper[len(upper) // 2 :][::-1] == lower[: len(lower) // 2]
    assert all(0 <= y <= HEIGHT for band in drawn["bands"] for _, y in points(band["path"]))
    assert len(drawn["bands"]) <= 7


def test_a_minute_that_nobody_measured_is_a_gap_and_not_a_zero() -> None:
    drawn = stacked([row("a", [1, None, 1, 1]), row("b", [None, None, 1, 0])])
    assert [band["path"].count("M") for band in drawn["bands"]] == [2, 2]
    assert not any(1 < x < 2 for x, _ in points(drawn["bands"][0]["path"]))
    assert stacked([row("a", [None] * 4)])["measured"] is False


def test_what_is_rarer_than_six_others_is_drawn_together() -> None:
    drawn = stacked([row(str(n), [1.0] * 4) for n in range(9)])
    assert (drawn["bands"][-1]["name"], drawn["bands"][-1]["hour"], drawn["top"]) == (REST, 12, 10)


def test_a_rest_of_one_has_its_own_name() -> None:
    assert [band["name"] for band in stacked([row(str(n), [1.0] * 4) for n in range(7)])["bands"]] == [
        *"0123456"
    ]


def test_two_pictures_of_the_same_counts_share_a_scale() -> None:
    tiers = stacked([row("a", [4, 4, 4, 4])])
    assert stacked([row("x", [1, 1, 1, 1])], tiers["top"])["top"] == tiers["top"] == 5


def test_what_changes_a_reason_is_a_key_of_the_policy_or_the_command_that_calibrates() -> None:
    for code, named in LEVERS.items():
        assert code in list(ReasonCode)
        keys = named.split(", ")
        assert named.startswith("groundwire evaluate ") or set(keys) <= set(Policy.model_fields)

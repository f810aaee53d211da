"""Figures against their definitions, and the tables that the harness makes of what the gate does."""

import math
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.quality.__main__ import write
from bench.quality.data import Row
from bench.quality.gate import gate_table, response
from bench.quality.tables import method_table
from groundwire.library.evaluate import (
    FALSE_ALARMS,
    Scored,
    auroc,
    estimates,
    recall_at,
    wilson,
)
from groundwire.messages.decode import decode_response

ROWS = st.lists(
    st.tuples(
        st.integers(0, 5).map(float),
        st.booleans(),
        st.sampled_from("abcdef"),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=30,
)


def spread(drawn):
    """Return the rows in order with their weights, and the same rows each as often as it weighs."""
    ordered = sorted(drawn)
    rows = [Scored(*row[:3]) for row in ordered]
    weights = [row[3] for row in ordered]
    repeated = [row for row, weight in zip(rows, weights, strict=True) for _ in range(weight)]
    return rows, weights, repeated


@given(ROWS)
def test_auroc_is_the_share_of_pairs_that_are_ranked_right_with_ties_half(drawn):
    rows, weights, repeated = spread(drawn)
    pairs = [
        (bad.score > good.score) + (bad.score == good.score) / 2
        for bad, good in product(repeated, repeated)
        if bad.positive and not good.positive
    ]
    found = auroc(rows, weights)
    assert math.isnan(found) if not pairs else found == pytest.approx(sum(pairs) / len(pairs))


@given(ROWS)
def test_recall_is_that_of_the_loosest_threshold_with_few_enough_false_alarms(drawn):
    rows, weights, repeated = spread(drawn)
    bad = [row.score for row in repeated if row.positive]
    good = [row.score for row in repeated if not row.positive]
    shares = [
        sum(score >= cut for score in bad) / len(bad)
        for cut in [*(row.score for row in repeated), math.inf]
        if bad and sum(score >= cut for score in good) <= FALSE_ALARMS * len(good)
    ]
    found = recall_at(rows, weights)
    assert math.isnan(found) if not bad else found == pytest.approx(max(shares))


def test_sources_are_drawn_whole_so_that_rows_of_one_source_tell_no_more_than_one():
    """Copies of each row, in the group of that row, leave the interval as wide as it was."""
    rows = [Scored(float(n % 7), n % 3 == 0, str(n)) for n in range(40)]
    once, copied = estimates(rows, draws=100), estimates([row for row in rows for _ in range(5)], draws=100)
    assert once == estimates(rows[::-1], draws=100), "in whatever order"
    alone = [row._replace(group=f"{row.group}-{copy}") for row in rows for copy in range(9)]
    for name, figure in once.items():
        assert copied[name] == pytest.approx(figure), name
        assert figure.low <= figure.value <= figure.high
        assert figure.low < figure.high
    narrow, wide = estimates(alone, draws=100)["auroc"], once["auroc"]
    assert narrow.high - narrow.low < (wide.high - wide.low) / 2


def test_perfect_scores_have_figures_of_one_and_a_coin_has_an_auroc_of_one_half():
    rows = [Scored(float(n % 2), n % 2 == 1, str(n)) for n in range(40)]
    assert {figure.value for figure in estimates(rows, draws=20).values()} == {1.0}
    even = [Scored(1.0, n % 2 == 1, str(n)) for n in range(40)]
    assert estimates(even, draws=20)["auroc"] == (0.5, 0.5, 0.5)


def test_wilson_intervals_are_those_of_the_textbook():
    assert wilson(10, 100) == pytest.approx((0.10, 0.0552, 0.1744), abs=1e-4)
    assert wilson(0, 20) == pytest.approx((0.0, 0.0, 0.1611), abs=1e-4)
    assert wilson(0, 0)[1:] == (0.0, 1.0)


# the harness

EVIDENCE = ("The gate retries three times.", "Each retry waits two seconds.")


def row(number, answer, *, supported, kind=""):
    return Row(str(number), f"g{number}", answer, EVIDENCE, supported, "How?", kind, pair=f"p{number // 2}")


def test_leak_over_block_and_review_are_counted_each_of_its_own_rows():
    rows = [
        row(0, "The gate retries three times.", supported=True),
        row(1, "The gate retries five times.", supported=False, kind="number"),
        row(2, "Each retry waits two seconds.", supported=True),
        row(3, "Each retry waits two seconds.", supported=False, kind="mislabelled"),
        row(4, "Claims are stored in MongoDB.", supported=True),
    ]
    table = [[cell.strip() for cell in line.strip("| ").split("|")] for line in gate_table({"own": rows})]
    by_kind = {cells[-5]: cells[-4:] for cells in table[2:]}
    shares = {kind: [cell.partition(":")[0] for cell in cells] for kind, cells in by_kind.items()}
    assert shares["all"] == ["5", "1 of 2", "1 of 3", "2 of 5"]
    assert shares["number"] == ["1", "0 of 1", "-", "1 of 1"]
    assert shares["mislabelled"] == ["1", "1 of 1", "-", "0 of 1"]


def test_a_row_becomes_the_response_that_a_producer_would_send_and_does_not_tell_its_label():
    labelled = row(1, "The gate retries five times.", supported=False, kind="number")
    record, label = response(labelled, "r"), response(replace(labelled, supported=True, kind=""), "r")
    read = decode_response(record)
    assert [chunk.content for chunk in read.chunks] == list(EVIDENCE)
    assert (read.answer, read.query) == (labelled.answer, "How?")
    assert record == label


def test_methods_are_listed_one_a_line_with_a_figure_for_each_heading():
    rows = [row(n, f"{'five' if n % 2 else 'three'} times", supported=n % 2 == 0) for n in range(60)]
    head, _, *lines = method_table({"own": rows}, ["all positive", "length"], "test", 10)
    assert len(lines) == 2
    assert {line.count("|") for line in lines} == {head.count("|")}
    assert "| 0.500 [0.50, 0.50] |" in lines[0]


def test_tables_are_written_between_their_marks_and_nowhere_else(tmp_path):
    page = tmp_path / "page.md"
    text = "a\n<!-- table: one -->\nold\n<!-- end -->\nb\n<!-- table: two -->\n<!-- end -->\nc\n"
    page.write_text(text)
    write(page, {"one": ["1 \\d"], "two": ["2"]})
    expected = text.replace("old\n", "1 \\d\n\n").replace("two -->\n", "two -->\n2\n\n")
    assert page.read_text() == expected
    write(page, {"one": ["1 \\d"], "two": ["2"]})
    assert page.read_text() == expected
    with pytest.raises(SystemExit, match="three"):
        write(page, {"three": []})

"""The harness counts what the gate does, and writes its tables where the page has a place for them."""

from dataclasses import replace

import pytest

from bench.quality.__main__ import write
from bench.quality.data import Row
from bench.quality.gate import gate_table, response
from bench.quality.methods import FIXED, METHODS
from bench.quality.tables import chosen_on, method_table
from groundwire.messages.decode import decode_response

EVIDENCE = ("The gate retries three times.", "Each retry waits two seconds.")


def row(number, answer, *, supported, kind=""):
    return Row(str(number), f"g{number}", answer, EVIDENCE, supported, "How?", kind, pair=f"p{number // 2}")


ROWS = [
    row(0, "The gate retries three times.", supported=True),
    row(1, "The gate retries five times.", supported=False, kind="number"),
    row(2, "Each retry waits two seconds.", supported=True),
    row(3, "Each retry waits two seconds.", supported=False, kind="mislabelled"),
    row(4, "Claims are stored in MongoDB.", supported=True),
]


def test_leak_over_block_and_review_are_counted_each_of_its_own_rows():
    table = [[cell.strip() for cell in line.strip("| ").split("|")] for line in gate_table({"own": ROWS})]
    told = {cells[-5]: cells[-4:] for cells in table[2:]}
    shares = {kind: [cell.partition(":")[0] for cell in cells] for kind, cells in told.items()}
    assert shares["all"] == ["5", "1 of 2", "1 of 3", "2 of 5"]
    assert shares["number"] == ["1", "0 of 1", "-", "1 of 1"]
    assert shares["mislabelled"] == ["1", "1 of 1", "-", "0 of 1"]


def test_a_row_becomes_the_response_that_a_producer_would_send_and_does_not_tell_its_label():
    record, label = response(ROWS[1], "r"), response(replace(ROWS[1], supported=True, kind=""), "r")
    read = decode_response(record)
    assert [chunk.content for chunk in read.chunks] == list(EVIDENCE)
    assert (read.answer, read.query) == (ROWS[1].answer, "How?")
    assert record == label


def test_methods_stand_one_a_line_with_a_figure_for_each_heading():
    rows = [row(n, f"{'five' if n % 2 else 'three'} times", supported=n % 2 == 0) for n in range(60)]
    head, _, *lines = method_table({"own": rows}, ["all positive", "length"], "test", 10)
    assert len(lines) == 2
    assert {line.count("|") for line in lines} == {head.count("|")}
    assert "| 0.500 [0.50, 0.50] |" in lines[0]
    assert [chosen_on(split) for split in ("test", "validation")] == [("train", "validation"), ("train",)]


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


def test_the_verifier_as_it_comes_takes_no_threshold_from_any_row():
    rows = [row(n, "three times" if n % 2 else "Paris", supported=n % 2 == 0) for n in range(60)]
    told = {
        method: line.split("|")[6]
        for method in ("verifier", "verifier as it comes")
        for line in [*method_table({"own": rows}, [method], "test", 10)][2:]
    }
    assert told["verifier as it comes"].startswith(" 0.000")  # whatever the labels say
    assert all(method in METHODS for method in FIXED)

"""Labelled rows of anyone's own file: what can be read, and what is said of what cannot."""

import json

from groundwire.library.evaluate import LABELS, BadRow, read_labelled

ROW = {"claim": "It retries.", "evidence": "It retries.", "label": "supported"}


def one(row, form="jsonl"):
    data = row if isinstance(row, bytes) else json.dumps(row).encode()
    (found,) = read_labelled(data, form)
    return found


def test_evidence_is_a_text_several_or_texts_by_id():
    for evidence, read in (
        ("a", {"1": "a"}),
        (["a", "b"], {"1": "a", "2": "b"}),
        ({"x": "a"}, {"x": "a"}),
        ([], {}),
    ):
        assert one(ROW | {"evidence": evidence}).evidence == read


def test_a_label_says_whether_the_evidence_supports_all_of_the_row():
    for label in [*LABELS, True, False, " Supported "]:
        expected = label if isinstance(label, bool) else label.strip().lower() in {"supported", "true"}
        assert one(ROW | {"label": label}).supported is expected


def test_rows_of_the_same_evidence_are_one_group_unless_the_row_names_another():
    first = one(ROW | {"evidence": ["a", "b"]})
    assert first.group == one(ROW | {"evidence": {"2": "b", "1": "a"}}).group
    assert first.group != one(ROW).group
    assert one(ROW | {"group": "g"}).group == "g"
    assert one(ROW | {"id": 7, "annotator": "ann"}) == one(ROW), "fields of one's own"
    assert one(ROW).declared
    answer = {"answer": "It retries. It waits.", "evidence": "", "label": False}
    assert not one(answer).declared, "an answer holds several claims"


def test_what_is_wrong_with_a_row_names_its_line_and_field():
    for row, field in [
        (ROW | {"claim": 3}, "claim"),
        (ROW | {"claim": " "}, "claim"),
        (ROW | {"answer": "both"}, "claim"),
        ({"evidence": "a", "label": True}, "claim"),
        (ROW | {"evidence": None}, "evidence"),
        (ROW | {"evidence": ["a", 1]}, "evidence.2"),
        (ROW | {"evidence": {"x": None}}, "evidence.x"),
        (ROW | {"label": "maybe"}, "label"),
        (ROW | {"label": 1}, "label"),
        (ROW | {"group": 1}, "group"),
        (ROW | {"grup": "x"}, "grup"),
    ]:
        good, bad, again = read_labelled("\n".join(["", *map(json.dumps, (ROW, row, ROW))]).encode())
        assert isinstance(bad, BadRow)
        assert (bad.line, bad.error.field) == (3, field)
        assert bad.error.message.startswith(f"{field}: ")
        assert (good.line, again.line) == (2, 4)


def test_what_is_no_json_object_is_told_and_the_other_rows_are_read():
    for line in [b"{", b"[]", b'"x"', b"\xff", b'{"claim": "a", "claim": "b"}', b"NaN"]:
        bad, good = read_labelled(line + b"\r\n" + json.dumps(ROW).encode() + b"\r\n")
        assert isinstance(bad, BadRow)
        assert good.text == "It retries."


def test_tables_name_their_columns_in_the_first_line():
    for form, mark in [("csv", ","), ("tsv", "\t")]:
        cells = ["label", "claim", "evidence\r\nsupported", '"It, ""a"""', "b"]
        row = one("\ufeff".encode() + mark.join(cells).encode(), form)
        assert (row.line, row.text, row.evidence, row.supported) == (2, 'It, "a"', {"1": "b"}, True)
        short = one(f"claim{mark}evidence{mark}label\na{mark}b\n".encode(), form)
        assert (short.line, short.error.field) == (2, "label")
        assert isinstance(one(b"claim\n\xff\n", form), BadRow)

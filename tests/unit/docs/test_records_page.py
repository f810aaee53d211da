"""The generated page of topics, records, reasons and errors."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from groundwire.errors import ErrorCode
from groundwire.messages.decisions import ReasonCode
from groundwire.messages.topics import TopicName
from schemas.__main__ import FIELDS, INPUTS, OUTPUTS
from schemas.records_page import main, page
from tests.unit.docs.pages import DOCS

TEXTS = tomllib.loads(FIELDS.read_text("utf-8"))


def test_the_page_in_the_repository_is_what_the_models_say() -> None:
    assert main(["check", str(DOCS / "reference" / "records.md")]) == 0


def test_every_topic_reason_and_error_stands_on_the_page() -> None:
    text = page()
    for name in [*TopicName, *ReasonCode, *ErrorCode]:
        assert f"| `{name}` |" in text


def test_every_field_of_every_record_has_a_type_and_a_meaning() -> None:
    text = page()
    for model in [*INPUTS.values(), *OUTPUTS.values()]:
        whole = text.partition(f"## {model.__name__} 1.0\n")[2].partition("\n## ")[0]
        lines = whole.partition("\n### ")[0].splitlines()
        rows = {line.split("`")[1]: line.split(" | ") for line in lines if line[:3] == "| `"}
        assert set(rows) == {field.alias or name for name, field in model.model_fields.items()}
        assert all(cell.strip(" |") for cells in rows.values() for cell in cells)


def test_a_field_without_a_meaning_and_a_meaning_without_a_field_are_named() -> None:
    claim = {name: text for name, text in TEXTS["Claim"].items() if name != "content"}
    with pytest.raises(ValueError, match=r"\[Claim\].*content"):
        page({**TEXTS, "Claim": claim})
    with pytest.raises(ValueError, match=r"\[Claim\].*colour"):
        page({**TEXTS, "Claim": {**TEXTS["Claim"], "colour": "Its colour."}})
    with pytest.raises(ValueError, match="Nothing"):
        page({**TEXTS, "Nothing": {}})


def test_a_page_of_records_that_is_out_of_date_fails_the_check(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "records.md"
    assert main(["write", str(file)]) == 0
    assert file.read_bytes() == (DOCS / "reference" / "records.md").read_bytes()
    file.write_text(file.read_text().replace("30 days", "31 days"))
    assert main(["check", str(file)]) == 1
    assert "make generate" in capsys.readouterr().err

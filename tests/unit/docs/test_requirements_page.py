"""The generated page of requirement ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.requirements_page import CODE, TESTS, main, page, scan
from tests.unit.docs.pages import DOCS

TOML = """[[theme]]
title = "Hedges"
about = "Words."
[theme.rows]
S0-07 = "One."
S0-08 = "Two."
S0-09 = "Three."
[carried]
"docs/speed.md" = ["S0-09"]
[shown]
"docs/speed.md" = ["S0-08"]
[open]
S0-09 = "not measured"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in {
        "docs/requirements.toml": TOML,
        "docs/speed.md": "",
        "src/groundwire/hedges.py": '"""Hedges (S0-07 to S0-08)."""',
        "src/groundwire/words.lua": "-- S0-08",
        "tests/test_hedges.py": '@mark(1)  # S0-07\ndef test_one(): ...\nROWS = ["S0-08"]',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def test_the_page_in_the_repository_follows_from_the_ids_in_code_and_tests() -> None:
    assert main(["check", str(DOCS / "requirements.md")]) == 0


def test_ids_are_found_alone_and_in_ranges_and_a_test_stands_for_its_file(root: Path) -> None:
    assert scan(CODE, root)["S0-08"] == {"src/groundwire/hedges.py": False, "src/groundwire/words.lua": True}
    assert scan(TESTS, root) == {"S0-07": {"test_one": True}, "S0-08": {"tests/test_hedges.py": True}}


def test_a_row_names_what_carries_an_id_and_what_shows_it(root: Path) -> None:
    assert "| S0-07 | One. | `hedges.py` | `test_one` |\n" in page(root)
    assert "| S0-08 | Two. | `words.lua` | `tests/test_hedges.py`, `docs/speed.md` |\n" in page(root)
    assert "| S0-09 | Three. | `docs/speed.md` | not measured |\n" in page(root)


def test_an_id_without_a_text_and_a_place_that_is_gone_are_named(root: Path) -> None:
    (root / "docs/speed.md").unlink()
    with pytest.raises(ValueError, match=r"docs/speed\.md"):
        page(root)
    (root / "docs/speed.md").touch()
    (root / "agents").mkdir()
    (root / "agents/app.py").write_text("# S0-99", "utf-8")
    with pytest.raises(ValueError, match="S0-99"):
        page(root)


@pytest.mark.parametrize(
    ("name", "lost"), [("src/groundwire/hedges.py", "S0-07"), ("tests/test_hedges.py", "S0-07")]
)
def test_an_id_that_nothing_carries_or_shows_any_more_is_named(root: Path, name: str, lost: str) -> None:
    (root / name).unlink()
    with pytest.raises(ValueError, match=lost):
        page(root)

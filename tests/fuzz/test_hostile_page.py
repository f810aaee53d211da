"""The page on hostile input names tests and entries that there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.fuzz.entries import ENTRIES

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/hostile-input.md").read_text("utf-8")


def test_each_test_that_the_page_names_is_there():
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    written = "\n".join(path.read_text("utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert named - set(re.findall(r"def (test_\w+)\(", written)) == set()


def test_the_page_tells_of_each_entry():
    (table,) = re.findall(r"\| entry \| what is put in .*?\n\n", PAGE, re.DOTALL)
    first = [line.split("|")[1] for line in table.splitlines()[2:] if line]
    assert sorted(re.findall(r"`(\w+)`", " ".join(first))) == sorted(ENTRIES)

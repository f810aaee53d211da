"""The page about delivery names tests that there are."""

from __future__ import annotations

import re

from tests.unit.docs.pages import DOCS, ROOT


def test_every_test_that_the_page_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (DOCS / "trust" / "delivery.md").read_text("utf-8")))
    there = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^(?:async )?def (test_\w+)", file.read_text("utf-8"), re.MULTILINE)
    }
    assert len(named) >= 10
    assert named <= there

"""The page of known misses is what the gate does: each row of its table stands for a claim that is decided."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from groundwire.policy import Policy
from tests.unit.docs.pages import DOCS, blocks
from tests.unit.gate.world import World, verifier

PAGE = DOCS / "trust" / "limits.md"
ROWS = [
    line.split(" | ") for line in PAGE.read_text("utf-8").splitlines() if re.match(r"\| .*\| `\w+`", line)
]
BLOCK = next(block for block in blocks(PAGE) if "evasions.jsonl" in block.text)
CLAIMS: dict[str, dict[str, Any]] = {
    claim["claim_id"]: claim
    for line in BLOCK.text.splitlines()
    if line[0] == "{"
    for claim in [json.loads(line)]
}
HERE = {"page": "needs a web server: the last test", "stored": "what the paraphrase repeats"}


def shown() -> dict[str, str]:
    """Return the verdict that the page shows for each claim of its file."""
    lines = (BLOCK.shown or "").splitlines()[1:]
    return {name: line.split()[0] for name, line in zip(CLAIMS, lines, strict=False)}


def test_each_row_of_the_table_stands_for_a_claim_of_the_file_or_a_test_here() -> None:
    named = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[2])}
    assert len(ROWS) >= 5
    assert named | {"stored"} == set(CLAIMS) | {"page"}
    assert set(HERE) == (named ^ set(CLAIMS))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[2].strip("`"))
def test_what_the_table_says_of_a_claim_is_what_the_page_shows(row: list[str]) -> None:
    """S0-160: a miss that is fixed, or a catch that is lost, shows here."""
    for name in set(re.findall(r"`(\w+)`", row[2])) - set(HERE):
        words = {"approved": ("approved", "not a duplicate"), "review": ("review",), "blocked": ("blocked",)}
        assert any(word in row[3] for word in words[shown()[name]]), name


def test_an_agent_that_was_taught_to_avoid_hedges_lands_in_review() -> None:
    """S0-161: whatever it was taught, without a citation that exists nothing vouches for it."""
    assert shown()["taught"] == "review"
    assert shown()["confident"] == "review"


@pytest.mark.parametrize(
    ("policy", "status", "expected"),
    [
        (Policy(), 200, "approved"),
        (Policy(), 404, "review"),
        (Policy(verify_claim_relevance=True), 200, "review"),
    ],
)
async def test_a_page_of_the_authors_choosing_approves_unless_its_words_are_asked_for(
    policy: Policy, status: int, expected: str
) -> None:
    """S0-160, the row `page`."""
    url = "https://made.example/up"
    world = World(policy=policy, verifier=verifier(urls={url: status}))
    (decision,) = await world.decide(world.claim("page", f"All data lives on the moon, see {url}"))
    assert decision.verdict == expected

"""The page of known misses is what the gate does: each row of its table stands for a claim that is decided."""

from __future__ import annotations

import json
import re

from groundwire.policy import Policy
from tests.unit.docs.pages import DOCS, blocks
from tests.unit.gate.world import World, verifier


def test_what_the_table_says_of_a_claim_is_what_the_page_shows_and_each_row_is_a_claim_of_the_file() -> None:
    """S0-160: a miss that is fixed, or a catch that is lost, shows here.

    S0-161: an agent that was taught to avoid hedges lands in review.
    """
    page = DOCS / "trust" / "limits.md"
    table = [line for line in page.read_text("utf-8").splitlines() if re.match(r"\| .*\| `\w+`", line)]
    rows = [row.split(" | ") for row in table]
    block = next(block for block in blocks(page) if "evasions.jsonl" in block.text)
    claims = [json.loads(line)["claim_id"] for line in block.text.splitlines() if line[0] == "{"]
    lines = (block.shown or "").splitlines()[1:]
    shown = {one: line.split()[0] for one, line in zip(claims, lines, strict=False)}
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row[2])}
    # `page` needs a web server: the test below; `stored` is what the paraphrase repeats
    assert (len(rows) >= 5, named | {"stored"}) == (True, {*claims, "page"})
    words = {"approved": ("approved", "not a duplicate"), "review": ("review",), "blocked": ("blocked",)}
    wrong = [
        name
        for row in rows
        for name in set(re.findall(r"`(\w+)`", row[2])) - {"page", "stored"}
        if not any(word in row[3] for word in words[shown[name]])
    ]
    assert wrong == []
    assert (shown["taught"], shown["confident"]) == ("review", "review")


async def test_a_page_of_the_authors_choosing_approves_unless_its_words_are_asked_for() -> None:
    """S0-160, the row `page`."""
    url = "https://made.example/up"
    found = {}
    for relevance, status in ((False, 200), (False, 404), (True, 200)):
        world = World(policy=Policy(verify_claim_relevance=relevance), verifier=verifier(urls={url: status}))
        (decision,) = await world.decide(world.claim("page", f"All data lives on the moon, see {url}"))
        found[relevance, status] = decision.verdict
    assert found == {(False, 200): "approved", (False, 404): "review", (True, 200): "review"}

"""Which claims of an answer are sent to the claim gate, and as what."""

from __future__ import annotations

import json
from typing import Any

import pytest

from groundwire.decide.fan_out import extract, fan_out
from groundwire.decide.json_size import json_size
from groundwire.messages.decisions import Decision, Facts
from groundwire.messages.tiers import IngestionTier
from tests.unit.gate.world import NOW, World

ROOM = 60_000


async def a_decision(tier: IngestionTier, extraction: list[str] | None) -> Decision:
    world = World()
    (decision,) = await world.decide(world.response(tenant_id="acme"))
    return decision.model_copy(update={"tier": tier, "facts": Facts(clock=NOW, extraction=extraction)})


def sentence(number: int, size: int) -> str:
    """A claim of so many bytes as JSON."""
    start = f"The gateway of region {number} retries every "
    return start + "x" * (size - len(start) - len('"."')) + "."


@pytest.mark.parametrize(
    ("tier", "sent"),
    [(IngestionTier.AUTO_APPROVE, 2), (IngestionTier.FLAG_REVIEW, 2), (IngestionTier.BLOCK, 0)],
)
async def test_the_claims_of_a_response_are_sent_on_unless_it_is_blocked(
    tier: IngestionTier, sent: int
) -> None:
    claims = fan_out(await a_decision(tier, ["It retries.", "It waits."]))
    assert [(claim.claim_id, claim.content) for claim in claims] == [
        ("r1#1", "It retries."),
        ("r1#2", "It waits."),
    ][:sent]
    for claim in claims:
        assert (claim.tenant_id, claim.user_id, claim.source) == ("acme", "ada", "ai_synthesis")
        assert (claim.source_id, claim.derived_from) == ("response:r1", ["response:r1"])


@pytest.mark.parametrize("extraction", [None, []])
async def test_where_no_claims_were_looked_for_or_found_none_are_sent_on(
    extraction: list[str] | None,
) -> None:
    assert [*fan_out(await a_decision(IngestionTier.AUTO_APPROVE, extraction))] == []


@pytest.mark.parametrize("answer", [None, ""])
def test_a_response_without_an_answer_makes_no_claims(answer: str | None) -> None:
    assert extract(answer, 5) == []


@pytest.mark.parametrize(("last", "kept"), [(600, 100), (601, 99)])
def test_claims_that_fill_their_room_exactly_are_all_kept_and_of_one_byte_more_the_last_is_left_out(
    last: int, kept: int
) -> None:
    said = [sentence(number, 600) for number in range(99)] + [sentence(99, last)]
    assert sum(map(json_size, said)) == ROOM + last - 600
    assert extract("\n\n".join(said), 200) == said[:kept]


def test_the_first_claims_are_kept_and_no_more_than_are_asked_for() -> None:
    said = [sentence(number, 60) for number in range(5)]
    assert extract(" ".join(said), 3) == said[:3]


@pytest.mark.parametrize("text", ["", "plain", '"quoted" \\ back', "\x01\n\t", "\u00e9\u4e2d\U0001f600"])
def test_the_size_of_a_text_is_that_of_its_json_in_utf8_with_its_quotes(text: str) -> None:
    record: dict[str, Any] = {"text": text}
    around = len(b'{"text": }')
    assert json_size(text) == len(json.dumps(record, ensure_ascii=False).encode()) - around

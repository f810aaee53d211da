"""Answers that hold no word to check: what tells that the sources lack it is grounded, what agrees is not."""

from __future__ import annotations

import pytest

from tests.unit.gate.world import World, summary

CONTEXT = {"e": "The hall opened in 1982. It has 1,212 seats."}


async def decided(answer: str) -> tuple[str, str]:
    world = World()
    (decision,) = await world.decide(
        world.response(answer=answer, context=CONTEXT, query="Did the director steal the organ?")
    )
    return summary(decision)


@pytest.mark.parametrize(
    "answer", ["Yes.", "No.", "Indeed, he did.", "Of course.", "Absolutely!", "Not at all.", "It does."]
)
async def test_agreement_with_a_question_states_what_it_asks_and_is_not_approved(answer: str) -> None:
    assert (await decided(answer))[0] != "tier_1"


@pytest.mark.parametrize(
    "answer",
    [
        "The passages do not mention the price.",
        "I'm sorry, but the passages do not say who designed the hall. Let me know if you have other questions.",
    ],
)
async def test_a_refusal_beside_evidence_claims_nothing(answer: str) -> None:
    assert await decided(answer) == ("tier_1", "grounded")


async def test_text_in_character_references_is_not_read_and_not_approved() -> None:
    hidden = "".join(f"&#{ord(char)};" for char in "The director was arrested")
    assert (await decided(f"The hall opened in 1982. {hidden}"))[0] == "tier_2"

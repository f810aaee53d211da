"""What a model is shown of the evidence, and what becomes of a question whose asker is called off."""

from __future__ import annotations

import asyncio

import pytest

from groundwire.epistemic import VerificationConfig, detect_hallucinations
from groundwire.epistemic.asking import ask
from groundwire.epistemic.model import Answer, Model, Request
from groundwire.epistemic.prompts import support_prompt

ALONE = VerificationConfig(mode="full", evidence_scrubbing=False)
GATEWAY = "The gateway retries failed requests 3 times and waits 30 seconds between attempts."
CACHE = "The cache lives in Dublin."
YES = '{"verdict": "supported", "probability": 0.9}'


class Judge(Model):
    def __init__(self) -> None:
        self.shown: list[str] = []

    async def answer(self, request: Request) -> Answer:
        self.shown.append(request.prompt)
        return Answer(YES)


@pytest.mark.parametrize(
    ("claim", "passages"),
    [(GATEWAY, [True, False]), (CACHE, [False, True]), ("Penguins sing loudly.", [True, True])],
)
def test_a_model_is_shown_the_passages_that_bind_a_claim_and_all_where_none_does(
    claim: str, passages: list[bool]
) -> None:
    judge = Judge()
    context = {"a": f"{GATEWAY} Requests are signed.", "b": f"{CACHE} It is small."}
    detect_hallucinations(claim + " " * 100, context, client=judge, config=ALONE)
    (asked,) = judge.shown
    assert ["Requests are signed." in asked, "It is small." in asked] == passages


async def test_a_question_whose_asker_is_called_off_ends_and_is_not_told_as_a_fault_of_the_model() -> None:
    asked = asyncio.Event()

    class Waiting(Judge):
        async def answer(self, request: Request) -> Answer:  # noqa: ARG002 - the port names its arguments
            asked.set()
            await asyncio.Event().wait()
            return Answer(YES)

    task = asyncio.create_task(ask(Waiting(), support_prompt(GATEWAY, {}), ALONE, claim_id="a"))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

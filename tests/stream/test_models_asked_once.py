"""A language model on the stream: what it said is recorded with the decision, and no record is asked about twice."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.stream.harness import Deployment, assert_one_truth, until
from tests.unit.verify.model_service import PATHS, document
from tests.unit.verify.server import Asked, Reply, running

pytestmark = [pytest.mark.stream, pytest.mark.slow]

PLACES = {"r1": "Dublin", "r2": "Lisbon"}
LOW = '{"verdict": "unsupported", "probability": 0.9, "reason": "It does not say so."}'


def response(name: str) -> dict[str, Any]:
    """A response of one claim that the rules find nothing wrong with."""
    place = f"in {PLACES[name]}, in the hall beside its second data centre"
    text = f"The cache of the gateway is located {place}, on the ground floor."
    return {"response_id": name, "user_id": "u1", "answer": text, "context": {"a": text}}


async def test_what_a_model_said_outlives_its_worker_and_no_record_that_comes_again_is_asked_about(
    deployment: Deployment, tmp_path: Path
):
    """S4-33: the decision rests on recorded facts alone; that it can be derived again is shown at the end."""
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '[verification]\nmode = "full"\nevidence_scrubbing = false\ntimeout_seconds = 60\nbudget_seconds = 60\n'
        'model_scope = "all"\n'
    )
    answers = asyncio.Event()
    answers.set()

    async def reply(_: Asked) -> Reply:
        await answers.wait()
        return Reply(body=json.dumps(document("openai", text=LOW)).encode())

    async with running() as server:
        server.routes[PATHS["openai"]] = reply

        def asked(name: str) -> int:
            return sum(PLACES[name].encode() in request.body for request in server.asked)

        settings = {
            "GROUNDWIRE_POLICY_FILE": str(policy),
            "GROUNDWIRE_NO_NETWORK": "0",
            "GROUNDWIRE_MODEL_API": "openai",
            "GROUNDWIRE_MODEL_URL": server.url(""),
        }
        (first,) = await deployment.start_workers("responses", **settings)
        await deployment.produce([response("r1")], topic="llm-responses")
        decision = await deployment.decision("r1")
        assert decision.json["reason_code"] == "flagged_claims", "the rules alone would have approved it"
        verifier = decision.json["facts"]["verifier"]
        assert [one["reason"] for one in verifier["opinions"]] == ["It does not say so."]
        assert (asked("r1"), len(verifier["calls"])) == (1, 1)
        assert await first.metric("groundwire_model_questions_total", kind="support", result="answered") == 1

        answers.clear()
        await deployment.produce([response("r2")], topic="llm-responses")
        await until(lambda: asked("r2") == 1, lambda: "the model is asked about r2")
        await first.kill()
        answers.set()
        await deployment.produce([response("r1")], topic="llm-responses")
        await deployment.start_workers("responses", **settings)
        await deployment.decision("r2")
        await until(lambda: len(deployment.decided("r1")) > 1, lambda: "r1 is decided again")
        assert asked("r1") == 1
        assert asked("r2") == 2, "nothing was recorded of the question that its worker did not survive"
        assert_one_truth(deployment.decisions)

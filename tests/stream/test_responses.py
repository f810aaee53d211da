"""Responses on the stream: every one ends as its decision, whatever happens to workers, and brings what it brings.

Requirements X-01, X-02, S4-61.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.stream.harness import Deployment, assert_one_truth, until

pytestmark = [pytest.mark.stream, pytest.mark.slow]

SECRET = "the patient was told that the lighthouse keeps its own counsel"


def chunk(number: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "chunk_id": f"k{number}",
        "file": f"src/module_{number}.py",
        "content": f"def search(query, top_k):\n    timeout = {number} s\n    return index.find(query)",
        "start_line": 1,
        "end_line": 3,
        **fields,
    }


def response(number: int, **fields: Any) -> dict[str, Any]:
    """A response that is approved, but every third names a field that is not there."""
    invented = " Set `fuzziness` too." if number % 3 == 0 else ""
    return {
        "response_id": f"r{number}",
        "user_id": f"u{number % 20}",
        "query": "How do I search?",
        "answer": f"Call `search` with `top_k` [source:1].{invented}",
        "chunks": [chunk(number)],
        "sources": [{"file": f"src/module_{number}.py", "start_line": 1, "end_line": 3}],
        **fields,
    }


async def produce(deployment: Deployment, *responses: dict[str, Any] | bytes) -> None:
    await deployment.produce(responses, topic="llm-responses")


async def test_every_response_has_one_decision_however_often_its_worker_is_killed(deployment: Deployment):
    total = 400
    first = await deployment.start_worker("responses").ready()
    rng = random.Random(3)
    for begin in range(0, total, 40):
        await produce(deployment, *[response(n) for n in range(begin, begin + 40)])
        if begin in {80, 240}:
            await asyncio.sleep(rng.random() / 2)
            await first.kill()
            first = await deployment.start_worker("responses").ready()
    await produce(
        deployment, *[response(n) for n in range(0, total, 7)]
    )  # sent again: the same decision again
    await deployment.settled(total)
    await deployment.quiet()
    assert_one_truth(deployment.decisions)
    assert not deployment.dead
    verdicts = Counter(seen.json["reason_code"] for seen in deployment.first_decisions().values())
    assert verdicts == {"grounded": 266, "unverified_fields": 134}
    assert await first.stop() == 0


async def test_the_largest_response_passes_and_the_next_byte_is_a_clear_dead_letter(deployment: Deployment):
    await deployment.start_workers("responses")
    frame = len(json.dumps(response(1, transcript="", evidence={"a": ["x"]})).encode())
    largest = response(1, transcript="a " * ((900_000 - frame) // 2), evidence={"a": ["x"]})
    value = json.dumps(largest).encode().ljust(900_000)
    assert len(value) == 900_000
    key = b"default:u1"
    await deployment.produce([value, value + b" "], topic="llm-responses", key=key)
    decision = await deployment.decision("r1")
    assert len(decision.value or b"") < 256_000
    assert "transcript" not in decision.json
    await until(lambda: bool(deployment.dead), lambda: "the larger one is a dead letter")
    (letter,) = deployment.dead
    assert letter.header("gw-error") == "too_large"
    assert letter.value == value + b" "


@pytest.mark.smoke
async def test_claims_of_a_response_go_through_the_claim_gate_once_however_often_it_is_sent(
    deployment: Deployment,
):
    await deployment.start_workers("responses", "claims", "deferred")
    answer = "The worker calls `search` [source:1]. Maybe we could call `index.find(query)` [source:1]."
    fanning = response(1, answer=answer, fan_out=True)
    for _ in range(3):
        await produce(deployment, fanning)
    first, second = [await deployment.decision(f"r1#{n}") for n in (1, 2)]
    await deployment.quiet()
    assert first.json["derived_from"] == ["response:r1"]
    assert (first.json["source"], first.json["evidence"]["source_id"]) == ("ai_synthesis", "response:r1")
    assert second.json["reason_code"] == "personal_speculation"
    assert_one_truth(deployment.decisions)
    assert len({seen.header("ce_id") for seen in deployment.decisions}) == 3
    assert {seen.value for seen in deployment.seen["claims"]} == {
        seen.value for seen in deployment.seen["claims"][:2]
    }
    assert (await deployment.decision("r1")).json["facts"]["extraction"] == [
        first.json["evidence"]["claim"],
        second.json["evidence"]["claim"],
    ]


async def test_a_blocked_response_fans_out_nothing(deployment: Deployment):
    await deployment.start_workers("responses")
    await produce(deployment, response(1, fan_out=True, confidence=0.1, answer="The worker calls `search`."))
    decision = await deployment.decision("r1")
    await deployment.quiet()
    assert decision.json["verdict"] == "blocked"
    assert decision.json["facts"]["extraction"] == []
    assert not deployment.seen["claims"]


@pytest.mark.smoke
async def test_a_weak_answer_is_asked_for_again_in_a_lower_mode_and_no_more_after_the_second(
    deployment: Deployment,
):
    """S2-24, S2-25: thinking, auto, instant, raw sources; one request a decision, whatever is redelivered."""
    await deployment.start_workers("responses")
    weak = response(1, mode="thinking", confidence=0.45)
    await produce(deployment, weak, weak)
    modes = []
    for number, replaced in ((2, "r1"), (3, "r2")):
        await until(
            lambda replaced=replaced: any(
                seen.json["response_id"] == replaced for seen in deployment.seen["regenerate"]
            ),
            lambda replaced=replaced: f"{replaced} is asked for again",
        )
        (request,) = {
            seen.header("ce_id"): seen
            for seen in deployment.seen["regenerate"]
            if seen.json["response_id"] == replaced
        }.values()
        modes.append((request.json["mode"], request.json["attempt"], request.json["why"]))
        assert request.json["request_id"] == request.header("ce_id")
        assert "def search(query, top_k):" in request.json["prompt"]
        reply = response(number, user_id="u1", mode="thinking", confidence=0.45, in_reply_to=replaced)
        await produce(deployment, reply)
    last = await deployment.decision("r3")
    await deployment.quiet()
    assert modes == [("auto", 1, "low_confidence"), ("instant", 2, "low_confidence")]
    assert {seen.json["response_id"] for seen in deployment.seen["regenerate"]} == {"r1", "r2"}
    assert last.json["report"]["fallback"] == "raw_sources"
    assert last.json["report"]["fallback_chunks"] == ["k3"]
    assert last.json["facts"]["reply_to"] == {"response_id": "r2", "mode": "instant", "attempt": 1}


async def test_without_state_a_response_is_reviewed_provisionally_and_decided_when_it_is_back(
    deployment: Deployment,
):
    await deployment.start_workers("responses", "deferred", GROUNDWIRE_STATE_GRACE="1")
    await produce(deployment, response(1))
    await deployment.decision("r1")
    await asyncio.to_thread(deployment.redis.stop)
    await produce(deployment, response(2))
    provisional = await deployment.decision("r2", revision=0)
    assert (provisional.topic, provisional.json["reason_code"]) == ("review", "check_unavailable")
    await asyncio.to_thread(deployment.redis.start)
    decision = await deployment.decision("r2")
    assert decision.json["approved"]
    assert_one_truth(deployment.decisions)


async def test_no_text_of_a_transcript_or_quote_reaches_logs_metrics_or_decisions(deployment: Deployment):
    """S1-39: ids, counts and hashes only; a quote that is not there is repeated nowhere."""
    (worker,) = await deployment.start_workers("responses", GROUNDWIRE_LOG_LEVEL="debug")
    quoted = response(1, transcript=f"He said: {SECRET}.", evidence={"talk": ["the lighthouse lied to him"]})
    await produce(deployment, quoted)
    decision = await deployment.decision("r1")
    await worker.says("evidence_quote_rejected")
    _, metrics = await worker.get("/metrics")
    for text in (worker.text, metrics, (decision.value or b"").decode()):
        assert SECRET not in text
        assert "lied to him" not in text
    (failure,) = [seen for seen in deployment.seen["audit"] if seen.json["type"] == "evidence_failure"]
    assert failure.json["detail"]["category"] == "EVIDENCE_HALLUCINATION"


async def test_entities_are_looked_up_in_the_corpus_that_the_command_loaded(
    deployment: Deployment, tmp_path: Path
):
    file = tmp_path / "corpus.jsonl"
    file.write_text('{"entity": {"id": "merger-act", "confidence": 0.9}}\n')
    await deployment.start_workers("responses", GROUNDWIRE_CORPUS="default")
    named = response(1, entities=[{"id": "merger-act"}])
    await produce(deployment, {**named, "response_id": "before"})
    before = await deployment.decision("before")
    assert before.json["reason_code"] == "check_unavailable", "a corpus that is not there lets nothing pass"
    status, _, err = await deployment.command("corpus", "load", str(file), "--tenant", "default")
    assert status == 0, err
    await produce(deployment, named, response(2, entities=[{"id": "lexora-act"}]))
    found, missing = await deployment.decision("r1"), await deployment.decision("r2")
    assert found.json["approved"]
    assert found.json["facts"]["entities"] == {"merger-act": {"confidence": 0.9}}
    assert missing.json["reason_code"] == "entity_grounding_failed"

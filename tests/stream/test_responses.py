"""Responses on the stream: every one ends as its decision, whatever happens to workers, and brings what it brings.

Requirements X-01, X-02, S4-61.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.stream.harness import Deployment, Seen, Site, assert_one_truth, chunk, response, until
from tests.unit.verify.model_service import PATHS, document
from tests.unit.verify.server import Asked, Reply, running

pytestmark = [pytest.mark.stream, pytest.mark.slow]


async def produce(deployment: Deployment, *responses: dict[str, Any] | bytes) -> None:
    await deployment.produce(responses, topic="llm-responses")


async def test_every_response_has_one_decision_however_often_its_worker_is_killed(deployment: Deployment):
    total = 400
    first = await deployment.start_worker("responses").ready()
    for begin in range(0, total, 40):
        await produce(deployment, *[response(n) for n in range(begin, begin + 40)])
        if begin in {80, 240}:
            await first.kill()
            first = await deployment.start_worker("responses").ready()
    await produce(deployment, *[response(n) for n in range(0, total, 7)])  # the same decisions again
    await deployment.settled(total)
    await deployment.quiet()
    assert_one_truth(deployment.decisions)
    assert not deployment.dead
    verdicts = Counter(seen.json["reason_code"] for seen in deployment.first_decisions().values())
    assert verdicts == {"grounded": 266, "unverified_fields": 134}
    assert await first.stop() == 0


async def test_the_largest_response_passes_and_no_text_of_one_reaches_logs_metrics_or_decisions(
    deployment: Deployment,
):
    """The next byte is a dead letter. S1-39: logs hold ids, counts and hashes only, even of a rejected quote."""
    (worker,) = await deployment.start_workers("responses", GROUNDWIRE_LOG_LEVEL="debug")
    frame = len(json.dumps(response(1, transcript="", evidence={"a": ["x"]})).encode())
    largest = response(1, transcript="a " * ((900_000 - frame) // 2), evidence={"a": ["x"]})
    value = json.dumps(largest).encode().ljust(900_000)
    assert len(value) == 900_000
    key = b"default:u1"
    await deployment.produce([value, value + b" "], topic="llm-responses", key=key)
    decision = await deployment.decision("r1")
    assert len(decision.value or b"") < 256_000
    assert "transcript" not in decision.json
    await until(lambda: bool(deployment.dead), "the larger one is a dead letter")
    (letter,) = deployment.dead
    assert letter.header("gw-error") == "too_large"
    assert letter.value == value + b" "

    secret = "the patient was told that the lighthouse keeps its own counsel"
    quoted = response(2, transcript=f"He said: {secret}.", evidence={"talk": ["the lighthouse lied to him"]})
    await produce(deployment, quoted)
    decision = await deployment.decision("r2")
    await worker.says("evidence_quote_rejected")
    _, metrics = await worker.get("/metrics")
    for text in (worker.text, metrics, (decision.value or b"").decode()):
        assert secret not in text
        assert "lied to him" not in text
    failures = [seen.json for seen in deployment.seen["audit"] if seen.json["type"] == "evidence_failure"]
    assert "EVIDENCE_HALLUCINATION" in {
        one["detail"]["category"] for one in failures if one["subject_id"] == "r2"
    }


@pytest.mark.smoke
async def test_claims_of_a_response_go_through_the_claim_gate_once_however_often_it_is_sent(
    deployment: Deployment,
):
    await deployment.start_workers("responses", "claims", "deferred")
    answer = "The worker calls `search` [source:1]. Maybe we could call `index.find(query)` [source:1]."
    fanning = response(1, answer=answer, fan_out=True)
    blocked = response(2, fan_out=True, confidence=0.1, answer="The worker calls `search`.")
    await produce(deployment, blocked)
    decision = await deployment.decision("r2")
    await deployment.quiet()
    assert decision.json["verdict"] == "blocked"
    assert decision.json["facts"]["extraction"] == []
    assert not deployment.seen["claims"], "a blocked response fans out nothing"
    for _ in range(3):
        await produce(deployment, fanning)
    first, second = [await deployment.decision(f"r1#{n}") for n in (1, 2)]
    await deployment.quiet()
    assert first.json["derived_from"] == ["response:r1"]
    assert (first.json["source"], first.json["evidence"]["source_id"]) == ("ai_synthesis", "response:r1")
    assert second.json["reason_code"] == "personal_speculation"
    assert_one_truth(deployment.decisions)
    assert len({seen.header("ce_id") for seen in deployment.decisions}) == 4
    assert len({seen.value for seen in deployment.seen["claims"]}) == 2
    extracted = (await deployment.decision("r1")).json["facts"]["extraction"]
    assert extracted == [each.json["evidence"]["claim"] for each in (first, second)]


@pytest.mark.smoke
async def test_a_weak_answer_is_asked_for_again_in_a_lower_mode_and_no_more_after_the_second(
    deployment: Deployment,
):
    """S2-24, S2-25: thinking, auto, instant, raw sources; one request a decision, whatever is redelivered."""
    await deployment.start_workers("responses")
    weak = response(1, mode="thinking", confidence=0.45)
    await produce(deployment, weak, weak)
    modes = []

    def requests(replaced: str) -> dict[str | None, Seen]:
        those = [seen for seen in deployment.seen["regenerate"] if seen.json["response_id"] == replaced]
        return {seen.header("ce_id"): seen for seen in those}

    for number, replaced in ((2, "r1"), (3, "r2")):
        await until(lambda name=replaced: requests(name), f"{replaced} is asked for again")
        (request,) = requests(replaced).values()
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


async def test_what_a_model_said_outlives_its_worker_and_no_record_that_comes_again_is_asked_about(
    deployment: Deployment, tmp_path: Path
):
    """S4-33: the decision rests on recorded facts alone; that it can be derived again is shown at the end."""
    places = {"r1": "Dublin", "r2": "Lisbon"}
    low = '{"verdict": "unsupported", "probability": 0.9, "reason": "It does not say so."}'

    def located(name: str) -> dict[str, Any]:
        """A response of one claim that the rules find nothing wrong with."""
        place = f"in {places[name]}, in the hall beside its second data centre"
        text = f"The cache of the gateway is located {place}, on the ground floor."
        return {"response_id": name, "user_id": "u1", "answer": text, "context": {"a": text}}

    policy = tmp_path / "policy.toml"
    patient = "evidence_scrubbing = false\ntimeout_seconds = 60\nbudget_seconds = 60\n"
    policy.write_text(f'[verification]\nmode = "full"\nmodel_scope = "all"\n{patient}')
    answers = asyncio.Event()
    answers.set()

    async def reply(_: Asked) -> Reply:
        await answers.wait()
        return Reply(body=json.dumps(document("openai", text=low)).encode())

    async with running() as server:
        server.routes[PATHS["openai"]] = reply

        def asked(name: str) -> int:
            return sum(places[name].encode() in request.body for request in server.asked)

        settings = {
            "GROUNDWIRE_POLICY_FILE": str(policy),
            "GROUNDWIRE_NO_NETWORK": "0",
            "GROUNDWIRE_MODEL_API": "openai",
            "GROUNDWIRE_MODEL_URL": server.url(""),
        }
        (first,) = await deployment.start_workers("responses", **settings)
        await produce(deployment, located("r1"))
        decision = await deployment.decision("r1")
        assert decision.json["reason_code"] == "flagged_claims", "the rules alone would have approved it"
        verifier = decision.json["facts"]["verifier"]
        assert [one["reason"] for one in verifier["opinions"]] == ["It does not say so."]
        assert (asked("r1"), len(verifier["calls"])) == (1, 1)
        assert await first.metric("groundwire_model_questions_total", kind="support", result="answered") == 1

        answers.clear()
        await produce(deployment, located("r2"))
        await until(lambda: asked("r2") == 1, "the model is asked about r2")
        await first.kill()
        answers.set()
        await produce(deployment, located("r1"))
        await deployment.start_workers("responses", **settings)
        await deployment.decision("r2")
        await until(lambda: len(deployment.decided("r1")) > 1, "r1 is decided again")
        assert asked("r1") == 1
        assert asked("r2") == 2, "nothing was recorded of the question that its worker did not survive"
        assert_one_truth(deployment.decisions)


async def test_a_tenant_that_floods_everything_takes_no_place_and_pauses_no_citation_of_another(
    deployment: Deployment, site: Site, tmp_path: Path
):
    each = 10  # records of each kind that the good tenant sends behind a flood
    fact = "The gateway waits for 30 s."
    # of 820 kB: a fetch brings four of them
    prose = " ".join(f"Part {n} of the gateway waits for part {n + 1}." for n in range(9_000))

    def quoting(tenant: str, name: str, text: str) -> dict[str, Any]:
        own = {"response_id": name, "tenant_id": tenant, "user_id": "u"}
        return {**own, "answer": text, "chunks": [chunk(content=text)]}

    def claim(tenant: str, name: str, text: str) -> dict[str, Any]:
        return {"claim_id": name, "tenant_id": tenant, "user_id": name, "content": text}

    policy = tmp_path / "policy.toml"
    policy.write_text("[limits]\nreview_per_user = 30\nreview_per_tenant = 30\nreview_total = 60\n")
    deployment.environment |= site.settings | {"GROUNDWIRE_POLICY_FILE": str(policy)}
    workers = await deployment.start_workers("claims", "deferred", "responses")
    flood = [claim("hooli", f"flood-{n}", f"Rule {n} of the mill has {n} parts.") for n in range(100)]
    for page in ("ill", "hang"):
        text = f"Rule {{n}} of the {page} harbour, see {site.url}/{page}/{{n}}"
        flood += [claim("hooli", f"{page}-{n}", text.format(n=n)) for n in range(30)]
    await deployment.produce(flood, partition=0)
    large = [quoting("hooli", f"large-{n}", prose) for n in range(4)]
    waiting = [claim("acme", f"wait-{n}", f"Order {n} of the bakery has {n} loaves.") for n in range(each)]
    text = f"Oven {{n}} of the bakery, see {site.url}/ok/{{n}}"
    citing = [claim("acme", f"cite-{n}", text.format(n=n)) for n in range(each)]
    await deployment.produce([*waiting, *citing], partition=0)
    small = [quoting("acme", f"small-{n}", fact) for n in range(each)]
    await deployment.produce([*large, *small], topic="llm-responses", partition=0)

    def good() -> list[dict[str, Any]]:
        return [
            seen.json for seen in deployment.first_decisions().values() if seen.json["tenant_id"] == "acme"
        ]

    await until(lambda: len(good()) == 3 * each, lambda: f"{len(good())} of the good tenant's are decided")
    reasons = Counter(decision["reason_code"] for decision in good())
    assert reasons == {"ungrounded": each, "verified_citation": each, "grounded": each}
    places = [d["facts"]["place"] for d in good() if d["reason_code"] == "ungrounded"]
    assert places == ["free"] * each
    refused = [d for d in deployment.decisions if d.json["reason_code"] == "review_queue_full"]
    assert {d.json["tenant_id"] for d in refused} == {"hooli"}
    assert await workers[0].metric("groundwire_tenant_refusals_total", limit="review") > 0
    assert not deployment.dead

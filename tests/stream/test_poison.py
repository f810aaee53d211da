"""Records that cannot be decided, published or survived stop nobody else."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from tests.stream.faulty import MAGIC
from tests.stream.harness import Deployment, assert_one_truth, good, until

BROKEN = [
    *(b'{"claim_id": "x"', b"[1]", b'{"user_id": "ann"}', b"\xff", b"null"),
    b'{"claim_id": "1", "response_id": "1", "user_id": "ann", "content": "x", "answer": "x", "x": 1}',
    b'{"claim_id": "1", "response_id": "1", "user_id": "ann", "schema_version": "9"}',
]
TOO_LARGE = b'"' + b"x" * 900_000 + b'"'
pytestmark = [pytest.mark.stream, pytest.mark.slow]


@pytest.mark.smoke
async def test_a_record_that_kills_its_worker_is_a_dead_letter_at_the_third_crash(deployment: Deployment):
    claims = [good(number, user_id="one") for number in range(60)]
    claims[30] = good(30, user_id="one", content=f"The magic word is {MAGIC}")
    await deployment.produce(claims)
    deaths = 0
    worker = deployment.start_worker("claims", faulty="die", GROUNDWIRE_INSTANCE_ID="fixed")
    while not deployment.dead:
        await until(lambda w=worker: bool(deployment.dead) or not w.alive, lambda: "it dies or gives up")  # type: ignore[misc]
        if not worker.alive:
            deaths += 1
            assert deaths <= 3
            worker = deployment.start_worker("claims", faulty="die", GROUNDWIRE_INSTANCE_ID="fixed")
    assert deaths == 3
    await deployment.settled(59, 1)
    (letter,) = deployment.dead_places().values()
    assert letter.header("gw-error") == "worker_crash"
    assert MAGIC.encode() in (letter.value or b"")
    assert "c30" not in {seen.json["subject_id"] for seen in deployment.decisions}
    assert_one_truth(deployment.decisions)
    await deployment.produce([good(61, user_id="one")])
    await deployment.settled(60, 1)


async def test_an_error_of_our_own_sends_the_claim_to_review(deployment: Deployment):
    worker = await deployment.start_worker("claims", faulty="raise", GROUNDWIRE_LOG_FORMAT="json").ready()
    await deployment.produce(
        [good(5, source="user", content=f"A secret {MAGIC} text"), good(10, source="user")]
    )
    held = (await deployment.decision("c5")).json
    assert (held["verdict"], held["reason_code"]) == ("review", "internal_error")
    assert (await deployment.decision("c10")).topic == "approved"
    lines = [json.loads(line) for line in worker.text.splitlines()]
    assert any(line["event"] == "claim.unreadable" and line["error"] for line in lines)
    assert MAGIC not in worker.text, "not even the variables of a traceback tell a claim's text"


@pytest.mark.parametrize("source", ["claims", "deferred"])
async def test_a_record_whose_result_the_broker_cannot_take_is_a_dead_letter(
    deployment: Deployment, source: str
):
    deployment.verified = source == "claims"  # what was put on `deferred` by hand stands on no input topic
    await deployment.start_workers("claims", "deferred")
    # its decision passes the header on, and does not fit beside it; the second hardly fits on its own topic
    huge = b"0" * 1_046_500
    huger = b"0" * 1_047_800
    await deployment.produce([good(1, user_id="one")], headers=[("traceparent", huge)], topic=source)
    await deployment.produce([b"{"], key=b"default:one", headers=[("other", huger)], topic=source)
    await deployment.produce([good(2, user_id="one")], topic=source)
    await deployment.settled(1, 2)
    await deployment.decision("c2")
    assert [letter.header("gw-error") for letter in deployment.dead] == ["unpublishable", "invalid_json"]
    assert {letter.value for letter in deployment.dead} == {json.dumps(good(1, user_id="one")).encode(), b"{"}


async def test_a_hundred_internal_errors_in_a_row_pause_the_worker(deployment: Deployment):
    worker = await deployment.start_worker("claims", faulty="raise").ready()
    assert (await worker.get("/ready"))[0] == 200
    held = [good(n, user_id=f"u{n % 20}", content=f"A secret {MAGIC} {n}") for n in range(100)]
    await deployment.produce(held, partition=0)
    await deployment.settled(100)
    await deployment.produce([good(100, content=f"Another {MAGIC}")], partition=0)
    await worker.says("worker.paused")
    status, text = await worker.get("/ready")
    assert (status, "internal_errors" in text) == (503, True)
    assert (await worker.get("/live"))[0] == 200
    assert await worker.metric("groundwire_paused", dependency="internal_errors") == 1
    await deployment.produce([b"no claim"] * 50 + [good(101)], partition=0)
    await deployment.decision("c101")
    await deployment.settled(102, 50)
    await worker.says("resumed.*internal_errors")
    assert worker.text.count("worker.paused") == 1


@pytest.mark.parametrize("role", ["claims", "responses"])
async def test_broken_records_of_many_keys_become_letters_while_all_others_are_decided(
    deployment: Deployment, role: str
):
    topic = {"claims": "claims", "responses": "llm-responses"}[role]
    sent: list[dict[str, object] | bytes] = []
    for number in range(150):
        claim = good(number)
        if role == "responses":
            claim = {
                "response_id": claim["claim_id"],
                "user_id": claim["user_id"],
                "answer": claim["content"],
            }
        sent += [*BROKEN * 2, claim]  # 2,100 of them
    sent += [*BROKEN * 20, TOO_LARGE]
    places = [
        await deployment.send(one, topic=topic, key=b"default:u%d" % (n % 50)) for n, one in enumerate(sent)
    ]
    await asyncio.gather(*places)
    worker = await deployment.start_worker(role).ready()
    await deployment.settled(150, len(sent) - 150)
    assert "paused" not in worker.text
    assert await worker.metric("groundwire_paused") == 0
    codes = {letter.header("gw-error") for letter in deployment.dead}
    assert codes == {"invalid_json", "invalid_record", "unsupported_version", "too_large"}


async def test_metrics_count_decisions_checks_latency_and_dead_letters(deployment: Deployment):
    worker = await deployment.start_worker("claims").ready()
    await deployment.produce([good(number) for number in range(50)])
    await deployment.produce([b"{", b"{}"])
    await deployment.settled(50, 2)
    await deployment.produce([good(0)])
    await until(lambda: len(deployment.decisions) == 51, lambda: "the repeat")
    decided = [seen.json for seen in deployment.first_decisions().values()]

    async def value(name: str, **labels: str) -> float:
        return await worker.metric(f"groundwire_{name}", **labels)

    assert await value("build_info", role="claims") == 1
    for tier in ("tier_1", "tier_2", "tier_3"):
        expected = sum(decision["tier"] == tier for decision in decided)
        assert await value("decisions_total", tier=tier, kind="claim") == expected
    assert await value("repeats_total") == 1
    assert await value("dead_letters_total", code="invalid_json") == 1
    assert await value("dead_letters_total", code="invalid_record") == 1
    for result in ("passed", "failed", "skipped"):
        names = [check.partition(":")[0] for decision in decided for check in decision[f"checks_{result}"]]
        for name in set(names):
            assert await value("checks_total", check=name, result=result) == names.count(name)
    assert await value("latency_seconds_count", input="claims") == 50
    assert await value("partitions") == deployment.partitions
    await asyncio.sleep(2)  # the queue is looked at every second
    assert await value("review_queue_entries") == sum(decision["verdict"] == "review" for decision in decided)
    _, page = await worker.get("/metrics")
    assert re.search(r"^groundwire_event_loop_lag_seconds ", page, re.MULTILINE)

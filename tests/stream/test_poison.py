"""Records that cannot be decided, published or survived stop nobody else."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from tests.stream.faulty import MAGIC
from tests.stream.harness import Deployment, assert_one_truth, good, until

pytestmark = [pytest.mark.stream, pytest.mark.slow]


@pytest.mark.smoke
async def test_a_record_that_kills_its_worker_is_a_dead_letter_at_the_third_crash(deployment: Deployment):
    claims = [good(number, user_id="one") for number in range(60)]
    claims[30] = good(30, user_id="one", content=f"The magic word is {MAGIC}")
    await deployment.produce(claims)
    deaths = 0
    worker = deployment.start_worker("claims", faulty="die", GROUNDWIRE_INSTANCE_ID="fixed")
    while not deployment.dead:
        await until(lambda w=worker: bool(deployment.dead) or not w.alive, 40, lambda: "it dies or gives up")  # type: ignore[misc]
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


async def test_a_hundred_dead_letters_in_a_row_pause_the_worker_until_a_good_record_comes(
    deployment: Deployment,
):
    worker = await deployment.start_worker("claims").ready()
    assert (await worker.get("/ready"))[0] == 200
    for number in range(120):
        await deployment.produce([b"no claim"], key=b"k%d" % (number % 20), partition=0)
    await until(lambda: len(deployment.dead) >= 100, 20, lambda: "a hundred dead letters")
    await worker.says("worker.paused")
    status, text = await worker.get("/ready")
    assert (status, "dead_letters" in text) == (503, True)
    assert (await worker.get("/live"))[0] == 200
    assert await worker.metric("groundwire_paused", dependency="dead_letters") == 1
    assert worker.text.count("worker.paused") == 1
    assert await worker.stop(10) == 0


async def test_garbage_of_one_key_pauses_nobody(deployment: Deployment):
    worker = await deployment.start_worker("claims").ready()
    await deployment.produce([b"no claim"] * 150, key=b"k")
    await deployment.produce([good(1)], key=b"k")
    await deployment.decision("c1")
    await deployment.settled(1, 150)
    assert "worker.paused" not in worker.text


async def test_metrics_count_decisions_checks_latency_and_dead_letters(deployment: Deployment):
    worker = await deployment.start_worker("claims").ready()
    await deployment.produce([good(number) for number in range(50)])
    await deployment.produce([b"{", b"{}"])
    await deployment.settled(50, 2)
    await deployment.produce([good(0)])
    await until(lambda: len(deployment.decisions) == 51, 10, lambda: "the repeat")
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

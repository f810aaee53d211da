"""Broker and Redis go away and come back: nothing is lost, nothing is approved blindly (X-12, X-13)."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest
from redis.asyncio import Redis

from tests.stream.harness import Deployment, assert_one_truth, good, until

pytestmark = [pytest.mark.stream, pytest.mark.three_nodes, pytest.mark.slow]


async def test_a_broker_that_stops_and_comes_back_under_load_loses_nothing(deployment: Deployment):
    """Meanwhile workers log few lines: each kind at most once a minute."""
    workers = await deployment.start_workers("claims", "deferred")
    await deployment.produce([good(number) for number in range(200)])
    await deployment.settled(200)
    before = len(workers[0].text.splitlines())
    feeding = asyncio.create_task(deployment.produce([good(number) for number in range(200, 1500)]))
    await deployment.settled(300)
    await asyncio.to_thread(deployment.broker.stop)
    await until(lambda: len(workers[0].text.splitlines()) > before, "the worker reports the outage")
    await deployment.quiet(5)
    written = workers[0].text.splitlines()[before:]
    await asyncio.to_thread(deployment.broker.start)
    await feeding
    await deployment.settled(1500)
    await deployment.quiet()
    assert_one_truth(deployment.decisions)
    assert not deployment.dead
    await deployment.caught_up("claims")
    assert len(written) <= 60, "\n".join(written[:100])
    assert [await worker.stop() for worker in workers] == [0, 0]


@pytest.mark.smoke
@pytest.mark.parametrize("deployment", [{"environment": {"GROUNDWIRE_STATE_GRACE": "1"}}], indirect=True)
@pytest.mark.parametrize("outage", ["killed", "frozen"])
async def test_claims_of_a_long_outage_of_redis_get_revision_0_and_later_revision_1_by_themselves(
    deployment: Deployment, outage: str
):
    workers = await deployment.start_workers("claims", "deferred")
    await deployment.produce([good(5, source="user")])
    assert (await deployment.decision("c5")).topic == "approved"

    redis = deployment.redis
    redis.kill() if outage == "killed" else redis.pause()
    try:
        during = [good(5 * number, source="user") for number in range(2, 42)]
        await deployment.produce(during)
        for claim in during:
            await deployment.decision(str(claim["claim_id"]), revision=0)
        provisional = [seen for seen in deployment.decisions if seen.json["subject_id"] != "c5"]
        assert {seen.json["revision"] for seen in provisional} == {0}
        assert {seen.topic for seen in provisional} <= {"review", "blocked"}
        assert all("dedup_check_failed" in seen.json["checks_failed"] for seen in provisional)
        assert all(seen.json["facts"]["dedup"]["status"] == "failed" for seen in provisional)
        assert (await workers[0].get("/ready"))[0] == 503
        assert (await workers[0].get("/live"))[0] == 200
        assert await workers[0].metric("groundwire_paused", dependency="state") == 1
    finally:
        redis.start() if outage == "killed" else redis.resume()

    await deployment.settled(41)
    await deployment.produce([good(10, source="user", claim_id="copy")])
    assert (await deployment.decision("copy")).json["reason_code"] == "duplicate"
    await deployment.quiet()
    decided = deployment.first_decisions()
    assert all(decided["default", claim["user_id"], claim["claim_id"]] for claim in during)
    assert sum(seen.topic == "approved" for seen in deployment.decisions) > 30
    assert_one_truth(deployment.decisions)
    assert (await workers[0].get("/ready"))[0] == 200


@pytest.mark.parametrize(
    "deployment",
    [{"environment": {"GROUNDWIRE_STATE_GRACE": "0", "GROUNDWIRE_STATE_OUTAGE": "pause"}}],
    indirect=True,
)
async def test_with_state_outage_pause_claims_wait_for_redis(deployment: Deployment):
    (worker,) = await deployment.start_workers("claims")
    await deployment.produce([good(1)])
    await deployment.settled(1)
    deployment.redis.kill()
    try:
        await deployment.produce([good(number) for number in range(2, 20)])
        await worker.says("paused")
        await deployment.quiet()
        assert len(deployment.decisions) == 1
    finally:
        deployment.redis.start()
    await deployment.settled(19)
    assert {seen.json["revision"] for seen in deployment.decisions} == {1}
    assert_one_truth(deployment.decisions)


@pytest.mark.smoke
async def test_lost_state_is_rebuilt_from_the_topics_and_decides_as_before(deployment: Deployment):
    workers = await deployment.start_workers("claims", "claims")
    claims = [good(number) for number in range(300)]
    await deployment.produce(claims)
    await deployment.settled(300)
    before = {seen.subject: seen for seen in deployment.decisions}
    logs = "".join(worker.text for worker in workers)
    assert logs.count("state.rebuilt") == 1, "a new deployment starts without a warning"
    assert "state.lost" not in logs
    assert "paused" not in logs

    await deployment.flush()
    await deployment.produce(claims)
    copies = [{**claims[number], "claim_id": f"copy{number}"} for number in range(5, 300, 55)]
    await deployment.produce(copies)
    await deployment.settled(300 + len(copies))
    await deployment.quiet()

    assert_one_truth(deployment.decisions)
    again = [seen for seen in deployment.decisions if seen.subject in before]
    assert len(again) >= 600
    assert all(seen.value == before[seen.subject].value for seen in again)
    for copy in copies:
        decision = deployment.decided(str(copy["claim_id"]))[0].json
        assert decision["facts"]["dedup"]["matches"], "what was approved or is pending is still found"
    logs = "".join(worker.text for worker in workers)
    assert logs.count("state.rebuilt") > 1
    assert "state.lost" in logs


async def test_a_rebuild_leaves_out_names_and_counts_a_forged_approval_and_takes_the_rest(
    deployment: Deployment,
):
    deployment.verified = False  # what was forged does not follow
    (worker,) = await deployment.start_workers("claims")
    await deployment.produce([good(5 * number, source="user") for number in range(1, 40)])
    await deployment.settled(39)
    true = (await deployment.decision(str(good(5)["claim_id"]))).json
    text = "The harbour of Bergen opens its gates at nine"
    forged = true | {"subject_id": "forged", "evidence": true["evidence"] | {"claim": text}}
    value = json.dumps(forged | {"decision_id": "f" * 36}).encode()
    await (await deployment.send(value, key=b"default:u1", topic="approved"))
    assert await worker.stop() == 0

    _, said = await deployment.succeeds("rebuild", "--yes", **deployment.policies)
    assert "rebuild.left_out" in said
    assert "f" * 36 in said
    assert "40 decisions: 39 equal, 1 differs, 0 contradicted" in said
    await deployment.start_worker("claims").ready()
    copy = good(10, source="user", claim_id="copy")
    lie = good(7, claim_id="lie", content=text, source="user")
    await deployment.produce([copy, lie])
    assert (await deployment.decision("copy")).json["reason_code"] == "duplicate"
    assert (await deployment.decision("lie")).json["reason_code"] == "trusted_source"


async def test_what_a_failover_has_forgotten_is_asserted_again_before_anything_is_decided(
    deployment: Deployment,
):
    (worker,) = await deployment.start_workers("claims")
    claims = [good(5 * number, source="user") for number in range(1, 40)]
    await deployment.produce(claims)
    await deployment.settled(39)
    before = {seen.subject: seen for seen in deployment.decisions}

    deployment.redis.kill()
    await deployment.produce([good(1)])
    await worker.says("state.unavailable")
    worker.signal(signal.SIGSTOP)  # so that it finds the server as the failover left it
    deployment.redis.start()
    async with Redis.from_url(deployment.redis.url) as redis:
        forgotten = [key async for key in redis.scan_iter(f"{deployment.prefix}[skm]:*")]
        assert len(forgotten) > 39
        await redis.delete(*forgotten)
    worker.signal(signal.SIGCONT)

    await deployment.produce([*claims, {**claims[0], "claim_id": "copy"}])
    assert (await deployment.decision("copy")).json["reason_code"] == "duplicate"
    await deployment.quiet()
    assert "state.reasserted" in worker.text
    again = [seen for seen in deployment.decisions if seen.subject in before]
    assert len(again) >= 78
    assert all(seen.value == before[seen.subject].value for seen in again)

"""A worker as a process: how it starts, what it logs, how it ends; and broker and Redis that fail and recover.

Nothing is lost, and nothing is approved blindly (X-12, X-13).
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from redis.asyncio import Redis

from groundwire.messages.topics import partition_of
from groundwire.state.partitions import slots
from tests.services.brokers import Broker
from tests.services.fixtures import or_skip
from tests.services.redis_servers import LocalCluster
from tests.stream.faulty import MAGIC
from tests.stream.harness import ROOT, Deployment, assert_one_truth, good, until

pytestmark = [pytest.mark.stream, pytest.mark.slow]


@pytest.mark.smoke
@pytest.mark.three_nodes
async def test_sigterm_under_load_ends_with_0_and_neither_loses_nor_repeats(deployment: Deployment):
    total = 1500
    worker = await deployment.start_worker("claims").ready()
    feeding = asyncio.create_task(deployment.produce([good(number) for number in range(total)]))
    await deployment.settled(100)
    assert await worker.stop() == 0
    assert "stopped.at_deadline" not in worker.text
    await feeding
    await deployment.quiet(0.5)
    done = sum((await deployment.committed("claims")).values())
    assert done == len(deployment.decisions), "what was published was committed, and nothing else"
    await deployment.start_worker("claims").ready()
    await deployment.settled(total)
    await deployment.quiet()
    assert_one_truth(deployment.decisions)
    assert len(deployment.decisions) == total


@pytest.mark.parametrize("missing", ["redis", "broker"])
async def test_sigterm_while_a_dependency_is_out_of_reach_ends_with_0(deployment: Deployment, missing: str):
    """By the deadline at the latest; the embedded services are gone for as long as the test wants."""
    deployment.environment["GROUNDWIRE_SHUTDOWN_DEADLINE"] = "6"
    workers = await deployment.start_workers("claims", "deferred")
    await deployment.produce([good(number) for number in range(20)])
    await deployment.settled(20)
    if missing == "redis":
        deployment.redis.pause()
        await deployment.produce([good(number) for number in range(20, 40)])
        await workers[0].answers("/ready", 503)
    else:
        feeding = asyncio.create_task(deployment.produce([good(number) for number in range(20, 600)]))
        await deployment.settled(30)
        await asyncio.to_thread(deployment.broker.stop)
    try:
        assert await asyncio.gather(*(worker.stop() for worker in workers)) == [0, 0]
    finally:
        if missing == "redis":
            deployment.redis.resume()
        else:
            await asyncio.to_thread(deployment.broker.start)
            await feeding
    await deployment.start_workers("claims")
    await deployment.settled(40 if missing == "redis" else 600)
    assert_one_truth(deployment.decisions)


@pytest.mark.smoke
async def test_idle_workers_of_every_role_see_a_dead_broker_and_a_state_that_refuses_writes(
    deployment: Deployment,
):
    workers = await deployment.start_workers("claims", "responses", "deferred", "reviews")
    for worker in workers:
        await worker.answers("/ready", 200)
    async with Redis.from_url(deployment.redis.url) as redis:
        await redis.config_set("maxmemory", "1mb")  # it goes on answering what only reads
        try:
            for worker in workers:
                assert await worker.answers("/ready", 503) == "paused: state"
            await deployment.produce([good(number) for number in range(40)])
            await until(lambda: len(deployment.decisions) >= 40, "claims are decided provisionally", 60)
            for worker in workers:
                assert await worker.get("/ready") == (503, "paused: state")
                assert await worker.metric("groundwire_paused", dependency="state") == 1
                assert await worker.metric("groundwire_pauses_total", dependency="state") == 1, "it is steady"
        finally:
            await redis.config_set("maxmemory", "0")
    for worker in workers:
        await worker.answers("/ready", 200)
    await asyncio.to_thread(deployment.broker.stop)
    try:
        for worker in workers:
            assert await worker.answers("/ready", 503) == "paused: broker"
            await worker.says("paused .*dependency=broker")
    finally:
        await asyncio.to_thread(deployment.broker.start)
    for worker in workers:
        await worker.answers("/ready", 200)
        assert await worker.stop() == 0
        assert re.search(r"stopped +seconds=", worker.text.splitlines()[-1])
        assert "livelock" not in worker.text


async def test_an_output_topic_that_was_deleted_is_what_the_worker_says_it_waits_for(deployment: Deployment):
    worker = await deployment.start_worker("claims").ready()
    admin = AIOKafkaAdminClient(bootstrap_servers=deployment.broker.bootstrap)
    await admin.start()
    try:
        await admin.delete_topics(
            [f"{deployment.prefix}{topic}" for topic in ("approved", "review", "blocked")]
        )
    finally:
        await admin.close()
    await deployment.produce([good(1)])
    assert await worker.answers("/ready", 503) == "paused: topics"
    await worker.says("there is no topic .*groundwire topics declare")
    assert (await deployment.command("topics", "declare"))[0] == 0
    await worker.answers("/ready", 200)


async def test_of_two_workers_with_one_instance_id_one_ends_and_says_so(deployment: Deployment):
    same = {"GROUNDWIRE_INSTANCE_ID": "one", "GROUNDWIRE_LOG_FORMAT": "json"}
    workers = [deployment.start_worker("claims", **same) for _ in range(2)]
    await until(lambda: not all(worker.alive for worker in workers), "one of them ends")
    ended, _ = sorted(workers, key=lambda worker: worker.alive)
    assert await ended.ended() == 2
    lines = [json.loads(line) for line in ended.text.splitlines()]
    assert [line["event"] for line in lines if "GROUNDWIRE_INSTANCE_ID" in str(line)] == ["failed"]
    await deployment.produce([good(number) for number in range(40)])
    await deployment.settled(40)
    assert_one_truth(deployment.decisions)


@pytest.mark.three_nodes
async def test_a_worker_creates_no_topics_unless_told_to_and_starts_once_they_are_declared(
    deployment: Deployment,
):
    prefix = f"{deployment.prefix}late."
    worker = deployment.start_worker("claims", GROUNDWIRE_TOPIC_PREFIX=prefix)
    await worker.says("topics.missing")
    for path, status in (("/ready", 503), ("/live", 200), ("/other", 404)):
        assert (await worker.get(path))[0] == status
    admin = AIOKafkaAdminClient(bootstrap_servers=deployment.broker.bootstrap)
    await admin.start()
    try:
        assert not [name for name in await admin.list_topics() if name.startswith(prefix)]
    finally:
        await admin.close()
    assert (await deployment.command("topics", "declare", GROUNDWIRE_TOPIC_PREFIX=prefix))[0] == 0
    await worker.ready()
    assert worker.text.count("topics.missing") == 1
    await worker.answers("/ready", 200)
    deployment.redis.pause()
    try:
        assert "state" in await worker.answers("/ready", 503)
    finally:
        deployment.redis.resume()
    await worker.answers("/ready", 200)
    assert await worker.stop() == 0
    declaring = deployment.start_worker("claims", "--declare", GROUNDWIRE_TOPIC_PREFIX=f"{prefix}new.")
    await declaring.ready()
    assert "topics.missing" not in declaring.text


async def test_a_log_reader_that_went_away_does_not_keep_a_worker_alive(deployment: Deployment):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "agents", "claims"),
        cwd=ROOT,
        env=deployment.settings(GROUNDWIRE_SEAL_KEY=str(deployment.seal_key)),
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr
        async with asyncio.timeout(160):
            while b"ready" not in await process.stderr.readline():
                pass
            process.stderr._transport.close()  # type: ignore[attr-defined]
            await deployment.produce([b"{", good(1)])
            await deployment.settled(1, 1)
            process.terminate()
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_json_logs_are_json_and_hold_no_text_of_claims(deployment: Deployment):
    worker = deployment.start_worker("claims", GROUNDWIRE_LOG_FORMAT="json", GROUNDWIRE_LOG_LEVEL="debug")
    await worker.ready()
    secret = "Zanzibar"
    await deployment.produce(
        [
            good(1, content=f"Maybe {secret} is far", metadata={"note": secret}),
            {**good(2), "colour": secret},
            f'{{"claim_id": "{secret}'.encode(),
            good(3, memory_type=secret),
            good(4, captured_at=secret),
            good(1, content=f"{secret} is near"),
        ]
    )
    await deployment.settled(1, 5)
    assert await worker.stop() == 0
    lines = [json.loads(line) for line in worker.text.splitlines()]
    assert {"ready", "stopping", "policy.loaded", "record.dead"} <= {line["event"] for line in lines}
    assert all(line["timestamp"] and line["level"] for line in lines)
    assert secret not in worker.text


async def test_a_wrong_setting_ends_the_worker_with_2_and_is_named():
    async def run(setting: str, value: str) -> tuple[int | None, str]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "agents", "claims", cwd=ROOT, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", setting: value},
        )  # fmt: skip
        _, said = await process.communicate()
        return process.returncode, said.decode()

    wrong = (
        ("GROUNDWIRE_SESSION_TIMEOUT", "soon", "GROUNDWIRE_SESSION_TIMEOUT"),
        ("GROUNDWIRE_POLICY_FILE", "/nowhere/policy.toml", "/nowhere/policy.toml"),
        ("GROUNDWIRE_KEYS_FILE", "/nowhere/keys.toml", "/nowhere/keys.toml"),
        ("GROUNDWIRE_ALLOW_NETWORKS", "10.0.0.0/99", "GROUNDWIRE_ALLOW_NETWORKS"),
        ("GROUNDWIRE_DEDUP_THRESHOLD", "7", "dedup_threshold"),
        ("GROUNDWIRE_DEDUP_METHOD", "vector", "dedup_method"),
        ("GROUNDWIRE_REDIS_URL", "http://127.0.0.1", "GROUNDWIRE_REDIS_URL"),
    )
    results = await asyncio.gather(*(run(setting, value) for setting, value, _ in wrong))
    for (setting, _, name), (status, said) in zip(wrong, results, strict=True):
        assert status == 2, setting
        assert name in said
        assert "Traceback" not in said


async def test_a_worker_with_another_dedup_scheme_or_a_server_that_may_evict_ends_with_2(
    deployment: Deployment,
):
    worker = await deployment.start_worker("claims").ready()
    await deployment.produce([good(1)])
    await deployment.settled(1)
    assert await worker.stop() == 0
    other = deployment.start_worker("claims", GROUNDWIRE_DEDUP_SCOPE="user")
    assert await other.ended() == 2
    assert "groundwire rebuild" in other.text
    async with Redis.from_url(deployment.redis.url) as redis:
        await redis.config_set("maxmemory-policy", "allkeys-lru")
        try:
            evicting = deployment.start_worker("claims")
            assert await evicting.ended() == 2
            assert "maxmemory-policy" in evicting.text
        finally:
            await redis.config_set("maxmemory-policy", "noeviction")


async def test_a_changed_policy_is_taken_up_and_a_broken_one_or_another_scheme_refused(
    deployment: Deployment, tmp_path: Path
):
    policy = tmp_path / "policy.toml"
    policy.write_text('version = "one"\n')
    worker = await deployment.start_worker("claims", GROUNDWIRE_POLICY_FILE=str(policy)).ready()
    await deployment.produce([good(1)])
    one = (await deployment.decision("c1")).json["policy"]
    for number, broken in enumerate(
        ('version = "two"\ntrusted = []\n', "[", "dedup_threshold = 0.5\n", ""), 1
    ):
        policy.write_text(broken)
        await until(lambda said=number: worker.text.count("policy.refused") == said, f"{broken!r} is refused")
    assert await worker.metric("groundwire_policy_refused") == 1
    await deployment.produce([good(2)])
    assert (await deployment.decision("c2")).json["policy"] == one
    policy.write_text('version = "one"\n')
    await worker.says("policy.unchanged")
    assert await worker.metric("groundwire_policy_refused") == 0
    policy.write_text('version = "three"\ntrusted_sources = []\n')
    await worker.says("policy.changed")
    await deployment.produce([good(5)])
    decided = (await deployment.decision("c5")).json
    assert (decided["policy"]["version"], decided["reason_code"]) == ("three", "ungrounded")
    assert await worker.metric("groundwire_build_info", policy=decided["policy"]["sha256"]) == 1
    assert await worker.metric("groundwire_build_info") == 1
    loaded = [
        seen.json["detail"] for seen in deployment.seen["audit"] if seen.json["type"] == "policy_loaded"
    ]
    assert (loaded[-1]["sha256"], loaded[-1]["before"]) == (decided["policy"]["sha256"], one["sha256"])
    await deployment.succeeds(
        "verify", "--from-topics", GROUNDWIRE_POLICY_FILE=str(policy)
    )  # state keeps the first


@pytest.mark.three_nodes
async def test_a_worker_whose_producer_is_broken_ends_so_that_another_goes_on(deployment: Deployment):
    worker = await deployment.start_worker("claims", faulty="producer").ready()
    await deployment.produce([good(1, content=f"Say {MAGIC}"), good(2)])
    assert await worker.ended() not in {0, None}
    await deployment.start_worker("claims").ready()
    await deployment.settled(2)
    assert_one_truth(deployment.decisions)


@pytest.mark.parametrize("replicas", [0, 1])
async def test_a_primary_that_dies_under_load_loses_nothing_and_holds_up_its_own_users_alone(
    broker: Broker, tmp_path: Path, replicas: int
):
    total = 1_200

    def of_users(number: int) -> dict[str, object]:
        """A claim of one of many users."""
        return good(number, source="user") | {"user_id": f"user-{number % 90}"}

    environment = {"GROUNDWIRE_STATE_GRACE": "3"}
    with or_skip(lambda: LocalCluster(replicas=replicas)) as cluster:
        async with Deployment(broker, cluster, tmp_path, environment=environment) as deployment:  # type: ignore[arg-type]
            workers = await deployment.start_workers("claims", "deferred")
            partitions = [partition_of("default", f"user-{n}", deployment.partitions) for n in range(90)]
            slot = slots(deployment.partitions)[partitions[0]]
            node = cluster.primary_of(slot)
            paused = {
                at for at, its in enumerate(slots(deployment.partitions)) if cluster.primary_of(its) is node
            }
            there = {f"user-{n}" for n in range(90) if partitions[n] in paused}
            # on one partition: those of others go to their own through `deferred`
            await deployment.produce([of_users(number) for number in range(total // 3)], partition=0)
            await deployment.settled(total // 3)
            misplaced = sum(partitions[number % 90] != 0 for number in range(total // 3))
            assert await workers[0].metric("groundwire_misplaced_records_total", input="claims") == misplaced
            node.kill()
            during = [of_users(number) for number in range(total // 3, total)]
            await deployment.produce(during)

            async def decided(claims: list[dict[str, object]]) -> None:
                names = {("default", claim["user_id"], claim["claim_id"]) for claim in claims}
                await until(
                    lambda: names <= deployment.first_decisions().keys(),
                    lambda: f"undecided: {names - deployment.first_decisions().keys()}",
                )

            await decided([claim for claim in during if claim["user_id"] not in there])
            if cluster.replicas:
                await until(lambda: cluster.primary_of(slot) is not node, "the replica takes over")
            else:
                assert await workers[0].metric("groundwire_paused", dependency="state") == 1
                await asyncio.to_thread(cluster.restart, node)
            await decided(during)
            await deployment.quiet()
            assert_one_truth([seen for seen in deployment.decisions if seen.json["revision"]])
            assert not deployment.dead
            await workers[0].answers("/ready", 200)
            await deployment.caught_up("claims")
            assert [await worker.stop() for worker in workers] == [0, 0]


@pytest.mark.three_nodes
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
@pytest.mark.three_nodes
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
    await workers[0].answers("/ready", 200)


@pytest.mark.three_nodes
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


@pytest.mark.three_nodes
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

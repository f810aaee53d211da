"""Topics that others change while workers run: deleted records, new partitions, a topic declared anew, a limit."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.errors import KafkaError

from groundwire.config import Settings
from tests.stream.harness import PATIENCE, Deployment, Worker, assert_one_truth, good, until
from topics.catalog import CATALOG
from topics.declare import check, declare

pytestmark = [pytest.mark.stream, pytest.mark.slow]


@asynccontextmanager
async def administering(deployment: Deployment) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=deployment.broker.bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


def settings(deployment: Deployment) -> Settings:
    topics = {"topic_prefix": deployment.prefix, "partitions": deployment.partitions}
    return Settings(brokers=deployment.broker.bootstrap, **topics, replication=deployment.broker.replication)


def of_one(*numbers: int) -> list[dict[str, object]]:
    return [good(number, user_id="ann", source="user") for number in numbers]


async def delete_before(deployment: Deployment, partition: int, offset: int) -> None:
    async with administering(deployment) as admin:
        place = deployment.places("claims")[partition]
        await admin.delete_records({place: RecordsToDelete(before_offset=offset)})


async def counts(worker: Worker, name: str, value: float, **labels: str) -> None:
    async with asyncio.timeout(PATIENCE):
        while await worker.metric(name, **labels) != value:  # noqa: ASYNC110 - nothing tells when
            await asyncio.sleep(0.2)


async def test_records_that_retention_deletes_before_they_are_read_are_named_by_log_metric_audit_and_verify(
    deployment: Deployment,
):
    deployment.verified = False  # `verify` finds what is lost
    worker = await deployment.start_worker("claims").ready()
    await deployment.produce(of_one(1, 2), partition=0)
    await deployment.settled(2)
    await deployment.caught_up("claims")
    await worker.stop()
    await deployment.produce(of_one(*range(3, 13)), partition=0)
    await deployment.produce(of_one(20, 21), partition=1)  # nothing was committed of it
    await delete_before(deployment, 0, 9)
    worker = await deployment.start_worker("claims").ready()
    await deployment.settled(2 + 3 + 2)
    await worker.says(r"records\.lost.*(first\W+2\b.*end\W+9\b|end\W+9\b.*first\W+2\b)")
    await counts(worker, "groundwire_records_lost_total", 7, input="claims")
    await deployment.caught_up("claims")
    lost = [seen.json for seen in deployment.seen["audit"] if seen.json["type"] == "records_lost"]
    place = {"topic": deployment.prefix + "claims", "partition": 0, "first": 2, "end": 9}
    assert [{**event["detail"], "signed": None} for event in lost] == [{**place, "signed": None}]
    await worker.stop()

    await deployment.produce(of_one(30), partition=0)
    await delete_before(
        deployment, 0, -1
    )  # all that waits: there is nothing left to decide, or to commit behind
    worker = await deployment.start_worker("claims").ready()
    await counts(worker, "groundwire_records_lost_total", 1, input="claims")
    await deployment.caught_up("claims")
    await until(
        lambda: sum(seen.json["type"] == "records_lost" for seen in deployment.seen["audit"]) == 2,
        "the second loss is audited",
    )
    await worker.stop()
    worker = await deployment.start_worker("claims").ready()
    await deployment.produce(of_one(31), partition=0)
    await deployment.decision("c31")
    assert "records.lost" not in worker.text, "a loss is committed past once it is told"

    policies = ("--policies", deployment.policies["GROUNDWIRE_POLICIES_DIR"], "--format", "json")
    sealed = ("--seal-keys", deployment.sealing["GROUNDWIRE_SEAL_KEY"])
    status, out, err = await deployment.command("verify", "--from-topics", *policies, *sealed)
    found = [json.loads(line) for line in out.splitlines()]
    named = {(one["where"], one["detail"].partition(":")[0]) for one in found if one["status"] == "lost"}
    topic = f"{deployment.prefix}claims"
    assert named == {(f"{topic}/0@2", "offsets 2 to 8"), (f"{topic}/0@12", "offsets 12 to 12")}, err
    assert {one["status"] for one in found} <= {"lost", "expired"}, out
    assert status == 1
    assert "2 lost" in err


async def test_a_letter_that_is_too_large_or_old_for_its_topic_goes_without_its_value_or_time_and_stops_nothing(
    deployment: Deployment,
):
    name, limit = deployment.prefix + "dead-letter", 200_000
    config = next(spec.config for spec in CATALOG if spec.name == "dead-letter")
    async with administering(deployment) as admin:
        await admin.delete_topics([name])
        topic = NewTopic(
            name,
            deployment.partitions,
            deployment.broker.replication,
            topic_configs=config
            | {"max.message.bytes": str(limit), "message.timestamp.before.max.ms": "3600000"},
        )
        await eventually(lambda: _create(admin, topic))

    async def compared() -> None:
        found = [
            (one.topic, one.fatal) for one in await check(settings(deployment)) if f"{limit}" in one.problem
        ]
        inputs = [
            (deployment.prefix + topic, False) for topic in ("claims", "llm-responses", "review-decisions")
        ]
        assert sorted(found) == sorted([(name, True), *inputs])

    await eventually(compared)

    worker = await deployment.start_worker("claims").ready()
    broken = b'{"claim_id": "' + b"x" * 300_000
    headers = [("traceparent", b"00-1")]
    (place,) = await deployment.produce([broken], key=b"acme:ann", partition=0, headers=headers)
    await deployment.produce([b"{"], key=b"acme:ann", partition=0, headers=[("h", b"y" * 250_000)])
    await deployment.produce([b"{"], key=b"k" * 250_000, partition=0)
    old = place.timestamp - 7_200_000
    await deployment.produce([b"{"], key=b"acme:ann", partition=0, timestamp_ms=old)
    await deployment.produce(of_one(1), partition=0)
    await deployment.decision("c1")

    async def four_letters() -> None:
        assert len(await deployment.stored("dead-letter")) == 4

    await eventually(four_letters)
    letters = sorted(
        await deployment.stored("dead-letter"), key=lambda one: one.header("__connect.errors.offset")
    )
    large, of_headers, of_key, of_time = letters
    assert (large.value, large.key, large.header("gw-error")) == (None, b"acme:ann", "invalid_json")
    assert large.header("gw-value-omitted") == f"{hashlib.sha256(broken).hexdigest()} {len(broken)}"
    assert large.header("traceparent") == "00-1"
    assert (large.header("__connect.errors.partition"), large.timestamp) == ("0", place.timestamp)
    assert large.header("__connect.errors.timestamp") == str(place.timestamp)
    assert (of_headers.value, of_headers.header("h"), of_headers.header("gw-value-omitted")) == (
        b"{",
        None,
        None,
    )
    assert (of_key.key, of_key.header("gw-error")) == (None, "invalid_json")
    assert (of_time.timestamp > old, of_time.header("__connect.errors.timestamp")) == (True, str(old))
    assert "partition.failed" not in worker.text

    where = ("--brokers", deployment.broker.bootstrap, "--prefix", deployment.prefix)
    name = f"{large.partition}@{large.offset}"
    out, _ = await deployment.succeeds("dead-letters", "show", name, *where)
    assert f"{len(broken)}" in out
    status, out, _ = await deployment.command("dead-letters", "redrive", name, "--yes", *where)
    assert (status, "value_omitted" in out) == (1, True)


async def test_new_partitions_are_read_and_a_topic_that_is_declared_again_is_said_and_read_from_its_beginning(
    deployment: Deployment,
):
    deployment.verified = False  # what was decided on the first topic has no record any more
    worker = await deployment.start_worker("claims").ready()
    await deployment.produce(of_one(1, 2), partition=0)
    await deployment.settled(2)
    name = deployment.prefix + "claims"
    async with administering(deployment) as admin:
        await admin.create_partitions({name: NewPartitions(deployment.partitions + 2)})
        await worker.says(r"ready.*\[0, 1, 2, 3, 4, 5\]")
        differing = {finding.topic for finding in await check(settings(deployment))}
        assert {deployment.prefix + topic for topic in ("approved", "llm-responses", "deferred")} <= differing

        await admin.delete_topics([name])
        await worker.says(r"topics\.missing.*claims")
        assert "topics" in await worker.answers("/ready", 503)
        await eventually(lambda: declare(settings(deployment)))
        await worker.says(r"resumed.*topics")
    await until_sent(deployment, 3)
    await deployment.decision("c3")
    await deployment.produce(of_one(*range(4, 9)), partition=0)
    await deployment.settled(8)
    assert_one_truth(deployment.decisions)
    await worker.answers("/ready", 200)
    assert await worker.stop() == 0
    again = await deployment.start_worker("claims").ready()
    await deployment.produce(of_one(9), partition=0)
    await deployment.decision("c9")
    assert "records.lost" not in again.text


async def until_sent(deployment: Deployment, number: int) -> None:
    """Send a claim once the producer knows the new topic."""
    await eventually(lambda: deployment.produce(of_one(number), partition=0))


async def _create(admin: AIOKafkaAdminClient, topic: NewTopic) -> None:
    response = await admin.create_topics([topic])
    assert not any(error[1] for error in response.topic_errors)


async def eventually(do: Callable[[], Awaitable[object]]) -> None:
    """Do it again until the cluster lets it: a deleted topic's name is free after a moment."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await do()
            except (KafkaError, AssertionError):
                await asyncio.sleep(0.3)
            else:
                return

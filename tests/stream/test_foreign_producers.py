"""Records of producers that are not ours, as librdkafka writes them: every codec, and transactions."""

from __future__ import annotations

import asyncio
import json
import os
import re
from pathlib import Path
from zlib import crc32

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from confluent_kafka import Producer

from groundwire.client import ApprovedTable, changes
from tests.services.brokers import BROKER_VARIABLE
from tests.stream.harness import PATIENCE, Deployment, Worker, assert_one_truth, good

pytestmark = [pytest.mark.stream, pytest.mark.slow]

apache_kafka = pytest.mark.skipif(
    not os.environ.get(BROKER_VARIABLE, "").startswith("kafka"),
    reason="the embedded broker has no transactions",
)
CODECS = ("gzip", "snappy", "lz4", "zstd")


def claims(name: str, count: int = 8) -> list[dict[str, object]]:
    """Claims of one user that are approved, and that any codec makes smaller."""
    known: dict[str, object] = {"user_id": "ann", "source": "user", "metadata": {"padding": "z" * 500}}
    return [
        good(11 * crc32(f"{name}{number}".encode()) + 1, claim_id=f"{name}-{number}", **known)
        for number in range(count)
    ]


async def send(deployment: Deployment, values: list[dict[str, object]], **settings: object) -> Producer:
    """Send claims in one batch by librdkafka, in a transaction that stays open where it has an id."""
    where = {"bootstrap.servers": deployment.broker.bootstrap, "linger.ms": 50}
    made = Producer({**where, **settings})
    if "transactional.id" in settings:
        await asyncio.to_thread(made.init_transactions, PATIENCE)
        made.begin_transaction()
    for value in values:
        sent = json.dumps(value).encode()
        made.produce(deployment.prefix + "claims", sent, key=b"default:ann", partition=0)
    assert await asyncio.to_thread(made.flush, PATIENCE) == 0
    return made


async def all_decided(deployment: Deployment, *names: str) -> None:
    """Wait until every claim of these names, and no other, is decided."""
    expected = {claim["claim_id"] for name in names for claim in claims(name)}
    await deployment.settled(len(expected))
    assert {seen.json["subject_id"] for seen in deployment.decisions} == expected
    assert_one_truth(deployment.decisions)


async def no_lag(deployment: Deployment, worker: Worker, *, committed: bool = True) -> None:
    """Wait until the group has committed all of its topic, and the worker counts nothing as left."""
    if committed:
        await deployment.caught_up("claims")
    async with asyncio.timeout(PATIENCE):
        while await worker.metric("groundwire_lag_records"):  # noqa: ASYNC110 - it is measured every second
            await asyncio.sleep(0.2)


async def assert_all_commands_read(deployment: Deployment, decided: int) -> None:
    """Every command, and the client, reads the deployment's topics to their ends."""
    status, out, err = await deployment.command("tail", "claims", "--until-end", "--from", "earliest")
    assert (status, len(out.splitlines())) == (0, decided), err
    await deployment.verify()
    status, _, err = await deployment.command(
        "verify", "--from-topics", "--policies", deployment.policies["GROUNDWIRE_POLICIES_DIR"]
    )
    assert status == 0, err
    await deployment.succeeds("replay", "--from", "earliest", **deployment.policies)
    await deployment.succeeds("review", "list", "--reviewer", "ann")
    status, _, err = await deployment.command("rebuild", "--yes")
    assert status == 0, err
    where = {"brokers": deployment.broker.bootstrap, "topic_prefix": deployment.prefix}
    assert len([change async for change in changes(ApprovedTable(), until_end=True, **where)]) == decided


@pytest.mark.parametrize("compressing", [False, pytest.param(True, marks=apache_kafka)])
async def test_claims_in_any_codec_are_decided_and_read_even_where_the_broker_compresses_every_topic(
    deployment: Deployment, *, compressing: bool
):
    if compressing:
        topics = (
            "claims",
            "approved",
            "review",
            "blocked",
            "retractions",
            "audit",
            "dead-letter",
            "deferred",
        )
        admin = AIOKafkaAdminClient(bootstrap_servers=deployment.broker.bootstrap)
        await admin.start()
        for topic, codec in zip(topics, CODECS[1:] * len(topics), strict=False):
            resource = ConfigResource(ConfigResourceType.TOPIC, deployment.prefix + topic)
            resource.configs = {"compression.type": codec}
            await admin.alter_configs([resource])
        await admin.close()
    worker = await deployment.start_worker("claims").ready()
    for codec in CODECS:
        await send(deployment, claims(codec), **{"compression.type": codec})
    await all_decided(deployment, *CODECS)
    await no_lag(deployment, worker)
    assert await worker.stop() == 0
    await assert_all_commands_read(deployment, 8 * len(CODECS))


async def test_a_codec_that_is_not_installed_ends_workers_and_commands_with_what_to_install(
    deployment: Deployment, tmp_path: Path
):
    (tmp_path / "cramjam.py").write_text("raise ImportError\n")
    without = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{deployment.settings()['PYTHONPATH']}"}
    deployment.verified = False  # nothing is decided
    worker = await deployment.start_worker("claims", **without).ready()
    await send(deployment, claims("a"), **{"compression.type": "snappy"})
    assert await worker.ended() == 2
    again = deployment.start_worker("claims", **without)
    assert await again.ended() == 2
    said = [worker.text, again.text]
    for arguments in (
        ("tail", "claims", "--until-end", "--from", "earliest"),
        ("replay", "--from", "earliest"),
    ):
        status, _, err = await deployment.command(*arguments, **without)
        assert status == 2, err
        said.append(err)
    for text in said:
        assert re.search(r"^error: ", text, re.IGNORECASE | re.MULTILINE)
        assert "pip install cramjam" in text
        assert "Traceback" not in text


@apache_kafka
async def test_an_aborted_transaction_is_never_seen_and_an_open_one_hangs_nothing_but_its_partition(
    deployment: Deployment,
):
    async def transaction(name: str, **settings: object) -> Producer:
        identity = {"transactional.id": deployment.prefix + name, "transaction.timeout.ms": 300_000}
        return await send(deployment, claims(name), **identity, **settings)

    worker = await deployment.start_worker("claims").ready()
    aborted = await transaction("aborted")
    await asyncio.to_thread(aborted.abort_transaction, PATIENCE)
    await no_lag(deployment, worker)
    assert not deployment.decisions
    committed = await transaction("committed")
    await asyncio.to_thread(committed.commit_transaction, PATIENCE)
    await send(deployment, claims("plain"))
    await all_decided(deployment, "committed", "plain")
    again = await transaction("again", **{"compression.type": "lz4"})
    await asyncio.to_thread(again.abort_transaction, PATIENCE)
    await no_lag(deployment, worker)
    out, _ = await deployment.succeeds("lag", "--format", "json")
    assert sum(json.loads(line)["lag"] for line in out.splitlines()) == 0, "markers are none"
    await all_decided(deployment, "committed", "plain")
    assert not deployment.dead
    await assert_all_commands_read(deployment, 16)

    opened = await transaction("open")
    await send(deployment, claims("behind"))
    await deployment.produce([{**claims("beside", 1)[0], "user_id": "bob"}], partition=1)
    await deployment.decision("beside-0")
    await no_lag(deployment, worker, committed=False)
    assert len(deployment.first_decisions()) == 17
    await assert_all_commands_read(deployment, 17)
    await asyncio.to_thread(opened.commit_transaction, PATIENCE)
    await deployment.settled(33)
    await no_lag(deployment, worker)
    assert {seen.json["verdict"] for seen in deployment.decisions} == {"approved"}

    where = {"bootstrap_servers": deployment.broker.bootstrap}
    other = AIOKafkaProducer(**where, transactional_id=deployment.prefix + "other")
    await other.start()
    await other.begin_transaction()
    for number in range(deployment.partitions):
        await other.send_and_wait(deployment.prefix + "approved", b"{}", partition=number)
    await assert_all_commands_read(deployment, 33)
    await other.abort_transaction()
    await other.stop()
    await assert_all_commands_read(deployment, 33)

"""Records of producers that are not ours, as librdkafka writes them: every codec, and transactions."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from confluent_kafka import Producer

from groundwire.client import ApprovedTable, changes
from tests.services.brokers import BROKER_VARIABLE
from tests.stream.harness import Deployment, Worker, assert_one_truth, good

pytestmark = [pytest.mark.stream, pytest.mark.slow]

apache_kafka = pytest.mark.skipif(
    not os.environ.get(BROKER_VARIABLE, "").startswith("kafka"),
    reason="the embedded broker has no transactions",
)
CODECS = ("gzip", "snappy", "lz4", "zstd")
SECONDS = 60


def claims(name: str, count: int = 8) -> list[dict[str, object]]:
    """Claims of one user that are approved, and that any codec makes smaller."""
    known: dict[str, object] = {"user_id": "ann", "source": "user", "metadata": {"padding": "z" * 500}}
    return [
        good(11 * crc32(f"{name}{number}".encode()) + 1, claim_id=f"{name}-{number}", **known)
        for number in range(count)
    ]


class Foreign:
    """A producer of somebody else."""

    def __init__(self, deployment: Deployment, **settings: object) -> None:
        self._topic = deployment.prefix + "claims"
        self.producer = Producer(
            {"bootstrap.servers": deployment.broker.bootstrap, "linger.ms": 50, **settings}
        )

    def send(self, *values: dict[str, object]) -> None:
        """Send claims in one batch, and wait for the broker."""
        for value in values:
            self.producer.produce(self._topic, json.dumps(value).encode(), key=b"default:ann", partition=0)
        assert self.producer.flush(SECONDS) == 0


class Transaction(Foreign):
    """Claims of one transaction, which stays open."""

    def __init__(self, deployment: Deployment, name: str, **settings: object) -> None:
        identity = {"transactional.id": deployment.prefix + name, "transaction.timeout.ms": 300_000}
        super().__init__(deployment, **identity, **settings)
        self.producer.init_transactions(SECONDS)
        self.producer.begin_transaction()
        self.send(*claims(name))

    def commit(self) -> None:
        self.producer.commit_transaction(SECONDS)

    def abort(self) -> None:
        self.producer.abort_transaction(SECONDS)


async def run(doing: Callable[..., Any], *arguments: Any, **settings: Any) -> Any:
    """Run what librdkafka waits for beside the event loop."""
    return await asyncio.to_thread(doing, *arguments, **settings)


async def all_decided(deployment: Deployment, *names: str) -> None:
    """Wait until every claim of these names, and no other, is decided."""
    expected = {claim["claim_id"] for name in names for claim in claims(name)}
    await deployment.settled(len(expected))
    assert {seen.json["subject_id"] for seen in deployment.decisions} == expected
    assert_one_truth(deployment.decisions)


async def no_lag(deployment: Deployment, worker: Worker) -> None:
    """Wait until the group has committed all of its topic, and the worker counts nothing as left."""
    await deployment.caught_up("claims")
    await nothing_to_read(worker)


async def nothing_to_read(worker: Worker) -> None:
    """Wait until the worker counts nothing as left."""
    async with asyncio.timeout(SECONDS):
        while await worker.metric("groundwire_lag_records"):  # noqa: ASYNC110 - it is measured every second
            await asyncio.sleep(0.2)


async def lines_of(deployment: Deployment, *arguments: str) -> list[dict[str, Any]]:
    """Return what a command prints, one JSON object a line."""
    status, out, err = await deployment.command(*arguments)
    assert status == 0, err
    return [json.loads(line) for line in out.splitlines()]


async def assert_all_commands_read(deployment: Deployment, decided: int) -> None:
    """Every command, and the client, reads the deployment's topics to their ends."""
    tail = await lines_of(deployment, "tail", "claims", "--until-end", "--from", "earliest")
    assert len(tail) == decided
    await deployment.verify()
    status, _, err = await deployment.command(
        "verify", "--from-topics", "--policies", deployment.policies["GROUNDWIRE_POLICIES_DIR"]
    )
    assert status == 0, err
    status, _, err = await deployment.command("rebuild", "--yes")
    assert status == 0, err
    where = {"brokers": deployment.broker.bootstrap, "topic_prefix": deployment.prefix}
    assert len([change async for change in changes(ApprovedTable(), until_end=True, **where)]) == decided


async def test_claims_in_any_codec_are_decided_and_read(deployment: Deployment):
    worker = await deployment.start_worker("claims").ready()
    for codec in CODECS:
        await run(Foreign(deployment, **{"compression.type": codec}).send, *claims(codec))
    await all_decided(deployment, *CODECS)
    await no_lag(deployment, worker)
    assert await worker.stop() == 0
    await assert_all_commands_read(deployment, 8 * len(CODECS))


@apache_kafka
async def test_topics_that_the_broker_compresses_are_read_and_written(deployment: Deployment):
    topics = ("claims", "approved", "review", "blocked", "retractions", "audit", "dead-letter", "deferred")
    admin = AIOKafkaAdminClient(bootstrap_servers=deployment.broker.bootstrap)
    await admin.start()
    for topic, codec in zip(topics, CODECS[1:] * len(topics), strict=False):
        resource = ConfigResource(ConfigResourceType.TOPIC, deployment.prefix + topic)
        resource.configs = {"compression.type": codec}
        await admin.alter_configs([resource])
    await admin.close()
    worker = await deployment.start_worker("claims").ready()
    await run(Foreign(deployment).send, *claims("a"))
    await all_decided(deployment, "a")
    assert await worker.stop() == 0
    await assert_all_commands_read(deployment, 8)


async def test_a_codec_that_is_not_installed_ends_workers_and_commands_with_what_to_install(
    deployment: Deployment, tmp_path: Path
):
    (tmp_path / "cramjam.py").write_text("raise ImportError\n")
    without = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{deployment.settings()['PYTHONPATH']}"}
    deployment.verified = False  # nothing is decided
    worker = await deployment.start_worker("claims", **without).ready()
    await run(Foreign(deployment, **{"compression.type": "snappy"}).send, *claims("a"))
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
async def test_claims_of_an_aborted_transaction_are_never_seen(deployment: Deployment):
    worker = await deployment.start_worker("claims").ready()
    await run((await run(Transaction, deployment, "aborted")).abort)
    await no_lag(deployment, worker)
    assert not deployment.decisions
    await run((await run(Transaction, deployment, "committed")).commit)
    await run(Foreign(deployment).send, *claims("plain"))
    await all_decided(deployment, "committed", "plain")
    await run((await run(Transaction, deployment, "again", **{"compression.type": "lz4"})).abort)
    await no_lag(deployment, worker)
    await worker.stop()
    await all_decided(deployment, "committed", "plain")
    assert not deployment.dead
    await assert_all_commands_read(deployment, 16)


@apache_kafka
async def test_an_open_transaction_holds_its_partition_and_hangs_nothing(deployment: Deployment):
    worker = await deployment.start_worker("claims").ready()
    await run(Foreign(deployment).send, *claims("before"))
    await all_decided(deployment, "before")
    transaction = await run(Transaction, deployment, "open")
    await run(Foreign(deployment).send, *claims("behind"))
    await deployment.produce([{**claims("beside", 1)[0], "user_id": "bob"}], partition=1)
    await deployment.decision("beside-0")
    await nothing_to_read(worker)
    assert len(deployment.first_decisions()) == 9
    await assert_all_commands_read(deployment, 9)
    await run(transaction.commit)
    await deployment.settled(25)
    await no_lag(deployment, worker)
    assert {seen.json["verdict"] for seen in deployment.decisions} == {"approved"}


@apache_kafka
async def test_an_open_transaction_on_an_output_topic_hangs_no_command(deployment: Deployment):
    worker = await deployment.start_worker("claims").ready()
    await run(Foreign(deployment).send, *claims("before"))
    await all_decided(deployment, "before")
    await no_lag(deployment, worker)
    other = AIOKafkaProducer(
        bootstrap_servers=deployment.broker.bootstrap, transactional_id=deployment.prefix + "other"
    )
    await other.start()
    await other.begin_transaction()
    for number in range(deployment.partitions):
        await other.send_and_wait(deployment.prefix + "approved", b"{}", partition=number)
    await assert_all_commands_read(deployment, 8)
    await other.abort_transaction()
    await other.stop()
    await assert_all_commands_read(deployment, 8)

"""What other stream tests assume about broker and Redis: the embedded broker and Apache Kafka keep the same."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import uuid
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError, for_code
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from deploy.embedded import MissingServiceError, ServiceError
from deploy.embedded.partitions import OFFSET_OUT_OF_RANGE, OUT_OF_ORDER_SEQUENCE, Partition
from deploy.embedded.process import ServerProcess, find_program
from tests.services.brokers import Broker, until_led
from tests.stream.harness import ROOT, until

pytestmark = [pytest.mark.stream, pytest.mark.slow, pytest.mark.embedded]

T0 = 1_700_000_000_000
OUTAGE = 300
"""Seconds that a producer keeps what it cannot send, and tests wait: three nodes may take a minute."""


async def create(broker: Broker, name: str) -> str:
    """Create a topic with two partitions, and wait until they have leaders."""
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(name, 2, broker.replication)])
        if code := answer.topic_errors[0][1]:
            raise for_code(code)(name)
    finally:
        await admin.close()
    await until_led(broker.bootstrap)
    return name


@asynccontextmanager
async def consuming(broker: Broker, *topics: str, **settings: object) -> AsyncIterator[AIOKafkaConsumer]:
    options = {"heartbeat_interval_ms": 200, "session_timeout_ms": 30_000, "auto_offset_reset": "earliest"}
    options |= {"bootstrap_servers": broker.bootstrap, "enable_auto_commit": False, **settings}
    consumer = AIOKafkaConsumer(*topics, **options)
    async with asyncio.timeout(OUTAGE):
        await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


@pytest.mark.three_nodes
async def test_records_are_kept_as_sent_and_found_by_time_and_survive_a_stop_of_the_broker_with_offsets(
    broker: Broker,
) -> None:
    topic = await create(broker, f"services-{uuid.uuid4().hex[:8]}")
    with pytest.raises(TopicAlreadyExistsError):
        await create(broker, topic)
    partition = TopicPartition(topic, 0)
    headers = [("ce_id", b"1"), ("binary", b"\xff\x00"), ("ce_id", b"2")]
    sending = {"bootstrap_servers": broker.bootstrap, "enable_idempotence": True, "acks": "all"}
    sending |= {"request_timeout_ms": OUTAGE * 1_000}
    place = {"key": b"t:u", "partition": 0}
    async with AIOKafkaProducer(**sending, max_request_size=3_000_000) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, b"x" * 2_000_000, **place)
    async with AIOKafkaProducer(**sending) as producer:
        first = {"headers": headers, "timestamp_ms": T0}
        await producer.send_and_wait(topic, b"x" * 900_000, **place, **first)
        await producer.send_and_wait(topic, None, **place, timestamp_ms=T0 + 1_000)
        async with consuming(broker, topic, group_id=topic) as consumer:
            large, empty = [await consumer.getone(), await consumer.getone()]
            assert (large.key, large.value, large.offset) == (b"t:u", b"x" * 900_000, 0)
            assert list(large.headers) == headers
            assert (large.timestamp, large.timestamp_type) == (T0, 0)
            assert (empty.value, empty.offset, empty.timestamp) == (None, 1, T0 + 1_000)
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 2}
            for wanted in (T0 + 1, T0 + 1_000):
                found = await consumer.offsets_for_times({partition: wanted})
                assert (found[partition].offset, found[partition].timestamp) == (1, T0 + 1_000)
            assert await consumer.offsets_for_times({partition: T0 + 1_001}) == {partition: None}
            assert f"{topic}-nobody" not in await consumer.topics(), "reading creates no topic"

            await consumer.commit()
            await asyncio.to_thread(broker.stop)
            sent = await producer.send(topic, b"while down", partition=0)
            assert not sent.done()
            await asyncio.to_thread(broker.start)
            assert (await asyncio.wait_for(sent, OUTAGE)).offset == 2
            assert (await asyncio.wait_for(consumer.getone(), OUTAGE)).value == b"while down"
            async with asyncio.timeout(OUTAGE):  # the group's coordinator reads its log first
                while await consumer.committed(partition) != 2:  # noqa: ASYNC110 - no event says so
                    await asyncio.sleep(0.1)


@pytest.mark.three_nodes
async def test_a_static_member_comes_back_within_its_session_without_a_rebalance(broker: Broker) -> None:
    topic = await create(broker, f"services-{uuid.uuid4().hex[:8]}")

    class Rebalances(ConsumerRebalanceListener):
        count = 0

        async def on_partitions_revoked(self, revoked: object) -> None:
            pass

        async def on_partitions_assigned(self, assigned: object) -> None:  # noqa: ARG002 - aiokafka's signature
            self.count += 1

    seen = Rebalances()
    async with consuming(broker, group_id=topic, group_instance_id="other") as other:
        other.subscribe([topic], listener=seen)
        await until(lambda: seen.count == 1, "the first assignment", OUTAGE)
        async with consuming(broker, topic, group_id=topic, group_instance_id="w-1") as member:
            await until(lambda: len(member.assignment()) == 1 and seen.count == 2, "both", OUTAGE)
            owned = member.assignment()
        # a static member that stops does not leave
        async with consuming(broker, topic, group_id=topic, group_instance_id="w-1") as again:
            assert again.assignment() == owned
            await asyncio.sleep(1)  # five heartbeats, in which it would hear of a rebalance
            assert seen.count == 2


def test_the_embedded_broker_stores_a_repeated_batch_once_and_reads_whole_batches() -> None:
    def batch(*values: bytes, first_sequence: int) -> bytes:
        """Encode a record batch of idempotent producer 7 as a client does."""
        kept = {"magic": 2, "compression_type": 0, "is_transactional": False, "batch_size": 100_000}
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": first_sequence}
        builder = DefaultRecordBatchBuilder(**kept, **producer)
        for index, value in enumerate(values):
            builder.append(index, T0, None, value, [])
        return bytes(builder.build())

    log = Partition()
    first, second = batch(b"a", b"b", first_sequence=0), batch(b"c", first_sequence=2)
    assert [log.append(one) for one in (first, second, first)] == [(0, 0), (0, 2), (0, 0)]
    assert log.end == 3
    assert log.append(batch(b"e", first_sequence=4)) == (OUT_OF_ORDER_SEQUENCE, -1)
    assert log.append(batch(b"d", first_sequence=3)) == (0, 3)
    two = log.read(1, len(first) + len(second))[1]
    assert [log.read(1, 1)[1][8:], two[8 : len(first)]] == [first[8:]] * 2
    assert len(two) == len(first) + len(second)
    assert log.read(4, 1_000) == (0, b"")
    assert log.read(5, 1_000) == (OFFSET_OUT_OF_RANGE, b"")


async def test_servers_end_with_their_parent_their_input_or_sigterm_and_a_failed_start_is_reported(
    tmp_path: Path,
) -> None:
    for ending in ("end of input", "SIGTERM"):
        command = (sys.executable, "-m", "deploy.embedded.broker", "--topic", "x:3")
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, cwd=ROOT)
        assert process.stdin
        assert process.stdout
        assert re.fullmatch(rb"ready 127\.0\.0\.1:\d+\n", await process.stdout.readline())
        process.stdin.write(b"dwon\n")
        assert await process.stdout.readline() == b"error not a command: 'dwon'\n"
        process.terminate() if ending == "SIGTERM" else process.stdin.close()
        async with asyncio.timeout(60):
            assert await process.wait() == 0, ending
        await process.communicate()

    program = """
import time
from deploy.embedded import EmbeddedBroker, EmbeddedRedis
broker, redis = EmbeddedBroker(), EmbeddedRedis()
broker.start()
redis.start()
print(broker.pid, redis.pid, flush=True)
time.sleep(600)
"""

    def alive(pid: int) -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True

    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=PIPE, cwd=ROOT)
    assert parent.stdout
    servers = [int(pid) for pid in (await parent.stdout.readline()).split()]
    assert [alive(pid) for pid in servers] == [True, True]
    parent.kill()
    await parent.communicate()
    await until(lambda: not any(map(alive, servers)), "the servers end")

    failing = ["/bin/sh", "-c", "echo no such setting; exit 3"]
    server = ServerProcess("broken server", failing, tmp_path / "log")
    server.start()
    with pytest.raises(ServiceError, match=r"(?s)broken server: ended with status 3.*no such setting"):
        server.wait_until(lambda: False, 10)
    with pytest.raises(MissingServiceError, match=r"not on the PATH: install Java 17"):
        find_program("groundwire-has-no-such-program", "Java 17")

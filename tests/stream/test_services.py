"""What the other stream tests take for granted of the broker and the Redis server they run on.

The same promises for the embedded broker and for Apache Kafka: that is what makes one stand for the other.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import redis
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import MessageSizeTooLargeError, TopicAlreadyExistsError
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from deploy.embedded import MissingServiceError, RedisServer, ServiceError
from deploy.embedded.partitions import OFFSET_OUT_OF_RANGE, OUT_OF_ORDER_SEQUENCE, Partition
from deploy.embedded.process import ServerProcess, find_program
from tests.services.brokers import Broker

pytestmark = [pytest.mark.stream, pytest.mark.slow, pytest.mark.embedded]

ROOT = Path(__file__).resolve().parents[2]
T0 = 1_700_000_000_000
_OUTAGE_MS = 300_000  # how long a producer keeps what it cannot send: three nodes may take a minute


@pytest.fixture
def topic(broker: Broker) -> str:
    """A new topic with two partitions."""
    name = f"services-{uuid.uuid4().hex[:8]}"
    broker.create_topics({name: 2})
    return name


@asynccontextmanager
async def producing(broker: Broker, **settings: object) -> AsyncIterator[AIOKafkaProducer]:
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap,
        enable_idempotence=True,
        acks="all",
        request_timeout_ms=_OUTAGE_MS,
        **settings,
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()


@asynccontextmanager
async def consuming(broker: Broker, *topics: str, **settings: object) -> AsyncIterator[AIOKafkaConsumer]:
    consumer = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **{"heartbeat_interval_ms": 200, "session_timeout_ms": 6_000, **settings},
    )
    async with asyncio.timeout(300):
        await consumer.start()
    try:
        yield consumer
    finally:
        await consumer.stop()


async def until(condition: Callable[[], bool], seconds: float = 300) -> float:
    """Wait for a condition and return how many seconds it took."""
    begun = time.monotonic()
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - nothing tells of what is waited for
            await asyncio.sleep(0.02)
    return time.monotonic() - begun


@pytest.mark.three_nodes
async def test_a_record_comes_back_as_it_was_sent(broker: Broker, topic: str) -> None:
    headers = [("ce_id", b"1"), ("binary", b"\xff\x00"), ("ce_id", b"2")]
    async with producing(broker, max_request_size=1_000_000) as producer:
        await producer.send_and_wait(
            topic, b"x" * 900_000, key=b"t:u", partition=0, headers=headers, timestamp_ms=T0
        )
        await producer.send_and_wait(topic, None, key=b"t:u", partition=0, timestamp_ms=T0 + 1)
    async with consuming(broker, topic) as consumer:
        large, empty = [await consumer.getone(), await consumer.getone()]
    assert (large.key, large.value, large.offset) == (b"t:u", b"x" * 900_000, 0)
    assert list(large.headers) == headers
    assert (large.timestamp, large.timestamp_type) == (T0, 0)
    assert (empty.value, empty.offset, empty.timestamp) == (None, 1, T0 + 1)


async def test_offsets_are_found_at_both_ends_and_by_time(broker: Broker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with producing(broker) as producer:
        for second in range(20):
            await producer.send_and_wait(topic, b"v", partition=0, timestamp_ms=T0 + 1_000 * second)
    async with consuming(broker) as consumer:
        assert await consumer.beginning_offsets([partition]) == {partition: 0}
        assert await consumer.end_offsets([partition]) == {partition: 20}
        for wanted in (T0 + 6_500, T0 + 7_000):
            found = await consumer.offsets_for_times({partition: wanted})
            assert (found[partition].offset, found[partition].timestamp) == (7, T0 + 7_000)
        assert await consumer.offsets_for_times({partition: T0 + 20_000}) == {partition: None}


async def test_a_record_larger_than_the_brokers_limit_is_refused(broker: Broker, topic: str) -> None:
    async with producing(broker, max_request_size=3_000_000) as producer:
        with pytest.raises(MessageSizeTooLargeError):
            await producer.send_and_wait(topic, b"x" * 2_000_000, partition=0)


@pytest.mark.three_nodes
async def test_topics_come_only_from_being_created_and_only_once(broker: Broker, topic: str) -> None:
    async with consuming(broker) as consumer:
        assert topic in await consumer.topics()
        assert f"{topic}-nobody" not in await consumer.topics()
    with pytest.raises(TopicAlreadyExistsError):
        broker.create_topics({topic: 2})


@pytest.mark.three_nodes
async def test_members_of_a_group_share_the_partitions_and_take_over_from_one_that_leaves(
    broker: Broker, topic: str
) -> None:
    async with consuming(broker, topic, group_id=topic) as first:
        assert len(first.assignment()) == 2
        async with consuming(broker, topic, group_id=topic) as second:
            await until(lambda: len(first.assignment()) == 1 == len(second.assignment()))
            assert first.assignment() | second.assignment() == {TopicPartition(topic, i) for i in (0, 1)}
        await until(lambda: len(first.assignment()) == 2)


CONSUMER = """
import asyncio, sys
from aiokafka import AIOKafkaConsumer
async def main(bootstrap, topic):
    consumer = AIOKafkaConsumer(topic, group_id=topic, bootstrap_servers=bootstrap,
                                session_timeout_ms=4000, heartbeat_interval_ms=200)
    await consumer.start()
    print("joined", flush=True)
    await asyncio.sleep(600)
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.three_nodes
async def test_the_partitions_of_a_killed_consumer_pass_on_when_its_session_ends(
    broker: Broker, topic: str
) -> None:
    async with consuming(broker, topic, group_id=topic, session_timeout_ms=4_000) as survivor:
        command = [sys.executable, "-c", CONSUMER, broker.bootstrap, topic]
        other = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert other.stdout
        assert await other.stdout.readline() == b"joined\n"
        await until(lambda: len(survivor.assignment()) == 1)
        other.kill()
        await other.communicate()
        assert await until(lambda: len(survivor.assignment()) == 2) > 1


class Rebalances(ConsumerRebalanceListener):
    """Counts how often a consumer was given an assignment."""

    count = 0

    async def on_partitions_revoked(self, revoked: object) -> None:
        pass

    async def on_partitions_assigned(self, assigned: object) -> None:  # noqa: ARG002 - aiokafka's signature
        self.count += 1


@pytest.mark.three_nodes
async def test_a_static_member_comes_back_within_its_session_without_a_rebalance(
    broker: Broker, topic: str
) -> None:
    settings = {"group_id": topic, "session_timeout_ms": 30_000}
    seen = Rebalances()
    async with consuming(broker, group_instance_id="other", **settings) as other:
        other.subscribe([topic], listener=seen)
        await until(lambda: seen.count == 1)
        async with consuming(broker, topic, group_instance_id="w-1", **settings) as member:
            await until(lambda: len(member.assignment()) == 1 and seen.count == 2)
            owned = member.assignment()
        # a static member that stops does not leave
        async with consuming(broker, topic, group_instance_id="w-1", **settings) as again:
            assert again.assignment() == owned
            await asyncio.sleep(1)  # five heartbeats: time to hear of a rebalance
            assert seen.count == 2


@pytest.mark.three_nodes
async def test_records_and_committed_offsets_survive_a_stop_of_the_broker(broker: Broker, topic: str) -> None:
    partition = TopicPartition(topic, 0)
    async with producing(broker) as producer, consuming(broker, topic, group_id=topic) as consumer:
        await producer.send_and_wait(topic, b"before", partition=0)
        assert (await consumer.getone()).value == b"before"
        await consumer.commit()
        await asyncio.to_thread(broker.stop)
        sent = await producer.send(topic, b"while down", partition=0)
        await asyncio.sleep(0.5)
        assert not sent.done()
        await asyncio.to_thread(broker.start)
        assert (await asyncio.wait_for(sent, 300)).offset == 1
        assert (await asyncio.wait_for(consumer.getone(), 300)).value == b"while down"
        async with asyncio.timeout(300):  # the group's coordinator reads its log first
            while await consumer.committed(partition) != 1:  # noqa: ASYNC110 - nothing tells when it has
                await asyncio.sleep(0.1)


def test_what_redis_acknowledged_survives_kill_9(redis_server: RedisServer) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        client.set("promise", "kept")
    redis_server.kill()
    redis_server.start()
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.get("promise") == b"kept"
    redis_server.stop()
    redis_server.start(keep_data=False)
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.get("promise") is None


def test_redis_never_evicts_and_writes_its_log(redis_server: RedisServer) -> None:
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.config_get("maxmemory-policy", "appendonly") == {
            "maxmemory-policy": "noeviction",
            "appendonly": "yes",
        }


def test_a_paused_redis_answers_nothing_until_it_goes_on(redis_server: RedisServer) -> None:
    with redis.Redis.from_url(redis_server.url, socket_timeout=0.3, retry=None) as client:
        client.ping()
        redis_server.pause()
        try:
            with pytest.raises(redis.TimeoutError):
                client.ping()
        finally:
            redis_server.resume()
        client.ping()


def batch(*values: bytes, first_sequence: int) -> bytes:
    """A record batch of idempotent producer 7, encoded as a client encodes it."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=7,
        producer_epoch=0,
        base_sequence=first_sequence,
        batch_size=100_000,
    )
    for index, value in enumerate(values):
        builder.append(index, T0, None, value, [])
    return bytes(builder.build())


def test_the_embedded_broker_stores_a_batch_that_is_sent_again_once() -> None:
    log = Partition()
    assert log.append(batch(b"a", b"b", first_sequence=0)) == (0, 0)
    assert log.append(batch(b"c", first_sequence=2)) == (0, 2)
    assert log.append(batch(b"a", b"b", first_sequence=0)) == (0, 0)
    assert log.end == 3
    assert log.append(batch(b"e", first_sequence=4)) == (OUT_OF_ORDER_SEQUENCE, -1)


def test_the_embedded_broker_reads_whole_batches_from_the_one_that_holds_the_offset() -> None:
    log = Partition()
    batches = [
        batch(b"a", b"b", first_sequence=0),
        batch(b"c", first_sequence=2),
        batch(b"d", first_sequence=3),
    ]
    for sent in batches:
        log.append(sent)
    last_two = log.read(1, len(batches[0]) + len(batches[1]))[1]
    assert [log.read(1, 1)[1][8:], last_two[8:][: len(batches[0]) - 8]] == [batches[0][8:]] * 2
    assert len(last_two) == len(batches[0]) + len(batches[1])
    assert log.read(4, 1_000) == (0, b"")
    assert log.read(5, 1_000) == (OFFSET_OUT_OF_RANGE, b"")


@pytest.mark.parametrize("ending", ["end of input", "SIGTERM"])
async def test_the_brokers_command_ends_with_its_input_and_at_sigterm(ending: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "deploy.embedded.broker", "--topic", "x:3"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=ROOT,
    )
    assert process.stdin
    assert process.stdout
    assert re.fullmatch(rb"ready 127\.0\.0\.1:\d+\n", await process.stdout.readline())
    process.stdin.write(b"dwon\n")
    assert await process.stdout.readline() == b"error not a command: 'dwon'\n"
    if ending == "SIGTERM":
        process.terminate()
    else:
        process.stdin.close()
    async with asyncio.timeout(60):
        assert await process.wait() == 0
    await process.communicate()


PARENT = """
import sys, time
from deploy.embedded import EmbeddedBroker, EmbeddedRedis
broker, redis = EmbeddedBroker(), EmbeddedRedis()
broker.start()
redis.start()
print(broker.pid, redis.pid, flush=True)
time.sleep(600)
"""


async def test_no_server_outlives_its_parent_even_if_that_is_killed() -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, stdout=asyncio.subprocess.PIPE, cwd=ROOT
    )
    assert parent.stdout
    servers = [int(pid) for pid in (await parent.stdout.readline()).split()]
    assert len(servers) == 2
    assert all(map(alive, servers))
    parent.kill()
    await parent.communicate()
    await until(lambda: not any(map(alive, servers)), 10)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_server_that_does_not_start_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    server = ServerProcess(
        "broken server", ["/bin/sh", "-c", "echo no such setting; exit 3"], tmp_path / "log"
    )
    server.start()
    with pytest.raises(ServiceError, match=r"(?s)broken server: ended with status 3.*no such setting"):
        server.wait_until(lambda: False, 10)


def test_a_missing_program_is_reported_with_what_to_install() -> None:
    with pytest.raises(MissingServiceError, match=r"not on the PATH: install Java 17"):
        find_program("groundwire-has-no-such-program", "Java 17")

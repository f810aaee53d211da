"""Reading topics from a real broker, without a group: nothing is missed, and closing waits for nothing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition

from groundwire.kafka import connection
from groundwire.kafka.reader import TopicReader, open_reader
from tests.services.brokers import Broker

pytestmark = pytest.mark.stream

SECONDS = 60


@pytest.fixture
def partitions(broker: Broker) -> list[TopicPartition]:
    """The partitions of a new topic."""
    name = f"reading-{uuid.uuid4().hex[:8]}"
    broker.create_topics({name: 2})
    return [TopicPartition(name, number) for number in range(2)]


@pytest.fixture
async def producer(broker: Broker) -> AsyncIterator[AIOKafkaProducer]:
    made = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=50)
    await made.start()
    yield made
    await made.stop()


async def rest(reader: TopicReader) -> list[int]:
    return [record.offset async for page in reader.rest() for record in page]


@pytest.mark.smoke
async def test_who_goes_on_behind_the_end_misses_nothing_that_came_in_one_batch_with_it(
    broker: Broker, partitions: list[TopicPartition], producer: AIOKafkaProducer
) -> None:
    place = partitions[0]
    sent = [await producer.send(place.topic, b"%d" % n, partition=place.partition) for n in range(9)]
    for each in sent:
        await each
    async with open_reader(broker.bootstrap, SECONDS) as reader:
        reader.seek({place: 0}, {place: 4})
        assert await rest(reader) == [0, 1, 2, 3]
        await producer.send_and_wait(place.topic, b"9", partition=place.partition)
        behind: list[int] = []
        async with asyncio.timeout(SECONDS):
            while len(behind) < 6:
                behind += [record.offset for record in await reader.batch()]
        assert behind == [4, 5, 6, 7, 8, 9]


async def test_a_reader_that_turns_to_another_partition_and_closes_at_once_is_closed_in_order(
    broker: Broker, partitions: list[TopicPartition], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_STOP_SECONDS", None)  # nothing else ends what does not end by itself
    place, other = partitions
    async with asyncio.timeout(SECONDS):
        for turns in range(5):
            async with open_reader(broker.bootstrap, SECONDS) as reader:
                reader.seek({place: 0}, {place: 0})
                await reader.batch(20)  # which leaves a fetch under way
                reader.seek({other: 0}, {other: 0})
                for _ in range(turns):  # until the fetch is given up, which takes a few
                    await asyncio.sleep(0)

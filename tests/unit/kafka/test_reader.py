"""Reading a topic begins and ends where that was asked for, and an outage is an error, never the end."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from itertools import count
from types import SimpleNamespace

import pytest
from aiokafka.errors import UnsupportedCodecError

from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.kafka import reader
from groundwire.kafka.connection import partitions_of
from groundwire.kafka.reader import TopicReader, TopicSpan, follow
from tests.unit.kafka.fake_consumer import PARTITION, FakeConsumer, serving

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("start", "time", "offset"),
    [
        ("earliest", None, 5),
        ("latest", None, 9),
        (0, None, 5),
        (7, None, 7),
        (100, None, 9),
        (MOMENT, 6, 6),
        (MOMENT, None, 9),
    ],
)
async def test_an_offset_is_kept_within_what_the_partition_holds(start, time, offset):
    client = FakeConsumer(5, 9, time=time)
    assert await TopicReader(client, "b:1", 1).offsets(start, {PARTITION: 9}) == {PARTITION: offset}
    assert getattr(client, "moments", {1_767_225_600_000}) == {1_767_225_600_000}


async def test_what_comes_after_the_end_that_was_asked_for_is_left_out():
    client = FakeConsumer(0, 9)
    topic = TopicReader(client, "b:1", 1)
    topic.seek({PARTITION: 1}, {PARTITION: 3})
    assert [one.offset async for page in topic.rest() for one in page] == [1, 2]
    assert topic.positions == {PARTITION: 3}


async def test_who_goes_on_behind_the_end_misses_nothing_that_came_with_the_last_before_it():
    client = FakeConsumer(0, 9, page=4)
    topic = TopicReader(client, "b:1", 1)
    topic.seek({PARTITION: 1}, {PARTITION: 3})
    assert [one.offset async for page in topic.rest() for one in page] == [1, 2]
    assert topic.positions == {PARTITION: 3}
    assert [one.offset for one in await topic.batch()] == [3, 4, 5, 6]


async def test_who_began_or_went_on_behind_the_end_is_not_turned_back_to_it():
    client = FakeConsumer(0, 9, page=2)
    topic = TopicReader(client, "b:1", 1)
    topic.seek({PARTITION: 5}, {PARTITION: 3})
    for offsets in ([5, 6], [7, 8]):
        assert [page async for page in topic.rest()] == []
        assert [one.offset for one in await topic.batch()] == offsets


@pytest.mark.parametrize(("begin", "gaps"), [(0, ()), (0, (3,)), (4, ())])
async def test_nothing_is_fetched_behind_the_end_before_someone_goes_on_there(begin, gaps):
    client = FakeConsumer(0, 9, gaps=gaps)
    topic = TopicReader(client, "b:1", 1)
    topic.seek({PARTITION: begin}, {PARTITION: 4})
    async for _ in topic.rest():
        pass
    assert client.paused() == {PARTITION}
    await topic.batch()
    assert not client.paused()


async def test_what_was_compacted_at_the_end_is_not_waited_for():
    topic = TopicReader(FakeConsumer(0, 4, gaps=(2, 3)), "b:1", 1)
    topic.seek({PARTITION: 0}, {PARTITION: 4})
    assert [one.offset async for page in topic.rest() for one in page] == [0, 1]


async def test_an_end_that_does_not_come_is_not_waited_for_without_limit():
    topic = TopicReader(FakeConsumer(0, 2, silent=True), "b:1", 0.05)
    topic.seek({PARTITION: 0}, {PARTITION: 2})
    with pytest.raises(BrokerUnavailable, match=r"rest of the topics within 0\.05 s"):
        assert [page async for page in topic.rest()]


async def test_a_long_stretch_without_records_is_read_past_however_long_that_takes(monkeypatch):
    minutes = count()
    loop = SimpleNamespace(time=lambda: 60.0 * next(minutes))
    monkeypatch.setattr(
        reader, "asyncio", SimpleNamespace(get_running_loop=lambda: loop, timeout=asyncio.timeout)
    )
    client = FakeConsumer(0, 9)

    async def nothing(**_options):
        client.at += 1  # as aiokafka does behind records of an aborted transaction
        return {}

    client.getmany = nothing
    topic = TopicReader(client, "b:1", 10)
    topic.seek({PARTITION: 0}, {PARTITION: 9})
    assert [page async for page in topic.rest()] == []


@pytest.mark.parametrize(("codec", "until_end"), [("zstd", True), ("lz4", False)])
async def test_a_codec_that_is_not_installed_is_told_with_what_to_install(codec, until_end, monkeypatch):
    client = FakeConsumer(0, 4)

    async def fail(**_options):
        raise UnsupportedCodecError(f"Libraries for {codec} compression codec not found")

    client.getmany = fail
    monkeypatch.setattr(reader, "consumer", serving(client))
    async with aclosing(follow("b:1", PARTITION.topic, TopicSpan(0, until_end=until_end), 1)) as records:
        with pytest.raises(UsageError, match=f"{codec}.*pip install cramjam"):
            await anext(records)


@pytest.mark.parametrize("until_end", [True, False])
async def test_a_broker_that_stops_answering_is_an_outage(until_end, monkeypatch):
    monkeypatch.setattr(reader, "consumer", serving(FakeConsumer(0, 4, fails_at=2)))
    async with aclosing(follow("b:1", PARTITION.topic, TopicSpan(0, until_end=until_end), 1)) as records:
        assert [(await anext(records)).offset for _ in range(2)] == [0, 1]
        with pytest.raises(BrokerUnavailable, match="topics cannot be read: KafkaError"):
            await anext(records)


@pytest.mark.parametrize(
    ("topic", "partition", "message"),
    [
        ("t.none", None, r"no topic t\.none: `groundwire topics"),
        (PARTITION.topic, 3, "no partition 3, only 0"),
    ],
)
async def test_a_topic_or_partition_that_does_not_exist_is_named(topic, partition, message, monkeypatch):
    monkeypatch.setattr(reader, "consumer", serving(FakeConsumer(0, 4)))
    with pytest.raises(UsageError, match=message):
        assert [one async for one in follow("b:1", topic, TopicSpan(0, partition), 1)]


async def test_a_client_is_told_of_the_topics_that_exist_and_of_no_other():
    told: list[str] = []
    client = FakeConsumer()

    async def add(topic: str) -> None:
        told.append(topic)

    client._client.add_topic = add
    assert await partitions_of(client, PARTITION.topic, "none") == {
        PARTITION.topic: [PARTITION.partition],
        "none": [],
    }
    assert told == [PARTITION.topic]


async def test_a_reader_goes_on_where_another_stood_unless_the_topic_was_made_anew():
    client = FakeConsumer(0, 4)
    for stood, begins in ((2, 2), (9, 0)):
        topic = TopicReader(client, "b:1", 1)
        await topic.begin({PARTITION.topic: "earliest"}, continued={PARTITION: stood})
        assert topic.positions == {PARTITION: begins}
        assert client.assigned == [PARTITION]

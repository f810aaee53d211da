"""Reading a topic begins and ends where that was asked for; an outage or a client cancelled by itself is an error."""

import asyncio
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from types import SimpleNamespace

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CoordinatorNotAvailableError, KafkaError, UnsupportedCodecError
from aiokafka.structs import OffsetAndMetadata

from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.kafka import reader
from groundwire.kafka.connection import client_cancellation, partitions_of
from groundwire.kafka.reader import TopicFollower, TopicReader, committed_of, follow
from tests.unit.kafka.fake_consumer import PARTITION, FakeConsumer, serving


def reading(client, begin, end, seconds=1):
    topic = TopicReader(client, "b:1", seconds)
    topic.seek({PARTITION: begin}, {PARTITION: end})
    return topic


async def offsets(topic):
    return [one.offset async for page in topic.rest() for one in page]


async def test_an_offset_is_kept_within_what_the_partition_holds():
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    for start, time, offset in (
        *(("earliest", None, 5), ("latest", None, 9), (0, None, 5), (7, None, 7), (100, None, 9)),
        *((moment, 6, 6), (moment, None, 9)),
    ):
        client = FakeConsumer(5, 9, time=time)
        found = await TopicReader(client, "b:1", 1).offsets(start, {PARTITION: 9})
        assert found == {PARTITION: offset}, (start, time)
        assert getattr(client, "moments", {1_767_225_600_000}) == {1_767_225_600_000}


async def test_what_comes_after_the_end_is_left_out_and_not_missed_by_who_goes_on_there():
    for page, behind in ((1, [3]), (4, [3, 4, 5, 6])):
        topic = reading(FakeConsumer(0, 9, page=page), 1, 3)
        assert await offsets(topic) == [1, 2]
        assert topic.positions == {PARTITION: 3}
        assert [one.offset for one in await topic.batch()] == behind
    # who began or went on behind the end is not turned back to it
    topic = reading(FakeConsumer(0, 9, page=2), 5, 3)
    for behind in ([5, 6], [7, 8]):
        assert await offsets(topic) == []
        assert [one.offset for one in await topic.batch()] == behind
    for begin, gaps in ((0, ()), (0, (3,)), (4, ())):
        client = FakeConsumer(0, 9, gaps=gaps)
        topic = reading(client, begin, 4)
        await offsets(topic)
        assert client.paused() == {PARTITION}
        await topic.batch()
        assert not client.paused()


async def test_what_was_compacted_at_the_end_is_not_waited_for_and_nothing_without_limit(monkeypatch):
    assert await offsets(reading(FakeConsumer(0, 4, gaps=(2, 3)), 0, 4)) == [0, 1]
    topic = reading(FakeConsumer(0, 2, silent=True), 0, 2, 0.05)
    with pytest.raises(BrokerUnavailable, match=r"rest of the topics within 0\.05 s"):
        await offsets(topic)
    # a long stretch without records is read past however long that takes
    minutes = count()
    loop = SimpleNamespace(time=lambda: 60.0 * next(minutes))
    slow = SimpleNamespace(get_running_loop=lambda: loop, timeout=asyncio.timeout)
    monkeypatch.setattr(reader, "asyncio", slow)
    client = FakeConsumer(0, 9)

    async def nothing(**_options):
        client.at += 1  # as aiokafka does behind records of an aborted transaction
        return {}

    client.getmany = nothing
    assert await offsets(reading(client, 0, 9, 10)) == []


async def test_a_broker_that_stops_answering_is_an_outage_and_a_missing_codec_a_usage_error(monkeypatch):
    async def fail(**_options):
        raise UnsupportedCodecError("Libraries for zstd compression codec not found")

    for until_end in (True, False):
        monkeypatch.setattr(reader, "consumer", serving(FakeConsumer(0, 4, fails_at=2)))
        async with aclosing(follow("b:1", {PARTITION.topic: 0}, 1, until_end=until_end)) as records:
            assert [(await anext(records)).offset for _ in range(2)] == [0, 1]
            with pytest.raises(BrokerUnavailable, match="topics cannot be read: KafkaError"):
                await anext(records)
        client = FakeConsumer(0, 4)
        client.getmany = fail
        monkeypatch.setattr(reader, "consumer", serving(client))
        async with aclosing(follow("b:1", {PARTITION.topic: 0}, 1, until_end=until_end)) as records:
            with pytest.raises(UsageError, match=r"zstd.*pip install cramjam"):
                await anext(records)


async def test_a_topic_or_partition_that_does_not_exist_is_named_and_not_followed(monkeypatch):
    monkeypatch.setattr(reader, "consumer", serving(FakeConsumer(0, 4)))
    for topic, partition, message in (
        ("t.none", None, r"no topic t\.none: `groundwire topics"),
        (PARTITION.topic, 3, "no partition 3, only 0"),
    ):
        with pytest.raises(UsageError, match=message):
            assert [one async for one in follow("b:1", {topic: 0}, 1, partition=partition)]
    added = []
    client = FakeConsumer()

    async def add(topic):
        added.append(topic)

    client._client.add_topic = add
    found = await partitions_of(client, PARTITION.topic, "none")
    assert (found, added) == ({PARTITION.topic: [PARTITION.partition], "none": []}, [PARTITION.topic])


async def test_what_a_group_committed_is_asked_for_until_its_coordinator_answers(monkeypatch):
    """The metadata is returned too; a partition without an offset is left out."""
    other, committed = TopicPartition("t.claims", 1), OffsetAndMetadata(7, "seal")
    answers = [CoordinatorNotAvailableError(), {}, {PARTITION: committed, other: OffsetAndMetadata(-1, "")}]

    class Admin:
        async def list_consumer_group_offsets(self, group, partitions):
            assert (group, partitions) == ("g", [PARTITION, other])
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    monkeypatch.setattr(reader, "admin", serving(Admin()))
    monkeypatch.setattr(reader, "_RETRY_SECONDS", 0)
    assert await committed_of("b:1", "g", [PARTITION, other], 60) == {PARTITION: committed}
    answers.append(KafkaError())
    with pytest.raises(BrokerUnavailable, match="offsets of groups"):
        await committed_of("b:1", "g", [PARTITION, other], 60)


async def test_a_follower_reads_on_through_outages_and_what_is_added_from_its_beginning_and_cut_from_its_start(
    monkeypatch,
):
    opened, failures, sought = [], [], []

    @asynccontextmanager
    async def consumer(*_):
        opened.append(client)
        try:
            yield client
        finally:
            raise BrokerUnavailable("closing failed")  # after which no other is opened

    def failed(failure):
        failures.append(str(failure))
        client.end, client.fails_at = end, None

    def following(start):
        return TopicFollower("b:1", {PARTITION.topic: start}, 1, failed, poll=0, check=0, retry=0)

    monkeypatch.setattr(reader, "consumer", consumer)
    client, end, follower = FakeConsumer(0, 0, fails_at=2), 4, following("latest")
    async with aclosing(follower.batches()) as batches:
        assert (await anext(batches), follower.begun, follower.caught_up) == ([], True, False)
        client.end = 4
        read = [[one.offset for one in await anext(batches)] for _ in range(5)]
        assert (read, failures) == ([[0], [1], [], [2], [3]], ["topics cannot be read: KafkaError"])
        assert client.looked == 2, "whether the broker answers is asked for without a look at all topics"
        monkeypatch.setattr(reader, "_LOOK_ANEW", -1)
        client.fails_at, client.partitions = 4, {PARTITION.topic: {0, 1}}
        client.seek = lambda *place: sought.append(place)
        assert (await anext(batches), follower.caught_up) == ([], True)
        assert sought == [(PARTITION, 4), (TopicPartition(PARTITION.topic, 1), 0)]
    client, end = FakeConsumer(0, 9, time=6, fails_at=9), 8
    async with aclosing(following(datetime(2026, 1, 1, tzinfo=UTC)).batches()) as batches:
        read = [[one.offset for one in await anext(batches)] for _ in range(6)]
    assert read == [[], [6], [7], [8], [], [6]]
    assert len(opened) == 5


async def test_a_task_that_follows_has_begun_before_its_block_and_what_ends_it_is_raised_or_told(monkeypatch):
    async def following(client, *how):
        monkeypatch.setattr(reader, "consumer", serving(client))
        follower = TopicFollower("b:1", {PARTITION.topic: "earliest"}, 1, poll=0)
        try:
            async with follower.following(*how):
                assert follower.begun
                while len(seen) < 2 and not follower.failure:  # noqa: ASYNC110 - of two things
                    await asyncio.sleep(0)
        finally:
            ends.append(type(follower.failure))

    seen, told, ends = [], [], []
    await following(FakeConsumer(0, 2), seen.extend)
    assert [one.offset for one in seen] == [0, 1]
    await following(FakeConsumer(0, 2), [].index, told.append)
    assert [type(one) for one in told] == [ValueError]
    nowhere = FakeConsumer(partition=TopicPartition("t", 0))
    for client, error in ((FakeConsumer(0, 2), ValueError), (nowhere, UsageError)):
        with pytest.raises(error):
            await following(client, [].index)
    assert ends == [type(None), ValueError, ValueError, UsageError]


async def test_a_cancellation_that_nobody_asked_for_is_an_outage_and_a_time_limit_stays_one():
    async def read(waited_for, seconds=60):
        async with asyncio.timeout(seconds):
            with client_cancellation("topics cannot be read"):
                await waited_for

    fetch = asyncio.get_running_loop().create_future()
    fetch.cancel()
    with pytest.raises(BrokerUnavailable, match="topics cannot be read"):
        await read(fetch)
    await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await read(asyncio.Event().wait(), 0)


async def test_a_task_that_is_asked_to_end_ends_though_a_client_has_swallowed_that():
    came = []

    async def read(swallowed):
        with suppress(*swallowed), client_cancellation("read"):
            await asyncio.Event().wait()
        with client_cancellation("read"):
            came.append("reads on")

    for swallowed in ((), (asyncio.CancelledError,)):
        task = asyncio.create_task(read(swallowed))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert (task.cancelled(), came) == (True, [])

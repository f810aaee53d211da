"""Reading topics from a place in them, without a consumer group: nothing is committed, and no worker is disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    KafkaError,
    NotCoordinatorError,
    UnsupportedCodecError,
)
from aiokafka.structs import OffsetAndMetadata

from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.kafka.connection import (
    admin,
    client_cancellation,
    codec_missing,
    consumer,
    inbound,
    partitions_of,
    unavailable,
)
from groundwire.messages.base import to_milliseconds
from groundwire.messages.headers import InboundRecord

Start = Literal["earliest", "latest"] | int | datetime
"""Where to begin: an offset counts on every partition that is read, a time is Kafka's of the records."""

Positions = dict[TopicPartition, int]
"""An offset of each partition, such as the next one to read."""

BATCH: Final = 500
_POLL_MS: Final = 500
_RETRY_SECONDS: Final = 0.3


class TopicReader:
    """Reads partitions of topics in batches, from where `seek` puts it; made by `open_reader`."""

    def __init__(self, client: AIOKafkaConsumer, brokers: str, seconds: float) -> None:
        self._client = client
        self._brokers = brokers
        self._seconds = seconds
        self._ends: Positions = {}
        self._unread: Positions = {}
        self.positions: Positions = {}  # the next offset to read

    async def ends(self, *topics: str, partition: int | None = None) -> Positions:
        """Return the ends of topics, or of the partition named. Raises: UsageError, BrokerUnavailable."""
        async with self._answer():
            existing = await partitions_of(self._client, *topics)
            for topic, numbers in existing.items():
                if not numbers:
                    raise UsageError(f"there is no topic {topic}: `groundwire topics declare` creates it")
                if partition is not None and partition not in numbers:
                    last = numbers[-1]
                    raise UsageError(f"{topic} has no partition {partition}, only {numbers[0]} to {last}")
            chosen = [
                TopicPartition(topic, number)
                for topic, numbers in existing.items()
                for number in numbers
                if partition in (None, number)
            ]
            ends: Positions = await self._client.end_offsets(chosen)
            return ends

    async def offsets(self, start: Start, ends: Positions) -> Positions:
        """Return the offsets at which a start stands on partitions that end at `ends`. Raises: BrokerUnavailable."""
        if start == "latest":
            return ends
        async with self._answer():
            if isinstance(start, datetime):
                moment = to_milliseconds(start)
                found = await self._client.offsets_for_times(dict.fromkeys(ends, moment))
                return {each: found[each].offset if found[each] else end for each, end in ends.items()}
            beginnings: Positions = await self._client.beginning_offsets(list(ends))
        if start == "earliest":
            return beginnings
        return {each: min(max(start, beginnings[each]), end) for each, end in ends.items()}

    def seek(self, begin: Positions, ends: Positions) -> None:
        """Read these partitions from now on, and no others; `ends` is where `rest` stops on each."""
        self._client.assign(list(begin))
        for partition, offset in begin.items():
            self._client.seek(partition, offset)
        self.positions = dict(begin)
        self._ends, self._unread = ends, dict(ends)

    async def begin(
        self,
        starts: Mapping[str, Start],
        *,
        partition: int | None = None,
        continued: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        """Read topics from their starts on, without partitions added later. Raises: UsageError, BrokerUnavailable."""
        ends = await self.ends(*starts, partition=partition)
        begin: Positions = {}
        for topic, start in starts.items():
            of_topic = {each: end for each, end in ends.items() if each.topic == topic}
            begin |= await self.offsets(start, of_topic)
        if continued:
            begin |= {each: offset for each, offset in continued.items() if offset <= ends.get(each, -1)}
        self.seek(begin, ends)

    async def batch(self, milliseconds: int = _POLL_MS, most: int = BATCH) -> list[InboundRecord]:
        """Return the next records, none if nothing comes for so long. Raises: BrokerUnavailable."""
        self._client.resume(*self._client.paused())
        return await self._fetch(milliseconds, most)

    async def batches(self) -> AsyncGenerator[list[InboundRecord], None]:
        while True:
            yield await self.batch()

    async def _fetch(self, milliseconds: int, most: int) -> list[InboundRecord]:
        with _outages("topics cannot be read"):
            fetched = await self._client.getmany(timeout_ms=milliseconds, max_records=most)
        records = []
        for partition, fresh in fetched.items():
            records += [inbound(record) for record in fresh]
            self.positions[partition] = fresh[-1].offset + 1
        return records

    async def rest(self, most: int = BATCH) -> AsyncGenerator[list[InboundRecord], None]:
        """Yield batches until every partition is read to its end; `batch` goes on there. Raises: BrokerUnavailable."""
        loop = asyncio.get_running_loop()
        last, reached = loop.time(), 0
        while True:
            caught_up = await self.caught_up()
            self._hold()
            if caught_up:
                return
            before = dict(self.positions)
            records = await self._fetch(_POLL_MS, most)
            for partition, end in self._ends.items():  # `batch` reads what came from behind the ends
                if before[partition] <= end < self.positions[partition]:
                    self._client.seek(partition, end)
                    self.positions[partition] = end
            self._hold()
            if records:
                places = [TopicPartition(one.topic or "", one.partition) for one in records]
                pairs = zip(records, places, strict=True)
                yield [one for one, partition in pairs if one.offset < self._ends[partition]]
            at = sum([await self.position(partition) for partition in self._unread])
            if records or at != reached:  # an aborted transaction brings no record, and is read past
                last, reached = loop.time(), at
            elif loop.time() - last > self._seconds:
                raise unavailable(self._brokers, self._seconds, "bring the rest of the topics")

    def _hold(self) -> None:
        """Pause partitions read to their end: a fetch that waits for records there holds up what is asked next."""
        for partition, end in self._ends.items():
            if self.positions[partition] >= end or partition not in self._unread:
                self._client.pause(partition)

    async def one(self, partition: TopicPartition, offset: int) -> InboundRecord | None:
        """Read a single record of a partition that exists; None: there is none. Raises: BrokerUnavailable."""
        self.seek({partition: offset}, {partition: offset + 1})
        async with aclosing(self.rest(most=1)) as pages:
            async for page in pages:
                for record in page:
                    if record.offset == offset:
                        return record
        return None

    async def position(self, partition: TopicPartition) -> int:
        """Return the next offset to read: behind what was compacted or aborted too. Raises: BrokerUnavailable."""
        with _outages("where reading stands is not known"):
            async with asyncio.timeout(self._seconds):
                offset: int = await self._client.position(partition)
                return offset

    async def caught_up(self) -> bool:
        """Say whether every partition is read to its end. Raises: BrokerUnavailable."""
        for partition, end in list(self._unread.items()):
            if await self.position(partition) >= end:
                del self._unread[partition]
        return not self._unread

    async def check(self) -> None:
        """Ask the broker for anything: the client waits out an outage silently. Raises: BrokerUnavailable."""
        with _outages("the broker does not answer"):
            async with asyncio.timeout(self._seconds):
                await self._client.end_offsets(list(self._client.assignment()))

    @asynccontextmanager
    async def _answer(self) -> AsyncIterator[None]:
        try:
            with _outages("topics cannot be opened"):
                async with asyncio.timeout(self._seconds):
                    yield
        except BrokerUnavailable as exc:
            raise unavailable(self._brokers, self._seconds, "say where the topics begin and end") from exc


@asynccontextmanager
async def open_reader(brokers: str, seconds: float) -> AsyncIterator[TopicReader]:
    """Connect a reader, which reads nothing before `begin` or `seek`. Raises: UsageError, BrokerUnavailable."""
    finished = False
    try:
        with client_cancellation("topics cannot be read"):
            async with consumer(brokers, seconds) as client:
                yield TopicReader(client, brokers, seconds)
                finished = True
    except BrokerUnavailable:
        if not finished:  # else only closing failed, and nothing is read any more
            raise


@dataclass(frozen=True, slots=True)
class TopicSpan:
    """What of a topic is read."""

    start: Start
    partition: int | None = None  # None: all
    until_end: bool = False  # stop where the topic ended when reading began
    limit: int | None = None  # stop after so many records, 1 or more


async def follow(
    brokers: str, topic: str, span: TopicSpan, seconds: float
) -> AsyncGenerator[InboundRecord, None]:
    """Yield records in order within a partition, across partitions as they arrive. Raises: as `open_reader`."""
    async with open_reader(brokers, seconds) as reader:
        await reader.begin({topic: span.start}, partition=span.partition)
        count = 0
        async with aclosing(reader.rest() if span.until_end else reader.batches()) as batches:
            async for batch in batches:
                for record in batch:
                    yield record
                    count += 1
                    if count == span.limit:
                        return


async def read_one(
    brokers: str, topic: str, partition: int, offset: int, seconds: float
) -> InboundRecord | None:
    """Read the record at a place; None: there is none (any more). Raises: UsageError, BrokerUnavailable."""
    async with open_reader(brokers, seconds) as reader:
        ends = await reader.ends(topic, partition=partition)
        (place,) = ends
        beginnings = await reader.offsets("earliest", ends)
        if not beginnings[place] <= offset < ends[place]:
            return None
        return await reader.one(place, offset)


async def committed_of(
    brokers: str, group: str, partitions: Sequence[TopicPartition], seconds: float
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return what a group has committed of partitions, with its metadata. Raises: BrokerUnavailable."""
    try:
        async with asyncio.timeout(seconds), admin(brokers, seconds) as client:
            while True:
                with suppress(
                    CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError
                ):
                    found = await client.list_consumer_group_offsets(group, partitions=list(partitions))
                    if found.keys() >= set(partitions):  # else aiokafka has not read the error in the answer
                        return {each: stands for each, stands in found.items() if stands.offset >= 0}
                await asyncio.sleep(_RETRY_SECONDS)
    except (KafkaError, OSError, TimeoutError) as exc:
        raise BrokerUnavailable(f"offsets of groups cannot be read: {type(exc).__name__}") from exc


@contextmanager
def _outages(what: str) -> Iterator[None]:
    """Name what the client gave up with. Raises: BrokerUnavailable; UsageError where a codec is not installed."""
    try:
        with client_cancellation(what):
            yield
    except UnsupportedCodecError as exc:
        raise codec_missing(exc) from exc
    except (KafkaError, OSError, TimeoutError) as exc:
        raise BrokerUnavailable(f"{what}: {type(exc).__name__}") from exc

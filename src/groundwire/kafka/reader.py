"""Reading topics from a place in them, without a consumer group: nothing is committed, and no worker is disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal, NamedTuple

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
from groundwire.messages.decisions import Origin
from groundwire.messages.headers import InboundRecord

Start = Literal["earliest", "latest"] | int | datetime
"""Where to begin: an offset counts on every partition that is read, a time is Kafka's of the records."""

Positions = dict[TopicPartition, int]
"""An offset of each partition, such as the next one to read."""


class RecordPlace(NamedTuple):
    """Topic, partition and offset of a record."""

    topic: str
    partition: int
    offset: int

    @classmethod
    def of(cls, record: InboundRecord | Origin) -> RecordPlace:
        return cls(record.topic or "", record.partition, record.offset)

    @classmethod
    def parse(cls, text: str) -> RecordPlace:
        topic, _, rest = text.rpartition("/")
        partition, _, offset = rest.partition("@")
        return cls(topic, int(partition), int(offset))

    def __str__(self) -> str:
        """Format it as reports do: `groundwire.claims/0@17`."""
        return f"{self.topic}/{self.partition}@{self.offset}"


class OffsetRange(NamedTuple):
    """The offsets of a partition from `start` up to `end`, excluded."""

    topic: str
    partition: int
    start: int
    end: int


BATCH: Final = 500
_POLL_MS: Final = 500
_RETRY_SECONDS: Final = 0.3
GAP: Final = 500
_LOOK_ANEW: Final = 30.0
"""Seconds until the topics are asked whether they have more partitions."""


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

    async def ranges(
        self, *topics: str, start: Start = "earliest", end: Start = "latest", partition: int | None = None
    ) -> list[OffsetRange]:
        """Return the offsets of each partition between two starts. Raises: UsageError, BrokerUnavailable."""
        ends = await self.ends(*topics, partition=partition)
        first, last = await self.offsets(start, ends), await self.offsets(end, ends)
        return [OffsetRange(*each, first[each], max(first[each], last[each])) for each in ends]

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

    async def records(self, most: int = BATCH) -> AsyncGenerator[InboundRecord, None]:
        """Yield the records of `rest` one by one. Raises: BrokerUnavailable."""
        async with aclosing(self.rest(most)) as pages:
            async for page in pages:
                for record in page:
                    yield record

    async def first(self, offsets: OffsetRange) -> InboundRecord | None:
        """Read the first record of a range; None: it holds none. Raises: BrokerUnavailable."""
        partition = TopicPartition(*offsets[:2])
        self.seek({partition: offsets.start}, {partition: offsets.end})
        async with aclosing(self.records()) as records:
            return await anext(records, None)

    async def records_at(
        self, places: Iterable[RecordPlace], ranges: Iterable[OffsetRange], *, gap: int = GAP
    ) -> AsyncGenerator[InboundRecord, None]:
        """Yield the records at those of the places that lie in ranges.

        `gap`: records between two places that are read sooner than sought over. Raises: BrokerUnavailable.
        """
        wanted = set(places)
        runs: dict[TopicPartition, list[tuple[int, int]]] = {}  # first and last of offsets read in one go
        for topic, number, start, end in ranges:
            own = runs.setdefault(TopicPartition(topic, number), [])
            offsets = (one.offset for one in wanted if one[:2] == (topic, number))
            for offset in sorted(offset for offset in offsets if start <= offset < end):
                if own and offset - own[-1][1] - 1 <= gap:
                    own[-1] = own[-1][0], offset
                else:
                    own.append((offset, offset))
        while runs := {partition: own for partition, own in runs.items() if own}:
            now = {partition: own.pop(0) for partition, own in runs.items()}
            self.seek(
                {each: first for each, (first, _) in now.items()},
                {each: last + 1 for each, (_, last) in now.items()},
            )
            most = min(BATCH, max(last + 1 - first for first, last in now.values()))
            async with aclosing(self.records(most)) as records:
                async for record in records:
                    if RecordPlace.of(record) in wanted:
                        yield record

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
    async with AsyncExitStack() as stack:
        with client_cancellation("topics cannot be read"):
            client = await stack.enter_async_context(consumer(brokers, seconds))
            try:
                yield TopicReader(client, brokers, seconds)
            finally:
                # where only closing fails, nothing is read any more
                with suppress(BrokerUnavailable), client_cancellation("topics cannot be read"):
                    await stack.aclose()


async def follow(
    brokers: str,
    starts: Mapping[str, Start],
    seconds: float,
    *,
    partition: int | None = None,
    until_end: bool = False,
    at_end: Callable[[], object] | None = None,
) -> AsyncGenerator[InboundRecord, None]:
    """Yield records of topics from their starts on: in order within a partition, across partitions as they arrive.

    `until_end`: stop where the topics ended when reading began; `at_end`: called once, there. Raises: as `open_reader`.
    """
    async with open_reader(brokers, seconds) as reader:
        await reader.begin(starts, partition=partition)
        async with aclosing(reader.records()) as records:
            async for record in records:
                yield record
        if at_end:
            at_end()
        while not until_end:
            for record in await reader.batch():
                yield record


@dataclass(slots=True)
class TopicFollower:
    """Reads topics from their starts on, through outages, with the partitions that are added meanwhile.

    Attributes:
        starts: where each topic begins; what is added later to one that begins at its end is read from its beginning.
        seconds: how long the broker may take to answer.
        failed: called with the BrokerUnavailable or UsageError that ended a connection, before the next one is opened.
            None: only outages after the first connection are waited out, and all else is raised.
        poll: seconds to wait for records.
        check: seconds between two questions whether the broker answers: the client itself waits out an outage silently.
        retry: seconds between two connections.
        continued: where to read on instead, by partition.
        begun: a connection was opened.
        failure: what the last connection, or the task, ended with; None while one is open.
        caught_up: what the topics held when one was opened has been read.
    """

    brokers: str
    starts: Mapping[str, Start]
    seconds: float
    failed: Callable[[Exception], object] | None = None
    poll: float = 0.5
    check: float = _LOOK_ANEW
    retry: float = 1.0
    continued: Mapping[TopicPartition, int] = field(default_factory=dict)
    begun: bool = field(default=False, init=False)
    failure: Exception | None = field(default=None, init=False)
    caught_up: bool = field(default=False, init=False)

    async def batches(self) -> AsyncGenerator[list[InboundRecord], None]:
        """Yield records as they come: none first, once a connection is open, and none if nothing comes."""
        loop = asyncio.get_running_loop()
        starts, positions = self.starts, dict(self.continued)
        while True:
            try:
                async with open_reader(self.brokers, self.seconds) as reader:
                    await reader.begin(starts, continued=positions)
                    positions, due = reader.positions, loop.time() + self.check
                    starts = {name: "earliest" if at == "latest" else at for name, at in starts.items()}
                    self.begun, self.failure, anew = True, None, loop.time() + _LOOK_ANEW
                    yield []
                    while True:
                        yield await reader.batch(int(self.poll * 1000))
                        self.caught_up = self.caught_up or await reader.caught_up()
                        if loop.time() > anew:
                            if (await reader.ends(*starts)).keys() != positions.keys():
                                break
                            anew = loop.time() + _LOOK_ANEW
                        elif loop.time() > due:
                            await reader.offsets("earliest", positions)
                            due = loop.time() + self.check
            except (BrokerUnavailable, UsageError) as exc:
                self.failure = exc
                if self.failed:
                    self.failed(exc)
                elif not self.begun or isinstance(exc, UsageError):
                    raise
                await asyncio.sleep(self.retry)

    @asynccontextmanager
    async def following(
        self,
        take: Callable[[list[InboundRecord]], object],
        ended: Callable[[Exception], object] | None = None,
    ) -> AsyncIterator[None]:
        """Hand what comes to `take` in a task, which has begun when the block is entered.

        Raises: what ended the task before that. What ends it later is given to `ended`, or raised after the block.
        """
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def follow() -> None:
            try:
                async with aclosing(self.batches()) as batches:
                    async for records in batches:
                        if not begun.done():
                            begun.set_result(None)
                        take(records)
            except Exception as exc:
                self.failure = exc
                if not (ended and begun.done()):
                    raise
                ended(exc)

        task = asyncio.create_task(follow())
        try:
            await asyncio.wait([begun, task], return_when=asyncio.FIRST_COMPLETED)
            if begun.done():
                yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)  # the block's own error comes first
        if not task.cancelled():
            await task


async def read_one(
    brokers: str, topic: str, partition: int, offset: int, seconds: float
) -> InboundRecord | None:
    """Read the record at a place; None: there is none (any more). Raises: UsageError, BrokerUnavailable."""
    async with open_reader(brokers, seconds) as reader:
        ranges = await reader.ranges(topic, partition=partition)
        async with aclosing(reader.records_at([RecordPlace(topic, partition, offset)], ranges)) as found:
            return await anext(found, None)


async def cluster_of(brokers: str, seconds: float) -> str | None:
    """Return the id of the cluster, None where it has none. Raises: UsageError, BrokerUnavailable."""
    try:
        async with asyncio.timeout(seconds), admin(brokers, seconds) as client:
            found: str | None = (await client.describe_cluster()).get("cluster_id")
            return found
    except (KafkaError, OSError, TimeoutError) as exc:
        raise unavailable(brokers, seconds, "answer") from exc


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

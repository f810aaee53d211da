"""Several topics read at once, in batches, by a consumer without a group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from groundwire.client.kafka import consumer, partitions_of, unavailable
from groundwire.client.tail import Start, offsets_at
from groundwire.client.unasked import unasked
from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.messages.topics import TopicName
from groundwire.review.records import TopicRecord

BATCH: Final = 500

Positions = dict[TopicPartition, int]
"""The next offset to read of each partition."""


class Reader:
    """Reads on from where it stands; made by `reading`.

    Args:
        client: assigned, and standing where reading begins.
        names: the topic of each Kafka name.
        ends: where the partitions ended when reading began.
        positions: where it begins.
        seconds: how long the broker may take to answer.
    """

    def __init__(
        self,
        client: AIOKafkaConsumer,
        names: Mapping[str, TopicName],
        ends: Mapping[TopicPartition, int],
        positions: Positions,
        seconds: float,
    ) -> None:
        self._client = client
        self._names = names
        self._short = dict(ends)
        self.positions = positions
        self._seconds = seconds

    async def batch(self, milliseconds: int = 500) -> list[TopicRecord]:
        """Return up to 500 records, none if nothing comes for so long. Raises: BrokerUnavailable."""
        with _outages("topics cannot be read"):
            fetched = await self._client.getmany(timeout_ms=milliseconds, max_records=BATCH)
        found = []
        for partition, records in fetched.items():
            found += [_record(record, self._names[partition.topic]) for record in records]
            self.positions[partition] = records[-1].offset + 1
        return found

    async def caught_up(self) -> bool:
        """Say whether everything was read that was there when reading began. Raises: BrokerUnavailable."""
        for partition, end in list(self._short.items()):
            with _outages("where reading stands is not known"):
                position = await self._client.position(partition)
            if position >= end:
                del self._short[partition]
        return not self._short

    async def check(self) -> None:
        """Ask the broker for anything at all: an outage the client waits out in silence.

        Raises:
            BrokerUnavailable: it does not answer.
        """
        with _outages("the broker does not answer"):
            async with asyncio.timeout(self._seconds):
                await self._client.end_offsets(list(self._client.assignment()))


@contextmanager
def _outages(what: str) -> Iterator[None]:
    """Tell of whatever the client gives up with. Raises: BrokerUnavailable."""
    try:
        with unasked(what):
            yield
    except (KafkaError, OSError, TimeoutError) as exc:
        raise BrokerUnavailable(f"{what}: {type(exc).__name__}") from exc


@asynccontextmanager
async def reading(
    brokers: str,
    prefix: str,
    starts: Mapping[TopicName, Start],
    seconds: float,
    positions: Positions | None = None,
) -> AsyncIterator[Reader]:
    """Open a Reader of topics, each from its start; once it is there, whatever comes later is read.

    Partitions that are added while it runs are not seen.

    Args:
        brokers: `host:port,...`.
        prefix: before every topic's name.
        starts: where to begin with each topic.
        seconds: how long the broker may take to answer.
        positions: `Reader.positions` of a reader before, which this one continues.

    Raises:
        UsageError: a topic does not exist.
        BrokerUnavailable: the broker does not answer within `seconds`.
    """
    names = {f"{prefix}{topic}": topic for topic in starts}
    finished = False
    try:
        with unasked("topics cannot be read"):
            async with consumer(brokers, seconds) as client:
                ends, begin = await _open(client, brokers, names, starts, seconds, positions or {})
                yield Reader(client, names, ends, begin, seconds)
                finished = True
    except BrokerUnavailable:
        if not finished:  # else only closing went wrong, and nobody reads any more
            raise


async def _open(
    client: AIOKafkaConsumer,
    brokers: str,
    names: Mapping[str, TopicName],
    starts: Mapping[TopicName, Start],
    seconds: float,
    positions: Positions,
) -> tuple[Positions, Positions]:
    try:
        with _outages("topics cannot be opened"):
            async with asyncio.timeout(seconds):
                named = {name: starts[topic] for name, topic in names.items()}
                return await _assign(client, named, positions)
    except BrokerUnavailable as exc:
        raise unavailable(brokers, seconds, "say where the topics begin and end") from exc


async def _assign(
    client: AIOKafkaConsumer, starts: Mapping[str, Start], before: Positions
) -> tuple[Positions, Positions]:
    """Seek to where reading begins; return where the partitions end now, and where it begins."""
    partitions = await partitions_of(client, *starts)
    missing = next((name for name, numbers in partitions.items() if not numbers), None)
    if missing is not None:
        raise UsageError(f"there is no topic {missing}: `python -m topics declare` creates it")
    chosen = [TopicPartition(name, number) for name, numbers in partitions.items() for number in numbers]
    client.assign(chosen)
    ends: Positions = await client.end_offsets(chosen)
    begin: Positions = {}
    for name, start in starts.items():
        of_topic = {partition: end for partition, end in ends.items() if partition.topic == name}
        begin |= await offsets_at(client, start, of_topic)
    begin |= {partition: offset for partition, offset in before.items() if offset <= ends.get(partition, -1)}
    for partition, offset in begin.items():
        client.seek(partition, offset)
    return ends, begin


def _record(record: Any, topic: TopicName) -> TopicRecord:  # noqa: ANN401 - aiokafka's record, not typed
    return TopicRecord(
        topic=topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )

"""Following a topic from a place in it, without a consumer group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from groundwire.client.kafka import consumer, inbound, partitions_of, unavailable
from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.messages.base import to_milliseconds
from groundwire.messages.inbound import InboundRecord

Start = Literal["earliest", "latest"] | int | datetime
"""Where to begin: an offset counts on every partition that is read, a time is Kafka's of the records."""

_POLL_MS: Final = 500


@dataclass(frozen=True, slots=True)
class Span:
    """What of a topic is read.

    Attributes:
        start: where to begin.
        partition: the one to read, or None: all.
        until_end: stop where the topic ended when reading began.
        limit: stop after so many records (1 or more), or None.
    """

    start: Start
    partition: int | None = None
    until_end: bool = False
    limit: int | None = None


async def follow(brokers: str, topic: str, span: Span, seconds: float) -> AsyncGenerator[InboundRecord, None]:
    """Yield the records of a topic: in order within a partition, across partitions as they arrive.

    Partitions that are added while it runs are not seen.

    Raises:
        UsageError: the topic or the partition does not exist.
        BrokerUnavailable: the broker does not answer within `seconds` at the start, or, with `until_end`,
            nothing comes for so long.
    """
    async with consumer(brokers, seconds) as client:
        try:
            async with asyncio.timeout(seconds):
                ends = await _assign(client, topic, span)
        except (KafkaError, TimeoutError) as exc:
            raise unavailable(brokers, seconds, "say where the topic begins and ends") from exc
        count = 0
        try:
            async for record in _records(client, ends if span.until_end else None, seconds):
                yield record
                count += 1
                if count == span.limit:
                    return
        except TimeoutError as exc:
            raise unavailable(brokers, seconds, "bring the rest of the topic") from exc
        except KafkaError as exc:  # not an outage, which the client waits out
            raise BrokerUnavailable(f"{topic} cannot be read: {type(exc).__name__}") from exc


async def _assign(client: AIOKafkaConsumer, topic: str, span: Span) -> dict[TopicPartition, int]:
    """Seek to the start on every partition that is read; return where each one ends now."""
    numbers = (await partitions_of(client, topic))[topic]
    if not numbers:
        raise UsageError(f"there is no topic {topic}: `python -m topics declare` creates it")
    if span.partition is not None and span.partition not in numbers:
        raise UsageError(f"{topic} has no partition {span.partition}, only {numbers[0]} to {numbers[-1]}")
    chosen = numbers if span.partition is None else [span.partition]
    partitions = [TopicPartition(topic, number) for number in chosen]
    client.assign(partitions)
    ends: dict[TopicPartition, int] = await client.end_offsets(partitions)
    for partition, offset in (await offsets_at(client, span.start, ends)).items():
        client.seek(partition, offset)
    return ends


async def offsets_at(
    client: AIOKafkaConsumer, start: Start, ends: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the offsets at which a start stands on partitions that end at `ends`."""
    if start == "latest":
        return ends
    if isinstance(start, datetime):
        moment = to_milliseconds(start)
        found = await client.offsets_for_times(dict.fromkeys(ends, moment))
        return {
            partition: found[partition].offset if found[partition] else end for partition, end in ends.items()
        }
    beginnings: dict[TopicPartition, int] = await client.beginning_offsets(list(ends))
    if start == "earliest":
        return beginnings
    return {partition: min(max(start, beginnings[partition]), end) for partition, end in ends.items()}


async def _records(
    client: AIOKafkaConsumer, ends: dict[TopicPartition, int] | None, seconds: float
) -> AsyncIterator[InboundRecord]:
    loop = asyncio.get_running_loop()
    came = loop.time()
    while ends is None or await _short_of_end(client, ends):
        fetched = await client.getmany(timeout_ms=_POLL_MS)
        for partition, records in fetched.items():
            for record in records:
                if ends is None or record.offset < ends[partition]:
                    yield inbound(record)
        if fetched:
            came = loop.time()
        elif ends is not None and loop.time() - came > seconds:
            raise TimeoutError


async def _short_of_end(client: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
    return any([await client.position(partition) < end for partition, end in ends.items()])

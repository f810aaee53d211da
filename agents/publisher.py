"""Publishes in order, and returns when the broker has acknowledged everything."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidMessageError,
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RecordListTooLargeError,
)
from aiokafka.partitioner import murmur2
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from agents.outputs import Output, unpublishable
from groundwire import metrics
from groundwire.client.kafka import MAX_LETTER_BYTES, MAX_RECORD_BYTES
from groundwire.errors import BrokerUnavailable
from groundwire.messages.topics import TopicName

PATIENCE: Final = 30.0
"""Seconds until an acknowledgement counts as missing; all is then published again, and the producer goes on trying."""

_NEVER = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidMessageError)
"""Errors of a record that the broker will never acknowledge."""

_BROKEN = (OutOfOrderSequenceNumber, ProducerFenced)
"""Errors after which an idempotent producer publishes nothing more, such as when a broker refused one record."""


def partition_of(key: bytes | None, partitions: Sequence[int]) -> int:
    """Choose the partition of a key as aiokafka does, without hashing the same few users again and again; else any."""
    return random.choice(partitions) if key is None else partitions[_hashed(key) % len(partitions)]  # noqa: S311 - any


@lru_cache(1 << 13)
def _hashed(key: bytes) -> int:
    hashed: int = murmur2(key)
    return hashed & 0x7FFFFFFF


class ProducerBroken(Exception):
    """Only another producer can go on, and so another process: what was not acknowledged is read again."""


class Publisher:
    """Sends through the aiokafka producer that Faust holds.

    Faust's own `send` returns before the broker has answered, and gathered sends of it reorder records.

    Args:
        producer: returns the running AIOKafkaProducer.
        prefix: before every topic's name.
    """

    def __init__(self, producer: Callable[[], Any], prefix: str) -> None:
        self._producer = producer
        self._prefix = prefix

    async def publish(self, outputs: Sequence[Output]) -> None:
        """Publish all outputs; what can never be published becomes a dead letter.

        Raises:
            BrokerUnavailable: not everything was acknowledged in time. Publishing again is safe: each record
                has the same id and bytes.
            ProducerBroken: this producer will never publish again.
        """
        try:
            refused = await self._publish(outputs)
        except BrokerUnavailable:
            metrics.PUBLISH_ERRORS.labels("unavailable").inc()
            raise
        except ProducerBroken:
            metrics.PUBLISH_ERRORS.labels("broken").inc()
            raise
        metrics.PUBLISH_ERRORS.labels("refused").inc(len(refused))
        if refused and await self._publish([unpublishable(output, why) for output, why in refused]):
            raise BrokerUnavailable("the broker refuses even the dead letter")

    async def _publish(self, outputs: Sequence[Output]) -> list[tuple[Output, str]]:
        """Publish outputs, those of each partition in their order; return those that never can be, and why."""
        fitting: list[Output] = []
        refused: list[tuple[Output, str]] = []
        for output in outputs:
            if _fits(output):
                fitting.append(output)
            else:
                refused.append((output, MessageSizeTooLargeError.__name__))
        try:
            async with asyncio.timeout(PATIENCE):
                producer = self._producer()
                lanes = await self._lanes(producer, fitting)
                sending = [_send(producer, *place, lane) for place, lane in lanes.items()]
                found = await asyncio.gather(*sending, return_exceptions=True)
        except (KafkaError, TimeoutError) as exc:
            raise BrokerUnavailable(f"not acknowledged within {PATIENCE:g} s: {type(exc).__name__}") from None
        for lane in found:
            if isinstance(lane, _BROKEN):
                raise ProducerBroken(type(lane).__name__)
            if isinstance(lane, BaseException):
                raise BrokerUnavailable(f"not acknowledged: {type(lane).__name__}")
            refused += lane
        return refused

    async def _lanes(
        self, producer: AIOKafkaProducer, outputs: Sequence[Output]
    ) -> dict[tuple[str, int], list[Output]]:
        """Sort outputs by topic and partition."""
        lanes: defaultdict[tuple[str, int], list[Output]] = defaultdict(list)
        partitions: dict[str, list[int]] = {}
        for output in outputs:
            topic = self._prefix + output.topic
            if topic not in partitions:
                partitions[topic] = sorted(await producer.partitions_for(topic))
            lanes[topic, partition_of(output.key, partitions[topic])].append(output)
        return lanes


async def _send(
    producer: AIOKafkaProducer, topic: str, partition: int, outputs: Sequence[Output]
) -> list[tuple[Output, str]]:
    """Send records of a partition, and wait for them; return those that the broker refuses, and why.

    Their batches are filled here: a record that is sent by itself costs the client twice as much.
    """
    sent: list[tuple[list[Output], asyncio.Future[Any]]] = []
    for batch, members in _batches(producer, outputs):
        acknowledged = await producer.send_batch(batch, topic, partition=partition)
        acknowledged.add_done_callback(_noticed)  # the first failure of a partition is told, and no other
        sent.append((members, acknowledged))
    refused: list[tuple[Output, str]] = []
    for members, acknowledged in sent:
        try:
            await acknowledged
        except _NEVER as exc:
            refused += [(output, type(exc).__name__) for output in members]
    return refused


def _noticed(acknowledged: asyncio.Future[Any]) -> None:
    """Take note of an error, so that asyncio does not complain, at some later time, that nobody has."""
    if not acknowledged.cancelled():
        acknowledged.exception()


def _batches(producer: AIOKafkaProducer, outputs: Sequence[Output]) -> list[tuple[Any, list[Output]]]:
    """Fill batches in order; each takes its first record, however large."""
    batches: list[tuple[Any, list[Output]]] = []
    for output in outputs:
        record = {"timestamp": None, "key": output.key, "value": output.value, "headers": output.headers}
        if not batches or batches[-1][0].append(**record) is None:
            batch = producer.create_batch()
            batch.append(**record)
            batches.append((batch, []))
        batches[-1][1].append(output)
    return batches


def _fits(output: Output) -> bool:
    headers: Any = output.headers
    size: int = DefaultRecordBatchBuilder.estimate_size_in_bytes(output.key, output.value, headers)
    return size <= (MAX_LETTER_BYTES if output.topic is TopicName.DEAD_LETTER else MAX_RECORD_BYTES)

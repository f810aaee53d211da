"""Publishes in order, and returns when the broker has acknowledged everything."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final

from aiokafka.errors import (
    InvalidMessageError,
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RecordListTooLargeError,
)
from aiokafka.partitioner import DefaultPartitioner, murmur2

from agents.outputs import Output, unpublishable
from groundwire import metrics
from groundwire.errors import BrokerUnavailable

PATIENCE: Final = 30.0
"""Seconds until an acknowledgement counts as missing; all is then published again, and the producer goes on trying."""

_NEVER = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidMessageError)
"""Errors of a record that the broker will never acknowledge."""

_BROKEN = (OutOfOrderSequenceNumber, ProducerFenced)
"""Errors after which an idempotent producer publishes nothing more, such as when a broker refused one record."""


def partition_of(key: bytes | None, partitions: Sequence[int], available: Sequence[int]) -> int:
    """Choose a record's partition as aiokafka does, without hashing the same users' keys again and again in Python."""
    if key is None:
        anyone: int = DefaultPartitioner()(None, partitions, available)
        return anyone
    return partitions[_hashed(key) % len(partitions)]


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
        refused: list[tuple[Output, str]] = []
        pending: list[tuple[Output, asyncio.Future[Any]]] = []
        try:
            async with asyncio.timeout(PATIENCE):
                producer = self._producer()
                for output in outputs:  # one loop, in order: the producer keeps the order of its partitions
                    try:
                        future = await producer.send(
                            self._prefix + output.topic,
                            key=output.key,
                            value=output.value,
                            headers=output.headers,
                        )
                        pending.append((output, future))
                    except _NEVER as exc:
                        refused.append((output, type(exc).__name__))
                results = await asyncio.gather(*(future for _, future in pending), return_exceptions=True)
        except _BROKEN as exc:
            raise ProducerBroken(type(exc).__name__) from None
        except (KafkaError, TimeoutError) as exc:
            raise BrokerUnavailable(f"not acknowledged within {PATIENCE:g} s: {type(exc).__name__}") from None
        for (output, _), result in zip(pending, results, strict=True):
            if isinstance(result, _NEVER):
                refused.append((output, type(result).__name__))
            elif isinstance(result, _BROKEN):
                raise ProducerBroken(type(result).__name__)
            elif isinstance(result, BaseException):
                raise BrokerUnavailable(f"not acknowledged: {type(result).__name__}")
        return refused

"""Publishes in order, and returns when the broker has acknowledged everything (X-13)."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import (
    InvalidMessageError,
    KafkaError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
    ProducerFenced,
    RecordListTooLargeError,
)
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from faust.exceptions import NotReady

from agents.faust_patches import WorkerApp
from agents.hooks import Commits, Hook
from agents.outputs import Output, of_worker, reductions, unpublishable, worker_event
from groundwire import metrics
from groundwire.errors import BrokerUnavailable, SealUnavailable, TopicsMissing
from groundwire.kafka.connection import MAX_AHEAD, MAX_LETTER_BYTES, MAX_RECORD_BYTES, partition_of
from groundwire.keys.seal_keys import SealSigner
from groundwire.messages.decisions import AuditEvent, AuditType
from groundwire.messages.topics import TopicName

TELL: Final = 60.0
"""Seconds between two log lines about the broker."""

ACK_SECONDS: Final = 30.0
"""Seconds until an acknowledgement counts as missing, and all is published again."""

_METADATA_SECONDS: Final = 5.0

_NEVER = (MessageSizeTooLargeError, RecordListTooLargeError, InvalidMessageError)
"""Errors of a record that the broker will never accept."""

_BROKEN = (OutOfOrderSequenceNumber, ProducerFenced)
"""Errors after which an idempotent producer publishes nothing more, e.g. after one refused record."""

log = structlog.get_logger()


class ProducerBroken(Exception):
    """Only another process can go on: what was not acknowledged is read again."""


class Publisher:
    """Sends through Faust's aiokafka producer.

    Faust's own `send` returns before the acknowledgement, and gathered sends reorder records. Usable once the app has
    started its producer.

    Attributes:
        letter_bytes: of the largest dead letter; what exceeds them is published without its value.
        letter_age: milliseconds of the oldest time that one keeps; its topic would refuse or remove an older one.
    """

    letter_bytes = MAX_LETTER_BYTES
    letter_age = 86_400_000 * (TopicName.DEAD_LETTER.retention_days or 0)

    def __init__(self, app: WorkerApp, prefix: str) -> None:
        self._app: Any = app
        self._prefix = prefix
        self._tell_at = 0.0

    async def publish(self, outputs: Sequence[Output]) -> list[Output]:
        """Publish all outputs; those that can never be published become dead letters, and are returned.

        Raises: BrokerUnavailable: publishing again is safe, as ids and bytes are the same; ProducerBroken.
        """
        try:
            refused = await self._publish(outputs)
        except BrokerUnavailable as exc:
            metrics.PUBLISH_ERRORS.labels("unavailable").inc()
            if time.monotonic() >= self._tell_at:
                self._tell_at = time.monotonic() + TELL
                log.warning("broker.unavailable", error=str(exc), records=len(outputs))
            raise
        except ProducerBroken:
            metrics.PUBLISH_ERRORS.labels("broken").inc()
            raise
        metrics.PUBLISH_ERRORS.labels("refused").inc(len(refused))
        if refused and await self._publish([unpublishable(output, why) for output, why in refused]):
            raise BrokerUnavailable("the broker refuses even the dead letter")
        return [output for output, _ in refused]

    async def _publish(self, outputs: Sequence[Output]) -> list[tuple[Output, str]]:
        """Publish in order per partition; return outputs that never can be, and why."""
        fitting: list[Output] = []
        refused: list[tuple[Output, str]] = []
        for output in outputs:
            if output.topic is TopicName.DEAD_LETTER:
                letter = next(one for one in reductions(output) if _size(one) <= self.letter_bytes)
                letter.timestamp = self._kept(output.timestamp)
                fitting.append(letter)
            elif _size(output) <= MAX_RECORD_BYTES:
                fitting.append(output)
            else:
                refused.append((output, MessageSizeTooLargeError.__name__))
        groups: defaultdict[tuple[str, int], list[Output]] = defaultdict(list)
        partitions: dict[str, list[int]] = {}
        try:
            async with asyncio.timeout(ACK_SECONDS):
                producer = self._app.producer._ensure_producer()  # noqa: SLF001 - Faust's own send is not enough
                for output in fitting:
                    topic = self._prefix + output.topic
                    if topic not in partitions:
                        partitions[topic] = await _partitions_for(producer, topic)
                    output.partition = partition_of(output.key, partitions[topic])
                    groups[topic, output.partition].append(output)
                sending = [_send(producer, *tp, group) for tp, group in groups.items()]
                sent = await asyncio.gather(*sending, return_exceptions=True)
        except (KafkaError, TimeoutError) as exc:
            for topic in partitions:  # one that was deleted leaves its batches without an answer
                await _partitions_for(producer, topic)
            raise BrokerUnavailable(
                f"not acknowledged within {ACK_SECONDS:g} s: {type(exc).__name__}"
            ) from None
        for result in sent:
            if isinstance(result, _BROKEN):
                raise ProducerBroken(type(result).__name__)
            if isinstance(result, BaseException):
                raise BrokerUnavailable(f"not acknowledged: {type(result).__name__}")
            refused += result
        return refused

    def _kept(self, timestamp: int | None) -> int | None:
        """Return the time of a record that its letter keeps: none that the broker refuses or retention removes."""
        now = time.time() * 1000
        keeps = timestamp is not None and now - self.letter_age < timestamp < now + MAX_AHEAD
        return timestamp if keeps else None


def _size(output: Output) -> int:
    headers: Any = output.headers
    return DefaultRecordBatchBuilder.estimate_size_in_bytes(output.key, output.value, headers)


async def _partitions_for(producer: AIOKafkaProducer, topic: str) -> list[int]:
    """Return the partitions of a topic. Raises: TopicsMissing, BrokerUnavailable."""
    with suppress(KafkaError, TimeoutError):
        async with asyncio.timeout(_METADATA_SECONDS):
            return sorted(await producer.partitions_for(topic))  # asks until the topic is there
    with suppress(TimeoutError):
        async with asyncio.timeout(_METADATA_SECONDS):
            if await producer.client.force_metadata_update():
                raise TopicsMissing(f"there is no topic {topic}: `groundwire topics declare` makes it")
    raise BrokerUnavailable(f"no answer about the topic {topic}")


async def _send(
    producer: AIOKafkaProducer, topic: str, partition: int, outputs: Sequence[Output]
) -> list[tuple[Output, str]]:
    """Send records of a partition in batches filled here, at half the cost; return refused ones, and why."""
    batches: list[tuple[Any, list[Output]]] = []
    for output in outputs:
        record = {
            "timestamp": output.timestamp,
            "key": output.key,
            "value": output.value,
            "headers": output.headers,
        }
        if not batches or batches[-1][0].append(**record) is None:
            batch = producer.create_batch()
            batch.append(**record)  # a batch takes its first record, however large
            batches.append((batch, []))
        batches[-1][1].append(output)
    sent: list[tuple[list[Output], asyncio.Future[Any]]] = []
    for batch, members in batches:
        acknowledged = await producer.send_batch(batch, topic, partition=partition)
        # only the first failure of a partition is raised; asyncio does not log one that was retrieved
        acknowledged.add_done_callback(lambda done: done.cancelled() or done.exception())
        sent.append((members, acknowledged))
    refused: list[tuple[Output, str]] = []
    for members, acknowledged in sent:
        try:
            await acknowledged
        except _NEVER as exc:
            refused += [(output, type(exc).__name__) for output in members]
    return refused


class AuditPublisher(Hook):
    """Publishes audit events of a worker, signed with its seal key, once it can, and holds commits back until then.

    It keeps the last 10,000 events until the broker has them, as one start may find losses in as many partitions;
    unpublished ones are lost with the process.
    """

    def __init__(
        self, publisher: Publisher, signer: SealSigner | None, *, now: Callable[[], datetime]
    ) -> None:
        self._publisher = publisher
        self._signer = signer
        self._now = now
        self._pending: deque[AuditEvent] = deque(maxlen=10_000)

    def note(self, kind: AuditType, cause: dict[str, Any], *, recurs: bool = False) -> None:
        """Queue an event; `cause` names it, together with the time if it `recurs`."""
        self._pending.append(worker_event(kind, cause, self._now(), recurs=recurs))

    async def before_commit(self, commits: Commits) -> Commits:
        """Commit nothing past records of whose loss nobody is told yet."""
        await self.publish()
        return {} if self._pending else commits

    async def publish(self) -> None:
        """Publish queued events; without a broker or the seal key they stay queued."""
        pending = list(self._pending)
        if not pending:
            return
        try:
            signed = [await self._signer.sign_event(each) for each in pending] if self._signer else pending
            await self._publisher.publish([of_worker(event) for event in signed])
        except (
            BrokerUnavailable,
            SealUnavailable,
            ProducerBroken,
            NotReady,
        ) as exc:  # the last: Faust's producer has not started
            log.info("audit.waits", events=len(pending), error=str(exc))
            return
        for event in pending:
            if event in self._pending:  # newer events may have pushed it out
                self._pending.remove(event)

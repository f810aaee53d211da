"""The topics that redriving reads and writes, on Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import datetime
from itertools import count
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from groundwire.client.kafka import producer, unavailable
from groundwire.client.tail import Span, Start, follow
from groundwire.dead_letters.ledger import Outgoing, Stands
from groundwire.dead_letters.letters import read_letter
from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import TopicName


class KafkaLog:
    """Reads topics to where they end now, without a consumer group, and sends through a producer of its own.

    Args:
        brokers: `host:port,...`.
        prefix: before every topic's name.
        seconds: how long the broker may take to answer.
        sender: None where nothing is to be sent.
        on_read: told of every record that is read.
    """

    def __init__(
        self,
        brokers: str,
        prefix: str,
        seconds: float,
        sender: AIOKafkaProducer | None = None,
        *,
        on_read: Callable[[], None] = lambda: None,
    ) -> None:
        self._brokers = brokers
        self._topic = f"{prefix}{TopicName.DEAD_LETTER}"
        self._seconds = seconds
        self._sender = sender
        self._on_read = on_read
        self._watching: asyncio.Task[None] | None = None

    def letters(self, start: Start, partition: int | None) -> AsyncGenerator[InboundRecord, None]:
        """Yield the records of the dead-letter topic. Raises: UsageError, BrokerUnavailable."""
        return self._read(self._topic, Span(start, partition, until_end=True))

    def records(self, topic: str, since: datetime) -> AsyncGenerator[InboundRecord, None]:
        """Yield the records of a topic from a time of Kafka's on. Raises: UsageError, BrokerUnavailable."""
        return self._read(topic, Span(since, until_end=True))

    async def oldest(self, start: Start, partition: int | None) -> int | None:
        """Return the time of the first dead letter from `start` on, milliseconds: the least of all partitions'.

        Raises:
            UsageError: there is no such topic or partition.
            BrokerUnavailable: the broker does not answer.
        """
        times = []
        for number in count() if partition is None else [partition]:
            span = Span(start, number, until_end=True, limit=1)
            try:
                async with aclosing(self._read(self._topic, span)) as records:
                    times += [record.timestamp async for record in records]
            except UsageError:  # nobody says how many partitions there are; the first must be there
                if number == (partition or 0):
                    raise
                break
        return min(times, default=None)

    @asynccontextmanager
    async def failing(self, since: datetime) -> AsyncIterator[Collection[Stands]]:
        """Watch the dead-letter topic, and gather where the records stood that have failed from a time on."""
        found: set[Stands] = set()

        async def watch() -> None:
            async with aclosing(self._read(self._topic, Span(since))) as records:
                async for record in records:
                    failed = read_letter(record).failed
                    found.add(Stands(failed.topic, failed.partition or 0, failed.offset or 0))

        self._watching = watching = asyncio.create_task(watch())
        try:
            yield found
        finally:
            self._watching = None
            watching.cancel()
            with suppress(asyncio.CancelledError, BrokerUnavailable):  # nobody sends any more
                await watching

    async def publish(self, records: Sequence[Outgoing]) -> list[tuple[int, int]]:
        """Send records in order, wait for all acknowledgements and return where each record stands.

        Raises:
            BrokerUnavailable: not all were acknowledged; some may stand on their topic all the same.
        """
        if self._sender is None:
            raise AssertionError("a dry run sends nothing")
        if self._watching and self._watching.done():  # without it nothing tells how many fail again
            raise BrokerUnavailable("the dead-letter topic cannot be followed any more; go on with a new run")
        try:
            async with asyncio.timeout(self._seconds):
                futures: list[asyncio.Future[Any]] = [
                    await self._sender.send(one.topic, one.value, one.key, headers=one.headers)
                    for one in records
                ]
                places = await asyncio.gather(*futures)
        except TimeoutError as exc:
            raise unavailable(self._brokers, self._seconds, f"acknowledge {len(records)} records") from exc
        except KafkaError as exc:
            raise BrokerUnavailable(f"the broker does not take a record: {type(exc).__name__}") from exc
        return [(place.partition, place.offset) for place in places]

    async def _read(self, topic: str, span: Span) -> AsyncGenerator[InboundRecord, None]:
        async with aclosing(follow(self._brokers, topic, span, self._seconds)) as records:
            async for record in records:
                self._on_read()
                yield record


@asynccontextmanager
async def kafka_log(
    brokers: str, prefix: str, seconds: float, *, sends: bool, on_read: Callable[[], None]
) -> AsyncIterator[KafkaLog]:
    """Open the topics, to read alone or to send too. Raises: UsageError, BrokerUnavailable."""
    if not sends:
        yield KafkaLog(brokers, prefix, seconds, on_read=on_read)
        return
    async with producer(brokers, seconds) as sender:
        yield KafkaLog(brokers, prefix, seconds, sender, on_read=on_read)

"""Reads output topics from their beginnings to where they end at the call."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from groundwire.errors import BrokerUnavailable
from groundwire.messages.topics import TopicName
from groundwire.settings import Settings

DECIDED = (TopicName.APPROVED, TopicName.REVIEW, TopicName.BLOCKED)


async def read_to_end(
    settings: Settings, topics: Sequence[TopicName] = DECIDED
) -> AsyncGenerator[bytes, None]:
    """Yield the values of `topics`, partition by partition as they come.

    Raises:
        BrokerUnavailable: the broker does not answer, or a topic does not exist.
    """
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    try:
        await consumer.start()
        names = [settings.topic_prefix + topic for topic in topics]
        partitions = [
            TopicPartition(name, partition)
            for name in names
            for partition in (consumer.partitions_for_topic(name) or await _look_up(consumer, name))
        ]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        await consumer.seek_to_beginning(*partitions)
        left = {tp for tp in partitions if await consumer.position(tp) < ends[tp]}
        while left:
            for tp, records in (await consumer.getmany(*left, timeout_ms=1000)).items():
                for record in records:
                    if record.offset < ends[tp] and record.value is not None:
                        yield record.value
            left = {tp for tp in left if await consumer.position(tp) < ends[tp]}
    except KafkaError as exc:
        raise BrokerUnavailable(f"cannot read {', '.join(topics)}: {type(exc).__name__}") from None
    finally:
        await consumer.stop()


async def _look_up(consumer: AIOKafkaConsumer, name: str) -> set[int]:
    await consumer.topics()  # fetches the metadata of all topics
    partitions: set[int] | None = consumer.partitions_for_topic(name)
    if not partitions:
        raise BrokerUnavailable(f"the topic {name} does not exist; run `python -m topics declare`")
    return partitions

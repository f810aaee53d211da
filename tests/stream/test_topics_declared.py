"""Topics as they are declared: whose time a record bears, and what the check says of topics that others made."""

from __future__ import annotations

import os
import time
import uuid

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from groundwire.config import Settings
from groundwire.messages.topics import TopicName
from tests.services.brokers import BROKER_VARIABLE, Broker
from topics.catalog import CATALOG
from topics.declare import check, declare

pytestmark = pytest.mark.stream


def own_topics(broker: Broker) -> Settings:
    names = {"brokers": broker.bootstrap, "topic_prefix": f"declared-{uuid.uuid4().hex[:8]}."}
    return Settings(**names, partitions=1, replication=broker.replication)


@pytest.mark.smoke
async def test_whoever_declares_the_topics_finds_nothing_wrong_and_the_check_names_what_others_made(
    broker: Broker,
) -> None:
    """Topics that exist are left as they are.

    C-28: what people decide is decided at the broker's time. Records that are gone before the documentation says are
    fatal, too; longer retention than the catalogue's is noted only.
    """
    for name, key, value, fatal in (
        (TopicName.REVIEW_DECISIONS, "message.timestamp.type", "CreateTime", True),
        (TopicName.APPROVED, "retention.ms", "31536000000", True),
        (TopicName.CLAIMS, "retention.bytes", "1000000000", True),
        (TopicName.CLAIMS, "retention.ms", "-1", False),
    ):
        settings = own_topics(broker)
        config = next(spec for spec in CATALOG if spec.name is name).config | {key: value}
        admin = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap)
        await admin.start()
        try:
            topic = NewTopic(settings.topic_prefix + name, 1, settings.replication, topic_configs=config)
            await admin.create_topics([topic])
        finally:
            await admin.close()
        assert name not in await declare(settings)
        (finding,) = await check(settings)
        assert (finding.topic, finding.fatal) == (settings.topic_prefix + name, fatal)
        assert f"{key} is {value}, the catalogue says" in finding.problem
    settings = own_topics(broker)
    admin = AIOKafkaAdminClient(bootstrap_servers=settings.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(settings.topic_prefix + "deferred", 3, settings.replication)])
    await admin.close()
    await declare(settings)
    notes = [finding for finding in await check(settings) if "partitions" in finding.problem]
    assert [(note.topic, note.problem, note.fatal) for note in notes] == [
        (f"{settings.topic_prefix}deferred", "has 3 partitions, claims has 1", False)
    ]
    settings = own_topics(broker)
    await declare(settings)
    assert await check(settings) == []


@pytest.mark.skipif(
    (os.environ.get(BROKER_VARIABLE) or "embedded") == "embedded", reason="it keeps the time of producers"
)
async def test_a_decision_of_a_person_cannot_be_back_dated(broker: Broker) -> None:
    """S0-136: the time of an action is the broker's, to a few minutes of this machine's clock."""
    settings = own_topics(broker)
    await declare(settings)
    topic = settings.topic_prefix + TopicName.REVIEW_DECISIONS
    begun = time.time() * 1000
    async with AIOKafkaProducer(bootstrap_servers=settings.bootstrap) as producer:
        await producer.send_and_wait(topic, b"{}", timestamp_ms=1)
    options = {"bootstrap_servers": settings.bootstrap, "auto_offset_reset": "earliest"}
    async with AIOKafkaConsumer(topic, **options) as consumer:
        record = await consumer.getone()
    assert abs(record.timestamp - begun) < 600_000


def test_only_what_people_decide_bears_the_brokers_time() -> None:
    """Claims and responses keep the producer's: it is the gate's clock for them, however late they come."""
    types = {spec.name: spec.config["message.timestamp.type"] for spec in CATALOG}
    assert {name for name, kind in types.items() if kind == "LogAppendTime"} == {TopicName.REVIEW_DECISIONS}

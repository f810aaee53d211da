"""What was published counts once everything is acknowledged; what never can be is a dead letter."""

# ruff: noqa: ARG002 - stand-ins take what the real parts take

from __future__ import annotations

import asyncio
import gc

import pytest
from aiokafka.errors import (
    InvalidMessageError,
    KafkaConnectionError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    OutOfOrderSequenceNumber,
)
from aiokafka.partitioner import DefaultPartitioner
from hypothesis import given
from hypothesis import strategies as st

from agents import publisher as module
from agents.outputs import Output
from agents.publisher import ProducerBroken, Publisher
from groundwire import metrics
from groundwire.errors import BrokerUnavailable
from groundwire.kafka.connection import partition_of
from groundwire.messages.headers import InboundRecord
from groundwire.messages.topics import TopicName


class Producer:
    """Acknowledges, refuses a batch at once or later, or says nothing, by the values of its records."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, bytes | None]] = []
        self.refused: dict[bytes, Exception] = {}
        self.failed: dict[bytes, Exception] = {}

    async def partitions_for(self, topic):
        return {0, 1, 2}

    def create_batch(self):
        return Batch()

    async def send_batch(self, batch, topic, *, partition):
        for value in batch.values:
            if value in self.refused:
                raise self.refused[value]
        self.sent += [(topic, value) for value in batch.values]
        future = asyncio.get_running_loop().create_future()
        failed = [value for value in batch.values if value in self.failed]
        if failed:
            future.set_exception(self.failed[failed[0]])
        elif b"silence" not in batch.values:
            future.set_result(None)
        return future


class Batch:
    """Takes three records."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    def append(self, *, timestamp, key, value, headers):
        if len(self.values) == 3:
            return None
        self.values.append(value)
        return value


@given(st.binary(max_size=60), st.integers(1, 50))
def test_a_key_has_the_partition_that_aiokafka_gives_it(key, count):
    partitions = list(range(count))
    expected = DefaultPartitioner()(key, partitions, partitions)
    assert [partition_of(key, partitions) for _ in range(2)] == [expected, expected]
    assert partition_of(None, partitions) in partitions


def output(value: bytes) -> Output:
    cause = InboundRecord("p.claims", 1, 2, 0, b"key", value, (("h", b"v"),))
    return Output(TopicName.APPROVED, b"t:u", value, [], cause)


@pytest.fixture
def producer() -> Producer:
    return Producer()


@pytest.fixture
def publisher(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> Publisher:
    monkeypatch.setattr(module, "ACK_SECONDS", 0.1)
    return Publisher(lambda: producer, "p.")


async def test_records_are_sent_in_their_order_under_the_prefix(publisher: Publisher, producer: Producer):
    await publisher.publish([output(b"%d" % n) for n in range(8)])
    assert producer.sent == [("p.approved", b"%d" % n) for n in range(8)]


async def test_a_record_that_is_too_large_is_a_dead_letter_and_the_others_are_published(publisher, producer):
    large = output(b"large")
    large.headers.append(("h", bytes(1_048_000)))
    await publisher.publish([output(b"a"), large, output(b"b")])
    assert producer.sent == [("p.approved", b"a"), ("p.approved", b"b"), ("p.dead-letter", b"large")]


async def test_the_largest_record_that_a_topic_holds_fits_into_a_dead_letter(publisher, producer):
    value = b"x" * 1_047_990
    await publisher.publish([output(value)])
    assert producer.sent == [("p.dead-letter", value)]


async def test_what_the_broker_refuses_is_a_dead_letter_with_all_of_its_batch(publisher, producer):
    producer.failed[b"wrong"] = InvalidMessageError()
    send = producer.send_batch

    async def sending(batch, topic, *, partition):
        if topic.endswith("dead-letter"):
            producer.failed.clear()
        return await send(batch, topic, partition=partition)

    producer.send_batch = sending
    await publisher.publish([output(value) for value in (b"1", b"wrong", b"3", b"4")])
    assert [value for topic, value in producer.sent if topic == "p.dead-letter"] == [b"1", b"wrong", b"3"]
    assert ("p.approved", b"4") in producer.sent


async def test_batches_that_fail_behind_one_that_failed_leave_no_complaint_in_the_log(publisher, producer):
    complaints: list[dict] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    producer.failed = {b"%d" % n: OutOfOrderSequenceNumber() for n in range(7)}
    with pytest.raises(ProducerBroken):
        await publisher.publish([output(b"%d" % n) for n in range(7)])
    producer.refused[b"3"] = KafkaTimeoutError()  # at once: the batch before it is under way
    with pytest.raises(BrokerUnavailable):
        await publisher.publish([output(b"%d" % n) for n in range(7)])
    producer.failed, producer.refused = {}, {}  # an error keeps hold of all that was there when it was raised
    await asyncio.sleep(0)
    gc.collect()
    assert not complaints


async def test_what_may_pass_is_an_outage_and_a_broken_producer_is_none(publisher, producer):
    outages = (KafkaTimeoutError(), KafkaConnectionError(), MessageSizeTooLargeError())
    for error in (*outages, OutOfOrderSequenceNumber()):
        for when in ("refused", "failed"):
            producer.refused, producer.failed = {}, {}
            getattr(producer, when)[b"x"] = error
            if when == "refused" and isinstance(error, MessageSizeTooLargeError):
                continue  # aiokafka raises it only for an acknowledgement
            expected = BrokerUnavailable if error in outages else ProducerBroken
            with pytest.raises(
                expected
            ):  # that of a record that is too large: even its dead letter is refused
                await publisher.publish([output(b"a"), output(b"x")])
    async with asyncio.timeout(60):
        with pytest.raises(BrokerUnavailable):
            await publisher.publish([output(b"silence")])


async def test_every_failed_attempt_to_publish_is_counted_by_why(publisher: Publisher, producer: Producer):
    def counted() -> dict[str, float]:
        found = (sample for family in metrics.PUBLISH_ERRORS.collect() for sample in family.samples)
        return {sample.labels["why"]: sample.value for sample in found if sample.name.endswith("_total")}

    before = counted()
    large = output(b"large")
    large.headers.append(("h", bytes(1_048_000)))
    producer.failed = {b"late": KafkaTimeoutError(), b"gap": OutOfOrderSequenceNumber()}
    await publisher.publish([output(b"good"), large])
    for value, error in ((b"late", BrokerUnavailable), (b"gap", ProducerBroken)):
        with pytest.raises(error):
            await publisher.publish([output(value)])
    grown = {why: count - before[why] for why, count in counted().items()}
    assert grown == {"refused": 1, "unavailable": 1, "broken": 1}

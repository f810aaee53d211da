"""Starting and stopping Kafka clients within a time that a person waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.conn import collect_hosts
from aiokafka.errors import KafkaError

from groundwire.client.unasked import asked_to_end
from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.messages.inbound import InboundRecord
from groundwire.security import kafka_security

Client = TypeVar("Client", AIOKafkaConsumer, AIOKafkaProducer)

MAX_RECORD_BYTES: Final = 1_048_000
"""Key and value of the largest record sent: what a broker with default settings still takes.

A record that the broker itself refuses would leave a hole in the sequence of the idempotent producer, and
everything after it on its partition would be refused too.
"""

MAX_LETTER_BYTES: Final = 1_090_000
"""The same of a dead letter, whose topic takes more: one that held the largest record there is, and did not fit, would
hold its partition up for ever.
"""

_RETRY_SECONDS: Final = 0.3
_STOP_SECONDS: Final = 2.0


def unavailable(brokers: str, seconds: float, what: str) -> BrokerUnavailable:
    """Return the error for a broker that did not do `what` in time."""
    return BrokerUnavailable(
        f"{brokers} did not {what} within {seconds:g} s;"
        f" is the broker up and GROUNDWIRE_BROKERS (--brokers){kafka_security().variables} right?"
    )


@contextlib.asynccontextmanager
async def producer(brokers: str, seconds: float) -> AsyncIterator[AIOKafkaProducer]:
    """Open an idempotent producer. Raises: UsageError, BrokerUnavailable."""
    client = await _start(
        lambda: AIOKafkaProducer(
            bootstrap_servers=brokers,
            **kafka_security().options(),
            enable_idempotence=True,  # which takes acks=all
            max_request_size=MAX_RECORD_BYTES,
            request_timeout_ms=int(seconds * 1000),
        ),
        brokers,
        seconds,
    )
    try:
        yield client
    finally:
        await _stop(client)


@contextlib.asynccontextmanager
async def consumer(brokers: str, seconds: float) -> AsyncIterator[AIOKafkaConsumer]:
    """Open a consumer without a group: it commits nothing and disturbs nobody. Raises: as `producer`."""
    client = await _start(
        lambda: AIOKafkaConsumer(
            bootstrap_servers=brokers,
            **kafka_security().options(),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",  # only when retention overtakes the reader
            request_timeout_ms=int(seconds * 1000),
        ),
        brokers,
        seconds,
    )
    try:
        yield client
    finally:
        await _stop(client)


async def partitions_of(client: AIOKafkaConsumer, *topics: str) -> dict[str, list[int]]:
    """Return the numbers of topics' partitions, in order; of a topic that there is not, none. It creates none."""
    # the public topics() keeps to itself how many partitions they have; asking for one topic may create it
    cluster = await client._client.fetch_all_metadata()  # noqa: SLF001
    return {topic: sorted(cluster.partitions_for_topic(topic) or ()) for topic in topics}


def inbound(record: Any) -> InboundRecord:  # noqa: ANN401 - aiokafka's record, which is not typed
    """Return a record as the gate takes it."""
    return InboundRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )


async def _start(make: Callable[[], Client], brokers: str, seconds: float) -> Client:
    """Start a client, again and again until `seconds` have passed: a broker may be starting too."""
    _check_brokers(brokers)
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        client = make()
        try:
            async with asyncio.timeout_at(deadline):
                await client.start()
                await asyncio.sleep(0)  # its tasks begin: one that is cancelled before ends stop() with that
        except (KafkaError, OSError) as exc:
            await _stop(client)
            if asyncio.get_running_loop().time() + _RETRY_SECONDS > deadline:
                raise unavailable(brokers, seconds, "answer") from exc
            await asyncio.sleep(_RETRY_SECONDS)
        except BaseException:
            await _stop(client)
            raise
        else:
            return client


def _check_brokers(brokers: str) -> None:
    try:
        hosts = collect_hosts(brokers)
    except ValueError:  # a port that is no number
        hosts = []
    if not hosts or not all(host for host, _, _ in hosts):
        raise UsageError(f"GROUNDWIRE_BROKERS (--brokers): {brokers!r} is not host:port,...")


async def _stop(client: Client) -> None:
    try:
        async with asyncio.timeout(_STOP_SECONDS):
            await client.stop()
    except (KafkaError, OSError):
        await _cut(client)
    except asyncio.CancelledError:
        await _cut(client)
        if asked_to_end():
            raise
        # else it is aiokafka's own, of the fetches that it cancels


async def _cut(client: Client) -> None:
    """Close the sockets that a stop which did not end has left: it would wait for a frozen broker for ever."""
    connections = client.client if isinstance(client, AIOKafkaProducer) else client._client  # noqa: SLF001 - no other way
    await connections.close()

"""Starts and stops Kafka clients within a time limit, and reports a lost broker as an outage."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient
from aiokafka.cluster import ClusterMetadata
from aiokafka.conn import collect_hosts
from aiokafka.errors import KafkaError, UnsupportedCodecError

from groundwire.config import kafka_security
from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.kafka import client_name
from groundwire.kafka.sign_in import advice, client_options
from groundwire.messages.headers import InboundRecord
from groundwire.messages.topics import key_hash


@contextmanager
def client_cancellation(what: str) -> Iterator[None]:
    """Turn a cancellation that comes from the Kafka client, and not from the task's owner, into an outage.

    aiokafka cancels its waiting fetches and awaits them (`aiokafka/consumer/fetcher.py`, `close`). That CancelledError
    would end the reading task silently: neither `except Exception` nor a task group reports it. aiokafka also swallows
    a cancellation by the task's owner in that place; it is raised here, at the next call.

    Raises: BrokerUnavailable.
    """
    if is_cancelled():
        raise asyncio.CancelledError
    try:
        yield
    except asyncio.CancelledError as exc:
        if is_cancelled():
            raise
        raise BrokerUnavailable(f"{what}: the connection to the broker was lost") from exc


def is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


Client = TypeVar("Client", AIOKafkaConsumer, AIOKafkaProducer)

MAX_RECORD_BYTES: Final = 1_048_000
"""Bytes of key and value of the largest record sent: what a broker with default settings still accepts.

A record that the broker itself rejects would leave a gap in the sequence of the idempotent producer, and everything
after it on its partition would be rejected too.
"""

MAX_LETTER_BYTES: Final = 1_090_000
"""The same of a dead letter, whose topic is declared to take more."""

MAX_AHEAD: Final = 3_500_000
"""Milliseconds by which a record's time may be ahead: a broker with default settings refuses an hour."""

ISOLATION: Final = "read_committed"
"""A record of a transaction is read once that is committed; an open one holds back what stands behind it."""

_RETRY_SECONDS: Final = 0.3
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_STOP_SECONDS: Final = 2.0
_CANCEL_SECONDS: Final = 0.05  # from one cancellation to the next
_FETCH_WAIT: Final = 100
"""Milliseconds that a fetch waits for records: one that is under way when a reader goes on elsewhere is waited for."""


def unavailable(brokers: str, seconds: float, what: str) -> BrokerUnavailable:
    return BrokerUnavailable(
        f"{brokers} did not {what} within {seconds:g} s;"
        f" is the broker up and GROUNDWIRE_BROKERS (--brokers){kafka_security().variables} right?{advice()}"
    )


def codec_missing(error: UnsupportedCodecError) -> UsageError:
    return UsageError(
        f"a topic holds records that cannot be decompressed here: {error}; pip install cramjam,"
        " which groundwire[worker], [client], [console] and [mcp] bring"
    )


def producer(
    brokers: str, seconds: float, *, idempotent: bool = True
) -> AbstractAsyncContextManager[AIOKafkaProducer]:
    """Open a producer; an idempotent one sends nothing to a partition after a record that the broker refused.

    Raises: UsageError, BrokerUnavailable.
    """
    return _open(
        lambda: AIOKafkaProducer(
            **_common(brokers, seconds),
            acks="all",
            enable_idempotence=idempotent,
            max_request_size=MAX_RECORD_BYTES,
        ),
        brokers,
        seconds,
    )


def consumer(brokers: str, seconds: float) -> AbstractAsyncContextManager[AIOKafkaConsumer]:
    """Open a consumer without a group. Raises: as `producer`."""
    return _open(
        lambda: AIOKafkaConsumer(
            **_common(brokers, seconds),
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="earliest",  # only when retention overtakes the reader
            isolation_level=ISOLATION,
            fetch_max_wait_ms=_FETCH_WAIT,
        ),
        brokers,
        seconds,
    )


@contextlib.asynccontextmanager
async def admin(brokers: str, seconds: float) -> AsyncIterator[AIOKafkaAdminClient]:
    """Open an admin client, which does not retry. Raises: UsageError, KafkaError."""
    _check_brokers(brokers)
    client = AIOKafkaAdminClient(**_common(brokers, seconds))
    try:
        await client.start()
        yield client
    finally:
        await client.close()


def _common(brokers: str, seconds: float) -> dict[str, Any]:
    return {
        "bootstrap_servers": brokers,
        "client_id": client_name(),
        **client_options(),
        "request_timeout_ms": int(seconds * 1000),
    }


@contextlib.asynccontextmanager
async def _open(make: Callable[[], Client], brokers: str, seconds: float) -> AsyncIterator[Client]:
    _check_brokers(brokers)
    deadline = asyncio.get_running_loop().time() + seconds
    while True:  # the broker may be starting too
        client = back_off(make())
        try:
            async with asyncio.timeout_at(deadline):
                await client.start()
                # let its tasks begin: stop() raises the cancellation of one that has not
                await asyncio.sleep(0)
        except (KafkaError, OSError) as exc:
            await _stop(client)
            if asyncio.get_running_loop().time() + _RETRY_SECONDS > deadline:
                raise unavailable(brokers, seconds, "answer") from exc
            await asyncio.sleep(_RETRY_SECONDS)
        except BaseException:
            await _stop(client)
            raise
        else:
            break
    try:
        yield client
    finally:
        await _stop(client)


def back_off(client: Client) -> Client:
    """Make a client pause between requests for metadata that bring no leader: 0.1 to 5 s, doubling, with jitter.

    aiokafka's producer asks again at once while the leader of a partition is unknown (`aiokafka/producer/sender.py`,
    `_sender_routine`), as does its consumer (`aiokafka/consumer/fetcher.py`): with the only broker away that is
    thousands of connections a second, and as many lines in the log.
    """
    connections: Any = _connections(client)
    update = connections._metadata_update  # noqa: SLF001 - aiokafka has no setting for it
    failures = 0

    async def update_then_pause(cluster: ClusterMetadata, topics: set[str]) -> bool:
        nonlocal failures
        updated: bool = await update(cluster, topics)
        known = {topic: cluster.partitions_for_topic(topic) or set() for topic in topics or ()}
        led = (cluster.available_partitions_for_topic(topic) or set() for topic in known)
        have_leaders = all(map(set.__eq__, map(set, known.values()), map(set, led)))
        failures = 0 if updated and have_leaders else failures + 1
        if failures:
            longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(failures, 10))
            await asyncio.sleep(random.uniform(longest / 2, longest))  # noqa: S311 - jitter is no secret
        return updated

    connections._metadata_update = update_then_pause  # noqa: SLF001
    return client


async def partitions_of(client: AIOKafkaConsumer, *topics: str) -> dict[str, list[int]]:
    """Return the partitions of topics, in order; none for a topic that does not exist, which is not created.

    The client knows then who leads those that exist. Else it pauses for 0.1 s where it is first asked about one.
    """
    connections = client._client  # noqa: SLF001
    # the public topics() does not tell how many partitions they have; metadata of one topic may create it
    cluster = await connections.fetch_all_metadata()
    found = {topic: sorted(cluster.partitions_for_topic(topic) or ()) for topic in topics}
    await asyncio.gather(*(connections.add_topic(topic) for topic, numbers in found.items() if numbers))
    return found


def partition_of(key: bytes | None, partitions: Sequence[int]) -> int:
    """Choose the partition of a key as Java's default partitioner does; any for none."""
    return random.choice(partitions) if key is None else partitions[key_hash(key) % len(partitions)]  # noqa: S311 - any


def inbound(record: Any) -> InboundRecord:  # noqa: ANN401 - aiokafka's record, which is not typed
    return InboundRecord(
        topic=record.topic,
        partition=record.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )


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
            with _cancelling_again(client):
                await client.stop()
    except (KafkaError, OSError):
        await _cut(client)
    except asyncio.CancelledError:
        await _cut(client)
        if is_cancelled():
            raise
        # else it is the client's own, of the fetches that it cancels


@contextmanager
def _cancelling_again(client: Client) -> Iterator[None]:
    """Cancel what fetches for a consumer again until it has ended.

    While it drops the fetches of partitions that are read no longer, it takes a cancellation of its own for one of
    theirs and goes on (`aiokafka/consumer/fetcher.py`, `_fetch_requests_routine`); `stop` would wait for it for ever.
    """
    fetcher: Any = getattr(client, "_fetcher", None)
    if fetcher is None:  # a producer, or a consumer that has not started
        yield
        return
    fetching: asyncio.Task[None] = fetcher._fetch_task  # noqa: SLF001 - no other way
    loop = asyncio.get_running_loop()
    again: asyncio.TimerHandle

    def cancel() -> None:
        nonlocal again
        if fetching.cancel():
            again = loop.call_later(_CANCEL_SECONDS, cancel)

    again = loop.call_later(_CANCEL_SECONDS, cancel)
    try:
        yield
    finally:
        again.cancel()


async def _cut(client: Client) -> None:
    """Close the sockets after a stop that timed out: a frozen broker would be waited for without limit."""
    await _connections(client).close()


def _connections(client: Client) -> AIOKafkaClient:
    return client.client if isinstance(client, AIOKafkaProducer) else client._client  # noqa: SLF001 - no other way

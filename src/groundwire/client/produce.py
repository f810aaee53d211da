"""Sending lines of JSON to the input topics, byte for byte."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, UnknownTopicOrPartitionError

from groundwire.client.kafka import MAX_RECORD_BYTES, producer, unavailable
from groundwire.client.lines import MAX_LINE_BYTES, Line, windows
from groundwire.errors import BrokerUnavailable, ErrorCode, RecordError, UsageError
from groundwire.messages.base import InputRecord
from groundwire.messages.claims import Claim
from groundwire.messages.decode import parse_json, validate
from groundwire.messages.responses import LlmResponse
from groundwire.messages.reviews import ReviewDecision
from groundwire.messages.topics import TopicName, record_key

INPUT_TOPICS: Final[dict[TopicName, type[InputRecord]]] = {
    TopicName.CLAIMS: Claim,
    TopicName.LLM_RESPONSES: LlmResponse,
    TopicName.REVIEW_DECISIONS: ReviewDecision,
}

Headers = list[tuple[str, bytes]]


class Address(NamedTuple):
    """Where a line goes; the key is None where no user can be read from it."""

    topic: TopicName
    key: bytes | None


@dataclass(slots=True)
class Produced:
    """How far producing has come.

    Attributes:
        sent: records that the broker has acknowledged.
        refused: lines that were not sent.
    """

    sent: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class Outbox:
    """How lines are sent.

    Attributes:
        prefix: before every topic's name.
        topic: one of the input topics, or None: by what each line holds.
        checked: refuse lines that the gate could not read, instead of sending them.
        headers: the headers of a record with this value.
        seconds: how long the broker may take to acknowledge.
    """

    prefix: str
    topic: TopicName | None
    checked: bool
    headers: Callable[[bytes], Headers]
    seconds: float


def address(value: bytes, topic: TopicName | None) -> Address:
    """Validate a line as the gate would and return where it goes.

    Raises:
        RecordError: the gate could not read it.
    """
    parsed = parse_json(value)
    topic = topic or _topic_of(parsed)
    record: Any = validate(INPUT_TOPICS[topic], parsed)
    return Address(topic, record_key(record.tenant_id, record.user_id))


def address_anyhow(value: bytes, topic: TopicName | None) -> Address:
    """Return where a line goes that need not be a record: the key as far as it can be made out."""
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        parsed = None
    topic = topic or _topic_of(parsed)
    if not isinstance(parsed, dict):
        return Address(topic, None)
    tenant, user = parsed.get("tenant_id", "default"), parsed.get("user_id")
    if not isinstance(tenant, str) or not isinstance(user, str):
        return Address(topic, None)
    try:
        return Address(topic, record_key(tenant, user))
    except UnicodeEncodeError:  # half of a surrogate pair
        return Address(topic, None)


async def produce(
    stream: BinaryIO,
    brokers: str,
    outbox: Outbox,
    produced: Produced,
    *,
    on_refused: Callable[[int, RecordError], None],
    on_window: Callable[[], None],
) -> None:
    """Send every line of a stream in order; blank lines are left out.

    Args:
        stream: JSON lines.
        brokers: `host:port,...`.
        outbox: how lines are sent.
        produced: counts, kept up to date so that they stand after an interruption too.
        on_refused: told of each line that is not sent, with its number.
        on_window: called whenever what was read so far is acknowledged.

    Raises:
        UsageError: a topic does not exist.
        BrokerUnavailable: the broker does not answer, or refuses a record.
    """

    def count(future: asyncio.Future[Any]) -> None:
        produced.sent += not future.cancelled() and future.exception() is None

    async with producer(brokers, outbox.seconds) as client:
        async for window in windows(stream):
            waiting = []
            for line in window:
                try:
                    future = await _send(client, line, outbox)
                except RecordError as exc:
                    produced.refused += 1
                    on_refused(line.number, exc)
                    continue
                if future is not None:
                    future.add_done_callback(count)
                    waiting.append((line.number, future))
            await _acknowledged(waiting, brokers, outbox.seconds)
            on_window()


async def _send(client: AIOKafkaProducer, line: Line, outbox: Outbox) -> asyncio.Future[Any] | None:
    if line.value is None:
        raise RecordError(ErrorCode.TOO_LARGE, f"the line has more than {MAX_LINE_BYTES} bytes")
    if not line.value.strip():
        return None
    where = (address if outbox.checked else address_anyhow)(line.value, outbox.topic)
    name, headers = f"{outbox.prefix}{where.topic}", outbox.headers(line.value)
    try:
        async with asyncio.timeout(outbox.seconds + 1):  # the client's own limit comes first
            future: asyncio.Future[Any] = await client.send(name, line.value, key=where.key, headers=headers)
    except MessageSizeTooLargeError:
        message = f"key and value have more than {MAX_RECORD_BYTES} bytes"
        raise RecordError(ErrorCode.TOO_LARGE, message) from None
    except UnknownTopicOrPartitionError as exc:
        raise UsageError(f"there is no topic {name}: `python -m topics declare` creates it") from exc
    except (KafkaError, TimeoutError) as exc:
        raise BrokerUnavailable(
            f"line {line.number}: the broker does not take it: {type(exc).__name__}"
        ) from exc
    return future


async def _acknowledged(
    waiting: Sequence[tuple[int, asyncio.Future[Any]]], brokers: str, seconds: float
) -> None:
    if not waiting:
        return
    _, pending = await asyncio.wait([future for _, future in waiting], timeout=seconds)
    for number, future in waiting:
        error = future.exception() if future.done() else None
        if error is not None:
            raise BrokerUnavailable(
                f"line {number}: the broker refused it: {type(error).__name__}"
            ) from error
    if pending:
        raise unavailable(brokers, seconds, f"acknowledge {len(pending)} records")


def _topic_of(parsed: object) -> TopicName:
    is_response = isinstance(parsed, dict) and "response_id" in parsed
    return TopicName.LLM_RESPONSES if is_response else TopicName.CLAIMS

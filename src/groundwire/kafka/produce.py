"""Sends lines of JSON to the input topics, byte for byte; memory holds one read and one line at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import stat
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Final, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, UnknownTopicOrPartitionError

from groundwire.errors import BrokerUnavailable, ErrorCode, RecordError, UsageError
from groundwire.kafka.connection import MAX_RECORD_BYTES, producer, unavailable
from groundwire.messages.base import InputRecord
from groundwire.messages.decode import read_value, validate
from groundwire.messages.records import Claim, LlmResponse, ReviewDecision
from groundwire.messages.topics import TopicName, record_key

MAX_LINE_BYTES: Final = 1_048_000
"""Longest line that can be sent: more than the gate accepts, so that its limit can be tried out."""

_READ_BYTES: Final = 262_144


class InputLine(NamedTuple):
    """A line without its line feed; `value` is None where it is longer than `MAX_LINE_BYTES`."""

    number: int
    value: bytes | None


async def windows(stream: BinaryIO) -> AsyncIterator[list[InputLine]]:
    """Yield the lines that each read of the stream completed; lines count from 1 and end at LF only."""
    number, rest, overlong = 0, b"", False
    while chunk := await _read(stream):
        *complete, rest = (rest + chunk).split(b"\n")
        window = []
        for value in complete:
            number += 1
            window.append(InputLine(number, None if overlong or len(value) > MAX_LINE_BYTES else value))
            overlong = False
        if len(rest) > MAX_LINE_BYTES:
            rest, overlong = b"", True
        yield window
    if rest or overlong:
        yield [InputLine(number + 1, None if overlong else rest)]


async def _read(stream: BinaryIO) -> bytes:
    try:
        descriptor = stream.fileno()
    except OSError:  # a stream in memory has no descriptor
        return stream.read(_READ_BYTES)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return stream.read(_READ_BYTES)
    # A pipe or terminal must not block the loop, which sends what was read before. Each read has a daemon thread of its
    # own: unlike a thread of an executor, one that still waits for input does not delay the exit.
    loop = asyncio.get_running_loop()
    result: asyncio.Future[bytes | OSError] = loop.create_future()

    def give(data: bytes | OSError) -> None:
        if not result.cancelled():
            result.set_result(data)

    def read() -> None:
        try:
            data: bytes | OSError = os.read(descriptor, _READ_BYTES)
        except OSError as exc:
            data = exc
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(give, data)

    threading.Thread(target=read, daemon=True).start()
    data = await result
    if isinstance(data, OSError):
        raise data
    return data


INPUT_TOPICS: Final[dict[TopicName, type[InputRecord]]] = {
    TopicName.CLAIMS: Claim,
    TopicName.LLM_RESPONSES: LlmResponse,
    TopicName.REVIEW_DECISIONS: ReviewDecision,
}

HeaderList = list[tuple[str, bytes]]


@dataclass(slots=True)
class Produced:
    """Counts of lines that the broker has acknowledged, and of those that were not sent."""

    sent: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class SendOptions:
    """How lines are sent."""

    prefix: str  # of every topic's name
    topic: TopicName | None  # None: by what each line holds
    checked: bool  # refuse lines that the gate could not read, instead of sending them
    headers: Callable[[bytes], HeaderList]  # of a record with this value
    seconds: float  # that the broker may take to acknowledge


def address(value: bytes, topic: TopicName | None) -> tuple[TopicName, bytes | None]:
    """Validate a line as the gate would and return its topic and key. Raises: RecordError."""
    parsed, _ = read_value(value)
    topic = topic or _topic_of(parsed)
    record: Any = validate(INPUT_TOPICS[topic], parsed)
    return topic, record_key(record.tenant_id, record.user_id)


def address_anyhow(value: bytes, topic: TopicName | None) -> tuple[TopicName, bytes | None]:
    """Return topic and key of a line that may be no valid record; the key is None where no owner can be read."""
    parsed: object = None
    key = None
    with contextlib.suppress(ValueError, RecursionError):  # also of the key: half of a surrogate pair
        parsed = json.loads(value)
        if isinstance(parsed, dict):
            tenant, user = parsed.get("tenant_id", "default"), parsed.get("user_id")
            if isinstance(tenant, str) and isinstance(user, str):
                key = record_key(tenant, user)
    return topic or _topic_of(parsed), key


async def produce(
    stream: BinaryIO,
    brokers: str,
    options: SendOptions,
    produced: Produced,
    *,
    on_refused: Callable[[int, RecordError], None],
    on_window: Callable[[], None],
) -> None:
    """Send every line of a stream in order; blank lines are left out. Raises: UsageError, BrokerUnavailable."""

    def count(future: asyncio.Future[Any]) -> None:
        produced.sent += not future.cancelled() and future.exception() is None

    async with producer(brokers, options.seconds) as client:
        async for window in windows(stream):
            waiting = []
            for line in window:
                try:
                    future = await _send(client, line, options)
                except RecordError as exc:
                    produced.refused += 1
                    on_refused(line.number, exc)
                    continue
                if future is not None:
                    future.add_done_callback(count)
                    waiting.append((line.number, future))
            futures = [future for _, future in waiting]
            pending = (await asyncio.wait(futures, timeout=options.seconds))[1] if futures else ()
            for number, future in waiting:
                error = future.exception() if future.done() else None
                if error is not None:
                    message = f"line {number}: the broker refused it: {type(error).__name__}"
                    raise BrokerUnavailable(message) from error
            if pending:
                raise unavailable(brokers, options.seconds, f"acknowledge {len(pending)} records")
            on_window()


async def _send(
    client: AIOKafkaProducer, line: InputLine, options: SendOptions
) -> asyncio.Future[Any] | None:
    if line.value is None:
        raise RecordError(ErrorCode.TOO_LARGE, f"the line has more than {MAX_LINE_BYTES} bytes")
    if not line.value.strip():
        return None
    topic, key = (address if options.checked else address_anyhow)(line.value, options.topic)
    name, headers = f"{options.prefix}{topic}", options.headers(line.value)
    with naming_refusal(f"line {line.number}", name):
        async with asyncio.timeout(options.seconds + 1):  # the client's own limit comes first
            future: asyncio.Future[Any] = await client.send(name, line.value, key=key, headers=headers)
    return future


@contextlib.contextmanager
def naming_refusal(what: str, topic: str) -> Iterator[None]:
    """Say of what is sent to a topic why the client or the broker did not take it.

    Raises: RecordError, UsageError, BrokerUnavailable.
    """
    try:
        yield
    except MessageSizeTooLargeError:
        message = f"key and value have more than {MAX_RECORD_BYTES} bytes"
        raise RecordError(ErrorCode.TOO_LARGE, message) from None
    except UnknownTopicOrPartitionError as exc:
        raise UsageError(f"there is no topic {topic}: `groundwire topics declare` creates it") from exc
    except (KafkaError, TimeoutError) as exc:
        raise BrokerUnavailable(f"{what}: the broker does not take it: {type(exc).__name__}") from exc


def _topic_of(parsed: object) -> TopicName:
    is_response = isinstance(parsed, dict) and "response_id" in parsed
    return TopicName.LLM_RESPONSES if is_response else TopicName.CLAIMS

"""Dead letters: what each says of its failure, which of them are selected, and sending their records again.

A record is sent to its topic, partition and time, and then noted in the audit. After a crash in between the next run
sends it again, and the gate answers the repeat with the same decision.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from collections.abc import Set as AbstractSet
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import InvalidTimestampError, KafkaError, MessageSizeTooLargeError
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from groundwire.errors import BrokerUnavailable, ErrorCode
from groundwire.kafka.connection import MAX_AHEAD, MAX_RECORD_BYTES, unavailable
from groundwire.kafka.produce import INPUT_TOPICS
from groundwire.kafka.reader import RecordPlace, Start, follow
from groundwire.messages import headers as named
from groundwire.messages.base import format_time, from_milliseconds, to_milliseconds
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.headers import InboundRecord
from groundwire.messages.identity import event_id
from groundwire.messages.topics import TopicName
from groundwire.review.records import read_dead_letter

_SKEW: Final = timedelta(hours=1, minutes=5)
"""By how much a letter's time may exceed that of its redrive: it is the record's, which may be an hour ahead."""


class Letter:
    """A record of the dead-letter topic, what it says of its failure, and what becomes of it.

    Attributes:
        id: in the audit; equal in two letters of one failure, which a crash of the worker leaves.
        redriven: when, by whom and to where its record was sent; None: it was not.
    """

    def __init__(self, record: InboundRecord) -> None:
        self.record, self.failure = record, named.failure_of(record)
        self.failed = read_dead_letter(record)
        self.origin = dict[str, Any](zip(RecordPlace._fields, self.failure[2:5], strict=True))
        self.name = f"{record.partition}@{record.offset}"
        self.headers = [(name, value) for name, value in record.headers if name not in named.OF_LETTERS]
        self.omitted = named.header(record.headers, named.VALUE_OMITTED)
        self.id = event_id("dead_letter", ["redriven", *self.failure[2:], record.sha256])
        self.redriven: dict[str, Any] | None = None
        self.outcome = self.why = ""

    def why_not(self, prefix: str, most: int) -> str:
        """Return why its record is not sent: only input topics of this deployment are written to."""
        failure, record = self.failure, self.record
        size = DefaultRecordBatchBuilder.estimate_size_in_bytes(record.key, record.value, [*record.headers])
        whys = {
            "not_a_dead_letter": failure.code not in set(ErrorCode) or None in failure[3:5] + failure[6:],
            "not_an_input_topic": failure.topic not in {f"{prefix}{name}" for name in INPUT_TOPICS},
            "too_many_attempts": (failure.attempts or 0) >= most,
            "value_omitted": self.omitted is not None,
            "too_large": size > MAX_RECORD_BYTES,
        }
        return next((why for why, holds in whys.items() if holds), "")

    @property
    def again(self) -> InboundRecord:
        """The record to send: its own headers, and the count of failures, with which the gate goes on."""
        failure, record = self.failure, self.record
        headers = [*self.headers, (named.ATTEMPTS, str(failure.attempts).encode())]
        time = -1 if failure.timestamp is None else failure.timestamp
        return InboundRecord(
            failure.topic, failure.partition or 0, 0, time, record.key, record.value, headers
        )

    def note(self, topic: str) -> InboundRecord:
        """Return the audit event of its redrive: of no tenant, as the gate's own of a dead letter, without text."""
        failure, record, sent = self.failure, self.record, self.redriven or {}
        stands = {name: sent[name] for name in RecordPlace._fields}
        detail: dict[str, Any] = {"action": "redriven", "letter": self.id, "code": failure.code}
        detail["attempts"] = failure.attempts
        detail |= {
            "partition": record.partition,
            "offset": record.offset,
            "origin": self.origin,
            "stands": stands,
        }
        fields = {"type": "dead_letter", "at": sent["at"], "actor": sent["actor"], "detail": detail}
        event = AuditEvent.made(event_id=self.id, tenant_id="", subject_id=None, decision_id=None, **fields)
        headers = named.event_headers("audit", self.id, format_time(event.at), "", self.headers)
        return InboundRecord(topic, -1, 0, -1, b"", event.model_dump_json().encode(), headers)


class Selection(NamedTuple):
    """Letters that meet every condition; an empty set or None is no condition. `topic`: of the record, with prefix."""

    start: Start = "earliest"
    end: int | datetime | None = None
    partition: int | None = None
    codes: AbstractSet[str] = frozenset()
    topic: str | None = None
    tenant: str | None = None
    key: bytes | None = None
    names: AbstractSet[str] = frozenset()

    def has(self, letter: Letter) -> bool:
        record, failed, start, end = letter.record, letter.failed, self.start, self.end
        begun = record.timestamp >= to_milliseconds(start) if isinstance(start, datetime) else True
        ended = record.timestamp >= to_milliseconds(end) if isinstance(end, datetime) else False
        return begun and not (
            ended
            or (isinstance(end, int) and record.offset >= end)
            or (self.codes and failed.code not in self.codes)
            or (self.names and letter.name not in self.names)
            or self.topic not in {None, failed.topic}
            or self.tenant not in {None, failed.tenant_id}
            or self.key not in {None, record.key}
        )


class Log:
    """Topics that are read to their ends, without a consumer group, and written by `sender`, None in a dry run."""

    def __init__(
        self,
        brokers: str,
        prefix: str,
        seconds: float,
        sender: AIOKafkaProducer | None = None,
        on_read: Callable[[], None] = lambda: None,
    ) -> None:
        self.prefix, self._brokers, self._seconds = prefix, brokers, seconds
        self._sender, self._on_read = sender, on_read

    async def read(
        self, topic: TopicName, start: Start, partition: int | None = None
    ) -> AsyncGenerator[InboundRecord, None]:
        starts = {f"{self.prefix}{topic}": start}
        read = follow(self._brokers, starts, self._seconds, partition=partition, until_end=True)
        async with aclosing(read) as records:
            async for record in records:
                self._on_read()
                yield record

    async def send(self, record: InboundRecord) -> RecordPlace | None:
        """Send a record to its topic, partition and time, -1 for any, and return where it is.

        None: it is larger than its topic takes. One that is too old for its topic has the time of sending.
        Raises: BrokerUnavailable: it may be on its topic all the same.
        """
        sender: Any = self._sender  # None in a dry run, which sends nothing
        one, rest = record, dict[str, Any](headers=list(record.headers))
        if 0 <= one.timestamp < time.time() * 1000 + MAX_AHEAD:
            rest["timestamp_ms"] = one.timestamp
        try:
            async with asyncio.timeout(self._seconds):
                if one.partition in await sender.partitions_for(one.topic):
                    rest["partition"] = one.partition
                try:
                    sent = await sender.send_and_wait(one.topic, one.value, one.key, **rest)
                except InvalidTimestampError:
                    rest.pop("timestamp_ms", None)
                    sent = await sender.send_and_wait(one.topic, one.value, one.key, **rest)
        except MessageSizeTooLargeError:
            return None
        except TimeoutError as exc:
            raise unavailable(self._brokers, self._seconds, "acknowledge records") from exc
        except KafkaError as exc:
            raise BrokerUnavailable(f"the broker does not take a record: {type(exc).__name__}") from exc
        return RecordPlace(sent.topic, sent.partition, sent.offset)


async def selected(log: Log, selection: Selection) -> AsyncGenerator[Letter, None]:
    """Yield letters, with what the audit says of their redrive: none was before the first letter's time."""

    async def read() -> AsyncGenerator[Letter, None]:
        start = selection.start
        if selection.names and start == "earliest":
            start = min(int(name.partition("@")[2]) for name in selection.names)
        async with aclosing(log.read(TopicName.DEAD_LETTER, start, selection.partition)) as records:
            async for record in records:
                if selection.has(letter := Letter(record)):
                    yield letter

    redriven: dict[str, dict[str, Any]] = {}
    first = min([letter.record.timestamp async for letter in read()], default=None)
    since = from_milliseconds(max((first or 0) - int(_SKEW.total_seconds() * 1000), 0))
    async with aclosing(log.read(TopicName.AUDIT, "latest" if first is None else since)) as audit:
        async for record in audit:
            if b'"redriven"' in (record.value or b""):  # those of the gate need not be parsed
                event = AuditEvent.of_type(record.value, "dead_letter")
                match event and event.detail:
                    case {
                        "letter": str(name),
                        "stands": {"topic": _, "partition": _, "offset": _} as place,
                    } if event:
                        redriven.setdefault(name, {"at": event.at, "actor": event.actor, **place})
    async with aclosing(read()) as letters:
        async for letter in letters:
            letter.redriven = redriven.get(letter.id)
            yield letter


async def redrive_letters(
    log: Log, selection: Selection, actor: str | None, *, most: int, rate: float, limit: int | None
) -> AsyncGenerator[Letter, None]:
    """Send letters' records back, or say what would be sent where there is no actor. Raises: BrokerUnavailable."""
    chosen = set[str]()
    async with aclosing(selected(log, selection)) as letters:
        async for letter in letters:
            letter.outcome, letter.why = "refused", letter.why_not(log.prefix, most)
            if letter.redriven or letter.id in chosen:
                letter.outcome, letter.why = "skipped", "already_redriven"
            elif not letter.why:
                letter.outcome = "redrive"
                chosen.add(letter.id)
            if sends := letter.outcome == "redrive" and actor is not None:
                at, place = datetime.now(UTC), await log.send(letter.again)
                letter.outcome, letter.why = ("redriven", "") if place else ("refused", "too_large")
                if place:
                    letter.redriven = {"at": at, "actor": actor, **place._asdict()}
                    if await log.send(letter.note(f"{log.prefix}{TopicName.AUDIT}")) is None:
                        raise BrokerUnavailable(
                            "audit does not take the note of a redrive: its max.message.bytes is too low"
                        )
            yield letter
            if len(chosen) == limit:
                break
            if sends:
                await asyncio.sleep(1 / rate)

"""Dead letters: selection, and the audit events of a redrive.

Each redrive writes two audit events: before the record is sent, and after it is acknowledged. After a run that
crashed in between, the next one looks the record up on its topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Sequence
from collections.abc import Set as AbstractSet
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from groundwire.errors import BrokerUnavailable, ErrorCode, RecordError
from groundwire.kafka.connection import producer, unavailable
from groundwire.kafka.reader import RecordPlace, Start, TopicFollower, follow, open_reader
from groundwire.messages.base import format_time, to_milliseconds
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.headers import (
    ATTEMPTS,
    InboundRecord,
    dead_letter_headers,
    event_headers,
    failure_of,
)
from groundwire.messages.identity import event_id
from groundwire.messages.topics import TopicName
from groundwire.review.model import FailedRecord
from groundwire.review.records import read_dead_letter


class LetterPlace(NamedTuple):
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}@{self.offset}"


class LetterFailure(NamedTuple):
    """Equal in two letters of one failure: a worker that crashes before committing writes it twice."""

    topic: str
    partition: int
    offset: int
    attempts: int


@dataclass(frozen=True)
class Letter:
    """A record of the dead-letter topic; `failed`: what it says of its failure."""

    record: InboundRecord
    failed: FailedRecord

    @property
    def place(self) -> LetterPlace:
        return LetterPlace(self.record.partition, self.record.offset)

    @cached_property
    def id(self) -> str:
        """Its id in the audit, from position, time and bytes: unique even where the topic was recreated."""
        return event_id("dead_letter", self.record.origin.model_dump(mode="json"))

    @property
    def attempts(self) -> int | None:
        """How often the record has failed; None where no header says so."""
        return failure_of(self.record).attempts

    @property
    def failure(self) -> LetterFailure | None:
        failed, attempts = self.failed, self.attempts
        if failed.partition is None or failed.offset is None or attempts is None:
            return None
        return LetterFailure(failed.topic, failed.partition, failed.offset, attempts)

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """The record's own headers, without those that the gate added."""
        return [(name, value) for name, value in self.record.headers if name not in _ADDED]

    @property
    def again(self) -> list[tuple[str, bytes]]:
        """The headers of the redriven record: its own, and the failure count, which the gate continues."""
        return [*self.headers, *((name, value) for name, value in self.record.headers if name == ATTEMPTS)]


_ADDED: Final = {
    name for name, _ in dead_letter_headers(RecordError(ErrorCode.INVALID_JSON, ""), "", 0, 0, ())
}


def read_letter(record: InboundRecord) -> Letter:
    """Read a record of the dead-letter topic; one that the gate did not write has no code and no attempts."""
    return Letter(record, read_dead_letter(record))


@dataclass(frozen=True, slots=True)
class Selection:
    """Letters that meet every condition; an empty set or None is no condition.

    `end`: the first offset or time that is excluded; `topic`: of the failed record, with prefix; `tenant`: its owner,
    where key and value agree.
    """

    start: Start = "earliest"
    end: int | datetime | None = None
    partition: int | None = None
    codes: AbstractSet[str] = frozenset()
    topic: str | None = None
    tenant: str | None = None
    key: bytes | None = None
    places: AbstractSet[LetterPlace] = frozenset()

    def narrowed(self) -> Selection:
        """Limit the offsets to those of the named letters, unless a start or an end is given."""
        if not self.places or self.start != "earliest" or self.end is not None:
            return self
        partitions = {place.partition for place in self.places}
        offsets = [place.offset for place in self.places]
        only = partitions.pop() if len(partitions) == 1 and self.partition is None else self.partition
        return replace(self, start=min(offsets), end=max(offsets) + 1, partition=only)

    def __contains__(self, letter: Letter) -> bool:
        record, failed, end = letter.record, letter.failed, self.end
        if isinstance(end, datetime):
            ended = record.timestamp >= to_milliseconds(end)
        else:
            ended = end is not None and record.offset >= end
        return (
            not ended
            and self.partition in (None, record.partition)
            and (not self.codes or failed.code in self.codes)
            and self.topic in (None, failed.topic)
            and self.tenant in (None, failed.tenant_id)
            and self.key in (None, record.key)
            and (not self.places or letter.place in self.places)
        )

    def ended(self, record: InboundRecord) -> bool:
        """Say whether no later record is selected: within a partition, offsets only grow."""
        return self.partition is not None and isinstance(self.end, int) and record.offset >= self.end


class Redriven(NamedTuple):
    """A letter whose record was acknowledged."""

    at: datetime
    actor: str
    place: RecordPlace


class Begun(NamedTuple):
    """A letter that was about to be sent to a topic; its outcome is unknown."""

    at: datetime
    actor: str
    topic: str


class RedriveRecord(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes]]


@dataclass(slots=True)
class RedriveHistory:
    """What the audit says was sent, by letter id and by failure: of two letters of one failure, one is sent."""

    redriven: dict[str | LetterFailure, Redriven] = field(default_factory=dict)
    begun: dict[str | LetterFailure, Begun] = field(default_factory=dict)

    def redriven_of(self, letter: Letter) -> Redriven | None:
        return self.redriven.get(letter.id) or (self.redriven.get(letter.failure) if letter.failure else None)

    def begun_of(self, letter: Letter) -> Begun | None:
        return self.begun.get(letter.id) or (self.begun.get(letter.failure) if letter.failure else None)

    def add(self, record: InboundRecord) -> None:
        """Add a record of the audit topic."""
        if record.value is None or b'"redrive' not in record.value:  # those of the gate need not be parsed
            return
        event = AuditEvent.of_type(record.value, "dead_letter")
        letter = event and event.detail.get("letter")
        if event is None or not isinstance(letter, str):
            return
        names: list[str | LetterFailure] = [letter]
        match event.detail:
            case {
                "origin": {"topic": str(topic), "partition": int(partition), "offset": int(offset)},
                "attempts": int(attempts),
            }:
                names.append(LetterFailure(topic, partition, offset, attempts))
        match event.detail:
            case {"action": "redriven", "stands": {"topic": str(t), "partition": int(p), "offset": int(o)}}:
                for name in names:
                    self.redriven.setdefault(name, Redriven(event.at, event.actor, RecordPlace(t, p, o)))
                    self.begun.pop(name, None)
            case {"action": "redrive", "origin": {"topic": str(topic)}}:
                for name in names:
                    if name not in self.redriven:
                        self.begun.setdefault(name, Begun(event.at, event.actor, topic))


def audit_record(prefix: str, letter: Letter, noted: Begun | Redriven) -> RedriveRecord:
    """Return the audit event of a redrive: of no tenant, as the gate's own of a dead letter, and without text."""
    place = noted.place if isinstance(noted, Redriven) else None
    action = "redriven" if place else "redrive"
    origin, failed = letter.record.origin.model_dump(mode="json"), letter.failed
    detail: dict[str, Any] = {
        "action": action,
        "letter": letter.id,
        **letter.place._asdict(),
        "code": failed.code,
        "attempts": letter.attempts,
        "origin": {"topic": failed.topic, "partition": failed.partition, "offset": failed.offset},
        "stands": place._asdict() if place else None,
    }
    event = AuditEvent(
        event_id=letter.id if place else event_id("dead_letter", [action, origin]),
        type="dead_letter",
        at=noted.at,
        tenant_id="",
        actor=noted.actor,
        subject_id=None,
        decision_id=None,
        detail=detail,
    )
    headers = event_headers("audit", event.event_id, format_time(noted.at), "", letter.headers)
    return RedriveRecord(f"{prefix}{TopicName.AUDIT}", b"", event.model_dump_json().encode(), headers)


class KafkaLog:
    """Reads topics to their current ends, without a consumer group, and sends through `sender`, None of a dry run."""

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
        self._watching: TopicFollower | None = None

    def letters(self, start: Start, partition: int | None) -> AsyncGenerator[InboundRecord, None]:
        return self.records(self._topic, start, partition)

    async def records(
        self, topic: str, start: Start, partition: int | None = None
    ) -> AsyncGenerator[InboundRecord, None]:
        read = follow(self._brokers, {topic: start}, self._seconds, partition=partition, until_end=True)
        async with aclosing(read) as records:
            async for record in records:
                self._on_read()
                yield record

    async def oldest(self, start: Start, partition: int | None) -> int | None:
        """Return the earliest timestamp of the partitions' first letters from `start` on, in milliseconds."""
        async with open_reader(self._brokers, self._seconds) as reader:
            ranges = await reader.ranges(self._topic, start=start, partition=partition)
            firsts = [await reader.first(each) for each in ranges]
        return min((record.timestamp for record in firsts if record), default=None)

    @asynccontextmanager
    async def failing(self, since: datetime) -> AsyncIterator[Collection[RecordPlace]]:
        """Follow the dead-letter topic from a time on; yields the positions of failed records, kept up to date."""
        failing: set[RecordPlace] = set()

        def note(records: Sequence[InboundRecord]) -> None:
            for record in records:
                self._on_read()
                failed = read_letter(record).failed
                failing.add(RecordPlace(failed.topic, failed.partition or 0, failed.offset or 0))

        self._watching = TopicFollower(self._brokers, {self._topic: since}, self._seconds)
        try:
            async with self._watching.following(note):
                yield failing
        finally:
            self._watching = None

    async def publish(self, records: Sequence[RedriveRecord]) -> list[tuple[int, int]]:
        """Send records in order, wait for all acknowledgements and return partition and offset of each.

        Raises: BrokerUnavailable (some may be on their topic all the same).
        """
        if self._sender is None:
            raise AssertionError("a dry run sends nothing")
        if self._watching and self._watching.failure:  # nobody would notice records that fail again
            raise BrokerUnavailable("the dead-letter topic cannot be followed; go on with a new run")
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


@asynccontextmanager
async def kafka_log(
    brokers: str, prefix: str, seconds: float, *, sends: bool, on_read: Callable[[], None]
) -> AsyncIterator[KafkaLog]:
    """Open the topics, for reading or also for sending. Raises: UsageError, BrokerUnavailable."""
    if not sends:
        yield KafkaLog(brokers, prefix, seconds, on_read=on_read)
        return
    async with producer(brokers, seconds) as sender:
        yield KafkaLog(brokers, prefix, seconds, sender, on_read=on_read)

"""Dead letters as they are read, and which of them are meant."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Final, NamedTuple

from groundwire.client.tail import Start
from groundwire.errors import ErrorCode, RecordError
from groundwire.messages.base import to_milliseconds
from groundwire.messages.headers import ATTEMPTS, dead_letter_headers, header
from groundwire.messages.identity import event_id
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import TopicName
from groundwire.review.records import Failed, TopicRecord, read_dead_letter

_WRITTEN: Final = {
    name for name, _ in dead_letter_headers(RecordError(ErrorCode.INVALID_JSON, ""), "", 0, 0, ())
}
"""Headers that the gate puts on a dead letter; all others are the record's own."""


class Place(NamedTuple):
    """Where a dead letter stands on its topic."""

    partition: int
    offset: int

    def __str__(self) -> str:
        """Write it as people name it: `2@17`."""
        return f"{self.partition}@{self.offset}"


class Failure(NamedTuple):
    """What is the same in two letters of one failure: a worker that dies at the wrong moment writes it twice."""

    topic: str
    partition: int
    offset: int
    attempts: int


@dataclass(frozen=True)
class Letter:
    """A dead letter.

    Attributes:
        record: the record of the dead-letter topic.
        failed: what it says of its failure; tenant and user where they are certain.
    """

    record: InboundRecord
    failed: Failed

    @property
    def place(self) -> Place:
        """Where it stands."""
        return Place(self.record.partition, self.record.offset)

    @cached_property
    def id(self) -> str:
        """Its name in the audit: it follows from place, time and bytes, so that no other letter has it."""
        return event_id("dead_letter", self.record.origin.model_dump(mode="json"))

    @property
    def attempts(self) -> int | None:
        """How often the record has failed, 1 or more; None where the letter does not say."""
        text = header(self.record.headers, ATTEMPTS)
        return int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else None

    @property
    def failure(self) -> Failure | None:
        """The failure that it is of: where the record stood, and how often it had failed; None if it does not say."""
        failed, attempts = self.failed, self.attempts
        if failed.partition is None or failed.offset is None or attempts is None:
            return None
        return Failure(failed.topic, failed.partition, failed.offset, attempts)

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """The record's own headers, as it came in; the count of its failures stands beside them."""
        return [(name, value) for name, value in self.record.headers if name not in _WRITTEN]

    @property
    def again(self) -> list[tuple[str, bytes]]:
        """The headers with which it goes back: its own, and the count, on which the gate counts on."""
        return [*self.headers, *((name, value) for name, value in self.record.headers if name == ATTEMPTS)]


def read_letter(record: InboundRecord) -> Letter:
    """Read a record of the dead-letter topic; one that the gate did not write has no code and no attempts."""
    raw = TopicRecord(
        TopicName.DEAD_LETTER,
        record.partition,
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        record.headers,
    )
    failed = read_dead_letter(raw)
    if failed is None:
        raise AssertionError("every record of the dead-letter topic is read")  # pragma: no cover
    return Letter(record, failed)


@dataclass(frozen=True, slots=True)
class Selection:
    """Which letters are meant: those that every condition holds for.

    Attributes:
        start: where on the topic reading begins: an offset of every partition, or Kafka's time.
        end: where it ends: an offset or a time that is not meant any more; None: where the topic ends now.
        partition: the one partition that is meant.
        codes: error codes; empty: all.
        topic: where the record came in, with the prefix.
        tenant: whose it is, as far as key and value agree on that.
        key: the record's key.
        places: single letters; empty: all.
    """

    start: Start = "earliest"
    end: int | datetime | None = None
    partition: int | None = None
    codes: AbstractSet[str] = frozenset()
    topic: str | None = None
    tenant: str | None = None
    key: bytes | None = None
    places: AbstractSet[Place] = frozenset()

    def narrowed(self) -> Selection:
        """Read no more of the topic than where the named letters stand, unless a start or an end is given."""
        if not self.places or self.start != "earliest" or self.end is not None:
            return self
        partitions = {place.partition for place in self.places}
        offsets = [place.offset for place in self.places]
        only = partitions.pop() if len(partitions) == 1 and self.partition is None else self.partition
        return replace(self, start=min(offsets), end=max(offsets) + 1, partition=only)

    def __contains__(self, letter: Letter) -> bool:
        """Tell whether a letter is meant."""
        record, failed = letter.record, letter.failed
        return (
            self._before_end(record)
            and (self.partition is None or record.partition == self.partition)
            and (not self.codes or failed.code in self.codes)
            and (self.topic is None or failed.topic == self.topic)
            and (self.tenant is None or failed.tenant_id == self.tenant)
            and (self.key is None or record.key == self.key)
            and (not self.places or letter.place in self.places)
        )

    def ended(self, record: InboundRecord) -> bool:
        """Tell whether nothing from a record on is meant any more: of one partition, offsets only grow."""
        return self.partition is not None and isinstance(self.end, int) and record.offset >= self.end

    def _before_end(self, record: InboundRecord) -> bool:
        if isinstance(self.end, datetime):
            return record.timestamp < to_milliseconds(self.end)
        return self.end is None or record.offset < self.end

"""A Kafka record as it was read, and its headers.

Headers carry CloudEvents in binary mode, the errors of dead letters and the origins of deferred records.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, cached_property
from typing import Final, NamedTuple

from groundwire.errors import ErrorCode, RecordError
from groundwire.messages.base import format_time, from_milliseconds, sha256_hex
from groundwire.messages.decisions import Decision, Origin
from groundwire.text.normalise import escape_controls

Headers = Sequence[tuple[str, bytes]]


class LookupRetry(NamedTuple):
    """When look-ups of a deferred record first failed and are due again: milliseconds since 1970, workers' clocks."""

    first: int
    due: int


@dataclass(frozen=True)
class InboundRecord:
    """A record and its place.

    Attributes:
        topic: None for a line of a file.
        timestamp: Kafka's, milliseconds since 1970: the gate's clock for this record.
        value: None for a tombstone.
        retry: only of a record of `deferred`.
    """

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=tuple)
    retry: LookupRetry | None = None

    @property
    def clock(self) -> datetime:
        """The time of the record."""
        return from_milliseconds(self.timestamp)

    @cached_property
    def sha256(self) -> str:
        """Hexadecimal SHA-256 of the value."""
        return sha256_hex(self.value or b"")

    @cached_property
    def origin(self) -> Origin:
        """The record's place, as a decision names it."""
        return Origin(
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            timestamp=self.clock,
            sha256=self.sha256,
        )


TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
TRACE: Final = frozenset({TRACEPARENT, TRACESTATE})
"""The W3C trace context, which outputs inherit."""
ATTESTATION: Final = "gw-attestation"
ATTEMPTS: Final = "gw-attempts"
_ORIGIN: Final = "gw-origin"
_RETRY: Final = "gw-origin-retry"
READ: Final = frozenset({*TRACE, ATTESTATION, ATTEMPTS, _ORIGIN, _RETRY})
"""Headers of an input record that the gate reads; it ignores others."""
_PLACE: Final = ("topic", "partition", "offset", "timestamp")
_INT64: Final = re.compile(r"-?[0-9]{1,19}")
_DIGITS: Final = 18
"""Of a number that SQLite holds."""
_LARGEST: Final = 2**53 - 1
"""A larger number has no canonical form, so no event id could be derived from the place."""


def header(headers: Headers, name: str) -> str | None:
    """Return the first header called `name` as text, or None where it is absent or not UTF-8."""
    for key, value in headers:
        if key == name and value is not None:
            try:
                return value.decode()
            except UnicodeDecodeError:
                return None
    return None


def misfitting(headers: Headers, **expected: str) -> list[str]:
    """Return the names of headers that are not there exactly once, with the text expected."""
    values = {name: [value for key, value in headers if key == name] for name in expected}
    return [name for name, text in expected.items() if values[name] != [text.encode()]]


def decision_headers(decision: Decision, incoming: Headers) -> list[tuple[str, bytes]]:
    """Return the CloudEvents headers of a Decision; the trace context is passed through from the input record."""
    return event_headers(
        "decision", decision.decision_id, format_time(decision.decided_at), decision.subject_id, incoming
    )


def event_headers(
    name: str, event_id: str, time: str, subject: str, incoming: Headers
) -> list[tuple[str, bytes]]:
    """Return CloudEvents binary headers for a record of the type `groundwire.<name>.v1`."""
    kind, schema = _kind(name)
    return [
        ("ce_specversion", b"1.0"),
        ("ce_id", event_id.encode()),
        kind,
        ("ce_source", b"/groundwire/gate"),
        ("ce_time", time.encode()),
        ("ce_subject", subject.encode()),
        schema,
        ("content-type", b"application/json"),
        *passed(incoming),
    ]


@cache
def _kind(name: str) -> tuple[tuple[str, bytes], tuple[str, bytes]]:
    return (
        ("ce_type", f"groundwire.{name}.v1".encode()),
        ("ce_dataschema", f"https://groundwire.dev/schemas/{name}/1.0.json".encode()),
    )


def passed(incoming: Headers) -> list[tuple[str, bytes]]:
    """Return the headers that an output inherits from its input: `traceparent` and `tracestate`."""
    return [(key, value) for key, value in incoming if key in TRACE]


def dead_letter_headers(
    error: RecordError, topic: str, partition: int, offset: int, incoming: Headers, timestamp: int = -1
) -> list[tuple[str, bytes]]:
    """Return the original headers and, after Kafka Connect's convention, where and why the record failed.

    `gw-attempts` counts how often the record has failed: one more than the record already carried.
    """
    attempts = header(incoming, ATTEMPTS) or "0"
    fields = {
        "__connect.errors.topic": topic,
        "__connect.errors.partition": str(partition),
        "__connect.errors.offset": str(offset),
        "__connect.errors.timestamp": str(timestamp),
        "__connect.errors.stage": "VALUE_CONVERTER",
        "__connect.errors.class.name": type(error).__name__,
        "__connect.errors.exception.class.name": f"{type(error).__module__}.{type(error).__qualname__}",
        "__connect.errors.exception.message": escape_controls(error.message),
        "gw-error": str(error.code),
        ATTEMPTS: str(
            int(attempts) + 1 if attempts.isascii() and attempts.isdigit() and len(attempts) < 6 else 1
        ),
    }
    original = [(key, value) for key, value in incoming if key not in fields]
    return [*original, *((key, value.encode()) for key, value in fields.items())]


VALUE_OMITTED: Final = "gw-value-omitted"
"""SHA-256 and bytes of a value that was too large for the dead-letter topic."""
OF_LETTERS: Final = {
    VALUE_OMITTED,
    *(name for name, _ in dead_letter_headers(RecordError(ErrorCode.INVALID_JSON, ""), "", 0, 0, ())),
}
"""Headers that the gate adds to a dead letter."""


class Failure(NamedTuple):
    """Why and where a record failed, as its dead letter says; None for what no header says."""

    code: str | None
    message: str | None
    topic: str | None
    partition: int | None
    offset: int | None
    timestamp: int | None
    attempts: int | None


def failure_of(letter: InboundRecord) -> Failure:
    """Read the headers of a dead letter, whoever wrote them."""

    def number(text: str | None) -> int | None:
        return int(text) if text and text.isascii() and text.isdigit() and len(text) <= _DIGITS else None

    where = "exception.message", "topic", "partition", "offset", "timestamp"
    names = *(f"__connect.errors.{name}" for name in where), ATTEMPTS
    message, topic, *numbers = (header(letter.headers, name) for name in names)
    return Failure(header(letter.headers, "gw-error"), message, topic, *map(number, numbers))


def deferred_headers(record: InboundRecord) -> list[tuple[str, bytes]]:
    """Return the original headers and the record's origin (topic, partition, offset, milliseconds), and its retry."""
    place = (record.topic or "", record.partition, record.offset, record.timestamp)
    original = [(key, value) for key, value in record.headers if not key.startswith(_ORIGIN)]
    return [
        *original,
        *((f"{_ORIGIN}-{name}", str(part).encode()) for name, part in zip(_PLACE, place, strict=True)),
        *([(_RETRY, b"%d %d" % record.retry)] if record.retry else ()),
    ]


def deferred_record(record: InboundRecord) -> InboundRecord:
    """Restore the place that a deferred record had first; one without readable origin headers keeps its own."""
    topic, *numbers = (header(record.headers, f"{_ORIGIN}-{name}") for name in _PLACE)
    if topic is None or not all(number and _INT64.fullmatch(number) for number in numbers):
        return record
    partition, offset, timestamp = (int(number) for number in numbers if number)
    if max(abs(partition), abs(offset)) > _LARGEST:
        return record
    rest = tuple((key, value) for key, value in record.headers if not key.startswith(_ORIGIN))
    first, _, due = (header(record.headers, _RETRY) or "").partition(" ")
    retry = LookupRetry(int(first), int(due)) if _INT64.fullmatch(first) and _INT64.fullmatch(due) else None
    return InboundRecord(topic or None, partition, offset, timestamp, record.key, record.value, rest, retry)

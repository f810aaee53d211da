"""Records of the output topics, decoded for the board."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from groundwire.kafka.produce import address_anyhow
from groundwire.kafka.reader import Positions, Start, TopicReader, open_reader
from groundwire.messages.decisions import LAST_REVISION, AuditEvent, Decision, Kind
from groundwire.messages.headers import InboundRecord, header
from groundwire.messages.records import Retraction
from groundwire.messages.topics import TopicName
from groundwire.review.model import FailedRecord

Model = TypeVar("Model", bound=BaseModel)
_DECISIONS: Final = {TopicName.REVIEW, TopicName.APPROVED, TopicName.BLOCKED}
_ACTIONS: Final = {"review_action", "refused_action"}
_FAILURE: Final = "__connect.errors."
_EXCERPT: Final = 200  # characters
_READ: Final = 4 * _EXCERPT
"""Characters of a text that are looked at for its excerpt: spaces and line breaks may be most of them."""
_DIGITS: Final = 18  # of a number that SQLite holds


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """A record of an output topic; `topic` without the prefix, `timestamp_ms` Kafka's, since 1970."""

    topic: TopicName
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()


def _read(model: type[Model], record: TopicRecord, topics: Collection[TopicName]) -> Model | None:
    if record.topic not in topics or record.value is None:
        return None
    try:
        return model.model_validate_json(record.value)
    except ValidationError:
        return None


def read_decision(record: TopicRecord) -> Decision | None:
    """Return the Decision of a record; None where it is none, or not on its verdict's topic."""
    decision = _read(Decision, record, _DECISIONS)
    if decision is None or TopicName.of(decision.verdict) != record.topic or decision.replay is not None:
        return None
    return decision if 0 <= decision.revision <= LAST_REVISION else None


def read_action(record: TopicRecord) -> AuditEvent | None:
    """Return the AuditEvent of an applied or refused action; None for other records."""
    event = _read(AuditEvent, record, {TopicName.AUDIT})
    named = event is not None and isinstance(event.detail.get("action_id"), str)
    return event if event is not None and named and event.type in _ACTIONS else None


def read_retraction(record: TopicRecord) -> Retraction | None:
    return _read(Retraction, record, {TopicName.RETRACTIONS})


def read_dead_letter(record: TopicRecord) -> FailedRecord | None:
    if record.topic is not TopicName.DEAD_LETTER:
        return None
    tenant, user = _owner(record)
    return FailedRecord(
        code=header(record.headers, "gw-error") or "unknown",
        message=header(record.headers, f"{_FAILURE}exception.message") or "",
        topic=header(record.headers, f"{_FAILURE}topic") or "",
        partition=_number(header(record.headers, f"{_FAILURE}partition")),
        offset=_number(header(record.headers, f"{_FAILURE}offset")),
        tenant_id=tenant,
        user_id=user,
        excerpt=in_one_line((record.value or b"")[: 4 * (_READ + 1)].decode("utf-8", "replace")),
    )


RESPONSE: Final = "response:"


def name_of(kind: str, subject_id: str) -> str:
    return subject_id if kind == Kind.CLAIM else f"{RESPONSE}{subject_id}"


def decision_json(value: bytes) -> bytes:
    return zlib.decompress(value)


def text_of(decision: Decision) -> str:
    """Return the claim; of a response the reason, as the answer is not repeated."""
    return decision.evidence.claim if decision.evidence else decision.reason


def in_one_line(text: str) -> str:
    """Return the first 200 characters of a text in one line; "…" ends a cut one."""
    line = " ".join(text[:_READ].split())
    whole = len(text) <= _READ and len(line) <= _EXCERPT
    return line if whole else line[: _EXCERPT - 1] + "…"


def review_fact(decision: Decision, name: str) -> str | None:
    """Return a field of `facts.review`; None where no person, nor expiry, made the revision."""
    value: Any = (decision.facts.review or {}).get(name)
    return value if isinstance(value, str) else None


def _owner(record: TopicRecord) -> tuple[str | None, str | None]:
    """Return the key's owner, unless the value, as far as it can be read, names another tenant."""
    try:
        tenant, colon, user = (record.key or b"").decode().partition(":")
    except UnicodeDecodeError:
        return None, None
    if not tenant or not colon:
        return None, None
    _, named = address_anyhow(record.value or b"", TopicName.CLAIMS)
    if named is not None and named.partition(b":")[0] != tenant.encode():
        return None, None
    return tenant, user


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def topic_record(record: InboundRecord, topic: TopicName) -> TopicRecord:
    return TopicRecord(
        topic=topic,
        partition=record.partition,
        offset=record.offset,
        timestamp_ms=record.timestamp,
        key=record.key,
        value=record.value,
        headers=record.headers,
    )


def topic_records(records: Iterable[InboundRecord], prefix: str) -> list[TopicRecord]:
    return [topic_record(one, TopicName((one.topic or "").removeprefix(prefix))) for one in records]


@asynccontextmanager
async def reading(
    brokers: str,
    prefix: str,
    starts: Mapping[TopicName, Start],
    seconds: float,
    positions: Positions | None = None,
) -> AsyncIterator[TopicReader]:
    """Open a reader of output topics, each from its start, or from `positions` of an earlier reader.

    New partitions are not seen. Raises: UsageError, BrokerUnavailable.
    """
    async with open_reader(brokers, seconds) as reader:
        named = {f"{prefix}{topic}": start for topic, start in starts.items()}
        await reader.begin(named, continued=positions)
        yield reader

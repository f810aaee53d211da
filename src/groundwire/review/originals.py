"""Reads the record behind a decision back from its topic: a decision repeats no answer. Nothing of it is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from groundwire.errors import BrokerUnavailable, RecordError, RegistryUnavailable, UsageError
from groundwire.kafka.reader import read_one
from groundwire.messages.base import sha256_hex
from groundwire.messages.decisions import Kind
from groundwire.messages.decode import decode_response
from groundwire.messages.records import LlmResponse

RecordReader = Callable[[str, int, int], Awaitable[bytes | None]]
"""Returns the value at topic, partition and offset, None where there is none. Raises: BrokerUnavailable."""


READ_SECONDS: Final = 5.0
"""How long somebody who opens a page waits for the broker."""


class OriginalState(StrEnum):
    READ = "read"
    GONE = "gone"
    DIFFERS = "differs"
    AWAY = "away"


@dataclass(frozen=True, slots=True)
class Original:
    """A response as it came in; None where it could not be read back."""

    state: OriginalState
    response: LlmResponse | None = None


AWAY: Final = Original(OriginalState.AWAY)


def record_reader(brokers: str, seconds: float) -> RecordReader:
    async def value_at(topic: str, partition: int, offset: int) -> bytes | None:
        try:
            record = await read_one(brokers, topic, partition, offset, seconds)
        except UsageError:  # the topic was deleted, or has fewer partitions
            return None
        return record.value if record is not None else None

    return value_at


async def read_original(read: RecordReader, decision: Mapping[str, Any]) -> Original:
    """Read the response that a decision is about, which has to be that one: by its hash, and by its ids."""
    first, reviewed = decision.get("subject_origin"), (decision.get("facts") or {}).get("review")
    place = first if first and reviewed else decision["origin"]  # that of a person's decision is their record
    try:
        value = await read(place["topic"], place["partition"], place["offset"]) if place["topic"] else None
    except BrokerUnavailable:
        return AWAY
    if value is None:
        return Original(OriginalState.GONE)
    try:
        given = sha256_hex(value) == place["sha256"]
        response = await asyncio.to_thread(decode_response, value) if given else None
    except RegistryUnavailable:
        return AWAY
    except RecordError:
        response = None
    named = (decision["tenant_id"], decision["user_id"], decision["subject_id"])
    if response is None or (response.tenant_id, response.user_id, response.response_id) != named:
        return Original(OriginalState.DIFFERS)
    return Original(OriginalState.READ, response)


def has_original(decision: Mapping[str, Any]) -> bool:
    return bool(decision["kind"] == Kind.RESPONSE)

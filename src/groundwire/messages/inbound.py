"""A Kafka record as it was read, before anything is believed of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from groundwire.messages.base import from_milliseconds, sha256_hex
from groundwire.messages.decisions import Origin

Headers = Sequence[tuple[str, bytes]]


@dataclass(frozen=True)
class InboundRecord:
    """A record and where it stood.

    Attributes:
        topic: None for a line of a file.
        timestamp: Kafka's, milliseconds since 1970: the gate's clock for this record.
        value: None for a tombstone.
    """

    topic: str | None
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = field(default_factory=tuple)

    @cached_property
    def sha256(self) -> str:
        """Hash of the value's bytes."""
        return sha256_hex(self.value or b"")

    @cached_property
    def origin(self) -> Origin:
        """Where the record stood, as a decision names it."""
        return Origin(
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            timestamp=from_milliseconds(self.timestamp),
            sha256=self.sha256,
        )

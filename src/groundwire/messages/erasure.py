"""Tombstones: a record without a value under a user's key on `retractions` (X-19).

It erases every decision for that user up to the time in its header `ce_time`: consumers delete those that they hold and
drop those that they read later. Later decisions are not erased.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import NamedTuple

from groundwire.messages.base import KafkaRecord, format_time, parse_time
from groundwire.messages.headers import header
from groundwire.messages.identity import event_id


class Erasure(NamedTuple):
    """Whose decisions are erased, and up to which time, that included."""

    tenant_id: str
    user_id: str
    until: datetime

    @property
    def id(self) -> str:
        """The `ce_id` of its tombstone."""
        return event_id("erasure", [self.tenant_id, self.user_id, format_time(self.until)])

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """The headers of its tombstone, whose key is the user's."""
        return [("ce_id", self.id.encode()), ("ce_time", format_time(self.until).encode())]


def read_tombstone(record: KafkaRecord) -> Erasure | None:
    """Return what a record of `retractions` erases; None for all other records."""
    tenant_id, colon, user_id = (record.key or b"").decode(errors="replace").partition(":")
    if record.value is not None or not colon:
        return None
    try:
        return Erasure(tenant_id, user_id, parse_time(header(record.headers, "ce_time")))
    except ValueError:
        return None


class Erasures:
    """The latest erasure of each user."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, str], datetime] = {}

    def note(self, record: KafkaRecord) -> Erasure | None:
        """Take in a record; returns what it erases."""
        erasure = read_tombstone(record)
        if erasure:
            owner = erasure.tenant_id, erasure.user_id
            self._until[owner] = max(erasure.until, self._until.get(owner, erasure.until))
        return erasure

    def until(self, tenant_id: str, user_id: str) -> datetime | None:
        """Return up to when a user is erased; None where they are not."""
        return self._until.get((tenant_id, user_id))

    def cover(self, tenant_id: str, user_id: str, decided_at: datetime) -> bool:
        """Say whether what was decided then is erased."""
        until = self.until(tenant_id, user_id)
        return until is not None and decided_at <= until

    def cover_value(self, value: bytes) -> bool:
        """Say of the value of a Decision or Retraction whether it is erased; key and headers may be anybody's."""
        if not self._until:
            return False
        try:
            told = json.loads(value)
            at = parse_time(told.get("decided_at") or told.get("at"))
            return self.cover(str(told["tenant_id"]), str(told["user_id"]), at)
        except (AttributeError, LookupError, RecursionError, TypeError, ValueError):
            return False

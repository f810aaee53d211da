"""Decisions as they stand on topics: where, whether the record that carries one fits it, and one published again."""

from __future__ import annotations

from typing import Final, NamedTuple

from groundwire.messages.base import format_time
from groundwire.messages.decisions import Decision
from groundwire.messages.headers import header
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import TopicName, record_key
from groundwire.version import __version__

_SAID: Final = (
    *("revision", "tenant_id", "user_id", "kind", "subject_id", "fingerprint", "origin", "subject_origin"),
    *("verdict", "approved", "tier", "reason_code", "evidence", "facts", "decided_at"),
)
"""Fields of a decision that stay whichever engine writes it."""


class Place(NamedTuple):
    """Where a record stands."""

    topic: str
    partition: int
    offset: int


def where(record: InboundRecord) -> str:
    """Return a record's place as text."""
    return f"{record.topic}/{record.partition}@{record.offset}"


def place_of(text: str) -> Place:
    """Return the place that `where` wrote."""
    topic, _, rest = text.rpartition("/")
    partition, _, offset = rest.partition("@")
    return Place(topic, int(partition), int(offset))


def misplaced(published: InboundRecord, decision: Decision) -> list[str]:
    """Return what of a published record does not fit the decision in it: its topic, key, or an event's header."""
    headers = {
        "ce_id": decision.decision_id,
        "ce_time": format_time(decision.decided_at),
        "ce_subject": decision.subject_id,
    }
    wrong = [f"header {name}" for name, text in headers.items() if header(published.headers, name) != text]
    if published.key != record_key(decision.tenant_id, decision.user_id):
        wrong.append("key")
    if not (published.topic or "").endswith(TopicName.of(decision.verdict)):
        wrong.append("topic")
    return wrong


def unlike(kept: Decision, again: Decision) -> list[str]:
    """Return the fields in which a decision that was published again, with other bytes, is another one.

    One engine writes a decision in one way. What one engine decided another may write otherwise; that says the same.
    """
    if kept.engine == again.engine == __version__:
        return ["$"]
    return [f"$.{name}" for name in _SAID if getattr(kept, name) != getattr(again, name)]

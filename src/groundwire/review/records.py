"""Records of the output topics, decoded for the board."""

from __future__ import annotations

import zlib
from typing import Any, Final

from groundwire.errors import RecordError
from groundwire.kafka.produce import address_anyhow
from groundwire.messages.decisions import LAST_REVISION, AuditEvent, Decision, Kind
from groundwire.messages.decode import decode_review_decision
from groundwire.messages.headers import InboundRecord, failure_of
from groundwire.messages.records import ReviewDecision
from groundwire.messages.topics import TopicName
from groundwire.review.model import FailedRecord

_EXCERPT: Final = 200  # characters
_READ: Final = 4 * _EXCERPT
"""Characters of a text that are looked at for its excerpt: spaces and line breaks may be most of them."""


def read_decision(record: InboundRecord, topic: TopicName) -> Decision | None:
    """Return the Decision of a record; None where it is none, or not on its verdict's topic."""
    decision = Decision.try_parse(record.value)
    if decision is None or TopicName.of(decision.verdict) is not topic or decision.replay is not None:
        return None
    return decision if 0 <= decision.revision <= LAST_REVISION else None


def read_action(record: InboundRecord) -> AuditEvent | None:
    """Return the AuditEvent of an applied or refused action; None for other records."""
    event = AuditEvent.of_type(record.value, "review_action", "refused_action")
    return event if event and isinstance(event.detail.get("action_id"), str) else None


def read_note(record: InboundRecord) -> ReviewDecision | None:
    """Return an action to which a person wrote a note; None for other records."""
    try:
        review = decode_review_decision(record.value)
    except RecordError:
        return None
    return review if review.note else None


def read_dead_letter(record: InboundRecord) -> FailedRecord:
    failure, (tenant, user) = failure_of(record), _owner(record)
    return FailedRecord(
        code=failure.code or "unknown",
        message=failure.message or "",
        topic=failure.topic or "",
        partition=failure.partition,
        offset=failure.offset,
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


def _owner(record: InboundRecord) -> tuple[str | None, str | None]:
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

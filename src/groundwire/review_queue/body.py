"""What was enqueued, as JSON: it comes back as it went in, or is refused."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from groundwire.errors import StateUnavailable
from groundwire.messages.base import Metadata, ShortId, TenantId
from groundwire.messages.claims import MemoryType
from groundwire.messages.decisions import EvidenceObject
from groundwire.review_queue.model import (
    ItemState,
    PendingMemory,
    ReviewAction,
    ReviewEvent,
    StoredItem,
)
from groundwire.validator import ValidationResult

MAX_BODY_BYTES: Final = 256_000
"""Largest item as JSON: 10,000 of them must have room in a server's memory."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class Body:
    """The part of an item that never changes."""

    tenant_id: TenantId
    user_id: ShortId
    content: Annotated[str, Field(min_length=1, max_length=20_000)]
    memory_type: MemoryType
    source: Annotated[str, Field(min_length=1, max_length=100)]
    evidence: EvidenceObject
    validation_result: ValidationResult
    metadata: Metadata


_ADAPTER: Final = TypeAdapter(Body)


def encode(body: Body) -> bytes:
    """Write a body as JSON.

    Raises:
        ValueError: a field is of another type or too long, or would come back as something else, as tuples, sets,
            times and NaN in metadata do. The message names the field and quotes nothing of it.
    """
    for name, value, kind in (
        ("evidence", body.evidence, EvidenceObject),
        ("validation_result", body.validation_result, ValidationResult),
        ("metadata", body.metadata, dict),
    ):
        if not isinstance(value, kind):
            raise ValueError(f"{name}: must be of type {kind.__name__}, not {type(value).__name__}")  # noqa: TRY004 - every bad value is a ValueError
    try:
        written = _ADAPTER.dump_json(body, warnings=False)
        found = _ADAPTER.validate_json(written)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    except (PydanticSerializationError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"item: cannot be written as JSON: {type(error).__name__}") from None
    for name in Body.__slots__:
        if getattr(found, name) != getattr(body, name):
            raise ValueError(f"{name}: would not come back from JSON as it is")
    if len(written) > MAX_BODY_BYTES:
        raise ValueError(f"item: is {len(written)} bytes as JSON, more than {MAX_BODY_BYTES}")
    return written


def read_item(item: StoredItem) -> PendingMemory:
    """Return an item as its owner sees it.

    Raises:
        StateUnavailable: it cannot be read: it was written by somebody else, or by another version.
    """
    try:
        body = _ADAPTER.validate_json(item.body)
    except ValidationError:
        raise StateUnavailable(f"review queue: the item {item.queue_id} cannot be read") from None
    return PendingMemory(
        queue_id=item.queue_id,
        user_id=body.user_id,
        content=body.content,
        memory_type=body.memory_type,
        source=body.source,
        evidence=body.evidence,
        submitted_at=_moment(item.at),
        validation_result=body.validation_result,
        metadata=body.metadata,
        tenant_id=body.tenant_id,
        state=ItemState(item.state),
        last_error=item.error or None,
        attempts=item.attempts,
    )


def read_row(row: str) -> ReviewEvent:
    """Return a row of the audit trail.

    Raises:
        StateUnavailable: it cannot be read.
    """
    try:
        _, at, action, code, written = row.split(" ", 4)
        note = json.loads(written)
        return ReviewEvent(
            timestamp=_moment(int(at)),
            action=ReviewAction(action),
            actor=note["actor"],
            queue_id=note["queue_id"],
            detail=code if action == ReviewAction.DENIED else note.get("detail"),
            delegated=code == "delegated",
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StateUnavailable("review queue: a row of the audit trail cannot be read") from None


def digest(*names: str) -> str:
    """Return 32 hexadecimal characters for a tenant, or for a tenant and a user."""
    text = "".join(f"{len(name)}:{name}" for name in names)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _moment(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)

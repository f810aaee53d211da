"""What a review queue shows, raises and writes down.

```
GroundwireError
├── ReviewQueueFull        no place left: try again later
├── ReviewNotFound         there is nothing to decide (also a LookupError)
│   └── ReviewUnauthorized ... for this reviewer (also a PermissionError)
├── ReviewStoreFailed      the callback failed, the item is pending again
└── ReviewOvertaken        the callback outlived its lease, and the item was decided otherwise meanwhile
```
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from groundwire.errors import GroundwireError, StateUnavailable
from groundwire.library.validator import ValidationResult
from groundwire.messages.base import Metadata, ShortId, TenantId
from groundwire.messages.decisions import EvidenceObject
from groundwire.messages.records import MemoryType

MAX_BODY_BYTES: Final = 256_000
"""Largest item as JSON: 10,000 of them must have room in a server's memory."""


class ReviewQueueFull(GroundwireError):
    """The queue takes no more items of this user, or none at all (S0-133, S0-134); nothing was evicted.

    `scope`: `user` or `total`, which limit was reached; `limit`: the most items allowed.
    """

    def __init__(self, scope: str, limit: int) -> None:
        whose = "the user has" if scope == "user" else "the queue in total has"
        super().__init__(f"review_queue_full: {whose} {limit} items waiting, the most allowed")
        self.scope = scope
        self.limit = limit


class ReviewNotFound(GroundwireError, LookupError):
    """There is nothing to decide under the id (S0-142).

    Attributes:
        queue_id: as it was given.
        state: told to those who may decide the item: `approving`, `stored`, `rejected` or `expired`; else None.
        memory_id: of an item that is stored, else None.
    """

    def __init__(self, queue_id: str, state: str | None = None, memory_id: str | None = None) -> None:
        super().__init__(f"not found among the pending items: {queue_id[:200]} is {state}")
        self.queue_id = queue_id
        self.state = state
        self.memory_id = memory_id


class ReviewUnauthorized(ReviewNotFound, PermissionError):
    """There is nothing under the id that this reviewer may decide (S0-131, S0-142).

    The same for an item of somebody else and for an id that does not exist: nobody learns what others have.
    """

    def __init__(self, queue_id: str) -> None:
        super().__init__(queue_id)
        self.args = (
            f"Unauthorized: {queue_id[:200]} was not found among the items this reviewer may decide",
        )


class ReviewStoreFailed(GroundwireError):
    """The store callback failed (S0-140); what it raised is the cause. `queue_id` waits for the next approval."""

    def __init__(self, queue_id: str, reason: str, *, noted: bool = True) -> None:
        when = "again" if noted else "again when its lease has run out"
        super().__init__(f"store_failed: {reason}; {queue_id} is pending {when}")
        self.queue_id = queue_id


class ReviewOvertaken(GroundwireError):
    """The callback stored `memory_id`, but so late that `queue_id` had been decided otherwise: withdraw the memory.

    `state`: `rejected` or `expired`.
    """

    def __init__(self, queue_id: str, state: str, memory_id: str) -> None:
        super().__init__(f"{queue_id} was {state} while it was being stored: withdraw the memory")
        self.queue_id = queue_id
        self.state = state
        self.memory_id = memory_id


class ItemState(StrEnum):
    """Where an item is in its life. The list is closed.

    pending -> approving -> stored; approving -> pending when the callback fails or its lease runs out;
    pending -> rejected; pending -> expired, where the queue has a `review_ttl`.
    """

    PENDING = "pending"
    APPROVING = "approving"
    STORED = "stored"
    REJECTED = "rejected"
    EXPIRED = "expired"


class QueueAction(StrEnum):
    """What a row of the audit trail tells. The list is closed."""

    ENQUEUE = "enqueue"
    APPROVE = "approve"
    """Written before the callback is called; `stored`, `store_failed` or nothing (a crash) follows."""
    STORED = "stored"
    """The detail is the memory id."""
    STORE_FAILED = "store_failed"
    """The detail is the class of the exception."""
    STORED_LATE = "stored_late"
    """Stored although decided otherwise meanwhile; the detail is the memory id."""
    REJECT = "reject"
    """The detail is the reviewer's reason."""
    EXPIRED = "expired"
    DENIED = "denied"
    """The detail is `unauthorized`, `queue_full`, or the state in which there was nothing to decide."""


@dataclass(slots=True)
class PendingMemory:
    """A claim that waits for a person (S0-125, C-30): a copy, changing it changes nothing in the queue.

    Attributes:
        queue_id: its id, and the idempotency key of storing it.
        user_id: its owner.
        content: the claim.
        memory_type: `fact`, `preference` or `decision`.
        source: who says so.
        evidence: where the claim comes from and how far it can be trusted.
        submitted_at: when it was enqueued, UTC.
        validation_result: why it is here.
        metadata: what the program attached.
        tenant_id: the owner's tenant.
        state: `pending`, or `approving` while the callback runs.
        last_error: `store_failed` where the callback failed last time; `store_interrupted` where nothing was heard of
            it before its lease ran out: the memory may be stored already; else None.
        attempts: how often it was approved so far.
    """

    queue_id: str
    user_id: str
    content: str
    memory_type: str
    source: str
    evidence: EvidenceObject
    submitted_at: datetime
    validation_result: ValidationResult
    metadata: dict[str, Any] = field(default_factory=dict)
    tenant_id: str = "default"
    state: ItemState = ItemState.PENDING
    last_error: str | None = None
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class ReviewEvent:
    """A row of the audit trail (S0-136).

    Attributes:
        timestamp: when it happened, UTC.
        action: what was done or tried.
        actor: who did it; `groundwire` for `expired`.
        queue_id: the item, as the actor named it.
        detail: see `QueueAction`; else None.
        delegated: the actor is not the owner and acted as a delegated reviewer (C-28).
    """

    timestamp: datetime
    action: QueueAction
    actor: str
    queue_id: str
    detail: str | None
    delegated: bool


@dataclass(slots=True)
class Body:
    """The part of an item that never changes, which stores keep as JSON."""

    tenant_id: TenantId
    user_id: ShortId
    content: Annotated[str, Field(min_length=1, max_length=20_000)]
    memory_type: MemoryType
    source: Annotated[str, Field(min_length=1, max_length=100)]
    evidence: EvidenceObject
    validation_result: ValidationResult
    metadata: Metadata


_BODY: Final = TypeAdapter(Body)
_KINDS: Final = {
    **dict.fromkeys(("tenant_id", "user_id", "content", "memory_type", "source"), str),
    "evidence": EvidenceObject,
    "validation_result": ValidationResult,
    "metadata": dict,
}
"""What pydantic would not name before it fails to write it."""


def encode(body: Body) -> bytes:
    """Write a body as JSON.

    Raises: ValueError, a field is of another type or too long, or would come back as something else, as tuples, sets,
    times and NaN in metadata do. The message names the field and quotes nothing of it.
    """
    for name, kind in _KINDS.items():
        value = getattr(body, name)
        if not isinstance(value, kind):
            raise ValueError(f"{name}: must be of type {kind.__name__}, not {type(value).__name__}")  # noqa: TRY004 - every bad value is a ValueError
    try:
        written = _BODY.dump_json(body, warnings=False)
        found = _BODY.validate_json(written)
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


def decode(body: bytes) -> Body:
    """Read a body. Raises: ValueError, it was written by another program or version."""
    return _BODY.validate_json(body)


def read_row(row: str) -> ReviewEvent:
    """Return a row of the audit trail, `number microseconds action code note`. Raises: StateUnavailable."""
    try:
        _, at, action, code, written = row.split(" ", 4)
        note = json.loads(written)
        return ReviewEvent(
            timestamp=moment(int(at)),
            action=QueueAction(action),
            actor=note["actor"],
            queue_id=note["queue_id"],
            detail=code if action == QueueAction.DENIED else note.get("detail"),
            delegated=code == "delegated",
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StateUnavailable("review queue: a row of the audit trail cannot be read") from None


def moment(microseconds: int) -> datetime:
    """Return the UTC time that is so many microseconds after 1970."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=microseconds)

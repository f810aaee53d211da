"""What a review queue holds, and what its stores must do."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Protocol

from groundwire.messages.decisions import EvidenceObject
from groundwire.validator import ValidationResult

DECIDED_SECONDS: Final = 7 * 86_400
"""How long it is remembered what became of a decided id. Its content is gone at once."""

MAX_NAME: Final = 200
"""Longest name in the audit trail, in characters: no owner has a longer one."""

EXPIRED_AT_ONCE: Final = 100
"""How many items of others one `enqueue` lets expire at most."""


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


class ReviewAction(StrEnum):
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
        detail: see `ReviewAction`; else None.
        delegated: the actor is not the owner and acted as a delegated reviewer (C-28).
    """

    timestamp: datetime
    action: ReviewAction
    actor: str
    queue_id: str
    detail: str | None
    delegated: bool


@dataclass(frozen=True, slots=True)
class Terms:
    """What a queue asks of its store with every call; times are microseconds.

    Attributes:
        now: since 1970, or None: the store's own clock.
        lease: how long an approval holds an item.
        ttl: how long an item may wait, or 0: for ever.
        audit_rows: rows kept for a user, of denied attempts and of everything else each.
    """

    now: int | None
    max_per_user: int
    max_total: int
    lease: int
    ttl: int
    audit_rows: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """Who asks for what. Tenants and users are digests: no name, however it is made, can be another.

    Attributes:
        owner: the digest of tenant and user: of the owner, or of who would have to be the owner.
        delegated: they may decide all items of the tenant.
        token: of this one attempt, so that a command sent twice by the connection is done once.
        actor: who asks, as named.
        detail: what else the audit trail should tell.
    """

    queue_id: str
    tenant: str
    owner: str
    delegated: bool
    token: str
    actor: str
    detail: str | None = None

    @property
    def note(self) -> str:
        """What a row of the audit trail says of it, as JSON; what callers name at will is cut."""
        note = {"actor": self.actor[:MAX_NAME], "queue_id": self.queue_id[:MAX_NAME]}
        return json.dumps(note if self.detail is None else {**note, "detail": self.detail})


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as a store gives it back; `at` is microseconds since 1970."""

    queue_id: str
    body: bytes
    at: int
    state: str
    error: str
    attempts: int


@dataclass(frozen=True, slots=True)
class Standing:
    """What there is under an id instead of something to decide; the state is None for those it is no business of."""

    state: str | None
    memory_id: str = ""


class ReviewStore(Protocol):
    """Where a queue keeps its items; every method is atomic.

    Raises:
        StateUnavailable: of every method: it did not answer in time; what was asked may have been done.
    """

    async def enqueue(self, attempt: Attempt, body: bytes, terms: Terms) -> str:
        """Add an item; return `ok`, or `user` or `total`: the limit that was reached."""
        ...

    async def pending(self, owner: str, limit: int, terms: Terms) -> list[StoredItem]:
        """Return pending items of an owner, oldest first."""
        ...

    async def get(self, queue_id: str, owner: str, terms: Terms) -> StoredItem | None:
        """Return an item that is pending or approving to its owner, else None."""
        ...

    async def begin(self, attempt: Attempt, terms: Terms) -> StoredItem | Standing:
        """Turn a pending item into an approving one, held for the lease."""
        ...

    async def settle(self, attempt: Attempt, memory_id: str, terms: Terms) -> Standing:
        """End an approval, with a memory id or, where that is empty, as failed; return what became of the item.

        A memory that was stored counts, however late: only an item decided otherwise stays as it is. A failure
        brings the item back only where nobody else approves it by now.
        """
        ...

    async def reject(self, attempt: Attempt, terms: Terms) -> Standing:
        """Turn a pending item into a rejected one; return `pending` where that was done, else what there is."""
        ...

    async def history(self, owner: str, limit: int) -> list[str]:
        """Return audit rows, newest first: number, microseconds, action, code and note with spaces between."""
        ...

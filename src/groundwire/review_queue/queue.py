"""The queue in which claims wait for a person to approve or reject them.

Where the rules come from: enqueueing S0-127, listing S0-128, approving S0-129, rejecting S0-130, who may S0-131,
S0-132 and C-28, limits S0-133 and S0-134, one call of the callback S0-135, history S0-136 and S0-137, a callback that
fails S0-140 and C-29, what is not there S0-142.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final, cast

from groundwire.errors import StateUnavailable
from groundwire.messages.claims import MemoryType
from groundwire.messages.decisions import EvidenceObject
from groundwire.review_queue.access import DelegatedReviewers, Delegates
from groundwire.review_queue.arguments import count, microseconds, new_attempt, owner_of, text
from groundwire.review_queue.body import Body, encode, read_item, read_row
from groundwire.review_queue.callback import StoreCallback, Storing
from groundwire.review_queue.errors import (
    ReviewNotFound,
    ReviewOvertaken,
    ReviewQueueFull,
    ReviewStoreFailed,
    ReviewUnauthorized,
)
from groundwire.review_queue.memory import MemoryReviewStore
from groundwire.review_queue.model import (
    Attempt,
    ItemState,
    PendingMemory,
    ReviewEvent,
    ReviewStore,
    Standing,
    StoredItem,
    Terms,
)
from groundwire.validator import ValidationResult

logger = logging.getLogger(__name__)

MAX_REASON: Final = 2_000
"""Longest reason of a rejection, in characters."""

_SHARE: Final = 0.8
"""Of the lease, what the callback gets: it must be over before anybody else may begin."""


class ReviewQueue:
    """Holds claims until their owners decide them (S0-125).

    `enqueue` adds a claim, `get_pending` shows a user theirs, `approve` stores one through `store_callback`,
    `reject` discards one, `history` tells what was done.

    Who decides: the owner, and nobody else unless `delegates` says so (C-28). The queue believes the `reviewer` and
    `user_id` that it is given: pass the identity that was signed in, never one that a request names. Whoever may
    not decide an item gets the same `ReviewUnauthorized` whether it exists or not.

    When storing fails: the item is pending again. Of approvals at the same time one calls `store_callback`. Where
    the process dies meanwhile, the item is pending again once its lease has run out, with `last_error`
    `store_interrupted`: the memory may be there already, and the next approval calls `store_callback` with the same
    `queue_id`, so store under it as the idempotency key (C-29). Whoever rejects such an item must see to that memory.

    Args:
        store_callback: stores an approved memory and returns its id (text, a number or a UUID). A function or a
            coroutine function; it is called with the evidence and, where it has parameters of these names, with
            `queue_id` and with `item`, the whole `PendingMemory`. It gets four fifths of the lease, then it is
            cancelled and has failed; a plain function runs in the event loop and cannot be, so it must be quick.
        store: a `RedisReviewStore`, which restarts survive and processes share; None: the memory of this process.
        max_per_user: items of one user, pending and being approved, at most.
        max_total: items of all users and tenants at most.
        review_ttl: seconds after which an item that nobody decided expires; None: never. All processes that share
            a queue must agree in this and the limits.
        lease: seconds for which an approval holds an item.
        audit_rows: rows of history kept for a user: as many denied attempts, and as many of everything else. They
            do not expire.
        delegates: who may decide all items of a tenant beside their owners: tenant id -> reviewer ids, or a
            function of tenant id and reviewer.
        clock: seconds since 1970; by default that of the store: this computer's, or the Redis server's.

    Raises:
        ValueError: an argument is out of range; the message names it.
        TypeError: `store_callback` cannot take what it would be called with.

    Example:
        >>> import asyncio
        >>> from groundwire import IngestionValidator
        >>> async def store_memory(evidence, *, queue_id):
        ...     return f"memory of {evidence.claim!r}"
        >>> async def main():
        ...     queue = ReviewQueue(store_callback=store_memory)
        ...     claim = {"content": "The API uses OAuth2", "memory_type": "fact", "source": "ai_synthesis"}
        ...     result = await IngestionValidator(enable_dedup=False).validate(**claim, user_id="ada")
        ...     queue_id = await queue.enqueue(
        ...         user_id="ada", **claim, evidence=result.evidence, validation_result=result
        ...     )
        ...     (item,) = await queue.get_pending("ada", limit=10)
        ...     print(item.validation_result.reason)
        ...     try:
        ...         await queue.approve(queue_id, reviewer="bob")
        ...     except PermissionError as error:
        ...         print(str(error).partition(":")[0])
        ...     print(await queue.approve(queue_id, reviewer="ada"))
        ...     print(*[f"{row.actor} {row.action}" for row in await queue.history("ada")], sep=", ")
        >>> asyncio.run(main())
        Ungrounded assertion needs verification
        Unauthorized
        memory of 'The API uses OAuth2'
        ada stored, ada approve, bob denied, ada enqueue
    """

    def __init__(  # noqa: PLR0913 - independent settings, each with a default
        self,
        store_callback: StoreCallback,
        *,
        store: ReviewStore | None = None,
        max_per_user: int = 100,
        max_total: int = 10_000,
        review_ttl: float | None = None,
        lease: float = 60.0,
        audit_rows: int = 1_000,
        delegates: Delegates | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._storing = Storing(store_callback)
        self._store = MemoryReviewStore() if store is None else store
        self._max_per_user = count("max_per_user", max_per_user)
        self._max_total = count("max_total", max_total)
        self._ttl = 0 if review_ttl is None else microseconds("review_ttl", review_ttl)
        self._lease = microseconds("lease", lease)
        self._audit_rows = count("audit_rows", audit_rows)
        self._delegates = DelegatedReviewers(delegates)
        self._clock = clock

    async def enqueue(
        self,
        user_id: str,
        content: str,
        memory_type: str,
        source: str,
        evidence: EvidenceObject,
        validation_result: ValidationResult,
        metadata: dict[str, Any] | None = None,
        tenant_id: str = "default",
    ) -> str:
        """Add a claim for its owner to decide.

        Args:
            user_id: the owner, 1 to 200 characters.
            content: the claim, 1 to 20,000 characters.
            memory_type: `fact`, `preference` or `decision`.
            source: who says so, 1 to 100 characters.
            evidence: what the store callback will be called with.
            validation_result: why a person has to decide.
            metadata: what else the reviewer or the callback should see: JSON, at most 16,000 bytes.
            tenant_id: the owner's tenant, 1 to 100 of `A-Za-z0-9._-`.

        Returns:
            The queue id, a UUID.

        Raises:
            ReviewQueueFull: the user has 100 items, or the queue 10,000.
            ValueError: a field cannot be taken; the message names it.
            StateUnavailable: the store did not answer; the item may have been added.
        """
        body = encode(
            Body(
                tenant_id=tenant_id,
                user_id=user_id,
                content=content,
                memory_type=cast("MemoryType", memory_type),  # encode refuses what is none
                source=source,
                evidence=evidence,
                validation_result=validation_result,
                metadata={} if metadata is None else metadata,
            )
        )
        queue_id = str(uuid.uuid4())
        attempt = new_attempt(queue_id, user_id, tenant_id)
        answer = await self._store.enqueue(attempt, body, self._terms())
        if answer != "ok":
            raise ReviewQueueFull(answer, self._max_per_user if answer == "user" else self._max_total)
        return queue_id

    async def get_pending(
        self, user_id: str, limit: int = 10, *, tenant_id: str = "default"
    ) -> list[PendingMemory]:
        """Return the items of a user that wait for a decision, oldest first.

        Raises:
            ValueError: `limit` is below 1, or an id is no text.
            StateUnavailable: the store did not answer.
        """
        owner = owner_of(tenant_id, "user_id", user_id)
        found = await self._store.pending(owner, count("limit", limit), self._terms())
        return [read_item(item) for item in found]

    async def get_by_id(
        self, queue_id: str, user_id: str, *, tenant_id: str = "default"
    ) -> PendingMemory | None:
        """Return an item that is pending or being approved to its owner.

        Returns:
            None for everybody else and where there is no such item: it cannot be told which.

        Raises:
            ValueError: an id is no text.
            StateUnavailable: the store did not answer.
        """
        owner = owner_of(tenant_id, "user_id", user_id)
        item = await self._store.get(text("queue_id", queue_id), owner, self._terms())
        return None if item is None else read_item(item)

    async def approve(self, queue_id: str, reviewer: str, *, tenant_id: str = "default") -> str:
        """Store an item through the callback.

        Returns:
            The memory id.

        Raises:
            ReviewUnauthorized: there is no such item for this reviewer.
            ReviewNotFound: it is decided already or being approved; `state` and `memory_id` tell, for a week.
            ReviewStoreFailed: the callback failed, its exception is the cause; the item is pending again.
            ReviewOvertaken: the memory was stored, but after the item had been decided otherwise.
            ValueError: an id is no text.
            StateUnavailable: the store did not answer. Where the callback had been called, a note of the error says
                so; the item is pending again when its lease has run out, unless it is stored.
        """
        delegated = await self._has_role(tenant_id, reviewer)
        attempt = new_attempt(queue_id, reviewer, tenant_id, delegated=delegated)
        begun = await self._store.begin(attempt, self._terms())
        if isinstance(begun, Standing):
            raise _refusal(queue_id, begun)
        try:
            memory_id = await self._call(begun)
        except asyncio.CancelledError:
            with suppress(StateUnavailable):
                await asyncio.shield(self._settle(attempt, failed="CancelledError"))
            raise
        except Exception as error:  # noqa: BLE001 - whatever the callback raises: the item must come back
            return await self._failed(attempt, error)
        try:
            standing = await asyncio.shield(self._settle(attempt, memory_id))
        except StateUnavailable as error:
            error.add_note(f"the memory of {queue_id} is stored, which could not be noted")
            raise
        if standing.state in (ItemState.REJECTED, ItemState.EXPIRED):
            raise ReviewOvertaken(queue_id, standing.state, memory_id)
        return memory_id

    async def reject(self, queue_id: str, reviewer: str, reason: str, *, tenant_id: str = "default") -> None:
        """Discard an item; the reason goes into the owner's history.

        Args:
            queue_id: the item.
            reviewer: who was signed in.
            reason: 1 to 2,000 characters.
            tenant_id: the reviewer's tenant.

        Raises:
            ReviewUnauthorized: as for `approve`.
            ReviewNotFound: as for `approve`.
            ValueError: an id is no text, or the reason is empty or too long.
            StateUnavailable: the store did not answer; the item may have been rejected.
        """
        if not 1 <= len(text("reason", reason)) <= MAX_REASON:
            raise ValueError(f"reason: must have 1 to {MAX_REASON} characters, not {len(reason)}")
        delegated = await self._has_role(tenant_id, reviewer)
        attempt = new_attempt(queue_id, reviewer, tenant_id, delegated=delegated, detail=reason)
        standing = await self._store.reject(attempt, self._terms())
        if standing.state != ItemState.PENDING:
            raise _refusal(queue_id, standing)

    async def history(
        self, user_id: str, limit: int = 50, *, tenant_id: str = "default"
    ) -> list[ReviewEvent]:
        """Return what was done with a user's items, and what the user tried in vain, newest first.

        Raises:
            ValueError: `limit` is below 1, or an id is no text.
            StateUnavailable: the store did not answer.
        """
        owner = owner_of(tenant_id, "user_id", user_id)
        return [read_row(row) for row in await self._store.history(owner, count("limit", limit))]

    async def _has_role(self, tenant_id: str, reviewer: str) -> bool:
        return await self._delegates.has(text("tenant_id", tenant_id), text("reviewer", reviewer))

    async def _call(self, begun: StoredItem) -> str:
        async with asyncio.timeout(self._lease / 1e6 * _SHARE):
            return await self._storing(read_item(begun))

    async def _failed(self, attempt: Attempt, error: Exception) -> str:
        """Bring the item back, and say so; unless another process has stored it meanwhile."""
        kind = type(error).__name__
        logger.warning("storing %s failed: %s", attempt.queue_id, kind)
        try:
            standing = await asyncio.shield(self._settle(attempt, failed=kind))
        except StateUnavailable:
            raise ReviewStoreFailed(attempt.queue_id, f"the callback raised {kind}", noted=False) from error
        if standing.state == ItemState.STORED:
            return standing.memory_id
        raise ReviewStoreFailed(attempt.queue_id, f"the callback raised {kind}") from error

    async def _settle(self, attempt: Attempt, memory_id: str = "", *, failed: str = "") -> Standing:
        told = replace(attempt, detail=memory_id or failed)
        return await self._store.settle(told, memory_id, self._terms())

    def _terms(self) -> Terms:
        return Terms(
            now=None if self._clock is None else round(self._clock() * 1e6),
            max_per_user=self._max_per_user,
            max_total=self._max_total,
            lease=self._lease,
            ttl=self._ttl,
            audit_rows=self._audit_rows,
        )


def _refusal(queue_id: str, standing: Standing) -> ReviewNotFound:
    if standing.state is None:
        return ReviewUnauthorized(queue_id)
    return ReviewNotFound(queue_id, standing.state, standing.memory_id or None)

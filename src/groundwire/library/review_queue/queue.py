"""The queue in which claims wait for a person to approve or reject them.

Where the rules come from: enqueueing S0-127, listing S0-128, approving S0-129, rejecting S0-130, who may S0-131,
S0-132 and C-28, limits S0-133 and S0-134, one call of the callback S0-135, history S0-136 and S0-137, a callback that
fails S0-140 and C-29, what is not there S0-142.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import logging
import math
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, cast
from uuid import UUID

from groundwire.errors import StateUnavailable
from groundwire.library.review_queue import rules
from groundwire.library.review_queue.model import (
    Body,
    ItemState,
    PendingMemory,
    ReviewEvent,
    ReviewNotFound,
    ReviewOvertaken,
    ReviewQueueFull,
    ReviewStoreFailed,
    decode,
    encode,
    moment,
    read_row,
)
from groundwire.library.review_queue.rules import (
    Attempt,
    Entries,
    MemoryReviewStore,
    ReviewStore,
    StoreChange,
    StoredItem,
    T,
    Terms,
)
from groundwire.library.validator import ValidationResult
from groundwire.messages.decisions import EvidenceObject, IngestionTier
from groundwire.messages.records import MemoryType

logger = logging.getLogger(__name__)

_AT_ONCE: Final = 50
"""How many items one transaction looks at, at most: the server has others to serve."""

MemoryId = str | int | UUID
StoreCallback = Callable[..., MemoryId | Awaitable[MemoryId]]

Role = Callable[[str, str], bool | Awaitable[bool]]
"""Says of a tenant id and a reviewer whether the reviewer may decide every item of the tenant."""

Delegates = Mapping[str, Collection[str]] | Role
"""Tenant id -> ids of its delegated reviewers, or a function that says who is one."""

Rule = Callable[[Entries, Attempt], T]


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

    Every method raises `ValueError` for an argument that it cannot take and names it, and `StateUnavailable` where
    the store does not answer; what was asked may have been done then.

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
        self._callback = store_callback
        self._keywords = _keywords(store_callback)
        self._store = MemoryReviewStore() if store is None else store
        self._terms = Terms(
            now=None,
            max_per_user=_count("max_per_user", max_per_user),
            max_total=_count("max_total", max_total),
            lease=_microseconds("lease", lease),
            ttl=0 if review_ttl is None else _microseconds("review_ttl", review_ttl),
            audit_rows=_count("audit_rows", audit_rows),
        )
        self._role = _role(delegates)
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
            ValueError: as everywhere; and where the evidence, which is what will be stored, holds another text, or the
                claim is blocked, which nobody may approve.
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
        if evidence.claim != content:
            raise ValueError("evidence: its claim is another text than content")
        if validation_result.tier == IngestionTier.BLOCK:
            raise ValueError("validation_result: the claim is blocked, and nobody may approve it")
        attempt = _attempt(str(uuid.uuid4()), user_id, tenant_id)
        if self._terms.ttl:
            await self._expire(attempt.owner)
            await self._expire("", 100)
        answer = await self._change("enqueue", partial(rules.enqueue, body=body), attempt, attempt.owner)
        if answer != "ok":
            limits = {"user": self._terms.max_per_user, "total": self._terms.max_total}
            raise ReviewQueueFull(answer, limits[answer])
        return attempt.queue_id

    async def get_pending(
        self, user_id: str, limit: int = 10, *, tenant_id: str = "default"
    ) -> list[PendingMemory]:
        """Return the items of a user that wait for a decision, oldest first."""
        owner = _owner(tenant_id, user_id)
        size = min(_count("limit", limit), _AT_ONCE)
        found: list[PendingMemory] = []
        async for item in self._looked_at("pending", owner, size):
            if item.state == ItemState.PENDING:
                found.append(_shown(item))
            if len(found) == limit:
                break
        return found

    async def get_by_id(
        self, queue_id: str, user_id: str, *, tenant_id: str = "default"
    ) -> PendingMemory | None:
        """Return an item that is pending or being approved to its owner.

        Returns:
            None for everybody else and where there is no such item: it cannot be told which.
        """
        owner = _owner(tenant_id, user_id)
        rule = partial(rules.get, queue_id=_text("queue_id", queue_id), owner=owner)
        item = await self._store.change(StoreChange("get", (queue_id,), rule, self._now()))
        return None if item is None else _shown(item)

    async def approve(self, queue_id: str, reviewer: str, *, tenant_id: str = "default") -> str:
        """Store an item through the callback.

        Returns:
            The memory id.

        Raises:
            ReviewUnauthorized: there is no such item for this reviewer.
            ReviewNotFound: it is decided already or being approved; `state` and `memory_id` tell, for a week.
            ReviewStoreFailed: the callback failed, its exception is the cause; the item is pending again.
            ReviewOvertaken: the memory was stored, but after the item had been decided otherwise.
            StateUnavailable: as everywhere. Where the callback had been called, a note of the error says so; the
                item is pending again when its lease has run out, unless it is stored.
        """
        attempt = await self._reviewer(queue_id, reviewer, tenant_id)
        begun = await self._change("begin", rules.begin, attempt)
        if isinstance(begun, ReviewNotFound):
            raise begun
        try:
            memory_id = await self._call(begun)
        except asyncio.CancelledError:
            with suppress(StateUnavailable):
                await self._settle(rules.store_failed, attempt, "CancelledError")
            raise
        except Exception as error:
            kind = type(error).__name__
            logger.warning("storing %s failed: %s", queue_id, kind)
            try:
                settled = await self._settle(rules.store_failed, attempt, kind)
            except StateUnavailable:
                raise ReviewStoreFailed(queue_id, f"the callback raised {kind}", noted=False) from error
            if settled and settled.state == ItemState.STORED:  # by another process, meanwhile
                return settled.memory
            raise ReviewStoreFailed(queue_id, f"the callback raised {kind}") from error
        try:
            settled = await self._settle(rules.stored, attempt, memory_id)
        except StateUnavailable as error:
            error.add_note(f"the memory of {queue_id} is stored, which could not be noted")
            raise
        if settled and settled.state in (ItemState.REJECTED, ItemState.EXPIRED):
            raise ReviewOvertaken(queue_id, settled.state, memory_id)
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
        """
        if not 1 <= len(_text("reason", reason)) <= 2_000:
            raise ValueError(f"reason: must have 1 to 2000 characters, not {len(reason)}")
        attempt = await self._reviewer(queue_id, reviewer, tenant_id)
        refused = await self._change("reject", rules.reject, replace(attempt, detail=reason))
        if refused:
            raise refused

    async def history(
        self, user_id: str, limit: int = 50, *, tenant_id: str = "default"
    ) -> list[ReviewEvent]:
        """Return what was done with a user's items, and what the user tried in vain, newest first."""
        owner = _owner(tenant_id, user_id)
        return [read_row(row) for row in await self._store.history(owner, _count("limit", limit))]

    async def _reviewer(self, queue_id: str, reviewer: str, tenant_id: str) -> Attempt:
        attempt = _attempt(queue_id, reviewer, tenant_id, "reviewer")
        answer = self._role(tenant_id, reviewer)
        delegated = (
            await answer if inspect.isawaitable(answer) else answer
        ) is True  # only a plain True delegates
        return replace(attempt, delegated=delegated)

    async def _call(self, begun: StoredItem) -> str:
        # four fifths of the lease: the callback must be over before anybody else may begin
        async with asyncio.timeout(self._terms.lease / 1e6 * 0.8):
            item = _shown(begun)
            offered: dict[str, Any] = {"queue_id": item.queue_id, "item": item}
            answer = self._callback(item.evidence, **{name: offered[name] for name in self._keywords})
            memory_id = await answer if inspect.isawaitable(answer) else answer
        if isinstance(memory_id, bool) or not isinstance(memory_id, (str, int, UUID)) or memory_id == "":
            raise TypeError(f"store_callback returned no memory id but {type(memory_id).__name__}")
        return str(memory_id)

    async def _settle(
        self, rule: Rule[StoredItem | None], attempt: Attempt, detail: str
    ) -> StoredItem | None:
        # shielded: noted even where the caller is cancelled
        return await asyncio.shield(self._change("settle", rule, replace(attempt, detail=detail)))

    async def _expire(self, owner: str, most: int = 0) -> None:
        async for item in self._looked_at("enqueue", owner, 1, most):
            if item.state == ItemState.PENDING:
                return

    async def _looked_at(self, name: str, owner: str, size: int, most: int = 0) -> AsyncIterator[StoredItem]:
        """Yield open items of an owner, or of all, as they stand now, oldest first; at first so many at once."""
        queue_ids = await self._store.waiting(name, owner, most)
        while queue_ids:
            some, queue_ids = queue_ids[:size], queue_ids[size:]
            rule = partial(rules.look, queue_ids=some)
            for item in await self._store.change(StoreChange(name, some, rule, self._now())):
                yield item
            size = min(2 * size, _AT_ONCE)

    async def _change(self, name: str, rule: Rule[T], attempt: Attempt, owner: str = "") -> T:
        def ruled(entries: Entries) -> T:
            return rule(entries, attempt)

        return await self._store.change(StoreChange(name, (attempt.queue_id,), ruled, self._now(), owner))

    def _now(self) -> Terms:
        return self._terms if self._clock is None else replace(self._terms, now=round(self._clock() * 1e6))


def _shown(item: StoredItem) -> PendingMemory:
    try:
        body = decode(item.body)
    except ValueError:
        raise StateUnavailable(f"review queue: the item {item.queue_id} cannot be read") from None
    return PendingMemory(
        queue_id=item.queue_id,
        submitted_at=moment(item.at),
        state=item.state,
        last_error=item.error or None,
        attempts=item.attempts,
        **{name: getattr(body, name) for name in Body.__slots__},
    )


def _attempt(queue_id: str, actor: str, tenant_id: str, named: str = "user_id") -> Attempt:
    return Attempt(
        queue_id=_text("queue_id", queue_id),
        tenant=_digest(_text("tenant_id", tenant_id)),
        owner=_owner(tenant_id, actor, named),
        delegated=False,
        token=uuid.uuid4().hex,
        actor=actor,
    )


def _owner(tenant_id: str, user_id: str, named: str = "user_id") -> str:
    return _digest(_text("tenant_id", tenant_id), _text(named, user_id))


def _digest(*names: str) -> str:
    text = "".join(f"{len(name)}:{name}" for name in names)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _text(name: str, value: object) -> str:
    """Return what is text, however it is made: whoever is named by it may be nobody."""
    if not isinstance(value, str):
        raise ValueError(f"{name}: must be text, not {type(value).__name__}")  # noqa: TRY004 - every bad value is a ValueError
    return value


def _count(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}: must be a whole number of at least 1, not {value!r}")
    return value


def _microseconds(name: str, seconds: object) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise ValueError(f"{name}: must be seconds above 0, not {seconds!r}")
    return max(1, round(seconds * 1e6))


def _role(delegates: Delegates | None) -> Role:
    if callable(delegates):
        return delegates
    if not isinstance(delegates, Mapping | None):
        raise ValueError("delegates: must be a mapping of tenants to reviewers, or a function")  # noqa: TRY004 - as above
    grants: dict[str, frozenset[str]] = {}
    for tenant, reviewers in (delegates or {}).items():
        if isinstance(reviewers, (str, bytes)) or not isinstance(reviewers, Collection):
            raise ValueError(f"delegates: the reviewers of {tenant!r} must be a collection of ids")  # noqa: TRY004 - as above
        grants[tenant] = frozenset(reviewers)
    return lambda tenant, reviewer: reviewer in grants.get(tenant, ())


def _keywords(callback: StoreCallback) -> tuple[str, ...]:
    """Return the keywords to call with: named parameters only, so that `**kwargs` get nothing they do not know."""
    if not callable(callback):
        raise ValueError("store_callback: must be a function")  # noqa: TRY004 - every bad value is a ValueError
    try:
        signature = inspect.signature(callback)
    except (ValueError, TypeError):  # some functions written in C do not tell
        return ()
    parameters = list(signature.parameters.values())[1:]  # the first takes the evidence, whatever its name is
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    wanted = tuple(p.name for p in parameters if p.kind in by_name and p.name in ("queue_id", "item"))
    try:
        signature.bind(None, **dict.fromkeys(wanted))
    except TypeError as error:
        call = ", ".join(["evidence", *(f"{name}=..." for name in wanted)])
        raise TypeError(
            f"store_callback: would be called as store_callback({call}), and takes {signature}: {error}; it must take"
            " the evidence first, and may have parameters queue_id and item"
        ) from None
    return wanted

"""The rules of the review queue: what a request does to the items, whichever store keeps them.

A rule is a function of `Entries`: what it is shown of a queue. It reads no clock and waits for nothing, so a store
may run it again where another process changed an item meanwhile. What a rule changes is written as a whole or not at
all. `MemoryReviewStore` keeps items in the memory of one process; `redis_store` has the store that processes share.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from groundwire.library.review_queue.model import ItemState, QueueAction, ReviewNotFound, ReviewUnauthorized

DECIDED_SECONDS: Final = 7 * 86_400
"""How long it is remembered what became of a decided id. Its content is gone at once."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Terms:
    """What a queue asks of its store with every call; times are microseconds.

    `now` is since 1970, or None: the store's own clock. `ttl`: how long an item may wait, 0: for ever. `audit_rows`:
    kept for a user, of denied attempts and of everything else each.
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

    `owner`: the digest of tenant and user, of who would have to be the owner. `delegated`: the actor may decide all
    items of the tenant. `token`: of this one attempt, so that one repeated after a broken connection is done once.
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
        """What a row of the audit trail says of it, as JSON; names are cut at the 200 characters of an owner's."""
        note = {"actor": self.actor[:200], "queue_id": self.queue_id[:200]}
        return json.dumps(note if self.detail is None else {**note, "detail": self.detail})


@dataclass(frozen=True, slots=True)
class StoredItem:
    """An item as stores keep it; times are microseconds since 1970.

    `body`: what was enqueued, as JSON; empty once it is decided. `token`: of the attempt that changed it last. `ends`:
    when the lease ends; of a decided item, when it is forgotten. `error`: `store_failed` or `store_interrupted`.
    """

    queue_id: str
    owner: str
    tenant: str
    at: int
    body: bytes
    state: ItemState = ItemState.PENDING
    token: str = ""
    ends: int = 0
    error: str = ""
    attempts: int = 0
    memory: str = ""

    @property
    def open(self) -> bool:
        """Whether it is not decided: it takes a place and has one in the order."""
        return self.state in (ItemState.PENDING, ItemState.APPROVING)

    def decided_by(self, attempt: Attempt) -> bool:
        """Say whether who asks may decide it (S0-131, C-28)."""
        return self.owner == attempt.owner or (attempt.delegated and self.tenant == attempt.tenant)


@dataclass(slots=True)
class Entries:
    """What one transaction sees of a queue, and what it changes.

    `own` and `total`: open items of the owner and of all, known only where an item is added. `rows`: audit rows to
    write, each with its list: `a:` and an owner, or `d:` and an owner for denied attempts, which so push nothing else
    out. A row is `microseconds action code note`; stores put a number before it.
    """

    terms: Terms
    now: int
    items: dict[str, StoredItem]
    own: int = 0
    total: int = 0
    changed: dict[str, StoredItem] = field(default_factory=dict)
    rows: list[tuple[str, str]] = field(default_factory=list)

    def find(self, queue_id: str) -> StoredItem | None:
        """Return an item as it was left; None where there is none, or what became of it is forgotten."""
        item = self.items.get(queue_id)
        return None if item is None or (not item.open and item.ends <= self.now) else item

    def look(self, queue_id: str) -> StoredItem | None:
        """Return an item as it stands now: a lease may have run out, or its time."""
        item = self.find(queue_id)
        if item and item.state == ItemState.APPROVING and item.ends <= self.now:
            item = self.put(replace(item, state=ItemState.PENDING, error="store_interrupted"))
        if item and item.state == ItemState.PENDING and 0 < self.terms.ttl <= self.now - item.at:
            item = self.finish(item, ItemState.EXPIRED)
            note = json.dumps({"actor": "groundwire", "queue_id": queue_id})
            self.note(item.owner, QueueAction.EXPIRED, "-", note)
        return item

    def put(self, item: StoredItem) -> StoredItem:
        """Change an item, or add one."""
        self.items[item.queue_id] = self.changed[item.queue_id] = item
        return item

    def finish(self, item: StoredItem, state: ItemState) -> StoredItem:
        """Note what became of an item, for a week; its content goes."""
        return self.put(replace(item, state=state, body=b"", ends=self.now + DECIDED_SECONDS * 1_000_000))

    def note(self, owner: str, action: QueueAction, code: str, note: str) -> None:
        """Write a row into an owner's audit trail."""
        kind = "d" if action == QueueAction.DENIED else "a"
        self.rows.append((f"{kind}:{owner}", f"{self.now} {action} {code} {note}"))

    def note_of(self, item: StoredItem, action: QueueAction, attempt: Attempt) -> None:
        """Write what was done with an item into its owner's audit trail."""
        code = "-" if item.owner == attempt.owner else "delegated"
        self.note(item.owner, action, code, attempt.note)


def enqueue(entries: Entries, attempt: Attempt, body: bytes) -> str:
    """Add an item; return `ok`, or `user` or `total`: the limit that was reached. Never takes another's place."""
    if attempt.queue_id in entries.items:  # asked again after a connection broke
        return "ok"
    full = "user" if entries.own >= entries.terms.max_per_user else ""
    if not full and entries.total >= entries.terms.max_total:
        full = "total"
    if full:
        entries.note(attempt.owner, QueueAction.DENIED, "queue_full", attempt.note)
        return full
    item = entries.put(StoredItem(attempt.queue_id, attempt.owner, attempt.tenant, entries.now, body))
    entries.note_of(item, QueueAction.ENQUEUE, attempt)
    return "ok"


def look(entries: Entries, queue_ids: Iterable[str]) -> list[StoredItem]:
    """Return items as they stand now."""
    return [item for queue_id in queue_ids if (item := entries.look(queue_id))]


def get(entries: Entries, queue_id: str, owner: str) -> StoredItem | None:
    """Return an open item to its owner."""
    item = entries.find(queue_id)
    if item is None or item.owner != owner:
        return None
    item = entries.look(queue_id)
    return item if item and item.open else None


def begin(entries: Entries, attempt: Attempt) -> StoredItem | ReviewNotFound:
    """Turn a pending item into an approving one, held for the lease."""
    item = entries.look(attempt.queue_id)
    if item and item.state == ItemState.APPROVING and item.token == attempt.token:  # asked again, as above
        return item
    if item is None or not item.decided_by(attempt) or item.state != ItemState.PENDING:
        return _deny(entries, attempt, item)
    item = replace(item, state=ItemState.APPROVING, token=attempt.token, attempts=item.attempts + 1)
    item = entries.put(replace(item, ends=entries.now + entries.terms.lease))
    entries.note_of(item, QueueAction.APPROVE, attempt)
    return item


def stored(entries: Entries, attempt: Attempt) -> StoredItem | None:
    """End an approval whose detail is the memory id; return what became of the item.

    A memory that was stored counts, however late: only an item that was decided otherwise stays as it is.
    """
    item = entries.find(attempt.queue_id)
    # asked again, as above
    if item is None or (item.state == ItemState.STORED and item.token == attempt.token):
        return item
    late = item.state in (ItemState.REJECTED, ItemState.EXPIRED)
    if item.open:
        item = replace(item, memory=attempt.detail or "", token=attempt.token)
        item = entries.finish(item, ItemState.STORED)
    entries.note_of(item, QueueAction.STORED_LATE if late else QueueAction.STORED, attempt)
    return item


def store_failed(entries: Entries, attempt: Attempt) -> StoredItem | None:
    """End an approval whose callback failed: the item comes back, unless somebody else approves it by now."""
    item = entries.find(attempt.queue_id)
    if item is None:
        return None
    if item.open and item.token == attempt.token:
        if item.state == ItemState.PENDING and item.error == "store_failed":  # asked again, as above
            return item
        item = entries.put(replace(item, state=ItemState.PENDING, error="store_failed"))
    entries.note_of(item, QueueAction.STORE_FAILED, attempt)
    return item


def reject(entries: Entries, attempt: Attempt) -> ReviewNotFound | None:
    """Turn a pending item into a rejected one."""
    item = entries.look(attempt.queue_id)
    if item and item.state == ItemState.REJECTED and item.token == attempt.token:  # asked again, as above
        return None
    if item is None or not item.decided_by(attempt) or item.state != ItemState.PENDING:
        return _deny(entries, attempt, item)
    entries.finish(replace(item, token=attempt.token), ItemState.REJECTED)
    entries.note_of(item, QueueAction.REJECT, attempt)
    return None


def _deny(entries: Entries, attempt: Attempt, item: StoredItem | None) -> ReviewNotFound:
    """Note an attempt that was refused with who tried and, where there is an item, with its owner."""
    state = item.state if item and item.decided_by(attempt) else None
    for owner in dict.fromkeys((attempt.owner, item.owner if item else attempt.owner)):
        entries.note(owner, QueueAction.DENIED, state or "unauthorized", attempt.note)
    if item is None or state is None:
        return ReviewUnauthorized(attempt.queue_id)
    return ReviewNotFound(attempt.queue_id, state, item.memory or None)


@dataclass(frozen=True, slots=True)
class StoreChange(Generic[T]):
    """What a store is asked to do in one transaction: apply a rule to the items of `queue_ids`.

    `name`: what the caller asked for, which errors tell. `owner`: who adds an item, so that `Entries` has its counts.
    """

    name: str
    queue_ids: Sequence[str]
    rule: Callable[[Entries], T]
    terms: Terms
    owner: str = ""


class ReviewStore(Protocol):
    """Where a queue keeps its items.

    Raises:
        StateUnavailable: of every method: it did not answer in time; what was asked may have been done.
    """

    async def change(self, change: StoreChange[T]) -> T:
        """Show a rule what it needs and write what it changes: as a whole, and as if nobody else were there."""
        ...

    async def waiting(self, name: str, owner: str = "", most: int = 0) -> list[str]:
        """Return ids of open items of an owner, or of all, oldest first; `most`: so many at most, 0 for all."""
        ...

    async def history(self, owner: str, limit: int) -> list[str]:
        """Return audit rows, newest first: number, microseconds, action, code and note with spaces between."""
        ...


class MemoryReviewStore:
    """Keeps items in memory, for tests and where a restart may forget them (C-31). Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: dict[str, StoredItem] = {}
        # by owner, "": all; oldest first
        self._waiting: defaultdict[str, dict[str, None]] = defaultdict(dict)
        self._decided: dict[str, None] = {}  # first decided first
        self._trail: dict[str, deque[tuple[int, str]]] = {}
        self._number = 0

    async def change(self, change: StoreChange[T]) -> T:
        """See `ReviewStore`."""
        terms = change.terms
        with self._lock:
            now = time.time_ns() // 1000 if terms.now is None else terms.now
            while self._decided and self._items[first := next(iter(self._decided))].ends <= now:
                del self._decided[first], self._items[first]
            items = {
                queue_id: self._items[queue_id] for queue_id in change.queue_ids if queue_id in self._items
            }
            own = len(self._waiting.get(change.owner, ()))
            entries = Entries(terms, now, items, own, len(self._waiting[""]))
            answer = change.rule(entries)
            for item in entries.changed.values():
                self._write(item)
            for name, row in entries.rows:
                self._number += 1
                rows = self._trail.setdefault(name, deque())
                rows.appendleft((self._number, f"{self._number} {row}"))
                while len(rows) > terms.audit_rows:
                    rows.pop()
        return answer

    async def waiting(self, name: str, owner: str = "", most: int = 0) -> list[str]:  # noqa: ARG002 - it cannot fail
        """See `ReviewStore`."""
        with self._lock:
            return list(islice(self._waiting.get(owner, ()), most or None))

    async def history(self, owner: str, limit: int) -> list[str]:
        """See `ReviewStore`."""
        with self._lock:
            rows = [row for kind in "ad" for row in islice(self._trail.get(f"{kind}:{owner}", ()), limit)]
        return [text for _, text in sorted(rows, reverse=True)[:limit]]

    def _write(self, item: StoredItem) -> None:
        self._items[item.queue_id] = item
        for owner in ("", item.owner):
            if item.open:
                self._waiting[owner][item.queue_id] = None  # which keeps its place
                continue
            self._waiting[owner].pop(item.queue_id, None)
            if not self._waiting[owner]:
                del self._waiting[owner]
        if not item.open:
            self._decided[item.queue_id] = None

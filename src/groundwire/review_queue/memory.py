"""The review queue's items in the memory of one process: for tests, and where a restart may forget them (C-31)."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import islice

from groundwire.review_queue.model import (
    DECIDED_SECONDS,
    EXPIRED_AT_ONCE,
    Attempt,
    ItemState,
    ReviewAction,
    Standing,
    StoredItem,
    Terms,
)

_OPEN = (ItemState.PENDING, ItemState.APPROVING)


@dataclass(slots=True)
class _Item:
    queue_id: str
    tenant: str
    owner: str
    body: bytes
    at: int
    state: str = ItemState.PENDING
    token: str = ""
    ends: int = 0  # of the lease; of a decided item, of what is remembered of it
    error: str = ""
    attempts: int = 0
    memory_id: str = ""

    def stored(self) -> StoredItem:
        return StoredItem(self.queue_id, self.body, self.at, self.state, self.error, self.attempts)

    def open_to(self, attempt: Attempt) -> bool:
        """Say whether who asks may decide it."""
        return self.owner == attempt.owner or (attempt.delegated and self.tenant == attempt.tenant)

    def code(self, attempt: Attempt) -> str:
        return "-" if self.owner == attempt.owner else "delegated"


class MemoryReviewStore:
    """Keeps items in memory; what it does is what the scripts of `RedisReviewStore` do. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: dict[str, _Item] = {}
        self._waiting: OrderedDict[str, None] = OrderedDict()  # oldest first; approving ones too
        self._of_owner: dict[str, OrderedDict[str, None]] = {}
        self._decided: OrderedDict[str, None] = OrderedDict()  # first decided first
        self._trail: dict[tuple[str, str], deque[tuple[int, str]]] = {}
        self._number = 0

    async def enqueue(self, attempt: Attempt, body: bytes, terms: Terms) -> str:
        """See `ReviewStore`."""
        with self._lock:
            now = _now(terms)
            self._forget_decided(now)
            self._expire(self._of_owner.get(attempt.owner, {}), None, now, terms)
            self._expire(self._waiting, EXPIRED_AT_ONCE, now, terms)
            full = self._full(attempt.owner, terms)
            if full:
                self._note(
                    "denied", attempt.owner, ReviewAction.DENIED, "queue_full", attempt.note, now, terms
                )
                return full
            item = _Item(attempt.queue_id, attempt.tenant, attempt.owner, body, now)
            self._items[item.queue_id] = item
            self._waiting[item.queue_id] = None
            self._of_owner.setdefault(item.owner, OrderedDict())[item.queue_id] = None
            self._note("done", item.owner, ReviewAction.ENQUEUE, "-", attempt.note, now, terms)
            return "ok"

    async def pending(self, owner: str, limit: int, terms: Terms) -> list[StoredItem]:
        """See `ReviewStore`."""
        with self._lock:
            now = _now(terms)
            items = (self._load(queue_id, now, terms) for queue_id in list(self._of_owner.get(owner, ())))
            pending = (item.stored() for item in items if item and item.state == ItemState.PENDING)
            return list(islice(pending, limit))

    async def get(self, queue_id: str, owner: str, terms: Terms) -> StoredItem | None:
        """See `ReviewStore`."""
        with self._lock:
            item = self._items.get(queue_id)
            if item is None or item.owner != owner:
                return None
            self._load(queue_id, _now(terms), terms)
            return item.stored() if item.state in _OPEN else None

    async def begin(self, attempt: Attempt, terms: Terms) -> StoredItem | Standing:
        """See `ReviewStore`."""
        with self._lock:
            now = _now(terms)
            item = self._load(attempt.queue_id, now, terms)
            if item is None or not item.open_to(attempt) or item.state != ItemState.PENDING:
                return self._deny(attempt, item, now, terms)
            item.state, item.token, item.ends = ItemState.APPROVING, attempt.token, now + terms.lease
            item.attempts += 1
            self._note("done", item.owner, ReviewAction.APPROVE, item.code(attempt), attempt.note, now, terms)
            return item.stored()

    async def settle(self, attempt: Attempt, memory_id: str, terms: Terms) -> Standing:
        """See `ReviewStore`."""
        with self._lock:
            now = _now(terms)
            item = self._read(attempt.queue_id, now)
            if item is None:
                return Standing(None)
            action = ReviewAction.STORE_FAILED
            if memory_id:
                late = item.state in (ItemState.REJECTED, ItemState.EXPIRED)
                action = ReviewAction.STORED_LATE if late else ReviewAction.STORED
            if memory_id and item.state in _OPEN:
                item.memory_id = memory_id
                self._finish(item, ItemState.STORED, now)
            elif not memory_id and item.state in _OPEN and item.token == attempt.token:
                item.state, item.error = ItemState.PENDING, "store_failed"
            self._note("done", item.owner, action, item.code(attempt), attempt.note, now, terms)
            return Standing(item.state, item.memory_id)

    async def reject(self, attempt: Attempt, terms: Terms) -> Standing:
        """See `ReviewStore`."""
        with self._lock:
            now = _now(terms)
            item = self._load(attempt.queue_id, now, terms)
            if item is None or not item.open_to(attempt) or item.state != ItemState.PENDING:
                return self._deny(attempt, item, now, terms)
            self._finish(item, ItemState.REJECTED, now)
            self._note("done", item.owner, ReviewAction.REJECT, item.code(attempt), attempt.note, now, terms)
            return Standing(ItemState.PENDING)

    async def history(self, owner: str, limit: int) -> list[str]:
        """See `ReviewStore`."""
        with self._lock:
            rows = [
                row
                for kind in ("done", "denied")
                for row in islice(self._trail.get((kind, owner), ()), limit)
            ]
        return [text for _, text in sorted(rows, reverse=True)[:limit]]

    def _full(self, owner: str, terms: Terms) -> str:
        if len(self._of_owner.get(owner, ())) >= terms.max_per_user:
            return "user"
        return "total" if len(self._waiting) >= terms.max_total else ""

    def _read(self, queue_id: str, now: int) -> _Item | None:
        item = self._items.get(queue_id)
        return None if item is None or (item.state not in _OPEN and item.ends <= now) else item

    def _load(self, queue_id: str, now: int, terms: Terms) -> _Item | None:
        """Return an item as it stands now: a lease may have run out, or its time."""
        item = self._read(queue_id, now)
        if item is None:
            return None
        if item.state == ItemState.APPROVING and item.ends <= now:
            item.state, item.error = ItemState.PENDING, "store_interrupted"
        if item.state == ItemState.PENDING and terms.ttl and item.at + terms.ttl <= now:
            self._finish(item, ItemState.EXPIRED, now)
            note = f'{{"actor":"groundwire","queue_id":"{queue_id}"}}'
            self._note("done", item.owner, ReviewAction.EXPIRED, "-", note, now, terms)
        return item

    def _expire(self, waiting: dict[str, None], most: int | None, now: int, terms: Terms) -> None:
        """Let items expire whose time is over, from the oldest on until one has time left."""
        for queue_id in list(islice(waiting, most)) if terms.ttl else ():
            self._load(queue_id, now, terms)
            if self._items[queue_id].at + terms.ttl > now:
                return

    def _finish(self, item: _Item, state: ItemState, now: int) -> None:
        item.state, item.body, item.ends = state, b"", now + DECIDED_SECONDS * 1_000_000
        del self._waiting[item.queue_id]
        of_owner = self._of_owner[item.owner]
        del of_owner[item.queue_id]
        if not of_owner:
            del self._of_owner[item.owner]
        self._decided[item.queue_id] = None

    def _forget_decided(self, now: int) -> None:
        while self._decided and self._items[next(iter(self._decided))].ends <= now:
            queue_id, _ = self._decided.popitem(last=False)
            del self._items[queue_id]

    def _deny(self, attempt: Attempt, item: _Item | None, now: int, terms: Terms) -> Standing:
        """Note an attempt that was refused with who tried and, where there is an item, with its owner."""
        state = item.state if item and item.open_to(attempt) else None
        for owner in dict.fromkeys((attempt.owner, item.owner if item else attempt.owner)):
            self._note(
                "denied", owner, ReviewAction.DENIED, state or "unauthorized", attempt.note, now, terms
            )
        return Standing(state, item.memory_id if item and state else "")

    def _note(self, kind: str, owner: str, action: str, code: str, note: str, now: int, terms: Terms) -> None:
        self._number += 1
        rows = self._trail.setdefault((kind, owner), deque())
        rows.appendleft((self._number, f"{self._number} {now} {action} {code} {note}"))
        while len(rows) > terms.audit_rows:
            rows.pop()


def _now(terms: Terms) -> int:
    return time.time_ns() // 1000 if terms.now is None else terms.now

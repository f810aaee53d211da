"""Where the items of a review queue live: in the memory of one process; `redis_store` has those of many."""

from __future__ import annotations

import threading
import time
from collections import defaultdict, deque
from contextlib import nullcontext
from itertools import islice
from typing import Final

from groundwire.library.review_queue.rules import Entries, StoreChange, StoredItem, T

_PAUSE: Final = 0.002
"""Seconds, at most, before the second try of a transaction; before the third twice that, and so on."""

_ANYBODY: Final = nullcontext()

_FIELDS: Final = ("owner", "tenant", "at", "state", "token", "ends", "error", "attempts", "memory")
"""What the hash of an item has beside its body; the attributes of `StoredItem` have the same names."""


class MemoryReviewStore:
    """Keeps items in memory, for tests and where a restart may forget them (C-31). Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._items: dict[str, StoredItem] = {}
        self._waiting: defaultdict[str, dict[str, None]] = defaultdict(
            dict
        )  # by owner, "": all; oldest first
        self._decided: dict[str, None] = {}  # first decided first
        self._trail: dict[str, deque[tuple[int, str]]] = {}
        self._number = 0

    async def change(self, change: StoreChange[T]) -> T:
        """See `ReviewStore`."""
        terms = change.terms
        with self._lock:
            now = time.time_ns() // 1000 if terms.now is None else terms.now
            self._forget_decided(now)
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

    def _forget_decided(self, now: int) -> None:
        while self._decided and self._items[first := next(iter(self._decided))].ends <= now:
            del self._decided[first], self._items[first]

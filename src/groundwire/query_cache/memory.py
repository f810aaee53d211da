"""The validated-response cache of one process."""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from groundwire import metrics
from groundwire.query_cache.admission import LIFETIMES, CacheEntry, Refusal, lifetime, refusal


@dataclass(frozen=True, slots=True)
class _Kept:
    response: dict[str, Any]
    mode: str
    scope: str | None
    at: float

    def lives(self, now: float) -> bool:
        """Say whether it may be served; one from the future may not: the clock was set back."""
        return 0 <= now - self.at < lifetime(self.mode)


class QueryCache:
    """Keeps validated responses in memory, the least recently used go first (S2-28..S2-34).

    A response is served for less than its mode's lifetime; exactly at its end it is gone. Whoever serves several
    tenants or users puts them into the key: a key is all that a cache knows of who asks. May be used from
    several threads.

    Args:
        max_entries: entries kept at most (S2-32). When one more comes, those past their time go first.
        clock: seconds since 1970.

    Raises:
        ValueError: `max_entries` is below 1.

    Example:
        >>> cache = QueryCache()
        >>> good = {"answer": "5 [source:1]", "confidence": 0.9, "warnings": [], "validation": {"confidence": 0.9}}
        >>> cache.set("acme:how many?", good, mode="auto", scope="docs")
        True
        >>> cache.get("acme:how many?").response["answer"]
        '5 [source:1]'
        >>> cache.set("acme:who?", {**good, "confidence": 0.29})
        False
        >>> cache.invalidate_scope("docs")
        1
    """

    def __init__(self, max_entries: int = 1000, *, clock: Callable[[], float] = time.time) -> None:
        if max_entries < 1:
            raise ValueError(f"max_entries: must be at least 1, not {max_entries}")
        self._max_entries = max_entries
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _Kept] = OrderedDict()  # least recently used first
        self._by_age: dict[str, OrderedDict[str, None]] = {mode: OrderedDict() for mode in LIFETIMES}
        self._by_scope: dict[str, dict[str, None]] = {}

    def set(
        self, key: str, response: Mapping[str, Any], mode: str = "auto", scope: str | None = None
    ) -> bool:
        """Keep a copy of a response, in place of what was kept under the key.

        Args:
            key: what was asked, by whom.
            response: a mapping with `confidence`, `warnings` and `validation`; see `refusal`.
            mode: the mode that gave the answer: `instant`, `auto` or `thinking` (S2-31).
            scope: what can be invalidated together, e.g. a corpus (S2-33).

        Returns:
            False where it is refused; then what was kept under the key stays.

        Raises:
            ValueError: there is no such mode.
        """
        lifetime(mode)
        refused = refusal(response)
        kept = None if refused else _copy(response)
        if kept is None:
            metrics.QUERY_CACHE_SETS.labels(refused or Refusal.UNSTORABLE).inc()
            return False
        with self._lock:
            now = self._clock()
            self._forget(key)
            self._drop_expired(now)
            self._keep(key, _Kept(kept, mode, scope, now))
            if len(self._kept) > self._max_entries:
                self._drop(next(iter(self._kept)), "evicted")
        metrics.QUERY_CACHE_SETS.labels("stored").inc()
        return True

    def get(self, key: str) -> CacheEntry | None:
        """Return what is kept under a key, or None where there is nothing, or nothing of age."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and not kept.lives(self._clock()):
                self._drop(key, "expired")
                kept = None
            if kept is not None:
                self._kept.move_to_end(key)
        metrics.QUERY_CACHE_GETS.labels("miss" if kept is None else "hit").inc()
        return None if kept is None else CacheEntry(copy.deepcopy(kept.response), kept.at, kept.at)

    def invalidate_scope(self, scope: str) -> int:
        """Drop all entries of a scope (S2-33).

        An answer that was begun before and is set after is kept: where that can happen, the revision of what answers
        rest on belongs into the key.

        Returns:
            How many there were that could still have been served.
        """
        with self._lock:
            self._drop_expired(self._clock())
            keys = list(self._by_scope.get(scope, ()))
            for key in keys:
                self._drop(key, "invalidated")
        return len(keys)

    def _keep(self, key: str, kept: _Kept) -> None:
        self._kept[key] = kept
        self._by_age[kept.mode][key] = None
        if kept.scope is not None:
            self._by_scope.setdefault(kept.scope, {})[key] = None

    def _forget(self, key: str) -> None:
        kept = self._kept.pop(key, None)
        if kept is None:
            return
        del self._by_age[kept.mode][key]
        if kept.scope is not None:
            scope = self._by_scope[kept.scope]
            del scope[key]
            if not scope:
                del self._by_scope[kept.scope]

    def _drop(self, key: str, why: str) -> None:
        self._forget(key)
        metrics.QUERY_CACHE_DROPPED.labels(why).inc()

    def _drop_expired(self, now: float) -> None:
        """Drop what is past its time: of a mode, the first stored is the first to go, so the rest is not looked at."""
        for keys in self._by_age.values():
            while keys and not self._kept[next(iter(keys))].lives(now):
                self._drop(next(iter(keys)), "expired")


def _copy(response: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        return copy.deepcopy(dict(response))
    except (TypeError, ValueError, RecursionError):  # a lock, a generator, a structure without end
        return None

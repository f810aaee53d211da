"""Answers that passed validation, kept for those who ask again (S2-28..S2-34, C-47).

`QueryCache` lives in the process; `groundwire.library.query_cache.redis.RedisQueryCache` has the same methods,
awaited, and is shared by all processes of a deployment.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from cachetools import Cache, TLRUCache

from groundwire import metrics
from groundwire.arguments import takes

LIFETIMES: Final[Mapping[str, int]] = MappingProxyType({"instant": 120, "auto": 300, "thinking": 900})
"""Seconds for which an answer is served, by the mode that gave it (S2-31)."""

LEAST_CONFIDENCE: Final = 0.3
"""Least confidence of an answer that is kept (S2-28)."""


class Refusal(StrEnum):
    """Why a response is not kept. The list is closed."""

    LOW_CONFIDENCE = "low_confidence"
    """Below 0.3, or nothing that could be a confidence (S2-28)."""
    UNVALIDATED = "unvalidated"
    """It says nothing of its validation (S2-34)."""
    UNVERIFIED_FIELDS = "unverified_fields"
    """S2-29."""
    PHANTOM_FILE = "phantom_file"
    """C-47."""
    SNIPPET_MISMATCH = "snippet_mismatch"
    """C-47."""
    UNSUPPORTED = "unsupported"
    """A value or quote is not what the evidence says, or fewer sources or fields were verified than there are."""
    UNREADABLE_WARNINGS = "unreadable_warnings"
    """What it was warned of cannot be told."""
    UNSTORABLE = "unstorable"
    """It cannot be copied, or, in Redis, not be written as JSON."""


_BY_WARNING: Final = {
    "UNVERIFIED_FIELDS": Refusal.UNVERIFIED_FIELDS,
    "PHANTOM_FILE": Refusal.PHANTOM_FILE,
    "SNIPPET_MISMATCH": Refusal.SNIPPET_MISMATCH,
    "UNSUPPORTED_VALUE": Refusal.UNSUPPORTED,
    "QUOTE_POLARITY": Refusal.UNSUPPORTED,
}


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A cached answer (S2-30).

    Attributes:
        response: the caller's own copy: changing it changes nothing in the cache.
        timestamp: when it was stored, as the cache's clock said; by default seconds since 1970.
        validated_at: when it passed the cache's rules: the same moment, as only validated responses get in.
    """

    response: dict[str, Any]
    timestamp: float
    validated_at: float


def lifetime(mode: str) -> int:
    """Return the seconds for which an answer of a mode is served.

    Raises:
        ValueError: there is no such mode.
    """
    if mode not in LIFETIMES:
        raise ValueError(f"mode: {mode!r} is none of {', '.join(LIFETIMES)}")
    return LIFETIMES[mode]


def refusal(response: Mapping[str, Any]) -> Refusal | None:
    """Say why a response must not be cached; None where it may.

    What cannot be read is refused: a confidence that is missing, NaN, a bool, text or above 1, a `validation` that
    is no mapping or empty, `warnings` that are no list of mappings with a `type`. Warnings may be left out.
    Confidences are compared as they are: those of decisions are rounded already.
    """
    confidence = response.get("confidence")
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)):
        return Refusal.LOW_CONFIDENCE
    if not LEAST_CONFIDENCE <= confidence <= 1:
        return Refusal.LOW_CONFIDENCE
    validation = response.get("validation")
    if not isinstance(validation, Mapping) or not validation:
        return Refusal.UNVALIDATED
    pairs = [
        (validation.get(f"{what}Verified"), validation.get(f"{what}Total")) for what in ("sources", "fields")
    ]
    short = any(isinstance(held, int) and isinstance(total, int) and held < total for held, total in pairs)
    warnings = response.get("warnings")
    if not isinstance(warnings, list | tuple | None):
        return Refusal.UNREADABLE_WARNINGS
    kinds = [warning.get("type") if isinstance(warning, Mapping) else None for warning in warnings or ()]
    if not all(isinstance(kind, str) for kind in kinds):
        return Refusal.UNREADABLE_WARNINGS
    found = next((_BY_WARNING[str(kind)] for kind in kinds if kind in _BY_WARNING), None)
    return found or (Refusal.UNSUPPORTED if short else None)


@dataclass(frozen=True, slots=True)
class _Kept:
    response: dict[str, Any]
    mode: str
    scope: str | None
    at: float


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

    @takes(max_entries=int)
    def __init__(self, max_entries: int = 1000, *, clock: Callable[[], float] = time.time) -> None:
        if max_entries < 1:
            raise ValueError(f"max_entries: must be at least 1, not {max_entries}")
        self._lock = threading.Lock()
        self._kept: TLRUCache[str, _Kept, float] = TLRUCache(
            max_entries, lambda _key, kept, _now: kept.at + lifetime(kept.mode), clock
        )

    @takes(key=str, response=Mapping, scope=str | None)
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
            False where it is refused, and `why_refused` says why; then what was kept under the key stays.

        Raises:
            ValueError: there is no such mode.
        """
        lifetime(mode)
        refused = refusal(response)
        kept = None if refused else _copy(response)
        if kept is None:
            metrics.QUERY_CACHE_SETS.labels(refused or Refusal.UNSTORABLE).inc()
            return False
        with self._lock, self._kept.timer as now:
            self._drop_expired()
            if key not in self._kept and len(self._kept) == self._kept.maxsize:
                self._kept.popitem()
                _count_dropped("evicted", 1)
            self._kept[key] = _Kept(kept, mode, scope, now)
        metrics.QUERY_CACHE_SETS.labels("stored").inc()
        return True

    @staticmethod
    @takes(response=Mapping)
    def why_refused(response: Mapping[str, Any]) -> Refusal | None:
        """Say why `set` refuses a response; None where it keeps it."""
        return refusal(response) or (None if _copy(response) is not None else Refusal.UNSTORABLE)

    @takes(key=str)
    def get(self, key: str) -> CacheEntry | None:
        """Return what is kept under a key, or None where there is nothing, or nothing of age."""
        with self._lock, self._kept.timer as now:
            self._drop_expired()
            kept = self._kept.get(key)
            if kept is not None and now < kept.at:  # the clock was set back
                del self._kept[key]
                _count_dropped("expired", 1)
                kept = None
        metrics.QUERY_CACHE_GETS.labels("miss" if kept is None else "hit").inc()
        return None if kept is None else CacheEntry(copy.deepcopy(kept.response), kept.at, kept.at)

    @takes(scope=str)
    def invalidate_scope(self, scope: str) -> int:
        """Drop all entries of a scope (S2-33).

        An answer that was begun before and is set after is kept: where that can happen, the revision of what answers
        rest on belongs into the key.

        Returns:
            How many there were that could still have been served.
        """
        with self._lock, self._kept.timer as now:
            self._drop_expired()
            # read past TLRUCache, which would count it as a use of each entry
            kept = {key: Cache.__getitem__(self._kept, key) for key in self._kept}
            found = {key: one for key, one in kept.items() if one.scope == scope}
            for key in found:
                del self._kept[key]
        served = sum(one.at <= now for one in found.values())
        _count_dropped("invalidated", served)
        return served

    def _drop_expired(self) -> None:
        _count_dropped("expired", len(self._kept.expire()))


def _count_dropped(why: str, count: int) -> None:
    metrics.QUERY_CACHE_DROPPED.labels(why).inc(count)


def _copy(response: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        return copy.deepcopy(dict(response))
    except (TypeError, ValueError, RecursionError):  # a lock, a generator, a structure without end
        return None

"""Remembers what the network said about a citation, for as long as the answer deserves (S0-76, C-15)."""

import asyncio
import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from redis.asyncio import Redis

from groundwire.verify.results import CitationCheck, CitationState


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Seconds for which an answer is believed."""

    verified: float = 86_400.0
    not_found: float = 3_600.0
    unknown: float = 60.0

    def of(self, state: CitationState) -> float:
        """Return the seconds for `state`; 0 for one that is no answer."""
        if state is CitationState.NOT_CHECKED:
            return 0.0
        by_state: Mapping[CitationState, float] = {
            CitationState.VERIFIED: self.verified,
            CitationState.NOT_FOUND: self.not_found,
            CitationState.UNKNOWN: self.unknown,
        }
        return by_state[state]


class CitationCache(Protocol):
    """Keeps answers without their text. A cache that is out of order is an empty one, never an error."""

    async def get_many(self, keys: Sequence[str]) -> dict[str, CitationCheck]:
        """Return what is known of `keys`, in one round trip."""

    async def put(self, key: str, check: CitationCheck) -> None:
        """Remember one answer for the lifetime of its state."""


def cache_key(kind: str, identity: str, value: str) -> str:
    """Return the key of a citation.

    Args:
        kind: The citation's type.
        identity: Whose answer it is: the tracker's for issues, empty for URLs, which the world answers.
        value: The citation's value.
    """
    return hashlib.sha256(json.dumps([kind, identity, value]).encode()).hexdigest()


class MemoryCache:
    """A cache within the process.

    Args:
        clock: Monotonic seconds.
        lifetimes: How long answers are believed.
        max_entries: Entries kept; the longest unused go first.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        lifetimes: Lifetimes | None = None,
        max_entries: int = 10_000,
    ) -> None:
        self._clock = clock
        self._lifetimes = lifetimes or Lifetimes()
        self._max_entries = max_entries
        self._entries: OrderedDict[str, tuple[float, CitationCheck]] = OrderedDict()

    async def get_many(self, keys: Sequence[str]) -> dict[str, CitationCheck]:
        """Return what is known and not yet too old."""
        now = self._clock()
        known: dict[str, CitationCheck] = {}
        for key in keys:
            until, check = self._entries.get(key, (now, None))
            if check is not None and now < until:
                self._entries.move_to_end(key)
                known[key] = check
        return known

    async def put(self, key: str, check: CitationCheck) -> None:
        """Remember one answer."""
        lifetime = self._lifetimes.of(check.state)
        if lifetime <= 0:
            return
        self._entries[key] = (self._clock() + lifetime, replace(check, text=None))
        self._entries.move_to_end(key)
        while len(self._entries) > self._max_entries:
            self._entries.popitem(last=False)


class RedisCache:
    """A cache that workers share.

    Args:
        redis: The client.
        prefix: Put before every key, e.g. the topic prefix.
        lifetimes: How long answers are believed.
        patience: Seconds for one round trip.

    Attributes:
        failures: Round trips that failed and were taken for misses.
    """

    def __init__(
        self, redis: Redis, prefix: str, *, lifetimes: Lifetimes | None = None, patience: float = 1.0
    ) -> None:
        self._redis = redis
        self._prefix = f"{prefix}citation:"
        self._lifetimes = lifetimes or Lifetimes()
        self._patience = patience
        self.failures = 0

    async def get_many(self, keys: Sequence[str]) -> dict[str, CitationCheck]:
        """Return what is known, with one MGET."""
        if not keys:
            return {}
        try:
            async with asyncio.timeout(self._patience):
                values = await self._redis.mget([self._prefix + k for k in keys])
        except Exception:  # noqa: BLE001 - a cache that is out of reach is an empty one
            self.failures += 1
            return {}
        known = {k: _decode(v) for k, v in zip(keys, values, strict=False) if v is not None}
        return {k: check for k, check in known.items() if check is not None}

    async def put(self, key: str, check: CitationCheck) -> None:
        """Remember one answer, with SET PX."""
        lifetime = round(self._lifetimes.of(check.state) * 1000)
        if lifetime <= 0:
            return
        try:
            async with asyncio.timeout(self._patience):
                await self._redis.set(self._prefix + key, _encode(check), px=lifetime)
        except Exception:  # noqa: BLE001 - as above
            self.failures += 1


def _encode(check: CitationCheck) -> str:
    return json.dumps([check.state.value, check.detail, check.checked_at.isoformat()])


def _decode(value: bytes | str) -> CitationCheck | None:
    try:
        state, detail, checked_at = json.loads(value)
        return CitationCheck(CitationState(state), str(detail), datetime.fromisoformat(checked_at))
    except (ValueError, TypeError):  # written by somebody else, or by another version: a miss
        return None

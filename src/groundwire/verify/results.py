"""The result of verifying a citation, and caches of results (S0-76, C-15).

A state proves that the cited thing exists, never that it says what the claim says (S0-71, S0-72).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from cachetools import TLRUCache

from groundwire.messages.decisions import CitationState as CitationState  # noqa: PLC0414 - part of the answer

if TYPE_CHECKING:
    from redis.asyncio import Redis, RedisCluster

MAX_DETAIL = 500  # characters, the contract's limit for strings in a Decision's lists
MAX_TEXT = 20_000  # characters of a source that relevance looks at
BUDGET = 5.0  # seconds for one look-up on the network, names and redirects included

_PASSING = re.compile(
    r"timeout after .{1,20}|DNS error|connection (?:refused|failed)|host paused .{1,40}|not reached in time.{0,60}"
    r"|HTTP (?:408|425|429|5\d\d)|[A-Za-z]{1,40}(?:Error|Timeout)"
)
"""Details of what could not be found out for a while; an answer such as HTTP 403 stays what it is."""

Clock = Callable[[], datetime]
"""Returns the present time with an offset."""

OnResult = Callable[[str, str, float], None]
"""Called with (citation type, state, seconds), for metrics."""


def utc_now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class CitationCheck:
    """The result for one citation. Raises: ValueError, `checked_at` has no offset."""

    state: CitationState
    detail: str  # why, in one line of at most 500 characters
    checked_at: datetime  # in UTC
    text: str | None = None  # an excerpt of the source for relevance; never cached, never part of a decision

    def __post_init__(self) -> None:
        if self.checked_at.tzinfo is None:
            raise ValueError("checked_at needs an offset")
        object.__setattr__(self, "detail", one_line(self.detail))
        object.__setattr__(self, "checked_at", self.checked_at.astimezone(UTC))
        if self.text is not None:
            object.__setattr__(self, "text", self.text[:MAX_TEXT])

    @property
    def valid(self) -> bool:
        return self.state is CitationState.VERIFIED

    @property
    def may_pass(self) -> bool:
        """Whether the network or a host failed, so that the same question may be answered a little later."""
        return self.state is CitationState.UNKNOWN and _PASSING.fullmatch(self.detail) is not None


class VerificationResult(NamedTuple):
    """The public answer of `verify_citation`: (valid, reason), S0-64."""

    valid: bool
    reason: str

    @property
    def kind(self) -> Literal["existence"]:
        """What the result proves: existence only, not content (S0-71)."""
        return "existence"


def all_unknown(values: Iterable[str], detail: str, now: datetime) -> dict[str, CitationCheck]:
    return {value: CitationCheck(CitationState.UNKNOWN, detail, now) for value in values}


def one_line(text: str) -> str:
    printable = "".join(c if c.isprintable() else " " for c in text[: 4 * MAX_DETAIL])
    return " ".join(printable.split())[:MAX_DETAIL]


@dataclass(frozen=True, slots=True)
class Lifetimes:
    """Seconds for which a cache keeps a result; 0 is not kept."""

    verified: float = 86_400.0
    not_found: float = 3_600.0
    unknown: float = 60.0
    not_checked: float = 0.0

    def of(self, state: CitationState) -> float:
        seconds: float = getattr(self, state.value)
        return seconds


class CitationCache(Protocol):
    """Keeps results without their text. A cache out of reach counts as empty; it raises nothing."""

    async def get_many(self, keys: Sequence[str]) -> dict[str, CitationCheck]:
        """Return the known results, in one round trip."""

    async def put(self, key: str, check: CitationCheck) -> None:
        """Keep one result for the lifetime of its state."""


def cache_key(kind: str, identity: str, value: str) -> str:
    """Return the key of a citation; `identity` is the tracker's for issues, empty for URLs."""
    return hashlib.sha256(json.dumps([kind, identity, value]).encode()).hexdigest()


class MemoryCache:
    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        lifetimes: Lifetimes | None = None,
        max_entries: int = 10_000,
    ) -> None:
        self._lifetimes = lifetimes or Lifetimes()
        self._entries: TLRUCache[str, CitationCheck, float] = TLRUCache(
            max_entries, lambda _, check, now: now + self._lifetimes.of(check.state), clock
        )

    async def get_many(self, keys: Sequence[str]) -> dict[str, CitationCheck]:
        with self._entries.timer:
            return {key: self._entries[key] for key in keys if key in self._entries}

    async def put(self, key: str, check: CitationCheck) -> None:
        if self._lifetimes.of(check.state) > 0:
            self._entries[key] = replace(check, text=None)


class RedisCache:
    """A cache that workers share; `failures` counts the round trips that failed and counted as misses."""

    def __init__(
        self,
        redis: Redis | RedisCluster,
        prefix: str,
        *,
        lifetimes: Lifetimes | None = None,
        patience: float = 1.0,
    ) -> None:
        self._redis = redis
        self._prefix = f"{prefix}citation:"
        self._lifetimes = lifetimes or Lifetimes()
        self._patience = patience
        self.failures = 0

    async def get_many(self, keys: Sequence[str]) -> dict[str, CitationCheck]:
        """Return the known results, with one MGET; in a cluster with one for each slot, sent side by side."""
        if not keys:
            return {}
        try:
            async with asyncio.timeout(self._patience):
                get_all = getattr(self._redis, "mget_nonatomic", self._redis.mget)
                values = await get_all([self._prefix + k for k in keys])
        except Exception:  # noqa: BLE001 - a cache out of reach is empty
            self.failures += 1
            return {}
        known = {}
        for key, value in zip(keys, values, strict=False):
            with suppress(ValueError, TypeError):  # none, or written by another program or version: a miss
                state, detail, checked_at = json.loads(value)
                at = datetime.fromisoformat(checked_at)
                known[key] = CitationCheck(CitationState(state), str(detail), at)
        return known

    async def put(self, key: str, check: CitationCheck) -> None:
        lifetime = round(self._lifetimes.of(check.state) * 1000)
        if lifetime <= 0:
            return
        try:
            async with asyncio.timeout(self._patience):
                value = json.dumps([check.state.value, check.detail, check.checked_at.isoformat()])
                await self._redis.set(self._prefix + key, value, px=lifetime)
        except Exception:  # noqa: BLE001 - as above
            self.failures += 1

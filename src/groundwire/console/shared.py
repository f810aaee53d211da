"""What all consoles of a deployment share in Redis beside locks: short entries on named shelves, each with an end.

Nothing of it decides: who takes which item, views that people saved, sessions that were signed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import structlog
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisClusterException, RedisError

from groundwire.messages.base import to_milliseconds

logger = structlog.get_logger(__name__)

Entries = Mapping[str, str | None]
"""Texts by name; None takes an entry away."""
_DIGITS: Final = 15
"""Of the milliseconds since 1970 at which an entry ends; they stand before its text."""


class Shared(Protocol):
    """Shelves of entries; a store that does not answer says so and breaks nothing.

    Attributes:
        away_since: since when the store does not answer; None while it does.
    """

    @property
    def away_since(self) -> datetime | None:
        """See above."""

    async def put(self, shelf: str, entries: Entries, lasts: timedelta) -> bool:
        """Write or take away entries, all of a shelf for the same time; False: the store does not answer."""

    async def read(self, shelf: str, names: Iterable[str] | None = None) -> dict[str, str] | None:
        """Return entries that have not ended, None: all of the shelf; None where the store does not answer."""


class RedisShared:
    """Shelves as hashes `<prefix>console:<shelf>`."""

    def __init__(self, redis: Redis | RedisCluster, prefix: str, clock: Callable[[], datetime]) -> None:
        self._redis = redis
        self._prefix = f"{prefix}console:"
        self._clock = clock
        self._away_since: datetime | None = None

    @property
    def away_since(self) -> datetime | None:
        """Since when Redis does not answer; see Shared."""
        return self._away_since

    async def put(self, shelf: str, entries: Entries, lasts: timedelta) -> bool:
        """Write; see Shared."""
        key, until = self._prefix + shelf, to_milliseconds(self._clock() + lasts)
        kept: dict[Any, Any] = {
            name: f"{until:0{_DIGITS}}{text}" for name, text in entries.items() if text is not None
        }
        gone = [name for name, text in entries.items() if text is None]
        try:
            async with self._redis.pipeline() as pipe:
                if gone:
                    pipe.hdel(key, *gone)
                if kept:
                    pipe.hset(key, mapping=kept)
                    pipe.pexpire(key, round(lasts.total_seconds() * 1000))
                await pipe.execute()
        except (RedisError, RedisClusterException) as exc:
            self._mark(exc)
            return False
        self._mark()
        return True

    async def read(self, shelf: str, names: Iterable[str] | None = None) -> dict[str, str] | None:
        """Read, and take away what has ended; see Shared."""
        key, asked = self._prefix + shelf, None if names is None else list(names)
        if asked == []:
            return {}
        try:
            if asked is None:
                found: dict[Any, Any] = dict(await self._redis.hgetall(key))
            else:
                values: list[Any] = await self._redis.hmget(key, asked)
                found = dict(zip(asked, values, strict=True))
        except (RedisError, RedisClusterException) as exc:
            self._mark(exc)
            return None
        self._mark()
        entries = {as_text(name): as_text(value) for name, value in found.items() if value is not None}
        now = f"{to_milliseconds(self._clock()):0{_DIGITS}}"
        ended = {name: None for name, value in entries.items() if value[:_DIGITS] <= now}
        if ended:
            await self.put(shelf, ended, timedelta())
        return {name: value[_DIGITS:] for name, value in entries.items() if name not in ended}

    def _mark(self, error: RedisError | RedisClusterException | None = None) -> None:
        """Note whether Redis answered."""
        if error is None:
            self._away_since = None
        elif self._away_since is None:
            self._away_since = self._clock()
            logger.warning("shared_unavailable", error=type(error).__name__)


class MemoryShared:
    """Shelves within one process."""

    away_since: datetime | None = None

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._shelves: dict[str, dict[str, tuple[datetime, str]]] = {}

    async def put(self, shelf: str, entries: Entries, lasts: timedelta) -> bool:
        """Write; see Shared."""
        held, until = self._shelves.setdefault(shelf, {}), self._clock() + lasts
        for name, text in entries.items():
            held.pop(name, None)
            if text is not None:
                held[name] = until, text
        return True

    async def read(self, shelf: str, names: Iterable[str] | None = None) -> dict[str, str] | None:
        """Read; see Shared."""
        now, asked = self._clock(), None if names is None else set(names)
        held = self._shelves.get(shelf, {})
        self._shelves[shelf] = {name: entry for name, entry in held.items() if entry[0] > now}
        return {
            name: text for name, (_, text) in self._shelves[shelf].items() if asked is None or name in asked
        }


def as_text(value: bytes | str) -> str:
    """Return what Redis answers, which may be bytes, as text."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

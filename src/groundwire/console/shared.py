"""What the consoles of a deployment share in Redis beside locks: entries on named shelves, each with an expiry time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import structlog
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisClusterException, RedisError

from groundwire.messages.base import to_milliseconds

logger = structlog.get_logger(__name__)

_DIGITS: Final = 15
"""Digits of the expiry time in milliseconds, which prefixes each entry."""


class Shared(Protocol):
    """Texts by name on shelves; `away_since` is None while the store answers."""

    @property
    def away_since(self) -> datetime | None: ...

    async def put(self, shelf: str, entries: Mapping[str, str], lasts: timedelta) -> bool:
        """Write entries that expire together; False: the store does not answer."""

    async def read(self, shelf: str) -> dict[str, str] | None:
        """Return the entries that have not expired; None: the store does not answer."""


class RedisShared:
    """Shelves as hashes `<prefix>console:<shelf>`."""

    def __init__(self, redis: Redis | RedisCluster, prefix: str, clock: Callable[[], datetime]) -> None:
        self._redis = redis
        self._prefix = f"{prefix}console:"
        self._clock = clock
        self.away_since: datetime | None = None

    async def put(self, shelf: str, entries: Mapping[str, str], lasts: timedelta) -> bool:
        key, until = self._prefix + shelf, to_milliseconds(self._clock() + lasts)
        values: dict[Any, Any] = {name: f"{until:0{_DIGITS}}{text}" for name, text in entries.items()}
        try:
            async with self._redis.pipeline() as pipe:
                pipe.hset(key, mapping=values)
                pipe.pexpire(key, round(lasts.total_seconds() * 1000))
                await pipe.execute()
        except (RedisError, RedisClusterException) as exc:
            self._mark_away(exc)
            return False
        self.away_since = None
        return True

    async def read(self, shelf: str) -> dict[str, str] | None:
        key, now = self._prefix + shelf, f"{to_milliseconds(self._clock()):0{_DIGITS}}"
        try:
            found: Mapping[Any, Any] = await self._redis.hgetall(key)
            entries = {as_text(name): as_text(value) for name, value in found.items()}
            expired = [name for name, value in entries.items() if value[:_DIGITS] <= now]
            if expired:
                await self._redis.hdel(key, *expired)
        except (RedisError, RedisClusterException) as exc:
            self._mark_away(exc)
            return None
        self.away_since = None
        return {name: value[_DIGITS:] for name, value in entries.items() if name not in expired}

    def _mark_away(self, error: RedisError | RedisClusterException) -> None:
        if self.away_since is None:
            self.away_since = self._clock()
            logger.warning("shared_unavailable", error=type(error).__name__)


class MemoryShared:
    """Shelves within one process."""

    away_since: datetime | None = None

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._shelves: dict[str, dict[str, tuple[datetime, str]]] = {}

    async def put(self, shelf: str, entries: Mapping[str, str], lasts: timedelta) -> bool:
        until = self._clock() + lasts
        self._shelves.setdefault(shelf, {}).update({name: (until, text) for name, text in entries.items()})
        return True

    async def read(self, shelf: str) -> dict[str, str] | None:
        held, now = self._shelves.get(shelf, {}), self._clock()
        return {name: text for name, (until, text) in held.items() if until > now}


def as_text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

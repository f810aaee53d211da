"""Who looks at which item: a lock that expires, so that two people do not meet and nobody waits for ever.

It is a courtesy, not a right: an action is never refused because of it. What counts is the revision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Protocol

import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from groundwire.messages.identity import Subject

logger = structlog.get_logger(__name__)

_RENEW = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return 0
"""
_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Locks(Protocol):
    """What is asked of the locks; a store that does not answer locks nothing."""

    async def claim(self, subject: Subject, person: str) -> str | None:
        """Take or renew the lock for a person; return who else holds it, None where the person does."""

    async def release(self, subject: Subject, person: str) -> None:
        """Give the lock back, if it is the person's."""

    async def holders(self, subjects: Sequence[Subject]) -> list[str | None]:
        """Return who looks at each of the items."""


class RedisLocks:
    """Locks as `<prefix>lock:<subject digest>`, set where absent and with an expiry, shared by all consoles."""

    def __init__(self, redis: Redis, prefix: str, lasts: timedelta) -> None:
        self._redis = redis
        self._prefix = prefix
        self._ms = round(lasts.total_seconds() * 1000)

    async def claim(self, subject: Subject, person: str) -> str | None:
        """Take or renew; see Locks."""
        key = self._key(subject)
        try:
            if await self._redis.set(key, person, nx=True, px=self._ms):
                return None
            if await self._eval(_RENEW, key, person, str(self._ms)):
                return None
            return _text(await self._redis.get(key))
        except RedisError as exc:
            logger.warning("locks_unavailable", error=type(exc).__name__)
            return None

    async def release(self, subject: Subject, person: str) -> None:
        """Give back; see Locks."""
        try:
            await self._eval(_RELEASE, self._key(subject), person)
        except RedisError as exc:
            logger.warning("locks_unavailable", error=type(exc).__name__)

    async def holders(self, subjects: Sequence[Subject]) -> list[str | None]:
        """Return who looks; see Locks."""
        if not subjects:
            return []
        try:
            found = await self._redis.mget([self._key(subject) for subject in subjects])
        except RedisError as exc:
            logger.warning("locks_unavailable", error=type(exc).__name__)
            return [None] * len(subjects)
        return [_text(value) for value in found]

    def _key(self, subject: Subject) -> str:
        return f"{self._prefix}lock:{subject.digest.hex()}"

    async def _eval(self, script: str, key: str, *values: str) -> Any:  # noqa: ANN401
        return await self._redis.eval(script, 1, key, *values)


class MemoryLocks:
    """The same within one process."""

    def __init__(self, lasts: timedelta, clock: Callable[[], datetime]) -> None:
        self._lasts = lasts
        self._clock = clock
        self._held: dict[bytes, tuple[str, datetime]] = {}

    async def claim(self, subject: Subject, person: str) -> str | None:
        """Take or renew; see Locks."""
        self._expire()
        holder, _ = self._held.get(subject.digest, (person, None))
        if holder == person:
            self._held[subject.digest] = (person, self._clock() + self._lasts)
        return None if holder == person else holder

    async def release(self, subject: Subject, person: str) -> None:
        """Give back; see Locks."""
        if self._held.get(subject.digest, ("", None))[0] == person:
            del self._held[subject.digest]

    async def holders(self, subjects: Sequence[Subject]) -> list[str | None]:
        """Return who looks; see Locks."""
        self._expire()
        return [self._held.get(subject.digest, (None, None))[0] for subject in subjects]

    def _expire(self) -> None:
        now = self._clock()
        for key in [key for key, (_, until) in self._held.items() if until <= now]:
            del self._held[key]


def _text(value: bytes | str | None) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

"""Server-sent events that tell open pages to ask again, and locks that show who looks at which item.

An event carries a number only: a page that receives one asks again for what it shows, with the rights of its reader, so
no event can reveal what somebody may not see. Locks expire. They are a courtesy: no action is refused because of a
lock, only because of its revision.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

import structlog
from cachetools import TTLCache
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisClusterException, RedisError

from groundwire.console.shared import as_text
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject

logger = structlog.get_logger(__name__)

MOST_STREAMS: Final = 20
"""Open streams of one person."""
_MAX_LOCKS: Final = 20_000
_BEAT: Final = 15.0
"""Seconds without an event until a comment keeps the connection open, and the sign-in is checked again."""
_NOW: Final = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function holder(entry)
  local ends, person = string.match(entry or '', '^(%d+) (.*)$')
  return ends and tonumber(ends) > now and person or nil
end
"""
_CLAIM: Final = f"""{_NOW}
local held = holder(redis.call('HGET', KEYS[1], ARGV[1]))
if held and held ~= ARGV[2] then return held end
redis.call('HSET', KEYS[1], ARGV[1], string.format('%.0f', now + ARGV[3]) .. ' ' .. ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return false
"""
_RELEASE: Final = f"""{_NOW}
if holder(redis.call('HGET', KEYS[1], ARGV[1])) == ARGV[2] then redis.call('HDEL', KEYS[1], ARGV[1]) end
"""
_HELD: Final = f"""{_NOW}
local entries, found = redis.call('HGETALL', KEYS[1]), {{}}
for at = 1, #entries, 2 do
  local held = holder(entries[at + 1])
  if held then
    found[#found + 1] = entries[at]
    found[#found + 1] = held
  else
    redis.call('HDEL', KEYS[1], entries[at])
  end
end
return found
"""


class ChangeStream:
    """Wakes event streams when what pages show may have changed.

    Args:
        version: anything that changes with it.
    """

    def __init__(self, version: Callable[[], object]) -> None:
        self._version = version
        self._latest = version()
        self._count = 0
        self._changed = asyncio.Condition()
        self._streams: Counter[str] = Counter()
        self._closed = False

    async def poll(self) -> bool:
        """Wake all streams if the version changed; say whether it did."""
        version = self._version()
        if version == self._latest:
            return False
        self._latest = version
        self._count += 1
        async with self._changed:
            self._changed.notify_all()
        return True

    async def close(self) -> None:
        self._closed = True
        async with self._changed:
            self._changed.notify_all()

    def enter(self, person: str) -> bool:
        """Count a stream of a person; return False where they have too many."""
        if self._streams[person] >= MOST_STREAMS:
            return False
        self._streams[person] += 1
        return True

    def leave(self, person: str) -> None:
        self._streams[person] -= 1
        if self._streams[person] <= 0:
            del self._streams[person]

    async def events(self, person: str, holds: Callable[[], bool], beat: float = _BEAT) -> AsyncIterator[str]:
        """Yield a stream that `enter` let in.

        Args:
            person: whose it is.
            holds: whether its reader is still signed in; asked before every event.
            beat: seconds without news until a comment.
        """
        last = None
        try:
            yield "retry: 3000\n\n"
            while holds() and not self._closed:
                if last != self._count:
                    last = self._count
                    yield f"event: change\nid: {last}\ndata: {last}\n\n"
                    continue
                if not await self._changes(last, beat):
                    yield ": still here\n\n"
        finally:
            self.leave(person)

    async def _changes(self, last: int | None, beat: float) -> bool:
        try:
            async with asyncio.timeout(beat), self._changed:
                await self._changed.wait_for(lambda: self._closed or self._count != last)
        except TimeoutError:
            return False
        return True


class Locks(Protocol):
    """Who looks at which item; a store that does not answer locks nothing."""

    async def claim(self, subject: Subject, person: str) -> str | None:
        """Take or renew the lock for a person; return who else holds it, None where the person does."""

    async def release(self, subject: Subject, person: str) -> None:
        """Give the lock back, if it is the person's."""

    async def held(self) -> dict[Subject, str]:
        """Return who looks at which items."""


class RedisLocks:
    """Locks as entries of the hash `<prefix>console:looking`, each with its end, shared by all consoles."""

    def __init__(self, redis: Redis | RedisCluster, prefix: str, lasts: timedelta) -> None:
        self._redis = redis
        self._key = f"{prefix}console:looking"
        self._ms = round(lasts.total_seconds() * 1000)

    async def claim(self, subject: Subject, person: str) -> str | None:
        """Take or renew; see Locks."""
        held = await self._run(_CLAIM, json.dumps(subject.names), person, str(self._ms))
        return None if held is None else as_text(held)

    async def release(self, subject: Subject, person: str) -> None:
        """Give back; see Locks."""
        await self._run(_RELEASE, json.dumps(subject.names), person)

    async def held(self) -> dict[Subject, str]:
        """Return who looks; see Locks."""
        found = [as_text(value) for value in await self._run(_HELD) or ()]
        held = zip(found[::2], found[1::2], strict=True)
        return {_subject(*json.loads(name)): person for name, person in held}

    async def _run(self, script: str, *values: str) -> Any:  # noqa: ANN401
        try:
            return await self._redis.eval(script, 1, self._key, *values)
        except (RedisError, RedisClusterException) as exc:
            logger.warning("locks_unavailable", error=type(exc).__name__)
            return None


def _subject(tenant_id: str, user_id: str, kind: str, subject_id: str) -> Subject:
    return Subject(tenant_id, user_id, Kind(kind), subject_id)


class MemoryLocks:
    def __init__(self, lasts: timedelta, clock: Callable[[], datetime]) -> None:
        self._held: TTLCache[Subject, str] = TTLCache(
            _MAX_LOCKS, lasts.total_seconds(), timer=lambda: clock().timestamp()
        )

    async def claim(self, subject: Subject, person: str) -> str | None:
        """Take or renew; see Locks."""
        holder = self._held.get(subject, person)
        if holder == person:
            self._held[subject] = person
        return None if holder == person else holder

    async def release(self, subject: Subject, person: str) -> None:
        """Give back; see Locks."""
        if self._held.get(subject) == person:
            del self._held[subject]

    async def held(self) -> dict[Subject, str]:
        """Return who looks; see Locks."""
        return dict(self._held.items())

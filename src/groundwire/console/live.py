"""What consoles share beside the topics: ended sessions and who looks at which item, in Redis; events to open pages.

An event carries a number only: a page that receives one asks again for what it shows, with the rights of its reader, so
no event can reveal what somebody may not see. Locks expire. They are a courtesy: no action is refused because of a
lock, only because of its revision.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from cachetools import TTLCache
from redis.asyncio import Redis, RedisCluster
from redis.exceptions import RedisClusterException, RedisError

from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject

logger = structlog.get_logger(__name__)

MOST_STREAMS: Final = 20  # open streams of one person
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
    """Wakes event streams when `version` changes, that is, when what pages show may have changed."""

    def __init__(self, version: Callable[[], object]) -> None:
        self._version = version
        self._latest = version()
        self._count = 0
        self._changed = asyncio.Condition()
        self._streams: Counter[str] = Counter()
        self._closed = False

    async def poll(self) -> bool:
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
        if self._streams[person] >= MOST_STREAMS:
            return False
        self._streams[person] += 1
        return True

    async def events(self, person: str, holds: Callable[[], bool], beat: float = _BEAT) -> AsyncIterator[str]:
        """Yield a stream that `enter` let in; `holds`, whether its reader is signed in, is asked before every event."""
        last = None
        try:
            yield "retry: 3000\n\n"
            while holds() and not self._closed:
                if last != self._count:
                    last = self._count
                    yield f"event: change\nid: {last}\ndata: {last}\n\n"
                    continue
                try:
                    async with asyncio.timeout(beat), self._changed:
                        while not self._closed and self._count == last:
                            await self._changed.wait()
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self._streams[person] -= 1
            if self._streams[person] <= 0:
                del self._streams[person]


class RedisLocks:
    """Who looks at which item, as entries of the hash `<prefix>console:looking`, each with its end.

    A store that does not answer locks nothing.
    """

    def __init__(self, redis: Redis | RedisCluster, prefix: str, lasts: timedelta) -> None:
        self._redis = redis
        self._key = f"{prefix}console:looking"
        self._ms = round(lasts.total_seconds() * 1000)

    async def claim(self, subject: Subject, person: str) -> str | None:
        """Take or renew the lock for a person; return who else holds it, None where the person does."""
        held = await self._run(_CLAIM, json.dumps(subject.names), person, str(self._ms))
        return None if held is None else as_text(held)

    async def release(self, subject: Subject, person: str) -> None:
        await self._run(_RELEASE, json.dumps(subject.names), person)

    async def held(self) -> dict[Subject, str]:
        found = [as_text(value) for value in await self._run(_HELD) or ()]
        held = zip(found[::2], found[1::2], strict=True)
        return {
            Subject(tenant, user, Kind(kind), name): person
            for (tenant, user, kind, name), person in ((json.loads(names), person) for names, person in held)
        }

    async def _run(self, script: str, *values: str) -> Any:  # noqa: ANN401
        try:
            return await self._redis.eval(script, 1, self._key, *values)
        except (RedisError, RedisClusterException) as exc:
            logger.warning("locks_unavailable", error=type(exc).__name__)
            return None


class MemoryLocks:
    def __init__(self, lasts: timedelta, clock: Callable[[], datetime]) -> None:
        self._held: TTLCache[Subject, str] = TTLCache(
            _MAX_LOCKS, lasts.total_seconds(), timer=lambda: clock().timestamp()
        )

    async def claim(self, subject: Subject, person: str) -> str | None:
        holder = self._held.get(subject, person)
        if holder == person:
            self._held[subject] = person
        return None if holder == person else holder

    async def release(self, subject: Subject, person: str) -> None:
        if self._held.get(subject) == person:
            del self._held[subject]

    async def held(self) -> dict[Subject, str]:
        return dict(self._held.items())


_DIGITS: Final = 15  # digits of the expiry time in milliseconds, which prefixes each entry


class RedisShared:
    """Entries on shelves, the hashes `<prefix>console:<shelf>`, each with its expiry time.

    `away_since` is None while the store answers; else `put` returns False, and `read` None.
    """

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


Locks = RedisLocks | MemoryLocks
Shared = RedisShared | MemoryShared


def as_text(value: bytes | str) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value

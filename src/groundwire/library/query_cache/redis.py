"""The validated-response cache that the processes of a deployment share."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any, Final

from redis.exceptions import RedisClusterException, RedisError

from groundwire import metrics
from groundwire.arguments import takes
from groundwire.errors import StateUnavailable
from groundwire.library.query_cache import LIFETIMES, CacheEntry, Refusal, lifetime, refusal
from groundwire.state.server import Client, connect, tagged

_INDEX_MS: Final = (max(LIFETIMES.values()) + 60) * 1000
"""How long the index outlives what was set last: longer than any entry, so that expired ones are counted."""


class RedisQueryCache:
    """Keeps validated responses in Redis; the methods of `QueryCache`, awaited, with the same rules.

    Lifetimes and order of use are the server's clock's; entries expire there by themselves. Keys and scopes are
    kept as digests, responses as JSON: tuples come back as lists. A server that does not answer is an empty cache,
    and is counted; only an invalidation says so, since whoever asks for one must know that it was not done.

    The server may be one that evicts keys. In a Redis Cluster all entries of a deployment are on one primary.

    Args:
        redis: a client of `redis.asyncio`, or the URL of the server as GROUNDWIRE_REDIS_URL has it.
        prefix: put before every key: the deployment's topic prefix.
        max_entries: entries kept at most in the deployment (S2-32).
        clock: seconds since 1970, for what the entries say of themselves.
        patience: seconds for one call.

    Raises:
        ValueError: `max_entries` is below 1.
        UsageError: the URL is none.
    """

    def __init__(
        self,
        redis: Client | str,
        prefix: str = "groundwire.",
        *,
        max_entries: int = 1000,
        clock: Callable[[], float] = time.time,
        patience: float = 1.0,
    ) -> None:
        if max_entries < 1:
            raise ValueError(f"max_entries: must be at least 1, not {max_entries}")
        self._owns_client = isinstance(redis, str)
        self._redis = connect(redis, patience=patience) if isinstance(redis, str) else redis
        self._base = f"{prefix}{tagged(self._redis, 'qc')}:"
        self._max_entries = max_entries
        self._clock = clock
        self._patience = patience

    @takes(key=str, response=Mapping, scope=str | None)
    async def set(
        self, key: str, response: Mapping[str, Any], mode: str = "auto", scope: str | None = None
    ) -> bool:
        """Keep a response, as `QueryCache.set` does.

        Returns:
            False where it is refused, see `QueryCache.why_refused`: then what was kept under the key stays; or where
            the server does not answer: then it may stay.

        Raises:
            ValueError: there is no such mode.
        """
        milliseconds = lifetime(mode) * 1000
        refused = refusal(response)
        value, now = None, self._clock()
        if not refused:
            entry = {"response": dict(response), "timestamp": now, "validated_at": now}
            with suppress(TypeError, ValueError, RecursionError):  # no JSON, NaN, a structure without end
                value = json.dumps(entry, allow_nan=False, separators=(",", ":"))
        if value is None:
            metrics.QUERY_CACHE_SETS.labels(refused or Refusal.UNSTORABLE).inc()
            return False
        head = (_digest(key), value, milliseconds, _INDEX_MS, "" if scope is None else _digest(scope))
        try:
            evicted, expired = await self._run("set", *head, self._max_entries)
        except StateUnavailable:
            metrics.QUERY_CACHE_SETS.labels("unavailable").inc()
            return False
        metrics.QUERY_CACHE_SETS.labels("stored").inc()
        _count_dropped(evicted=evicted, expired=expired)
        return True

    @takes(key=str)
    async def get(self, key: str) -> CacheEntry | None:
        """Return what is kept under a key; None where there is nothing of age, or the server does not answer."""
        try:
            expired, *found = await self._run("get", _digest(key))
        except StateUnavailable:
            metrics.QUERY_CACHE_GETS.labels("unavailable").inc()
            return None
        _count_dropped(expired=expired)
        entry = None
        if found:
            # by somebody else, or another version: a miss
            with suppress(TypeError, ValueError, RecursionError):
                entry = CacheEntry(**json.loads(found[0]))
        metrics.QUERY_CACHE_GETS.labels("hit" if entry else "miss").inc()
        return entry

    @takes(scope=str)
    async def invalidate_scope(self, scope: str) -> int:
        """Drop all entries of a scope that are there when it is called (S2-33); see `QueryCache.invalidate_scope`.

        Returns:
            How many there were that could still have been served.

        Raises:
            StateUnavailable: the server did not answer; entries may be left, so call again.
        """
        name, moment, more, total = _digest(scope), "", True, 0
        while more:
            arguments = (name, moment, 500)  # at most 500 a call: the server has others to serve
            dropped, expired, more, moment = await self._run("invalidate", *arguments)
            _count_dropped(invalidated=dropped, expired=expired)
            total += dropped
        return total

    async def close(self) -> None:
        """Close the connections, if the cache made them itself."""
        if self._owns_client:
            await self._redis.aclose()

    async def _run(self, name: str, *arguments: str | int | bytes) -> Any:  # noqa: ANN401 - a reply is what a script returns
        script = self._redis.register_script(_source(name))
        try:
            async with asyncio.timeout(self._patience):
                return await script(keys=[self._base], args=[self._base, *arguments])
        except (RedisError, RedisClusterException, OSError, TimeoutError) as error:
            raise StateUnavailable(
                f"query cache, {name}: {type(error).__name__}: {str(error)[:200]}"
            ) from error


@cache
def _source(name: str) -> str:
    package = files("groundwire.library.query_cache")
    return "\n".join(package.joinpath(f"{part}.lua").read_text() for part in ("common", name))


def _digest(text: str) -> str:
    """Return 32 hexadecimal characters: no key or scope, however it is made, can be another or a command."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _count_dropped(**counts: int) -> None:
    for why, count in counts.items():
        metrics.QUERY_CACHE_DROPPED.labels(why).inc(count)

"""Both validated-response caches behind one interface, with a clock that tests advance."""

from redis.asyncio import Redis

from groundwire.library.query_cache import CacheEntry, QueryCache
from groundwire.library.query_cache.redis import RedisQueryCache

START = 1_760_000_000.0


def response(**fields) -> dict:
    """A response that may be cached."""
    good = {"answer": "5 [source:1]", "confidence": 0.9, "warnings": [], "validation": {"confidence": 0.9}}
    return {**good, **fields}


class InMemory:
    def __init__(self, max_entries: int = 1000) -> None:
        self.now = START
        self.cache = QueryCache(max_entries, clock=lambda: self.now)

    async def set(self, *args, **fields) -> bool:
        return self.cache.set(*args, **fields)

    async def get(self, key) -> CacheEntry | None:
        return self.cache.get(key)

    async def invalidate_scope(self, scope) -> int:
        return self.cache.invalidate_scope(scope)

    async def pass_time(self, seconds: float) -> None:
        self.now += seconds


class InRedis(RedisQueryCache):
    """Time passes by shortening all lifetimes in Redis."""

    def __init__(self, redis: Redis, prefix: str, max_entries: int = 1000) -> None:
        self.now = START
        super().__init__(redis, prefix, max_entries=max_entries, clock=lambda: self.now)
        self.redis, self.base = redis, self._base

    async def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for entry in await self.redis.zrange(f"{self.base}due", 0, -1):
            await self.redis.zincrby(f"{self.base}due", -seconds * 1e6, entry)
        async for key in self.redis.scan_iter(f"{self.base}*"):
            left = await self.redis.pttl(key)
            if left >= 0:
                await self.redis.pexpire(key, int(left - seconds * 1000))  # 0 or less: it is gone

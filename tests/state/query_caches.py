"""Both validated-response caches behind one face, with a time that tests may let pass, and a model of them."""

import itertools

from hypothesis import strategies as st
from redis.asyncio import Redis

from groundwire.query_cache import LIFETIMES, CacheEntry, QueryCache
from groundwire.query_cache.redis import RedisQueryCache

START = 1_760_000_000.0


def response(**fields) -> dict:
    """A response that may be cached."""
    good = {"answer": "5 [source:1]", "confidence": 0.9, "warnings": [], "validation": {"confidence": 0.9}}
    return {**good, **fields}


class InMemory:
    """The cache of a process."""

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
    """The cache of a deployment; time passes by bringing the ends of all lifetimes nearer."""

    def __init__(self, redis: Redis, prefix: str, max_entries: int = 1000) -> None:
        self.now = START
        self.redis, self.base = redis, f"{prefix}qc:"
        super().__init__(redis, prefix, max_entries=max_entries, clock=lambda: self.now)

    async def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for entry in await self.redis.zrange(f"{self.base}due", 0, -1):
            await self.redis.zincrby(f"{self.base}due", -seconds * 1e6, entry)
        async for key in self.redis.scan_iter(f"{self.base}*"):
            left = await self.redis.pttl(key)
            if left >= 0:
                await self.redis.pexpire(key, int(left - seconds * 1000))  # 0 or less: it is gone


class Model:
    """What a cache is, told as simply as possible: a list of what is kept, least recently used first."""

    def __init__(self, max_entries: int) -> None:
        self.max_entries = max_entries
        self.now = 0
        self.kept: list[tuple] = []  # key, answer, end of its lifetime, scope

    async def set(self, key, answer, mode, scope) -> bool:
        if answer["confidence"] < 0.3:
            return False
        self._forget(lambda one: one[0] == key or one[2] <= self.now)
        self.kept = [*self.kept, (key, answer, self.now + LIFETIMES[mode], scope)][-self.max_entries :]
        return True

    async def get(self, key) -> dict | None:
        self._forget(lambda one: one[2] <= self.now)
        found = [one for one in self.kept if one[0] == key]
        self.kept = [one for one in self.kept if one[0] != key] + found
        return found[0][1] if found else None

    async def invalidate_scope(self, scope) -> int:
        self._forget(lambda one: one[2] <= self.now)
        return self._forget(lambda one: one[3] == scope)

    async def pass_time(self, seconds) -> None:
        self.now += seconds

    def _forget(self, which) -> int:
        before = len(self.kept)
        self.kept = [one for one in self.kept if not which(one)]
        return before - len(self.kept)


_KEYS = st.sampled_from("abcde")
_SCOPES = st.sampled_from(["x", "y"])
_ANSWERS = st.builds(response, answer=st.integers(), confidence=st.sampled_from([0.29, 0.3, 1.0]))
_MODES = st.sampled_from(sorted(LIFETIMES))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), _KEYS, _ANSWERS, _MODES, st.none() | _SCOPES),
        st.tuples(st.just("get"), _KEYS),
        st.tuples(st.just("invalidate_scope"), _SCOPES),
        st.tuples(st.just("pass_time"), st.sampled_from([60, 120, 180, 300, 900])),
    ),
    max_size=40,
)


async def agree(cache: InMemory | InRedis, steps: list[tuple], max_entries: int) -> None:
    """Take the same steps with a cache and the model; whatever they answer must be the same."""
    model = Model(max_entries)
    reads = [("get", key) for key in "abcde"]
    for name, *arguments in itertools.chain(steps, reads):
        expected = await getattr(model, name)(*arguments)
        answer = await getattr(cache, name)(*arguments)
        assert (answer.response if isinstance(answer, CacheEntry) else answer) == expected, (name, arguments)

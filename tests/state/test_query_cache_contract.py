"""What both validated-response caches promise, in memory and in Redis (S2-28..S2-34, S2-42, C-47)."""

import asyncio
import json
import math
import random
import re
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from deploy.embedded import RedisServer
from groundwire import metrics
from groundwire.errors import StateUnavailable, UsageError
from groundwire.library.query_cache import LIFETIMES, CacheEntry, QueryCache
from groundwire.library.query_cache.redis import RedisQueryCache
from groundwire.state.server import connect
from tests.state.query_caches import response

START = 1_760_000_000.0


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


@pytest.fixture
async def make(url: str | None, prefix: str) -> AsyncIterator:
    """Creates caches of the kind under test."""
    if url is None:
        yield InMemory
        return
    client = connect(url)
    yield lambda max_entries=1000: InRedis(client, prefix, max_entries)
    await client.aclose()


@pytest.fixture
def cache(make) -> InMemory | InRedis:
    return make()


@pytest.fixture
def in_redis(redis: Redis, prefix: str) -> RedisQueryCache:
    return RedisQueryCache(redis, prefix)


@pytest.fixture
def counted():
    """Says by how much the counters of the cache have grown since the last call."""
    before: Counter[str] = Counter()

    def read() -> dict[str, float]:
        now: Counter[str] = Counter()
        for family in (metrics.QUERY_CACHE_GETS, metrics.QUERY_CACHE_SETS, metrics.QUERY_CACHE_DROPPED):
            for one in (sample for metric in family.collect() for sample in metric.samples):
                if one.name.endswith("_total"):
                    now[next(iter(one.labels.values()))] += one.value
        grown = dict(now - before)
        before.update(grown)
        return grown

    read()
    return read


async def keys_of(redis: Redis, prefix: str, start: str = "") -> list[str]:
    names = [key.decode().removeprefix(f"{prefix}qc:") async for key in redis.scan_iter(f"{prefix}*")]
    return sorted(name for name in names if name.startswith(start))


async def test_an_entry_has_the_response_and_the_times_and_is_its_own_copy(cache):
    assert await cache.get("k") is None
    mine = response(sources=[{"file": "a.md"}])
    assert await cache.set("k", mine) is True
    mine["sources"][0]["file"] = mine["answer"] = "changed"
    entry = await cache.get("k")
    assert entry.response == response(sources=[{"file": "a.md"}])
    assert (entry.timestamp, entry.validated_at) == (START, START)
    entry.response["sources"].clear()
    with pytest.raises(AttributeError):
        entry.timestamp = 0
    assert (await cache.get("k")).response == response(sources=[{"file": "a.md"}])


async def test_what_is_kept_and_what_is_refused_with_which_reason(cache, counted):
    """Each row: the fields that differ from a good response, and the counter that grows."""
    stale, conflict = {"type": "STALE_INDEX", "message": "old"}, {"type": "VERSION_CONFLICT"}
    invented = ("UNVERIFIED_FIELDS", "PHANTOM_FILE", "SNIPPET_MISMATCH")
    unreadable = ("PHANTOM_FILE", {"type": "PHANTOM_FILE"}, ["PHANTOM_FILE"], [{}], [{"type": 1}], [None], 7)
    low = (0.29, math.nextafter(0.3, 0), 0, -1, 1.01, 85, math.nan, math.inf, True, "0.9", None, [0.9], {})
    endless = response()
    endless["self"] = endless
    rows = [
        *[({"confidence": value}, "stored") for value in (0.3, 0.30000000000000004, 0.5, 1, 1.0)],
        *[({"warnings": value}, "stored") for value in ([], (), None, [stale], [conflict], ...)],
        *[({"confidence": value}, "low_confidence") for value in (*low, ...)],
        *[({"warnings": [stale, {"type": kind, "message": "no"}]}, kind.lower()) for kind in invented],
        *[({"warnings": value}, "unreadable_warnings") for value in unreadable],
        *[({"validation": value}, "unvalidated") for value in (None, {}, True, "passed", 0.9, [], ...)],
        ({"lines": (n for n in range(3))}, "unstorable"),
    ]
    if isinstance(cache, RedisQueryCache):
        rows += [
            ({"detail": {"deep": [value]}}, "unstorable") for value in (math.nan, {1, 2}, b"b", object())
        ]
        rows.append((endless, "unstorable"))
    wrong = []
    for fields, expected in rows:
        given = {name: value for name, value in response(**fields).items() if value is not ...}
        kept, grown = await cache.set("k", given), counted()
        if (kept, set(grown)) != (expected == "stored", {expected}):
            wrong.append((fields, kept, grown))
    assert wrong == []


async def test_an_entry_is_served_until_its_lifetime_ends(make, counted):
    for mode, minutes in (("instant", 2), ("auto", 5), ("thinking", 15), (None, 5)):
        cache = make()
        await cache.set(f"{mode}", response(), **({"mode": mode} if mode else {}))
        for seconds in (30, minutes * 60 - 60):
            await cache.pass_time(seconds)
            assert await cache.get(f"{mode}") is not None
        await cache.pass_time(30)
        assert await cache.get(f"{mode}") is None
        assert counted() == {"stored": 1, "hit": 2, "expired": 1, "miss": 1}
    for mode in ("", "fast", "AUTO", "Instant"):
        with pytest.raises(ValueError, match=f"mode: '{mode}' is none of instant, auto, thinking"):
            await cache.set("k", response(confidence=0.1), mode=mode)


async def test_setting_a_key_again_replaces_response_lifetime_and_scope_unless_it_is_refused(cache):
    await cache.set("k", response(answer="old"), mode="instant", scope="x")
    await cache.pass_time(100)
    await cache.set("k", response(answer="new"), mode="auto", scope="y")
    assert await cache.set("k", response(confidence=0.1), scope="z") is False
    assert [await cache.invalidate_scope(scope) for scope in "xz"] == [0, 0]
    await cache.pass_time(270)
    assert (await cache.get("k")).response["answer"] == "new"
    assert await cache.invalidate_scope("y") == 1
    assert await cache.get("k") is None


async def test_the_least_recently_used_goes_first_but_after_what_has_expired(make, counted):
    cache = make(3)
    for key in "abc":
        await cache.set(key, response(), mode="thinking")
    await cache.get("a")
    await cache.set("b", response(answer="again"), mode="thinking")
    assert await cache.set("refused", response(confidence=0.1)) is False
    await cache.set("d", response(), mode="instant")
    assert [key for key in "abcd" if await cache.get(key)] == ["a", "b", "d"]
    assert counted()["evicted"] == 1
    await cache.pass_time(120)
    await cache.set("e", response())
    assert [key for key in "abde" if await cache.get(key)] == ["a", "b", "e"]
    assert "evicted" not in counted()
    with pytest.raises(ValueError, match="max_entries"):
        make(0)


async def test_invalidating_a_scope_drops_and_counts_its_live_entries_and_no_others(cache, counted):
    for number in range(7):
        await cache.set(f"x{number}", response(), scope="x", mode="auto")
    await cache.set("short", response(), scope="x", mode="instant")
    for key, scope in (("y", "y"), ("none", None), ("empty", "")):
        await cache.set(key, response(), scope=scope)
    await cache.pass_time(120)
    assert [await cache.invalidate_scope(scope) for scope in ("nobody's", "x", "x")] == [0, 7, 0]
    assert [key for key in ("x0", "y", "none", "empty") if await cache.get(key)] == ["y", "none", "empty"]
    await cache.set("x0", response(), scope="x")
    assert [await cache.invalidate_scope(scope) for scope in ("", "x")] == [1, 1]
    assert counted()["invalidated"] == 9


async def test_no_key_or_scope_can_be_another(cache):
    hostile = ["", " ", "\x00", "\n", "a\nb", "e:*", "k" * 100_000, "\ud800", "é", "e\u0301", "{x}:1", "used"]
    for text in hostile:
        assert await cache.set(text, response(answer=f"<{text}>"), scope=text)
    assert [(await cache.get(text)).response["answer"] for text in hostile] == [f"<{one}>" for one in hostile]
    assert [await cache.invalidate_scope(text) for text in hostile] == [1] * len(hostile)


async def test_whatever_is_done_both_caches_answer_alike(redis, prefix):
    for seed in range(2):
        choose = random.Random(seed)
        both = [InMemory(max_entries=3), InRedis(redis, f"{prefix}{seed}.", max_entries=3)]
        served = dropped = 0
        for turn in range(200):
            key, scope = choose.choice("abcde"), choose.choice([None, "x", "y"])
            fields = response(answer=turn, confidence=choose.choice([0.29, 0.3, 1.0]))
            set_ = ("set", key, fields, choose.choice(sorted(LIFETIMES)), scope)
            wait = ("pass_time", choose.choice([60, 120, 180]))
            steps = [set_, set_, set_, ("get", key), ("get", key), ("invalidate_scope", "x"), wait]
            name, *arguments = choose.choice(steps)
            mine, other = [await getattr(cache, name)(*arguments) for cache in both]
            assert (mine and getattr(mine, "response", mine)) == (
                other and getattr(other, "response", other)
            ), turn
            served += isinstance(other, CacheEntry)
            dropped += name == "invalidate_scope" and bool(other)
        assert min(served, dropped) > 5


async def test_all_keys_are_the_prefix_and_digests_and_all_of_them_expire(in_redis, redis, prefix):
    forms = (r"e:[0-9a-f]{32}", "used", "due", "scopes", r"s:[0-9a-f]{32}")
    await in_redis.set("user text \x00 *", response(), mode="instant", scope="scope text")
    found = await keys_of(redis, prefix)
    assert [sum(bool(re.fullmatch(form, key)) for key in found) for form in forms] == [1] * len(found)
    for key in found:
        assert 0 < await redis.pttl(f"{prefix}qc:{key}") <= (120_000 if key.startswith("e:") else 960_000)


async def test_processes_share_what_they_keep_and_deployments_share_nothing(
    in_redis, redis, redis_server, prefix
):
    await in_redis.set("k", response(answer="é \ud800"), scope="x")
    decoding = Redis.from_url(redis_server.url, decode_responses=True)
    other, stranger = RedisQueryCache(decoding, prefix), RedisQueryCache(redis_server.url, f"{prefix}other.")
    assert (await other.get("k")).response == response(answer="é \ud800")
    assert (await stranger.get("k"), await stranger.invalidate_scope("x")) == (None, 0)
    assert await other.invalidate_scope("x") == 1
    assert await in_redis.get("k") is None
    for closed in (other, stranger, in_redis):
        await closed.close()
    assert await redis.ping(), "a client of the caller stays open"
    await decoding.aclose()
    with pytest.raises(UsageError, match="GROUNDWIRE_REDIS_URL"):
        RedisQueryCache("not-an-address")


@pytest.mark.slow
async def test_a_large_scope_is_dropped_in_several_calls_and_new_entries_stay(redis, prefix, monkeypatch):
    cache = RedisQueryCache(redis, prefix, max_entries=2000)
    for number in range(1203):
        await cache.set(f"k{number}", response(), scope="x")
    calls, run = [], cache._run

    async def counting(name, *arguments):
        calls.append(name)
        answer = await run(name, *arguments)
        if name == "invalidate":
            await cache.set(f"new{len(calls)}", response(), scope="x")
        return answer

    monkeypatch.setattr(cache, "_run", counting)
    assert await cache.invalidate_scope("x") == 1203
    assert calls.count("invalidate") == 3
    assert await cache.get("k1202") is None
    assert len(await keys_of(redis, prefix, "e:")) == 3, "what was set meanwhile"
    for number in range(250):
        await cache.set(f"k{number}", response())
    lower = RedisQueryCache(redis, prefix, max_entries=10)
    counts = []
    for number in range(4):
        await lower.set(f"lower{number}", response())
        counts.append(len(await keys_of(redis, prefix, "e:")))
    assert counts == [154, 55, 10, 10], "a lowered bound is reached a hundred entries a call"


@pytest.mark.slow
async def test_many_processes_at_once_keep_to_the_bound(redis_server, redis, prefix):
    caches = [RedisQueryCache(redis_server.url, prefix, max_entries=5, patience=60) for _ in range(4)]

    async def use(number):
        for turn in range(60):
            await caches[number].set(f"k{turn % 11}", response(), scope=f"s{turn % 3}")
            await caches[number].get(f"k{(turn + number) % 11}")
            if turn % 7 == number:
                await caches[number].invalidate_scope(f"s{number % 3}")

    await asyncio.gather(*map(use, range(4)))
    entries = await keys_of(redis, prefix, "e:")
    assert len(entries) <= 5
    assert sum([await caches[0].invalidate_scope(f"s{number}") for number in range(3)]) == len(entries)
    assert await keys_of(redis, prefix) == []
    for cache in caches:
        await cache.close()


async def test_a_damaged_index_or_entry_serves_nothing_wrong_and_a_scope_can_still_be_dropped(
    in_redis, redis, prefix
):
    """Each row: what a server has evicted, whether the entry is still served, and how many its scope has then."""
    rows = [("due", False, 0), ("s:", False, 0), ("e:", False, 0), ("used", True, 1), ("scopes", True, 1)]
    wrong = []
    for lost, served, dropped in rows:
        own = f"{prefix}{lost}."
        cache = RedisQueryCache(redis, own)
        await cache.set("k", response(), scope="x")
        await redis.delete(*[f"{own}qc:{key}" for key in await keys_of(redis, own, lost)])
        found = await cache.get("k") is not None, await cache.invalidate_scope("x"), await cache.get("k")
        again = await cache.set("k", response(), scope="x"), await cache.invalidate_scope("x")
        if (found, again) != ((served, dropped, None), (True, 1)):
            wrong.append((lost, found, again))
    assert wrong == []
    broken = ["\n", "\n{", "\n[]", "\nnull", '\n{"other": 1}', f"\n{'[' * 100_000}", json.dumps(response())]
    for value in broken:
        await in_redis.set("k", response())
        (entry,) = await keys_of(redis, prefix, "e:")
        await redis.set(f"{prefix}qc:{entry}", value)
        assert await in_redis.get("k") is None
        assert await in_redis.set("k", response())
        assert await in_redis.get("k") is not None
    await redis.script_flush()
    assert await in_redis.get("k") is not None, "scripts are sent again"


async def test_a_server_that_fails_is_an_empty_cache_and_comes_back(own_server: RedisServer, prefix, counted):
    client = Redis.from_url(own_server.url)  # without a time limit of its own
    cache = RedisQueryCache(client, prefix, patience=0.5)
    await client.set(f"{prefix}qc:used", "of another type")
    assert await cache.set("k", response()) is False
    await client.delete(f"{prefix}qc:used")
    await cache.set("k", response(), scope="x")
    own_server.pause()
    counted()
    async with asyncio.timeout(60):
        assert (await cache.get("k"), await cache.set("k", response())) == (None, False)
    patient = RedisQueryCache(client, prefix, patience=60)
    waiting = asyncio.create_task(patient.get("k"))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    own_server.resume()
    own_server.kill()
    assert (await cache.get("k"), await cache.set("k", response())) == (None, False)
    assert counted() == {"unavailable": 4}
    with pytest.raises(StateUnavailable):
        await cache.invalidate_scope("x")
    own_server.start()
    assert await cache.set("k", response()) is True
    assert await cache.get("k") is not None
    await client.aclose()

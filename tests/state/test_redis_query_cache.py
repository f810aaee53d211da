"""What only the cache in Redis can do wrong: keys and lifetimes there, other processes, servers out of order."""

import asyncio
import json
import random
import re
import time
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from deploy.embedded import RedisServer
from groundwire import metrics
from groundwire.errors import StateUnavailable, UsageError
from groundwire.library.query_cache import LIFETIMES, CacheEntry, memory
from groundwire.library.query_cache import redis as redis_query_cache
from groundwire.library.query_cache.redis import RedisQueryCache, _digest
from groundwire.state.server import connect
from tests.services.redis_servers import start_redis
from tests.state.query_caches import InMemory, InRedis, response

KEYS = (r"e:[0-9a-f]{32}", "used", "due", "scopes", r"s:[0-9a-f]{32}")


@pytest.fixture
async def redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    client = connect(redis_server.url)
    yield client
    await client.aclose()


@pytest.fixture
def cache(redis: Redis, prefix: str) -> RedisQueryCache:
    return RedisQueryCache(redis, prefix)


async def keys_of(redis: Redis, prefix: str) -> list[str]:
    return sorted([key.decode().removeprefix(f"{prefix}qc:") async for key in redis.scan_iter(f"{prefix}*")])


def unavailable() -> float:
    return sum(
        family.labels("unavailable")._value.get()
        for family in (metrics.QUERY_CACHE_GETS, metrics.QUERY_CACHE_SETS)
    )


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_is_done_both_caches_answer_alike(redis, prefix, seed):
    choose = random.Random(seed)
    both = [InMemory(max_entries=3), InRedis(redis, prefix, max_entries=3)]
    served, dropped = 0, 0
    for turn in range(300):
        key, scope = choose.choice("abcde"), choose.choice([None, "x", "y"])
        fields = response(answer=turn, confidence=choose.choice([0.29, 0.3, 1.0]))
        set_ = ("set", key, fields, choose.choice(sorted(LIFETIMES)), scope)
        wait = ("pass_time", choose.choice([60, 120, 180]))
        name, *arguments = choose.choice(
            [set_, set_, set_, ("get", key), ("get", key), ("invalidate_scope", "x"), wait]
        )
        memory, other = [await getattr(cache, name)(*arguments) for cache in both]
        assert (memory and getattr(memory, "response", memory)) == (
            other and getattr(other, "response", other)
        ), turn
        served += isinstance(other, CacheEntry)
        dropped += name == "invalidate_scope" and bool(other)
    assert min(served, dropped) > 5


async def test_all_keys_are_the_prefix_and_digests_and_all_of_them_expire(cache, redis, prefix):
    await cache.set("user text \x00 *", response(), mode="instant", scope="scope text")
    await cache.get("user text \x00 *")
    found = await keys_of(redis, prefix)
    assert len(found) == len(KEYS)
    assert all(any(re.fullmatch(pattern, key) for pattern in KEYS) for key in found)
    for key in found:
        assert 0 < await redis.pttl(f"{prefix}qc:{key}") <= (120_000 if key.startswith("e:") else 960_000)


async def test_the_server_itself_lets_an_entry_go(cache, redis, prefix, monkeypatch):
    monkeypatch.setattr(memory, "LIFETIMES", {"instant": 0.05})
    await cache.set("k", response(), mode="instant")
    assert await cache.get("k") is not None
    deadline = time.monotonic() + 10
    while any(key.startswith("e:") for key in await keys_of(redis, prefix)):
        assert time.monotonic() < deadline, "the entry is still there"
        await asyncio.sleep(0.02)
    assert await cache.get("k") is None


async def test_processes_share_what_they_keep_and_deployments_share_nothing(cache, redis_server, prefix):
    await cache.set("k", response(), scope="x")
    async with asyncio.timeout(60):
        other = RedisQueryCache(redis_server.url, prefix)
        stranger = RedisQueryCache(redis_server.url, f"{prefix}other.")
        try:
            assert (await other.get("k")).response == response()
            assert await stranger.get("k") is None
            assert await stranger.invalidate_scope("x") == 0
            assert await other.invalidate_scope("x") == 1
        finally:
            await other.close()
            await stranger.close()
    assert await cache.get("k") is None


async def test_it_leaves_a_client_of_the_caller_open(cache, redis):
    await cache.close()
    assert await redis.ping()


async def test_a_client_that_decodes_will_do(redis_server, prefix):
    client = Redis.from_url(redis_server.url, decode_responses=True)
    cache = RedisQueryCache(client, prefix)
    assert await cache.set("k", response(answer="é \ud800"), scope="x")
    assert (await cache.get("k")).response["answer"] == "é \ud800"
    assert await cache.invalidate_scope("x") == 1
    await client.aclose()


def test_an_address_that_is_none_is_refused():
    with pytest.raises(UsageError, match="GROUNDWIRE_REDIS_URL"):
        RedisQueryCache("not-an-address")


async def test_what_is_no_json_or_a_structure_without_end_is_refused(cache):
    endless = response()
    endless["self"] = endless
    values = (float("nan"), {1, 2}, b"bytes", object())
    for given in (endless, *[response(detail={"deep": [value]}) for value in values]):
        assert await cache.set("k", given) is False
    assert await cache.get("k") is None


async def test_a_large_scope_is_dropped_to_the_last_entry_in_calls_of_bounded_work(redis, prefix):
    cache = RedisQueryCache(redis, prefix, max_entries=2000)
    for number in range(1203):
        await cache.set(f"k{number}", response(), scope="x")
    calls = []
    run = cache._run

    async def counting(name, *arguments):
        calls.append(name)
        return await run(name, *arguments)

    cache._run = counting
    assert await cache.invalidate_scope("x") == 1203
    assert calls == ["invalidate"] * 3
    assert await keys_of(redis, prefix) == []


async def test_what_is_set_while_a_scope_is_dropped_is_neither_dropped_nor_waited_for(redis, prefix):
    cache = RedisQueryCache(redis, prefix, max_entries=2000)
    for number in range(501):
        await cache.set(f"k{number}", response(), scope="x")
    run = cache._run
    written = 0

    async def with_a_writer(name, *arguments):
        nonlocal written
        answer = await run(name, *arguments)
        if name == "invalidate":
            for _ in range(600):
                written += 1
                await cache.set(f"new{written}", response(), scope="x")
        return answer

    cache._run = with_a_writer
    assert await cache.invalidate_scope("x") == 501
    assert await cache.get("k500") is None
    assert await cache.get("new1") is not None


async def test_a_lowered_bound_is_reached_a_hundred_entries_a_call(redis, prefix):
    cache = RedisQueryCache(redis, prefix, max_entries=300)
    for number in range(250):
        await cache.set(f"k{number}", response())
    lower = RedisQueryCache(redis, prefix, max_entries=10)
    counts = []
    for number in range(4):
        await lower.set(f"new{number}", response())
        counts.append(len([key for key in await keys_of(redis, prefix) if key.startswith("e:")]))
    assert counts == [151, 52, 10, 10]


async def test_many_processes_at_once_keep_to_the_bound(redis_server, redis, prefix):
    caches = [RedisQueryCache(redis_server.url, prefix, max_entries=5, patience=10) for _ in range(4)]

    async def use(number):
        for turn in range(60):
            await caches[number].set(f"k{turn % 11}", response(), scope=f"s{turn % 3}")
            await caches[number].get(f"k{(turn + number) % 11}")
            if turn % 7 == number:
                await caches[number].invalidate_scope(f"s{number % 3}")

    await asyncio.gather(*map(use, range(4)))
    entries = [key for key in await keys_of(redis, prefix) if key.startswith("e:")]
    assert len(entries) <= 5
    left = sum([await caches[0].invalidate_scope(f"s{number}") for number in range(3)])
    assert left == len(entries)
    assert await keys_of(redis, prefix) == []
    for cache in caches:
        await cache.close()


async def test_an_entry_at_its_end_is_not_served_even_where_the_server_still_holds_it(cache, redis, prefix):
    await cache.set("k", response(), scope="x")
    seconds, micro = await redis.time()
    await redis.zadd(f"{prefix}qc:due", {_digest("k"): seconds * 1_000_000 + micro})
    assert await cache.get("k") is None
    assert await keys_of(redis, prefix) == []


# A server that evicts keys, or holds what somebody else wrote


@pytest.mark.parametrize("lost", ["due", "s:", "e:"])
async def test_an_entry_that_the_index_has_lost_is_not_served(cache, redis, prefix, lost):
    await cache.set("k", response(), scope="x")
    await redis.delete(*[f"{prefix}qc:{key}" for key in await keys_of(redis, prefix) if key.startswith(lost)])
    assert await cache.get("k") is None
    assert [key for key in await keys_of(redis, prefix) if key.startswith("e:")] == []
    assert await cache.set("k", response(), scope="x")
    assert await cache.get("k") is not None
    assert await cache.invalidate_scope("x") == 1


@pytest.mark.parametrize("lost", ["used", "scopes"])
async def test_an_entry_is_dropped_with_its_scope_whatever_else_the_index_has_lost(
    cache, redis, prefix, lost
):
    await cache.set("k", response(), scope="x")
    await redis.delete(f"{prefix}qc:{lost}")
    assert await cache.get("k") is not None
    assert await cache.invalidate_scope("x") == 1
    assert await cache.get("k") is None


async def test_dropping_a_scope_comes_to_an_end_whatever_the_index_has_lost(
    cache, redis, prefix, monkeypatch
):
    monkeypatch.setattr(redis_query_cache, "_DROPPED_AT_ONCE", 1)
    for number in range(3):
        await cache.set(f"k{number}", response(), scope="x")
    await redis.delete(f"{prefix}qc:scopes")
    async with asyncio.timeout(60):
        assert await cache.invalidate_scope("x") == 3


@pytest.mark.parametrize(
    "value",
    ["\n", "\n{", "\n[]", "\nnull", '\n{"other": 1}', f"\n{'[' * 100_000}", json.dumps(response())],
)
async def test_what_cannot_be_read_or_is_of_another_make_is_a_miss(cache, redis, prefix, value):
    await cache.set("k", response())
    await redis.set(f"{prefix}qc:e:{_digest('k')}", value)
    assert await cache.get("k") is None
    assert await cache.set("k", response())
    assert await cache.get("k") is not None


async def test_a_key_of_another_type_counts_as_a_server_out_of_order(cache, redis, prefix):
    await redis.set(f"{prefix}qc:used", "taken")
    before = unavailable()
    assert await cache.set("k", response()) is False
    assert unavailable() == before + 1
    await redis.set(f"{prefix}qc:s:{_digest('x')}", "taken")
    with pytest.raises(StateUnavailable):
        await cache.invalidate_scope("x")


# A server that does not answer


async def test_a_server_that_is_gone_is_an_empty_cache_and_comes_back(prefix):
    with start_redis() as server:
        cache = RedisQueryCache(server.url, prefix)
        await cache.set("k", response(), scope="x")
        server.kill()
        before = unavailable()
        assert await cache.get("k") is None
        assert await cache.set("k", response()) is False
        assert unavailable() == before + 2
        with pytest.raises(StateUnavailable):
            await cache.invalidate_scope("x")
        server.start()
        assert await cache.set("k", response()) is True
        assert await cache.get("k") is not None
        await cache.close()


async def test_a_server_that_hangs_is_waited_for_no_longer_than_patience_whatever_the_clients_limits(prefix):
    with start_redis() as server:
        client = Redis.from_url(server.url)
        cache = RedisQueryCache(client, prefix, patience=0.2)
        await cache.set("k", response())
        server.pause()
        async with asyncio.timeout(60):
            assert await cache.get("k") is None
            assert await cache.set("k", response()) is False
        server.resume()
        await client.aclose()


async def test_a_caller_that_is_cancelled_is_cancelled(prefix):
    with start_redis() as server:
        cache = RedisQueryCache(server.url, prefix, patience=30)
        await cache.set("k", response())
        server.pause()
        task = asyncio.create_task(cache.get("k"))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        server.resume()
        await cache.close()


async def test_the_server_forgets_scripts_and_they_are_sent_again(cache, redis):
    await cache.set("k", response())
    await redis.script_flush()
    assert await cache.get("k") is not None

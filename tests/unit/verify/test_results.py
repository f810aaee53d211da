"""Results of verification, and the caches that keep them (S0-64, S0-71, S0-76, C-15)."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import ConnectionError as RedisConnectionError

from groundwire.verify.results import (
    CitationCheck,
    CitationState,
    Lifetimes,
    MemoryCache,
    RedisCache,
    VerificationResult,
    cache_key,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def check(state="verified", text=None):
    return CitationCheck(CitationState(state), "HTTP 200", NOW, text)


class FakeRedis:
    def __init__(self, network=None):
        self.commands, self.values, self.network = [], {}, network or partial(asyncio.sleep, 0)

    async def mget(self, keys):
        self.commands.append(("MGET", keys))
        await self.network()
        return [self.values.get(k) for k in keys]

    async def set(self, key, value, *, px):
        self.commands.append(("SET", key, px))
        await self.network()
        self.values[key] = value.encode()


async def test_memory_keeps_an_answer_for_the_lifetime_of_its_state():
    for state, seconds in {"verified": 86_400, "not_found": 3_600, "unknown": 60}.items():
        now = [0.0]
        cache = MemoryCache(lambda now=now: now[0])
        await cache.put("k", check(state))
        now[0] = seconds - 1
        assert await cache.get_many(["k", "other"]) == {"k": check(state)}
        now[0] = seconds
        assert await cache.get_many(["k"]) == {}, state
    # it is bounded, and forgets the longest unused
    cache = MemoryCache(max_entries=2)
    await cache.put("a", check())
    await cache.put("b", check())
    await cache.get_many(["a"])
    await cache.put("c", check())
    assert set(await cache.get_many(["a", "b", "c"])) == {"a", "c"}


async def test_neither_text_nor_what_was_not_checked_is_cached():
    redis = FakeRedis()
    for cache in (MemoryCache(), RedisCache(redis, "p.")):
        await cache.put("k", check(text="words of the source"))
        await cache.put("l", check("not_checked"))
        assert await cache.get_many(["k", "l"]) == {"k": check()}
    assert "words" not in str(redis.values)


async def test_redis_is_asked_once_for_a_batch_and_keeps_an_answer_for_its_lifetime_in_milliseconds():
    redis = FakeRedis()
    cache = RedisCache(redis, "groundwire.")
    await cache.get_many([])
    assert redis.commands == []
    await cache.get_many(["a", "b"])
    assert redis.commands == [("MGET", ["groundwire.citation:a", "groundwire.citation:b"])]
    given = [("url", "", "x"), ("issue", "", "x"), ("issue", "x", ""), ("issue", "x", "x")]
    assert len({cache_key(*k) for k in given}) == 4, "type, identity and value all tell keys apart"
    for state, ms in (("verified", 86_400_000), ("not_found", 3_600_000), ("unknown", 500)):
        redis = FakeRedis()
        cache = RedisCache(redis, "p.", lifetimes=Lifetimes(unknown=0.5))
        await cache.put("k", check(state))
        assert redis.commands == [("SET", "p.citation:k", ms)]
        assert await cache.get_many(["k"]) == {"k": check(state)}
    for value in (  # of another program or version: a miss
        *(b"", b"x", b"[]", b"null", b'["fine","x","2026-01-01T00:00:00Z"]', b"\xff"),
        b'["verified","x","2026-01-01"]',
    ):
        redis.values["p.citation:k"] = value
        assert await RedisCache(redis, "p.").get_many(["k"]) == {}, value


async def test_redis_out_of_reach_is_a_counted_miss_and_no_error_and_a_cancelled_call_stays_cancelled():
    async def refused():
        raise RedisConnectionError

    hangs = asyncio.Event().wait
    for network in (refused, hangs):
        cache = RedisCache(FakeRedis(network), "p.", patience=0.05)
        assert await cache.get_many(["k"]) == {}
        await cache.put("k", check())
        assert cache.failures == 2
    asking = asyncio.ensure_future(RedisCache(FakeRedis(hangs), "p.").get_many(["k"]))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


def test_a_result_is_valid_where_verified_alone_its_text_bounded_and_its_time_in_utc():
    assert [state for state in CitationState if CitationCheck(state, "", NOW).valid] == ["verified"]
    assert VerificationResult(valid=False, reason="HTTP 404") == (False, "HTTP 404")
    assert VerificationResult(valid=True, reason="").kind == "existence"
    assert len(check(text="x" * 50_000).text or "") == 20_000
    assert replace(check(text="x"), text=None) == check()
    here = datetime(2026, 1, 2, 5, tzinfo=timezone(timedelta(hours=5)))
    found = CitationCheck(CitationState.UNKNOWN, "", here)
    assert found.checked_at.isoformat() == "2026-01-02T00:00:00+00:00"
    with pytest.raises(ValueError, match="offset"):
        CitationCheck(CitationState.UNKNOWN, "", datetime(2026, 1, 2))  # noqa: DTZ001 - the naive time is the test


@given(st.text(max_size=3000))
def test_detail_is_one_printable_line_of_at_most_500_characters(text):
    detail = CitationCheck(CitationState.UNKNOWN, text, NOW).detail
    assert (len(detail) <= 500, detail.isprintable()) == (True, True)

"""Results of verification, and the caches that keep them (S0-64, S0-71, S0-76, C-15)."""

import asyncio
import shutil
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.asyncio import Redis
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
DAY = datetime(2026, 1, 2, tzinfo=UTC)


def check(state="verified", text=None):
    return CitationCheck(CitationState(state), "HTTP 200", NOW, text)


class FakeRedis:
    """Records commands; answers from a dict, or fails."""

    def __init__(self, error=None, delay=0.0):
        self.commands, self.values, self.error, self.delay = [], {}, error, delay

    async def _run(self, *command):
        self.commands.append(command)
        await asyncio.sleep(self.delay)
        if self.error:
            raise self.error

    async def mget(self, keys):
        await self._run("MGET", keys)
        return [self.values.get(k) for k in keys]

    async def set(self, key, value, *, px):
        await self._run("SET", key, px)
        self.values[key] = value.encode()


@pytest.mark.parametrize(("state", "seconds"), [("verified", 86_400), ("not_found", 3600), ("unknown", 60)])
async def test_memory_believes_an_answer_for_as_long_as_its_state_deserves(state, seconds):
    now = [0.0]
    cache = MemoryCache(lambda: now[0])
    await cache.put("k", check(state))
    now[0] = seconds - 1
    assert await cache.get_many(["k", "other"]) == {"k": check(state)}
    now[0] = seconds
    assert await cache.get_many(["k"]) == {}


async def test_memory_is_bounded_and_forgets_the_longest_unused():
    cache = MemoryCache(max_entries=2)
    await cache.put("a", check())
    await cache.put("b", check())
    await cache.get_many(["a"])
    await cache.put("c", check())
    assert set(await cache.get_many(["a", "b", "c"])) == {"a", "c"}


async def test_text_is_never_cached():
    redis = FakeRedis()
    for cache in (MemoryCache(), RedisCache(redis, "p.")):
        await cache.put("k", check(text="words of the source"))
        assert await cache.get_many(["k"]) == {"k": check()}
    assert "words" not in str(redis.values)


async def test_what_was_not_checked_is_not_cached():
    for cache in (MemoryCache(), RedisCache(FakeRedis(), "p.")):
        await cache.put("k", check("not_checked"))
        assert await cache.get_many(["k"]) == {}


async def test_redis_is_asked_once_for_a_batch_and_not_at_all_for_none():
    redis = FakeRedis()
    cache = RedisCache(redis, "groundwire.")
    await cache.get_many([])
    assert redis.commands == []
    await cache.get_many(["a", "b"])
    assert redis.commands == [("MGET", ["groundwire.citation:a", "groundwire.citation:b"])]


@pytest.mark.parametrize(
    ("state", "ms"), [("verified", 86_400_000), ("not_found", 3_600_000), ("unknown", 500)]
)
async def test_redis_keeps_an_answer_for_its_lifetime_in_milliseconds(state, ms):
    redis = FakeRedis()
    cache = RedisCache(redis, "p.", lifetimes=Lifetimes(unknown=0.5))
    await cache.put("k", check(state))
    assert redis.commands == [("SET", "p.citation:k", ms)]
    assert await cache.get_many(["k"]) == {"k": check(state)}


@pytest.mark.parametrize(
    "value",
    [
        b"", b"x", b"[]", b"null", b'["fine","x","2026-01-01T00:00:00Z"]', b'["verified","x","2026-01-01"]',
        b"\xff",
    ],
)  # fmt: skip
async def test_a_foreign_value_is_a_miss(value):
    redis = FakeRedis()
    redis.values["p.citation:k"] = value
    assert await RedisCache(redis, "p.").get_many(["k"]) == {}


@pytest.mark.parametrize("redis", [FakeRedis(RedisConnectionError("x")), FakeRedis(delay=5)])
async def test_redis_out_of_reach_is_a_counted_miss_and_no_error(redis):
    cache = RedisCache(redis, "p.", patience=0.05)
    assert await cache.get_many(["k"]) == {}
    await cache.put("k", check())
    assert cache.failures == 2


async def test_a_cancelled_round_trip_stays_cancelled():
    asking = asyncio.ensure_future(RedisCache(FakeRedis(delay=5), "p.").get_many(["k"]))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking


@pytest.fixture
async def redis(tmp_path):
    program = shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        pytest.skip("no Redis server on the path")
    socket = str(tmp_path / "s")
    command = [program, "--port", "0", "--unixsocket", socket, "--dir", str(tmp_path)]
    server = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.DEVNULL)
    redis = Redis(unix_socket_path=socket)
    for _ in range(200):
        with suppress(RedisConnectionError):
            if await redis.ping():
                break
        await asyncio.sleep(0.02)
    yield redis
    await redis.aclose()
    server.terminate()
    await server.wait()


async def test_a_real_server_gives_back_what_it_was_given(redis):
    """The commands mean to a server what they mean to the fake."""
    cache = RedisCache(redis, "p.")
    await cache.put("k", check())
    assert await cache.get_many(["k", "none"]) == {"k": check()}
    assert 86_390_000 < await redis.pttl("p.citation:k") <= 86_400_000
    assert cache.failures == 0


def test_type_identity_and_value_all_tell_keys_apart():
    keys = {
        cache_key(*k) for k in [("url", "", "x"), ("issue", "", "x"), ("issue", "x", ""), ("issue", "x", "x")]
    }
    assert len(keys) == 4
    assert cache_key("issue", "a", "1") == cache_key("issue", "a", "1")


def test_the_state_of_a_check_can_be_replaced_without_losing_its_bounds():
    assert replace(check(text="x"), text=None) == check()


def test_result_is_the_pair_of_valid_and_reason():
    assert VerificationResult(valid=False, reason="HTTP 404") == (False, "HTTP 404")


def test_result_says_that_it_proves_existence_only():
    assert VerificationResult(valid=True, reason="").kind == "existence"


@pytest.mark.parametrize("state", list(CitationState))
def test_only_verified_is_valid(state):
    assert CitationCheck(state, "", DAY).valid is (state == "verified")


@given(st.text(max_size=3000))
def test_detail_is_one_printable_line_of_at_most_500_characters(text):
    detail = CitationCheck(CitationState.UNKNOWN, text, DAY).detail
    assert len(detail) <= 500
    assert detail.isprintable()


def test_text_is_bounded():
    text = CitationCheck(CitationState.VERIFIED, "", DAY, "x" * 50_000).text
    assert text is not None
    assert len(text) == 20_000


def test_checked_at_is_in_utc():
    here = DAY.astimezone(timezone(timedelta(hours=5)))
    assert (
        CitationCheck(CitationState.UNKNOWN, "", here).checked_at.isoformat() == "2026-01-02T00:00:00+00:00"
    )


def test_naive_checked_at_is_refused():
    with pytest.raises(ValueError, match="offset"):
        CitationCheck(CitationState.UNKNOWN, "", datetime(2026, 1, 2))  # noqa: DTZ001 - the naive time is the test

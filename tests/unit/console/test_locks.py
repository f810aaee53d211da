"""Locks behave the same in Redis and in memory; a Redis that is away locks nothing and breaks nothing."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from deploy.embedded import RedisServer
from groundwire.console.locks import Locks, MemoryLocks, RedisLocks
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject
from tests.unit.console.rooms import Clock

ITEM, OTHER = Subject("acme", "ana", Kind.CLAIM, "c-1"), Subject("acme", "ana", Kind.CLAIM, "c-2")


@pytest.fixture(params=["memory", "redis"])
async def locks(request: pytest.FixtureRequest, redis_server: RedisServer) -> AsyncIterator[Locks]:
    if request.param == "memory":
        yield MemoryLocks(timedelta(seconds=45), Clock())
        return
    async with Redis.from_url(redis_server.url) as redis:
        yield RedisLocks(redis, f"test-{uuid.uuid4().hex}.", timedelta(seconds=45))


async def test_the_first_holds_it_and_the_others_hear_who(locks: Locks) -> None:
    assert await locks.claim(ITEM, "ana") is None
    assert await locks.claim(ITEM, "ben") == "ana"
    assert await locks.claim(ITEM, "ana") is None
    assert await locks.holders([OTHER, ITEM]) == [None, "ana"]
    assert await locks.holders([]) == []


async def test_only_its_holder_gives_it_back(locks: Locks) -> None:
    await locks.claim(ITEM, "ana")
    await locks.release(ITEM, "ben")
    assert await locks.claim(ITEM, "ben") == "ana"
    await locks.release(ITEM, "ana")
    assert await locks.claim(ITEM, "ben") is None


async def test_in_redis_it_expires_by_itself_and_is_renewed_by_its_holder_alone(
    redis_server: RedisServer,
) -> None:
    prefix = f"test-{uuid.uuid4().hex}."
    key = f"{prefix}lock:{ITEM.digest.hex()}"
    async with Redis.from_url(redis_server.url) as redis:
        locks = RedisLocks(redis, prefix, timedelta(seconds=45))
        await locks.claim(ITEM, "ana")
        assert 0 < await redis.pttl(key) <= 45_000
        await redis.pexpire(key, 1_000)
        await locks.claim(ITEM, "ben")
        assert await redis.pttl(key) <= 1_000
        await locks.claim(ITEM, "ana")
        assert await redis.pttl(key) > 1_000
        await redis.delete(key)
        assert await locks.claim(ITEM, "ben") is None


async def test_without_redis_nothing_is_locked_and_nothing_breaks() -> None:
    async with Redis.from_url("redis://127.0.0.1:1/0") as redis:
        locks = RedisLocks(redis, "x.", timedelta(seconds=45))
        assert await locks.claim(ITEM, "ana") is None
        assert await locks.holders([ITEM]) == [None]
        await locks.release(ITEM, "ana")

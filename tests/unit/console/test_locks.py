"""Locks behave the same in Redis and in memory; a Redis that is away locks nothing and breaks nothing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from redis.asyncio import Redis

from deploy.embedded import RedisServer
from groundwire.console.live import Locks, MemoryLocks, RedisLocks
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


async def test_the_first_holds_it_and_the_others_hear_who(locks) -> None:
    assert await locks.claim(ITEM, "ana") is None
    assert await locks.claim(ITEM, "ben") == "ana"
    assert await locks.claim(ITEM, "ana") is None
    await locks.claim(OTHER, "ben")
    assert await locks.held() == {ITEM: "ana", OTHER: "ben"}


async def test_only_its_holder_gives_it_back(locks) -> None:
    await locks.claim(ITEM, "ana")
    await locks.release(ITEM, "ben")
    assert await locks.claim(ITEM, "ben") == "ana"
    await locks.release(ITEM, "ana")
    assert await locks.claim(ITEM, "ben") is None


async def test_in_redis_it_expires_by_itself_and_is_renewed_by_its_holder_alone(redis_server) -> None:
    prefix = f"test-{uuid.uuid4().hex}."
    async with Redis.from_url(redis_server.url) as redis:
        short, long = (RedisLocks(redis, prefix, timedelta(seconds=seconds)) for seconds in (0.1, 45))
        await long.claim(OTHER, "eve")
        await short.claim(ITEM, "ana")
        assert await long.claim(ITEM, "ben") == "ana"
        await long.claim(OTHER, "eve")
        await asyncio.sleep(0.15)
        assert await long.held() == {OTHER: "eve"}
        assert await redis.hlen(f"{prefix}console:looking") == 1, "what has ended is taken away"
        await short.claim(ITEM, "ana")
        await long.claim(ITEM, "ana")
        await asyncio.sleep(0.15)
        assert await long.claim(ITEM, "ben") == "ana"
        assert 0 < await redis.pttl(f"{prefix}console:looking") <= 45_000


async def test_without_redis_nothing_is_locked_and_nothing_breaks() -> None:
    async with Redis.from_url("redis://127.0.0.1:1/0") as redis:
        locks = RedisLocks(redis, "x.", timedelta(seconds=45))
        assert await locks.claim(ITEM, "ana") is None
        assert await locks.held() == {}
        await locks.release(ITEM, "ana")

"""Consoles share sign-outs until they expire, in Redis as in memory; a Redis that does not answer breaks nothing."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import httpx
import pytest
from redis.asyncio import Redis

from deploy.embedded import RedisServer
from groundwire.console.live import MemoryShared, RedisShared
from groundwire.messages.base import format_time
from tests.unit.console.rooms import LEAD, Clock, csrf, html, make_decision, make_room

HOUR = timedelta(hours=1)
SECRET = "a secret of thirty-two characters"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "redis"])
async def shared(request: pytest.FixtureRequest, redis_server: RedisServer, clock: Clock):
    if request.param == "memory":
        yield MemoryShared(clock)
        return
    async with Redis.from_url(redis_server.url) as redis:
        yield RedisShared(redis, f"test-{uuid.uuid4().hex}.", clock)


def away() -> RedisShared:
    return RedisShared(Redis.from_url("redis://127.0.0.1:1/0"), "x.", Clock())


async def test_entries_are_read_by_shelf_and_each_expires_by_itself(shared, clock) -> None:
    assert await shared.put("one", {"a": "1", "b": "ü: 2"}, HOUR)
    await shared.put("other", {"a": "3"}, HOUR)
    assert await shared.read("one") == {"a": "1", "b": "ü: 2"}
    clock.forward(minutes=59)
    await shared.put("one", {"b": "4"}, HOUR)
    assert (await shared.read("one"), await shared.read("other")) == ({"a": "1", "b": "4"}, {"a": "3"})
    clock.forward(minutes=1)
    assert (await shared.read("one"), await shared.read("other")) == ({"b": "4"}, {})


async def test_a_redis_that_does_not_answer_says_so() -> None:
    assert (await away().put("one", {"a": "1"}, HOUR), await away().read("one")) == (False, None)


async def test_who_signed_out_stays_out_after_a_restart_and_at_other_consoles(shared, clock) -> None:
    before = make_room(shared, clock, secret=SECRET)
    async with before.browser() as client:
        copy = httpx.Cookies(client.cookies)
        await client.post("/signout", data={"csrf": await csrf(client)})
    clock.forward(minutes=1)
    after = make_room(shared, clock, secret=SECRET)
    await after.site.sessions.share()
    async with after.client() as thief:
        thief.cookies = copy
        assert (await thief.get("/api/queue")).status_code == 401


async def test_a_session_goes_on_after_a_restart_once_the_sign_outs_were_read(clock) -> None:
    shared = MemoryShared(clock)
    before = make_room(shared, clock, secret=SECRET)
    await before.site.sessions.share()
    async with before.browser() as client:
        kept = httpx.Cookies(client.cookies)
    clock.forward(minutes=1)
    after = make_room(shared, clock, secret=SECRET)
    async with after.client() as client:
        client.cookies = kept
        assert (await client.get("/api/queue")).status_code == 401
        await after.site.sessions.share()
        assert (await client.get("/api/queue")).status_code == 200


async def test_a_store_that_lost_its_entries_lets_in_nobody_who_signed_in_before() -> None:
    for signed_out in (True, False):
        clock = Clock()
        before = make_room(MemoryShared(clock), clock, secret=SECRET)
        await before.site.sessions.share()
        async with before.browser() as client:
            copy = httpx.Cookies(client.cookies)
            if signed_out:
                await client.post("/signout", data={"csrf": await csrf(client)})
        clock.forward(minutes=1)
        emptied = MemoryShared(clock)
        before.site.sessions._shared = emptied
        after = make_room(emptied, clock, secret=SECRET)
        for room in (after, before):
            await room.site.sessions.share()
            async with room.client() as thief:
                thief.cookies = copy
                assert (await thief.get("/api/queue")).status_code == 401
        clock.forward(minutes=1)
        async with after.browser() as client:
            await after.site.sessions.share()
            assert (await client.get("/api/queue")).status_code == 200


async def test_who_works_is_told_while_redis_is_away_that_nothing_is_shared(clock) -> None:
    room = make_room(away(), clock, secret=SECRET)
    (item,) = room.add(make_decision("c-1"))
    async with room.browser() as client:
        await room.site.sessions.share()
        for path in ("/", f"/items/{item}", "/status"):
            assert (await html(client, path)).all(id="unshared")
        for path in ("/api/queue", f"/api/items/{item}"):
            assert (await client.get(path)).json()["unshared_since"] == format_time(clock.now)
        await client.post("/signout", data={"csrf": await csrf(client)})
        assert "other consoles learn of it" in (await client.get("/signin")).text
        assert "other consoles learn of it" not in (await client.get("/signin")).text


async def test_once_redis_answers_again_nothing_is_told_and_open_pages_ask_again(redis_server, clock) -> None:
    async with Redis.from_url(redis_server.url) as redis, Redis.from_url("redis://127.0.0.1:1/0") as silent:
        shared = RedisShared(redis, f"test-{uuid.uuid4().hex}.", clock)
        room = make_room(shared, clock)
        await room.site.live.poll()
        shared._redis = silent
        assert await shared.read("one") is None
        assert shared.away_since == clock.now
        assert await room.site.live.poll()
        clock.forward(minutes=1)
        assert not await shared.put("one", {"a": "1"}, HOUR)
        assert shared.away_since == clock.now - timedelta(minutes=1), "since the first time"
        shared._redis = redis
        assert await shared.read("one") == {}
        assert shared.away_since is None
        assert await room.site.live.poll()


async def test_while_redis_is_away_only_new_sessions_hold_and_sign_outs_are_told_later(clock) -> None:
    room = make_room(away(), clock, secret=SECRET)
    async with room.browser() as client:
        assert (await client.get("/api/queue")).status_code == 200
        await client.post("/signout", data={"csrf": await csrf(client)})
        assert (await client.get("/api/queue")).status_code == 401
    sessions = room.site.sessions
    sessions._shared = MemoryShared(clock)
    await sessions.share()
    assert len(await sessions._shared.read("ended") or {}) >= 1


async def test_who_signs_out_while_another_sign_out_is_told_is_told_of_too() -> None:
    clock, going_on = Clock(), asyncio.Event()

    class SlowShared(MemoryShared):
        async def put(self, shelf: str, entries: Mapping[str, str], lasts: timedelta) -> bool:
            written = dict(entries)
            await going_on.wait()
            return await super().put(shelf, written, lasts)

    shared = SlowShared(clock)
    sessions = make_room(shared, clock).site.sessions
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    for session in (first, second):
        sessions.begin(session, LEAD)
    ids = {first["sid"], second["sid"]}
    sessions.end(first)
    telling = asyncio.create_task(sessions.share())
    await asyncio.sleep(0)
    sessions.end(second)
    going_on.set()
    await telling
    await sessions.share()
    assert set(await shared.read("ended") or {}) == ids


async def test_what_was_ended_is_told_again_where_redis_lost_it() -> None:
    clock = Clock()
    shared = MemoryShared(clock)
    sessions = make_room(shared, clock).site.sessions
    session: dict[str, Any] = {}
    sessions.begin(session, LEAD)
    sid = session["sid"]
    sessions.end(session)
    await sessions.share()
    shared._shelves["ended"].clear()
    await sessions.share()
    await sessions.share()
    assert set(await shared.read("ended") or {}) == {sid}

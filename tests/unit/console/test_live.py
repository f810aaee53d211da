"""Live updates say that something changed, never what; consoles share locks and sign-outs, in Redis as in memory."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import asynccontextmanager
from datetime import timedelta

import httpx
from redis.asyncio import Redis

from groundwire.console.live import (
    MOST_STREAMS,
    ChangeStream,
    MemoryLocks,
    MemoryShared,
    RedisLocks,
    RedisShared,
)
from groundwire.messages.base import format_time
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject
from tests.unit.console.rooms import HOST, LEAD, Clock, make_decision, make_room

ONE, OTHER = Subject("acme", "ana", Kind.CLAIM, "c-1"), Subject("acme", "ana", Kind.CLAIM, "c-2")
HOUR = timedelta(hours=1)
SECRET = "a secret of thirty-two characters"


class Streaming:
    """A request for events, whose answer does not end: what was sent so far, and a way to leave."""

    def __init__(self, room, **headers):
        self.sent = []
        self.news, self.gone = asyncio.Event(), asyncio.Event()
        raw = [(name.encode(), value.encode()) for name, value in {"host": HOST[7:], **headers}.items()]
        scope = {"type": "http", "method": "GET", "path": "/api/live", "raw_path": b"/api/live", "query_string": b"",
                 "headers": raw, "client": ("127.0.0.1", 5000), "server": ("127.0.0.1", 8700), "scheme": "http",
                 "http_version": "1.1", "root_path": "", "asgi": {"version": "3.0", "spec_version": "2.3"}}  # fmt: skip
        self.task = asyncio.create_task(room.app(scope, self._receive, self._send))

    async def _receive(self):
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message):
        self.sent.append(message)
        self.news.set()

    @property
    def text(self):
        return b"".join(message.get("body", b"") for message in self.sent).decode()

    async def until(self, count: int) -> None:
        """Wait for so many events."""
        async with asyncio.timeout(60):
            while self.text.count("event: change") < count:
                self.news.clear()
                await self.news.wait()

    async def leave(self) -> None:
        self.gone.set()
        await self.task


@asynccontextmanager
async def signed_in(room, *, out):
    """Sign in and, where asked for, out again; the cookies are those of before."""
    async with room.browser() as client:
        copy = httpx.Cookies(client.cookies)
        if out:
            await client.post("/signout", data={"csrf": await client.csrf()})
        yield copy


async def status_with(room, cookies):
    async with room.client() as client:
        client.cookies = cookies
        return (await client.get("/api/queue")).status_code


async def test_a_page_hears_once_that_something_changed_and_nothing_of_what(room) -> None:
    stream, polled = Streaming(room, authorization="Bearer eve-token"), []
    await stream.until(1)
    (decision_id,) = room.add(make_decision("c-secret", "A secret text."))
    polled += [await room.site.live.poll() for _ in range(2)]
    await stream.until(2)
    await stream.leave()
    for step in (room.act(decision_id), room.released()):
        await step
        polled.append(await room.site.live.poll())
    assert polled == [True, False, True, True]
    assert stream.sent[0]["status"] == 200
    headers = dict(stream.sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"cache-control"] == b"no-store"
    assert "secret" not in stream.text
    fields = {line.split(":")[0] for line in stream.text.splitlines() if line}
    assert fields == {"retry", "event", "id", "data"}


async def test_streams_end_with_their_session_and_with_the_console(room, browser) -> None:
    mine = Streaming(room, cookie=f"groundwire={browser.cookies['groundwire']}")
    others = Streaming(room, authorization="Bearer lead-token")
    for stream in (mine, others):
        await stream.until(1)
    room.clock.forward(hours=9)
    room.add(make_decision("c-1"))
    await room.site.live.poll()
    async with asyncio.timeout(60):
        await mine.task
    assert mine.text.count("event: change") == 1
    await others.until(2)
    await room.site.live.close()
    async with asyncio.timeout(60):
        await others.task
    live, signed_in = ChangeStream(lambda: 0), iter([True, True, False])
    assert live.enter("ana")
    events = [event async for event in live.events("ana", lambda: next(signed_in), beat=0.001)]
    starts = [event.splitlines()[0] for event in events]
    assert starts == ["retry: 3000", "event: change", ": still here"], "without a change, at the next beat"


async def test_one_person_has_a_bounded_number_of_streams(room) -> None:
    lead = "Bearer lead-token"
    streams = [Streaming(room, authorization=lead) for _ in range(MOST_STREAMS)]
    for stream in streams:
        await stream.until(1)
    async with room.client("lead-token") as client:
        assert (await client.get("/api/live")).status_code == 429
    ana = Streaming(room, authorization="Bearer ana-token")
    await ana.until(1)
    await streams.pop().leave()
    another = Streaming(room, authorization=lead)
    await another.until(1)
    for stream in (*streams, ana, another):
        await stream.leave()


async def test_a_sign_out_at_any_console_reaches_every_tab_at_once() -> None:
    shared = MemoryShared(Clock())
    one, other = make_room(shared), make_room(shared)
    async with one.browser() as browser:
        token = await browser.csrf()
        for room in (one, other):
            await room.site.live.poll()
        await browser.post("/signout", data={"csrf": token})
    assert await one.site.live.poll()
    await other.site.sessions.share()
    assert await other.site.live.poll()
    for room in (one, other):
        await room.site.sessions.share()
        assert not await room.site.live.poll()


async def test_the_first_holds_a_lock_until_it_releases_it_or_does_not_renew_it(redis_server) -> None:
    async with Redis.from_url(redis_server.url) as redis:
        lasts = timedelta(seconds=45)
        for locks in (MemoryLocks(lasts, Clock()), RedisLocks(redis, f"test-{uuid.uuid4().hex}.", lasts)):
            claims = [await locks.claim(ONE, person) for person in ("ana", "ben", "ana")]
            assert claims == [None, "ana", None]
            await locks.claim(OTHER, "ben")
            assert await locks.held() == {ONE: "ana", OTHER: "ben"}
            await locks.release(ONE, "ben")
            assert await locks.claim(ONE, "ben") == "ana"
            await locks.release(ONE, "ana")
            assert await locks.claim(ONE, "ben") is None
        prefix = f"test-{uuid.uuid4().hex}."
        key = f"{prefix}console:looking"
        over, lasting = (RedisLocks(redis, prefix, timedelta(seconds=seconds)) for seconds in (-1, 45))
        await over.claim(ONE, "ana")
        assert await lasting.claim(ONE, "ben") is None, "the lock of ana has expired"
        await lasting.claim(OTHER, "eve")
        await over.claim(OTHER, "eve")
        assert await lasting.held() in ({ONE: "ben"}, {})
        await lasting.claim(ONE, "ana")
        assert await over.claim(ONE, "ben") == "ana"
        assert 0 < await redis.pttl(key) <= 45_000
        assert set(await redis.hkeys(key)) == {b'["acme", "ana", "claim", "c-1"]'}, "expired ones are removed"
    async with Redis.from_url("redis://127.0.0.1:1/0") as redis:
        locks = RedisLocks(redis, "x.", lasts)
        assert (await locks.claim(ONE, "ana"), await locks.held()) == (None, {}), (
            "without Redis nothing is locked"
        )
        await locks.release(ONE, "ana")


async def test_what_is_shared_expires_and_who_signed_out_stays_out_at_every_console(redis_server) -> None:
    async with Redis.from_url(redis_server.url) as redis:
        for make in (MemoryShared, lambda clock: RedisShared(redis, f"test-{uuid.uuid4().hex}.", clock)):
            clock = Clock()
            shared = make(clock)
            assert await shared.put("one", {"a": "1", "b": "ü: 2"}, HOUR)
            await shared.put("other", {"a": "3"}, HOUR)
            assert await shared.read("one") == {"a": "1", "b": "ü: 2"}
            clock.forward(minutes=59)
            await shared.put("one", {"b": "4"}, HOUR)
            assert (await shared.read("one"), await shared.read("other")) == (
                {"a": "1", "b": "4"},
                {"a": "3"},
            )
            clock.forward(minutes=1)
            assert (await shared.read("one"), await shared.read("other")) == ({"b": "4"}, {})
            async with signed_in(make_room(shared, clock, secret=SECRET), out=True) as cookies:
                clock.forward(minutes=1)
            after = make_room(shared, clock, secret=SECRET)
            await after.site.sessions.share()
            assert await status_with(after, cookies) == 401


async def test_a_session_goes_on_after_a_restart_once_the_sign_outs_were_read_unless_lost() -> None:
    for out, lost in ((False, False), (False, True), (True, True)):
        clock = Clock()
        shared = MemoryShared(clock)
        before = make_room(shared, clock, secret=SECRET)
        await before.site.sessions.share()
        async with signed_in(before, out=out) as cookies:
            clock.forward(minutes=1)
        if lost:
            shared = before.site.sessions._shared = MemoryShared(clock)
        after = make_room(shared, clock, secret=SECRET)
        assert await status_with(after, cookies) == 401
        for room in (after, before):
            await room.site.sessions.share()
            assert (out, lost, await status_with(room, cookies)) == (out, lost, 401 if lost else 200)
        clock.forward(minutes=1)
        async with signed_in(after, out=False) as cookies:
            await after.site.sessions.share()
            assert await status_with(after, cookies) == 200


async def test_pages_say_that_redis_does_not_answer_and_only_new_sessions_hold() -> None:
    shared = RedisShared(Redis.from_url("redis://127.0.0.1:1/0"), "x.", Clock())
    room = make_room(shared, secret=SECRET)
    (item,) = room.add(make_decision("c-1"))
    async with room.browser() as client:
        await room.site.sessions.share()
        for path in ("/", f"/items/{item}", "/status"):
            assert (await client.html(path)).all(id="unshared")
        for path in ("/api/queue", f"/api/items/{item}"):
            assert (await client.get(path)).json()["unshared_since"] == format_time(room.clock.now)
        await client.post("/signout", data={"csrf": await client.csrf()})
        assert (await client.get("/api/queue")).status_code == 401
        told = ["other consoles learn of it" in (await client.get("/signin")).text for _ in range(2)]
        assert told == [True, False]
    sessions = room.site.sessions
    sessions._shared = MemoryShared(room.clock)
    await sessions.share()
    assert await sessions._shared.read("ended"), "what was ended is told later"


async def test_once_redis_answers_again_pages_say_nothing_of_it_and_open_pages_ask_again(
    redis_server,
) -> None:
    clock = Clock()
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


async def test_every_sign_out_is_published_also_one_meanwhile_and_one_that_redis_lost() -> None:
    clock, going_on = Clock(), asyncio.Event()

    class SlowShared(MemoryShared):
        async def put(self, shelf, entries, lasts):
            written = dict(entries)
            await going_on.wait()
            return await super().put(shelf, written, lasts)

    shared = SlowShared(clock)
    sessions = make_room(shared, clock).site.sessions
    first, second = {}, {}
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
    shared._shelves["ended"].clear()
    for _ in range(2):
        await sessions.share()
    assert set(await shared.read("ended") or {}) == ids

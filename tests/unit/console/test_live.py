"""Live updates say that something changed, never what, and end with the right to read; locks show who looks at what."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis

from groundwire.console.live import MOST_STREAMS, ChangeStream, MemoryLocks, MemoryShared, RedisLocks
from groundwire.messages.decisions import Kind
from groundwire.messages.identity import Subject
from tests.unit.console.rooms import HOST, Clock, Room, act, csrf, make_decision, make_room

ONE, OTHER = Subject("acme", "ana", Kind.CLAIM, "c-1"), Subject("acme", "ana", Kind.CLAIM, "c-2")


class Streaming:
    """A request whose answer does not end: what came of it so far, and a way to go away."""

    def __init__(self, room: Room, path: str, headers: dict[str, str]) -> None:
        self.sent: list[dict[str, Any]] = []
        self.news = asyncio.Event()
        self.gone = asyncio.Event()
        raw = [(name.encode(), value.encode()) for name, value in {"host": HOST[7:], **headers}.items()]
        scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
                 "headers": raw, "client": ("127.0.0.1", 5000), "server": ("127.0.0.1", 8700), "scheme": "http",
                 "http_version": "1.1", "root_path": "", "asgi": {"version": "3.0", "spec_version": "2.3"}}  # fmt: skip
        self.task = asyncio.create_task(room.app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)
        self.news.set()

    @property
    def text(self) -> str:
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


async def test_a_page_hears_that_something_changed_and_nothing_of_what(room) -> None:
    stream = Streaming(room, "/api/live", {"authorization": "Bearer eve-token"})
    await stream.until(1)
    room.add(make_decision("c-secret", "A secret text."))
    assert await room.site.live.poll()
    await stream.until(2)
    await stream.leave()

    assert stream.sent[0]["status"] == 200
    headers = dict(stream.sent[0]["headers"])
    assert headers[b"content-type"].startswith(b"text/event-stream")
    assert headers[b"cache-control"] == b"no-store"
    assert "secret" not in stream.text
    fields = {line.split(":")[0] for line in stream.text.splitlines() if line}
    assert fields == {"retry", "event", "id", "data"}


async def test_a_change_of_the_board_or_an_action_is_announced_once(room) -> None:
    assert not await room.site.live.poll()
    (decision_id,) = room.add(make_decision("c-1"))
    assert [await room.site.live.poll() for _ in range(2)] == [True, False]
    await act(room, decision_id)
    assert await room.site.live.poll()
    await room.released()
    assert await room.site.live.poll()


async def test_a_stream_ends_when_its_reader_is_signed_out() -> None:
    live = ChangeStream(lambda: 0)
    signed_in = iter([True, True, False])
    assert live.enter("ana")
    events = [event async for event in live.events("ana", lambda: next(signed_in), beat=0.001)]

    assert [event.splitlines()[0] for event in events] == ["retry: 3000", "event: change", ": still here"]


async def test_streams_end_with_their_session_and_with_the_console(room, browser) -> None:
    mine = Streaming(room, "/api/live", {"cookie": f"groundwire={browser.cookies['groundwire']}"})
    others = Streaming(room, "/api/live", {"authorization": "Bearer lead-token"})
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


async def test_one_person_has_a_bounded_number_of_streams(room) -> None:
    lead = {"authorization": "Bearer lead-token"}
    streams = [Streaming(room, "/api/live", lead) for _ in range(MOST_STREAMS)]
    for stream in streams:
        await stream.until(1)
    async with room.client("lead-token") as client:
        assert (await client.get("/api/live")).status_code == 429
    ana = Streaming(room, "/api/live", {"authorization": "Bearer ana-token"})
    await ana.until(1)
    await streams.pop().leave()
    another = Streaming(room, "/api/live", lead)
    await another.until(1)
    for stream in (*streams, ana, another):
        await stream.leave()


async def test_who_signs_out_here_or_at_another_console_is_told_at_once_in_every_tab() -> None:
    shared = MemoryShared(Clock())
    one, other = make_room(shared), make_room(shared)
    async with one.browser() as browser:
        token = await csrf(browser)
        for room in (one, other):
            await room.site.live.poll()
        await browser.post("/signout", data={"csrf": token})
    assert await one.site.live.poll()
    await other.site.sessions.share()
    assert await other.site.live.poll()
    for room in (one, other):
        await room.site.sessions.share()
        assert not await room.site.live.poll()


async def test_the_first_holds_a_lock_the_others_learn_who_and_only_its_holder_releases_it(
    redis_server,
) -> None:
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


async def test_a_lock_in_redis_expires_unless_its_holder_renews_it(redis_server) -> None:
    prefix = f"test-{uuid.uuid4().hex}."
    key = f"{prefix}console:looking"
    async with Redis.from_url(redis_server.url) as redis:
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


async def test_without_redis_nothing_is_locked_and_nothing_breaks() -> None:
    async with Redis.from_url("redis://127.0.0.1:1/0") as redis:
        locks = RedisLocks(redis, "x.", timedelta(seconds=45))
        assert await locks.claim(ONE, "ana") is None
        assert await locks.held() == {}
        await locks.release(ONE, "ana")

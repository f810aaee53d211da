"""Live updates: events say that something changed, never what; streams end with the right to read."""

from __future__ import annotations

import asyncio
from typing import Any

from groundwire.console.live import MOST_STREAMS, ChangeStream
from groundwire.console.shared import MemoryShared
from tests.unit.console.rooms import HOST, Clock, Room, csrf, make_decision, make_room


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
        async with asyncio.timeout(20):
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
    assert {line.split(":")[0] for line in stream.text.splitlines() if line} == {
        "retry",
        "event",
        "id",
        "data",
    }


async def test_nothing_is_told_where_nothing_changed(room) -> None:
    assert not await room.site.live.poll()
    room.add(make_decision("c-1"))
    assert await room.site.live.poll()
    assert not await room.site.live.poll()


async def test_what_a_person_does_is_news_to_their_other_pages(room, lead) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    await room.site.live.poll()
    await lead.post(f"/api/items/{decision_id}/actions", json={"action": "approve", "revision": 1})
    assert await room.site.live.poll()
    await room.released()
    assert await room.site.live.poll()


async def test_a_stream_ends_when_its_reader_is_signed_out() -> None:
    live = ChangeStream(lambda: 0)
    signed_in = iter([True, True, False])
    assert live.enter("ana")
    events = [event async for event in live.events("ana", lambda: next(signed_in), beat=0.001)]

    assert [event.splitlines()[0] for event in events] == ["retry: 3000", "event: change", ": still here"]


async def test_a_session_that_ends_ends_its_streams(room, browser) -> None:
    stream = Streaming(room, "/api/live", {"cookie": f"groundwire={browser.cookies['groundwire']}"})
    await stream.until(1)
    room.clock.forward(hours=9)
    room.add(make_decision("c-1"))
    await room.site.live.poll()
    async with asyncio.timeout(20):
        await stream.task

    assert stream.text.count("event: change") == 1


async def test_all_streams_end_when_the_console_stops(room) -> None:
    stream = Streaming(room, "/api/live", {"authorization": "Bearer lead-token"})
    await stream.until(1)
    await room.site.live.close()
    async with asyncio.timeout(20):
        await stream.task


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

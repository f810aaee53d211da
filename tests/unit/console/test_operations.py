"""The page for operators: what it says of workers that answer, that do not, and that answer nonsense."""

from __future__ import annotations

import asyncio
import sqlite3
from datetime import UTC, datetime
from typing import Any

import pytest

from groundwire.console import workers
from groundwire.console.series import MOST_WORKERS
from groundwire.console.settings import ScrapeTarget
from groundwire.console.workers import Scraper
from groundwire.replay.job import Job, ReplayOrder, jobs_in
from tests.services.serving import serving
from tests.unit.console.rooms import Room, make_decision, make_room
from tests.unit.console.workers import Worker

WORKERS = "claims:9100,deferred:9100"


class Network:
    """Stands for the workers' ports: what an address answers, or the error that it gives."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = answers

    async def resolve(self, target: ScrapeTarget) -> list[str]:
        names = [name for name in self.answers if name.split("_")[0] == target.host]
        if not names:
            raise OSError
        return names

    async def ask(self, address: str, port: int) -> str:
        assert port == 9100
        answer = self.answers[address]
        if isinstance(answer, Worker):
            return answer.answer()
        if isinstance(answer, Exception):
            raise answer
        return str(answer)


def room_with(network: Network, workers: str = WORKERS, **settings: Any) -> Room:
    room = make_room(workers=workers, **settings)
    targets = room.site.settings.targets
    room.site.scraper = Scraper(targets, room.clock, resolve=network.resolve, fetch=network.ask)
    return room


async def look(room: Room, times: int = 1) -> None:
    for _ in range(times):
        room.clock.forward(seconds=10)
        await room.site.scraper.scrape(int(room.clock.monotonic() // 10))


async def told(room: Room) -> dict[str, Any]:
    async with room.client("lead-token") as client:
        answer = await client.get("/api/operations")
        page = await client.get("/operations")
    assert (answer.status_code, page.status_code) == (200, 200)
    found: dict[str, Any] = answer.json()
    return found


def named(rows: list[dict[str, Any]], name: str, key: str = "name") -> dict[str, Any]:
    return next(row for row in rows if row[key] == name)


async def test_counts_of_all_tenants_are_for_who_sees_everything_of_one_and_else_there_is_no_such_page() -> (
    None
):
    room = make_room()
    for token, status in (("lead-token", 200), ("viewer-token", 200), ("ana-token", 404), ("eve-token", 404)):
        async with room.client(token) as client:
            answers = [await client.get(path) for path in ("/operations", "/api/operations")]
            nothing = await client.get("/api/items/00000000-0000-4000-8000-000000000000")
            front = (await client.get("/")).text
        assert [one.status_code for one in answers] == [status, status], token
        assert ('href="/operations"' in front) == (status == 200)
        if status == 404:
            assert answers[1].json() == nothing.json()


async def test_where_no_worker_is_named_the_page_says_what_to_set_and_shows_no_number_for_it() -> None:
    room = make_room()
    async with room.client("lead-token") as client:
        page = (await client.get("/operations")).text
    assert "GROUNDWIRE_CONSOLE_WORKERS" in page
    assert "Records in" not in page
    assert (await told(room))["configured"] is False


async def test_what_comes_in_and_goes_out_is_told_as_rates_of_the_last_minute_and_counts_of_the_hour() -> (
    None
):
    claims = Worker("claims")
    room = room_with(Network(claims=claims, deferred=Worker("deferred")))
    await look(room)
    for _ in range(6):
        claims.work(20)
        claims.work(10, "trusted_source", "tier_1")
        claims.dead.labels("invalid_json").inc()
        claims.citations.labels("url", "unknown").inc(2)
        claims.lag.labels("claims").set(7)
        claims.age.labels("claims").set(3.5)
        await look(room)
    found = await told(room)
    records = named(found["inputs"], "claims")
    assert (records["now"], records["hour"]) == (3.0, 180)
    assert named(found["inputs"], "deferred")["now"] == 0.0
    assert named(found["tiers"], "approved")["now"] == 1.0
    assert [(row["name"], row["hour"]) for row in found["reasons"]] == [
        ("ungrounded", 120),
        ("trusted_source", 60),
    ]
    assert named(found["dead_letters"], "invalid_json", "code")["hour"] == 6
    assert named(found["citations"], "url", "type")["unknown"] == 12
    assert named(found["lags"], "claims")["now"] == 7
    assert named(found["ages"], "claims")["now"] == 3.5


async def test_what_was_not_measured_is_said_to_be_so_and_is_never_a_zero() -> None:
    network = Network(claims=Worker("claims"), deferred=ConnectionRefusedError())
    room = room_with(network)
    await look(room, 3)
    found = await told(room)
    silent = named(found["workers"], "deferred:9100")
    assert (silent["state"], silent["role"], silent["partitions"]) == ("silent", None, None)
    assert silent["since"] == "2026-01-31T12:00:10Z"
    assert found["missing"] == 1
    deferred = named(found["inputs"], "deferred")
    assert (deferred["now"], deferred["hour"], set(deferred["minutes"])) == (None, None, {None})
    assert named(found["lags"], "deferred")["now"] is None
    assert named(found["inputs"], "claims")["now"] == 0.0
    async with room.client("lead-token") as client:
        page = (await client.get("/operations")).text
    assert "1 of 2 workers does not answer" in page
    assert "not measured" in page

    network.answers["claims"] = TimeoutError()
    await look(room, 7)
    found = await told(room)
    assert named(found["inputs"], "claims")["now"] is None
    assert named(found["lags"], "claims")["now"] is None
    gone = named(found["workers"], "claims:9100")
    assert (gone["state"], gone["role"], gone["since"]) == ("silent", "claims", "2026-01-31T12:00:40Z")


async def test_a_name_with_several_addresses_is_all_of_them_and_one_that_is_gone_is_forgotten() -> None:
    first, second = Worker("claims"), Worker("claims")
    network = Network(claims_1=first, claims_2=second, deferred=Worker("deferred"))
    room = room_with(network)
    await look(room)
    first.work(10)
    second.work(20)
    first.lag.labels("claims").set(3)
    second.lag.labels("claims").set(4)
    await look(room)
    found = await told(room)
    assert [one["address"] for one in found["workers"]] == ["claims_1", "claims_2", "deferred"]
    assert named(found["inputs"], "claims")["hour"] == 30
    assert named(found["lags"], "claims")["now"] == 7

    del network.answers["claims_2"]
    await look(room)
    assert len((await told(room))["workers"]) == 2
    network.answers = {}
    await look(room)
    assert [one["state"] for one in (await told(room))["workers"]] == ["unresolved", "unresolved"]


async def test_pods_that_come_and_go_for_weeks_do_not_use_up_the_places_of_those_that_are_there() -> None:
    network = Network()
    room = room_with(network, "claims:9100")
    for number in range(MOST_WORKERS + 5):
        network.answers = {f"claims_{number}": Worker("claims")}
        await look(room)
    assert named((await told(room))["lags"], "claims")["now"] == 0


async def test_a_worker_that_waits_is_told_of_in_plain_words_before_everything_else() -> None:
    worker = Worker("reviews", "review-decisions")
    worker.paused.labels("state").set(1)
    worker.paused.labels("broker").set(0)
    room = room_with(Network(reviews=worker), "reviews:9100")
    await look(room)
    found = await told(room)
    assert found["paused"] == [{"dependency": "state", "role": "reviews", "workers": 1}]
    async with room.client("lead-token") as client:
        page = (await client.get("/operations")).text
    assert "Redis gives no answer" in page
    assert page.index("Reviews: 1 worker paused.") < page.index('id="workers-title"')

    worker.paused.labels("state").set(0)
    await look(room)
    assert (await told(room))["paused"] == []


@pytest.mark.parametrize(
    "nonsense",
    [
        "",
        "<html>groundwire_decisions_total</html>",
        "groundwire_decisions_total{",
        "groundwire_decisions_total NaN",
        "groundwire_decisions_total +Inf",
        "groundwire_decisions_total -1",
        "groundwire_decisions_total 1e300",
        "up 1\n" * 10,
        'groundwire_decisions_total{tier="x"} 1\n' * 2_001,
    ],
)
async def test_whoever_answers_nonsense_is_shown_as_unreadable_and_counts_for_nothing(nonsense) -> None:
    room = room_with(Network(claims=nonsense, deferred=Worker("deferred")))
    await look(room, 2)
    found = await told(room)
    assert named(found["workers"], "claims:9100")["state"] == "unreadable"
    assert named(found["tiers"], "approved")["hour"] == 0, "as the other worker says"


async def test_labels_of_an_answer_never_come_to_the_page() -> None:
    hostile = (
        'groundwire_decisions_total{tier="<script>alert(1)</script>",reason_code="acme-secret"} %d\n'
        'groundwire_lag_records{input="tenant-of-somebody"} 1\n'
        'groundwire_paused{dependency="<b>"} 1\n'
    )
    network = Network(claims=hostile % 1)
    room = room_with(network, "claims:9100")
    await look(room)
    network.answers["claims"] = hostile % 9
    await look(room)
    async with room.client("lead-token") as client:
        pages = [(await client.get(path)).text for path in ("/operations", "/api/operations")]
    for page in pages:
        assert not any(word in page for word in ("alert(1)", "acme-secret", "somebody", "<b>"))
    assert named((await told(room))["reasons"], "other")["hour"] == 8


async def test_what_tenants_have_of_their_limits_is_told_of_the_fullest_and_of_all_that_was_refused() -> None:
    worker = Worker("deferred")
    room = room_with(Network(deferred=worker, claims=Worker("claims")))
    await look(room)
    worker.most.labels("bytes").set(7_000)
    worker.refusals.labels("review").inc(3)
    await look(room)
    tenants = (await told(room))["tenants"]
    assert named(tenants["limits"], "bytes") == {"name": "bytes", "most": 7_000, "limit": None, "full": None}
    assert tenants["refused"] == {"review": 3, "requests": 0, "hosts": 0}


async def test_the_queue_is_told_of_against_its_limits_with_no_id() -> None:
    room = make_room()
    room.add(make_decision("c-secret-id", "A text."), make_decision("c-2", user_id="ben"))
    room.clock.forward(hours=2)
    found = await told(room)
    assert [(one["used"], one["limit"]) for one in found["review"]["places"]] == [
        (2, 10_000),
        (2, 2_000),
        (1, 100),
    ]
    assert found["review"]["oldest_seconds"] == 3 * 3600
    async with room.client("lead-token") as client:
        page = (await client.get("/operations")).text
    assert not any(word in page for word in ("c-secret-id", "A text.", "ben"))


async def test_replays_are_shown_with_how_far_they_have_come_and_files_that_are_none_are_left_out(
    tmp_path,
) -> None:
    order = ReplayOrder(
        "lower-threshold", ["claims"], "earliest", "latest", "{}", simulate=False, output=None
    )
    (tmp_path / "notes.txt").write_text("SQLite format 3, or so it says")
    (tmp_path / "broken").write_bytes(b"SQLite format 3\x00" + b"x" * 200)
    sqlite3.connect(tmp_path / "other.db").execute("CREATE TABLE t (x)").connection.close()
    room = make_room(replay_jobs=tmp_path)
    with Job(tmp_path / "job", order) as job:
        (reading,) = (await told(room))["replays"]["jobs"]
        assert (reading["records"], reading["total"]) == (None, None)
        job.note(progress='{"summary": {"records": 500, "changes": 3}, "total": 2000, "after": ["secret"]}')
        (going,) = (await told(room))["replays"]["jobs"]
    assert (going["name"], going["other_policy"]) == ("lower-threshold", True)
    assert (going["records"], going["total"], going["changes"]) == (500, 2000, 3)
    assert jobs_in(tmp_path)[0].records == 500, "also when nobody works at it"
    assert abs((jobs_in(tmp_path)[0].moved_at - datetime.now(UTC)).days) <= 1


async def test_a_folder_of_replays_that_cannot_be_read_is_said_so_and_none_is_no_empty_list(tmp_path) -> None:
    assert (await told(make_room(replay_jobs=tmp_path / "none")))["replays"]["readable"] is False
    async with make_room().client("lead-token") as client:
        assert "GROUNDWIRE_CONSOLE_REPLAY_JOBS" in (await client.get("/operations")).text


@pytest.mark.parametrize(("more", "state"), [(0, "answers"), (2_000_000, "unreadable")])
async def test_what_a_port_sends_is_read_up_to_a_limit(more, state) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = Worker("claims").answer().encode() + b"#" * more
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + body)
        writer.close()

    async with serving(serve) as port:
        scraper = Scraper([ScrapeTarget("127.0.0.1", port)])
        await scraper.scrape(1)
    (seen,) = scraper.workers
    assert seen.state == state


async def test_a_port_that_says_nothing_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(workers, "PATIENCE", 0.05)

    async def serve(*_: object) -> None:
        await asyncio.Event().wait()

    async with serving(serve) as port:
        scraper = Scraper([ScrapeTarget("127.0.0.1", port)])
        await scraper.scrape(1)
    assert scraper.workers[0].state == "silent"

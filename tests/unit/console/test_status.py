"""The status page: what it says of workers that answer, that do not, and that answer nonsense, and of the queue."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from groundwire.console import workers
from groundwire.console.settings import ScrapeTarget
from groundwire.console.workers import Workers
from groundwire.errors import ErrorCode, RecordError
from groundwire.messages.base import to_milliseconds
from tests.services.serving import serving
from tests.unit.console.rooms import Room, make_decision, make_room
from tests.unit.console.workers import Worker
from tests.unit.review.world import dead_letter, decision, record, reviewed


class Network:
    """Stands for the workers' ports: what an address answers, or the error that it gives."""

    def __init__(self, **answers: Any) -> None:
        self.answers: dict[str, Any] = answers
        self.asked = 0

    async def resolve(self, target: ScrapeTarget) -> list[str]:
        names = [name for name in self.answers if name.split("_")[0] == target.host]
        if not names:
            raise OSError
        return names

    async def fetch(self, address: str, port: int) -> str:
        assert port == 9100
        self.asked += 1
        answer = self.answers[address]
        if isinstance(answer, Exception):
            raise answer
        return answer.answer() if isinstance(answer, Worker) else str(answer)


def room_with(network: Network, names: str = "claims:9100,deferred:9100") -> Room:
    room = make_room(workers=names)
    targets = room.site.settings.targets
    room.site.workers = Workers(targets, room.clock.monotonic, network.resolve, network.fetch)
    return room


async def told(room: Room) -> dict[str, Any]:
    async with room.client("lead-token") as client:
        found: dict[str, Any] = (await client.get("/api/status")).json()
    return found


async def shown(room: Room) -> str:
    async with room.client("lead-token") as client:
        return (await client.get("/status")).text


def named(rows: list[dict[str, Any]], value: str, key: str = "name") -> dict[str, Any]:
    return next(row for row in rows if row[key] == value)


async def test_the_page_is_for_who_sees_everything_of_a_tenant_and_for_others_there_is_none() -> None:
    room = make_room()
    for token, status in (("lead-token", 200), ("viewer-token", 200), ("ana-token", 404), ("eve-token", 404)):
        async with room.client(token) as client:
            answers = [await client.get(path) for path in ("/status", "/api/status")]
            nothing = await client.get("/api/items/00000000-0000-4000-8000-000000000000")
            front = (await client.get("/")).text
        assert [one.status_code for one in answers] == [status, status], token
        assert ('href="/status"' in front) == (status == 200)
        if status == 404:
            assert answers[1].json() == nothing.json()


async def test_lag_is_added_up_over_all_workers_of_a_role_and_age_is_that_of_the_oldest_batch() -> None:
    first, second = Worker("claims"), Worker("claims")
    for worker, lag, age in ((first, 3, 2.5), (second, 4, 70.0)):
        worker.lag.set(lag)
        worker.age.set(age)
        worker.partitions.set(6)
    second.waiting.set(1_200_000)
    room = room_with(Network(claims_1=first, claims_2=second, deferred=Worker("deferred")))
    found = await told(room)
    assert named(found["roles"], "claims", "role") == {
        "role": "claims",
        "workers": 2,
        "partitions": 12,
        "lag": 7,
        "oldest_seconds": 70,
    }
    assert found["waiting"] == 1_200_000
    assert [one["address"] for one in found["workers"]] == ["claims_1", "claims_2", "deferred"]
    assert "1.2 min" in await shown(room)


async def test_what_no_worker_tells_is_not_measured_and_never_a_zero() -> None:
    room = room_with(Network(claims=Worker("claims"), deferred=ConnectionRefusedError()))
    found, page = await told(room), await shown(room)
    assert [(one["name"], one["state"], one["role"]) for one in found["workers"]] == [
        ("claims:9100", "answers", "claims"),
        ("deferred:9100", "silent", None),
    ]
    assert [(row["role"], row["workers"], row["lag"]) for row in found["roles"]] == [
        ("claims", 1, 0),
        ("responses", 0, None),
        ("deferred", 0, None),
        ("reviews", 0, None),
    ]
    assert "1 of 2 workers does not answer" in page
    assert "not measured" in page
    unresolved = await told(room_with(Network()))
    assert [one["state"] for one in unresolved["workers"]] == ["unresolved", "unresolved"]


async def test_where_no_worker_is_named_the_page_says_what_to_set_and_shows_no_number_for_it() -> None:
    page = await shown(make_room())
    assert "GROUNDWIRE_CONSOLE_WORKERS" in page
    assert "Lag" not in page


async def test_a_worker_that_waits_is_told_of_in_plain_words_before_everything_else() -> None:
    worker = Worker("reviews")
    worker.paused.labels("state").set(1)
    worker.paused.labels("broker").set(0)
    room = room_with(Network(reviews=worker), "reviews:9100")
    assert (await told(room))["paused"] == [{"dependency": "state", "role": "reviews", "workers": 1}]
    page = await shown(room)
    assert "Redis does not answer correctly" in page
    assert page.index("Reviews: 1 worker paused.") < page.index('id="workers-title"')
    assert ">paused</span>" in page


async def test_a_port_that_answers_nonsense_is_shown_as_unreadable_and_counts_for_nothing() -> None:
    for nonsense in (
        *(
            "",
            "<html>groundwire_partitions</html>",
            "groundwire_partitions NaN",
            "groundwire_partitions +Inf",
        ),
        *("groundwire_partitions -1", "groundwire_partitions 1e300", "groundwire_partitions_of_another 1"),
    ):
        found = await told(room_with(Network(claims=nonsense, deferred=Worker("deferred"))))
        assert (nonsense, named(found["workers"], "claims:9100")["state"]) == (nonsense, "unreadable")
        assert [row["workers"] for row in found["roles"]] == [0, 0, 1, 0]


async def test_text_of_an_answer_never_comes_to_the_page() -> None:
    hostile = (
        'groundwire_lag_records{input="tenant-of-somebody"} 1\n'
        'groundwire_paused{dependency="<script>alert(1)</script>"} 1\n'
        'groundwire_tenant_most{limit="acme-secret"} 1\n'
    )
    room = room_with(Network(claims=hostile), "claims:9100")
    found = await told(room)
    for text in (str(found), await shown(room)):
        assert not any(word in text for word in ("somebody", "alert(1)", "acme-secret"))
    assert found["paused"] == [{"dependency": "other", "role": None, "workers": 1}]


async def test_limits_of_tenants_are_told_of_the_one_with_most_and_never_whose_it_is() -> None:
    one, other = Worker("claims"), Worker("deferred")
    for worker, most in ((one, 7_000), (other, 9_000)):
        worker.most.labels("bytes").set(most)
        worker.limit.labels("bytes").set(9_000)
        worker.full.labels("bytes").set(most // 9_000)
    found = (await told(room_with(Network(claims=one, deferred=other))))["tenants"]
    assert named(found, "bytes") == {"name": "bytes", "most": 9_000, "limit": 9_000, "full": 1}
    assert named(found, "places") == {"name": "places", "most": None, "limit": None, "full": None}


async def test_the_queue_is_told_of_against_its_limits_with_no_id() -> None:
    room = make_room()
    room.add(make_decision("c-secret-id", "A text."), make_decision("c-2", user_id="ben"))
    room.clock.forward(hours=2)
    found, page = await told(room), await shown(room)
    assert [(one["used"], one["limit"]) for one in found["places"]] == [(2, 10_000), (2, 2_000), (1, 100)]
    assert found["oldest_seconds"] == 3 * 3600
    assert not any(word in page for word in ("c-secret-id", "A text.", "ben"))


async def test_dead_letters_of_the_last_hour_are_counted_by_code_over_all_tenants() -> None:
    room = make_room()
    errors = [RecordError(ErrorCode.INVALID_JSON, "no JSON")] * 2 + [None]
    letters = [dead_letter(b"globex:eve", b"{", at, error) for at, error in enumerate(errors)]
    room.board.add([replace(one, timestamp_ms=to_milliseconds(room.clock.now)) for one in letters])
    assert (await told(room))["dead_letters"] == [
        {"code": "invalid_json", "count": 2},
        {"code": "other", "count": 1},
    ]
    assert "not readable as JSON: 2" in await shown(room)
    room.clock.forward(hours=1, seconds=1)
    assert (await told(room))["dead_letters"] == []


async def test_over_review_is_what_people_approved_unchanged_with_the_setting_that_changes_it() -> None:
    room = make_room()
    assert (await told(room))["over_review"]["decided"] == 0
    for name, action in (("a", "approve"), ("b", "approve"), ("c", "reject")):
        held = decision(name, reason_code="technical_hedge")
        room.board.add([record(held), record(reviewed(name, action))])
    found = (await told(room))["over_review"]
    assert (found["decided"], found["approved"]) == (3, 2)
    row = {"reason": "technical_hedge", "decided": 3, "approved": 2, "lever": "trusted_technical_hedges"}
    assert found["reasons"] == [row]
    assert "People approved 2 of 3 items unchanged" in await shown(room)


async def test_the_link_to_grafana_is_there_where_its_address_is_set() -> None:
    url = "https://grafana.acme.example/d/groundwire"
    assert f'href="{url}"' in await shown(make_room(grafana_url=url))
    assert "Grafana" not in await shown(make_room())
    with pytest.raises(ValueError, match="grafana_url"):
        make_room(grafana_url="javascript:alert(1)")


async def test_however_many_look_the_workers_are_asked_once_in_five_seconds() -> None:
    network = Network(claims=Worker("claims"))
    room = room_with(network, "claims:9100")
    await asyncio.gather(*(told(room) for _ in range(5)))
    assert network.asked == 1
    room.clock.forward(seconds=5)
    await told(room)
    assert network.asked == 2


async def test_an_answer_is_read_up_to_a_limit() -> None:
    for more, state in ((0, "answers"), (2_000_000, "unreadable")):

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, more: int = more) -> None:
            await reader.readuntil(b"\r\n\r\n")
            body = Worker("claims").answer().encode() + b"#" * more
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + body)
            writer.close()

        async with serving(serve) as port:
            (seen,) = await Workers([ScrapeTarget("127.0.0.1", port)], lambda: 0).ask()
        assert seen.state == state


async def test_a_port_that_says_nothing_is_given_up(monkeypatch) -> None:
    monkeypatch.setattr(workers, "_PATIENCE", 0.05)

    async def serve(*_: object) -> None:
        await asyncio.Event().wait()

    async with serving(serve) as port:
        (seen,) = await Workers([ScrapeTarget("127.0.0.1", port)], lambda: 0).ask()
    assert seen.state == "silent"

"""The status page, of workers that answer, that do not, and that answer nonsense; and the console's own gauges."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from deploy.embedded.process import free_port
from groundwire.console import workers
from groundwire.console.settings import ScrapeTarget
from groundwire.console.status import ReviewGauges, serve_gauges
from groundwire.console.workers import Workers
from groundwire.errors import ErrorCode, RecordError
from groundwire.messages.base import to_milliseconds
from groundwire.policy import Limits, Policy
from groundwire.review.model import Agreement, Backlog, DecisionCounts
from tests.services.serving import serving
from tests.unit.console.rooms import NOBODYS, Room, make_decision, make_room, worker_metrics
from tests.unit.review.world import dead_letter, decision, record, reviewed


def room_with(names="claims:9100,deferred:9100", **answers):
    """Return a room whose workers answer, by address, with metrics, a text or an error; `asked` lists the addresses."""
    room, asked = make_room(workers=names), []

    async def resolve(target):
        found = [name for name in answers if name.split("_")[0] == target.host]
        if not found:
            raise OSError
        return found

    async def fetch(address, port):
        assert port == 9100
        asked.append(address)
        answer = answers[address]
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, str) else generate_latest(answer).decode()

    room.site.workers = Workers(room.site.settings.targets, room.clock.monotonic, resolve, fetch)
    room.asked = asked
    return room


async def shown(room: Room) -> str:
    async with room.client("lead-token") as client:
        return (await client.get("/status")).text


async def test_the_page_is_for_who_sees_everything_of_a_tenant_and_for_others_there_is_none() -> None:
    url = "https://grafana.acme.example/d/groundwire"
    room = make_room(grafana_url=url)
    assert f'href="{url}"' in await shown(room)
    assert "Grafana" not in await shown(make_room())
    with pytest.raises(ValueError, match="grafana_url"):
        make_room(grafana_url="javascript:alert(1)")
    for token, status in (("lead-token", 200), ("viewer-token", 200), ("ana-token", 404), ("eve-token", 404)):
        async with room.client(token) as client:
            answers = [await client.get(path) for path in ("/status", "/api/status")]
            nothing = await client.get(f"/api/items/{NOBODYS}")
            front = (await client.get("/")).text
        assert [one.status_code for one in answers] == [status, status], token
        assert ('href="/status"' in front) == (status == 200)
        if status == 404:
            assert answers[1].json() == nothing.json()


async def test_lag_is_added_up_over_all_workers_of_a_role_and_age_is_that_of_the_oldest_batch() -> None:
    first, second = (
        worker_metrics(
            "claims",
            lag_records={"claims": lag},
            commit_age_seconds={"claims": age},
            partitions=6,
            waiting_claims=waiting,
        )
        for lag, age, waiting in ((3, 2.5, 0), (4, 70.0, 1_200_000))
    )
    room = room_with(claims_1=first, claims_2=second, deferred=worker_metrics("deferred"))
    found = await room.get("/api/status")
    claims = {"role": "claims", "workers": 2, "partitions": 12, "lag": 7, "oldest_seconds": 70}
    assert found["roles"][0] == claims
    assert found["waiting"] == 1_200_000
    assert [one["address"] for one in found["workers"]] == ["claims_1", "claims_2", "deferred"]
    assert "1.2 min" in await shown(room)
    await asyncio.gather(*(shown(room) for _ in range(5)))
    assert len(room.asked) == 3, "however many look, workers are asked once in five seconds"
    room.clock.forward(seconds=5)
    await shown(room)
    assert len(room.asked) == 6


async def test_what_no_worker_reports_is_not_measured_and_never_a_zero() -> None:
    room = room_with(claims=worker_metrics("claims"), deferred=ConnectionRefusedError())
    found, page = await room.get("/api/status"), await shown(room)
    assert [(one["name"], one["state"], one["role"]) for one in found["workers"]] == [
        ("claims:9100", "answers", "claims"),
        ("deferred:9100", "silent", None),
    ]
    roles = [(row["role"], row["workers"], row["lag"]) for row in found["roles"]]
    assert roles == [("claims", 1, 0), ("responses", 0, None), ("deferred", 0, None), ("reviews", 0, None)]
    assert "1 of 2 workers does not answer" in page
    assert "not measured" in page
    unresolved = await room_with().get("/api/status")
    assert [one["state"] for one in unresolved["workers"]] == ["unresolved", "unresolved"]
    page = await shown(make_room())
    assert ("GROUNDWIRE_CONSOLE_WORKERS" in page, "Lag" in page) == (True, False), "no worker is named"


async def test_a_worker_that_waits_is_reported_in_plain_words_before_everything_else() -> None:
    room = room_with("reviews:9100", reviews=worker_metrics("reviews", paused={"state": 1, "broker": 0}))
    paused = (await room.get("/api/status"))["paused"]
    assert paused == [{"dependency": "state", "role": "reviews", "workers": 1}]
    page = await shown(room)
    assert "Redis does not answer correctly" in page
    assert page.index("Reviews: 1 worker paused.") < page.index('id="workers-title"')
    assert ">paused</span>" in page


async def test_a_port_that_answers_nonsense_is_unreadable_and_no_text_of_it_comes_to_the_page() -> None:
    values = [f"groundwire_partitions {value}" for value in ("NaN", "+Inf", "-1", "1e300")]
    for nonsense in ("", "<html>groundwire_partitions</html>", *values, "groundwire_partitions_of_another 1"):
        found = await room_with(claims=nonsense, deferred=worker_metrics("deferred")).get("/api/status")
        assert (nonsense, found["workers"][0]["state"]) == (nonsense, "unreadable")
        assert [row["workers"] for row in found["roles"]] == [0, 0, 1, 0]
    hostile = (
        'groundwire_lag_records{input="tenant-of-somebody"} 1\n'
        'groundwire_paused{dependency="<script>alert(1)</script>"} 1\n'
        'groundwire_tenant_most{limit="acme-secret"} 1\n'
    )
    room = room_with("claims:9100", claims=hostile)
    found = await room.get("/api/status")
    for text in (str(found), await shown(room)):
        assert not any(word in text for word in ("somebody", "alert(1)", "acme-secret"))
    assert found["paused"] == [{"dependency": "other", "role": None, "workers": 1}]


async def test_limits_of_tenants_and_of_the_queue_are_shown_with_no_id() -> None:
    one, other = (
        worker_metrics(
            role,
            tenant_most={"bytes": most},
            tenant_limit={"bytes": 9_000},
            tenants_at_limit={"bytes": most // 9_000},
        )
        for role, most in (("claims", 7_000), ("deferred", 9_000))
    )
    room = room_with(claims=one, deferred=other)
    room.add(make_decision("c-secret-id", "A text."), make_decision("c-2", user_id="ben"))
    room.clock.forward(hours=2)
    found, page = await room.get("/api/status"), await shown(room)
    tenants = {row.pop("name"): row for row in found["tenants"]}
    assert tenants["bytes"] == {"most": 9_000, "limit": 9_000, "full": 1}
    assert tenants["places"] == {"most": None, "limit": None, "full": None}
    assert [(one["used"], one["limit"]) for one in found["places"]] == [(2, 10_000), (2, 2_000), (1, 100)]
    assert found["oldest_seconds"] == 3 * 3600
    assert not any(word in page for word in ("c-secret-id", "A text.", "ben"))


async def test_dead_letters_of_the_last_hour_are_counted_by_code_over_all_tenants() -> None:
    room = make_room()
    errors = [RecordError(ErrorCode.INVALID_JSON, "no JSON")] * 2 + [None]
    letters = [dead_letter(b"globex:eve", b"{", at, error) for at, error in enumerate(errors)]
    room.board.add([replace(one, timestamp=to_milliseconds(room.clock.now)) for one in letters])
    assert (await room.get("/api/status"))["dead_letters"] == [
        {"code": "invalid_json", "count": 2},
        {"code": "other", "count": 1},
    ]
    assert "not readable as JSON: 2" in await shown(room)
    room.clock.forward(hours=1, seconds=1)
    assert (await room.get("/api/status"))["dead_letters"] == []


async def test_over_review_is_what_people_approved_unchanged_with_the_setting_that_changes_it() -> None:
    room = make_room()
    assert (await room.get("/api/status"))["over_review"]["decided"] == 0
    for name, action in (("a", "approve"), ("b", "approve"), ("c", "reject")):
        held = decision(name, reason_code="technical_hedge")
        room.board.add([record(held), record(reviewed(name, action))])
    found = (await room.get("/api/status"))["over_review"]
    assert (found["decided"], found["approved"]) == (3, 2)
    row = {"reason": "technical_hedge", "decided": 3, "approved": 2, "lever": "trusted_technical_hedges"}
    assert found["reasons"] == [row]
    assert "People approved 2 of 3 items unchanged" in await shown(room)


async def test_an_answer_is_read_up_to_a_limit_and_a_port_that_says_nothing_is_given_up(monkeypatch) -> None:
    for more, state in ((0, "answers"), (2_000_000, "unreadable"), (None, "silent")):
        if more is None:
            monkeypatch.setattr(workers, "_PATIENCE", 0.05)

        async def serve(reader: Any, writer: asyncio.StreamWriter, more: int | None = more) -> None:
            await reader.readuntil(b"\r\n\r\n")
            if more is None:
                await asyncio.Event().wait()
            body = generate_latest(worker_metrics("claims")) + b"#" * (more or 0)
            writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n" + body)
            writer.close()

        async with serving(serve) as port:
            (seen,) = await Workers([ScrapeTarget("127.0.0.1", port)], lambda: 0).ask()
        assert seen.state == state


def test_the_consoles_gauges_are_what_its_board_counts_of_closed_lists_of_labels() -> None:
    now = datetime(2026, 1, 31, tzinfo=UTC)
    asked: list[Any] = []

    class FakeBoard:
        def backlog(self) -> Backlog:
            return Backlog(7, 20, 40, now - timedelta(days=3))

        def agreement(self, scope: object, since: datetime) -> Agreement:
            asked[:] = [scope, since]
            rows = [
                DecisionCounts("ungrounded", 3, 1, 2, timedelta(seconds=60), timedelta(seconds=90)),
                DecisionCounts("duplicate", 0, 0, 1, None, None),
            ]
            sources = [DecisionCounts(name, 1, 0, 0, None, None) for name in ("user", "agent of maria")]
            return Agreement(rows[0], rows, sources)

    limits = Limits(review_per_user=10, review_per_tenant=50, review_total=90)
    in_force = [Policy(limits=limits)]

    def page(stale: datetime | None = None) -> str:
        registry = CollectorRegistry()
        board: Any = FakeBoard()
        registry.register(
            ReviewGauges(
                board,
                {"acme"},
                lambda: stale,
                lambda: now,
                policy=lambda: in_force[0],
                ttl=timedelta(days=60),
            )
        )
        return generate_latest(registry).decode()

    text = page()
    for line in (
        'groundwire_reviewed_by_reason{outcome="rejected",reason="ungrounded"} 2.0',
        'groundwire_review_seconds{quantile="0.9",reason="ungrounded"} 90.0',
        'source="user"',
        "groundwire_console_stale_seconds 0.0",
        *(f'groundwire_review_fullest{{limit="{name}"}} {n}.0' for name, n in (("user", 7), ("tenant", 20))),
        *(f'groundwire_review_limit{{limit="{name}"}} {n}.0' for name, n in (("tenant", 50), ("total", 90))),
        f"groundwire_review_oldest_seconds {3 * 86400}.0",
        f"groundwire_review_ttl_seconds {60 * 86400 / 1e6}e+06",
    ):
        assert line in text
    assert 'groundwire_review_seconds{quantile="0.5",reason="duplicate"}' not in text
    assert "maria" not in text
    assert (asked[0].whole, asked[0].own, asked[1]) == ({"acme"}, frozenset(), now - timedelta(days=30))
    assert "groundwire_console_stale_seconds 5.0" in page(now - timedelta(seconds=5))
    in_force[0] = Policy()
    assert f'groundwire_review_limit{{limit="total"}} {Limits().review_total}.0' in page()


def test_the_metrics_port_says_whether_the_console_reads_on():
    told = {"caught_up": False, "away": False}
    port, answers = free_port(), []
    gauges = ReviewGauges(
        make_room().board, [], lambda: None, lambda: datetime.now(UTC), Policy, timedelta(1)
    )
    serve_gauges(gauges, "127.0.0.1", port, **{name: partial(told.get, name) for name in told})
    for told["caught_up"], told["away"] in ((False, False), (True, False), (True, True)):
        answer = httpx.get(f"http://127.0.0.1:{port}/ready")
        answers.append((answer.status_code, answer.text.partition(":")[0]))
    assert answers == [(503, "starting"), (200, "ok"), (503, "paused")]
    assert "groundwire_review_limit" in httpx.get(f"http://127.0.0.1:{port}/metrics").text

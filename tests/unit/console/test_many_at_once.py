"""A thousand items at once: asked about together, told whole, and others are answered meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from groundwire.messages.records import ReviewDecision
from tests.unit.console.rooms import Recorder, Room, approved, csrf, make_decision

ALL = {"all": "yes", "query": ""}


class Statements(list[str]):
    """The statements that a board runs."""

    def __init__(self, room: Room) -> None:
        super().__init__()
        room.board._connection.set_trace_callback(self.append)


def fill(room: Room, count: int) -> list[str]:
    codes = ("technical_hedge", "ungrounded", "citation_unverified")
    return room.add(
        *(make_decision(f"c-{number:04}", reason_code=codes[number % 3]) for number in range(count))
    )


async def statements_of(room: Room, path: str, sent: dict[str, Any]) -> int:
    async with room.client("lead-token") as client:
        seen = Statements(room)
        await client.post(path, json=sent)
        return len(seen)


@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("/api/bulk", {"action": "approve"}),
        ("/api/bulk", {"action": "approve", "confirm": "{count}"}),
        ("/api/assignments", {"to": "lead"}),
        ("/api/assignments", {"to": ""}),
    ],
)
async def test_as_many_statements_are_run_for_thirty_items_as_for_ninety(room, path, sent) -> None:
    ids = [{"id": one, "revision": 1} for one in fill(room, 120)]
    given = {name: value.format(count=30) for name, value in sent.items()}
    few = await statements_of(room, path, {**given, "ids": ids[:30]})
    given = {name: value.format(count=90) for name, value in sent.items()}
    more = await statements_of(room, path, {**given, "ids": ids[30:]})
    assert (few, more - few) in {(few, 0), (few, 60)}, "a row for each in `turns` where they are decided"
    assert few <= 8 + 30


async def test_before_they_are_sent_one_question_tells_which_are_unchanged(room) -> None:
    ids = [{"id": one, "revision": 1} for one in fill(room, 60)]
    await statements_of(room, "/api/bulk", {"action": "approve", "confirm": "60", "ids": ids})
    seen = Statements(room)
    await room.released()
    assert (len(seen), len(room.recorder.sent)) == (1, 60)


async def test_a_few_at_a_time_are_published(room, monkeypatch) -> None:
    going, most = 0, 0

    async def send(_: Recorder, decision: ReviewDecision) -> None:
        nonlocal going, most
        going += 1
        most = max(most, going)
        await asyncio.sleep(0)
        going -= 1

    monkeypatch.setattr(Recorder, "send", send)
    ids = [{"id": one, "revision": 1} for one in fill(room, 120)]
    await statements_of(room, "/api/bulk", {"action": "approve", "confirm": "120", "ids": ids})
    await room.released()
    assert 0 < most <= 50


async def test_what_becomes_busy_while_orders_are_made_is_left_out(room, monkeypatch) -> None:
    ids = [{"id": one, "revision": 1} for one in fill(room, 120)]
    sent = {"action": "approve", "confirm": "120", "ids": ids}
    async with room.client("lead-token") as one, room.client("lead-token") as other:
        first = asyncio.create_task(one.post("/api/bulk", json=sent))
        second = asyncio.create_task(other.post("/api/bulk", json=sent))
        answers = await asyncio.gather(first, second)
    assert sorted(answer.status_code for answer in answers) in ([202, 207], [202, 409])
    assert len(room.held) == 120


async def test_the_page_that_asks_names_all_and_sums_them_by_reason_and_risk(room, browser) -> None:
    fill(room, 250)
    room.add(approved("held"))
    form = {"csrf": await csrf(browser), "action": "reject", "reason": "outdated", **ALL}
    page = (await browser.post("/bulk", data=form)).text
    shown, _, opened = page.partition('<details id="others">')
    assert "<summary>and 150 more</summary>" in opened
    assert (shown.count('class="subject"'), opened.count('class="subject"')) == (100, 150)
    assert all(f">c-{number:04}<" in page for number in range(250))
    assert "167 low risk" in shown
    assert "83 medium risk" in shown
    async with room.client("lead-token") as client:
        sent = {"action": "reject", "reason": "outdated", **ALL}
        told = (await client.post("/api/bulk", json=sent)).json()
    assert [(one["reason_code"], one["count"]) for one in told["by_reason"]] == [
        ("citation_unverified", 83),
        ("technical_hedge", 84),
        ("ungrounded", 83),
    ]
    assert told["by_risk"] == [{"risk": "medium", "count": 83}, {"risk": "low", "count": 167}]
    assert (len(told["items"]), len(told["others"]), told["more"]) == (100, 150, 150)


async def test_each_named_item_tells_which_memories_say_something_else(room) -> None:
    match = {"subject_id": "m", "class": "pending", "difference": "number", "inter": 3, "union": 4}
    dedup = {"status": "ok", "scheme": "s", "matches": [match]}
    facts = {"clock": "2026-01-31T12:00:00Z", "place": "free", "dedup": dedup}
    room.add(make_decision("c-1", facts=facts), make_decision("m", "Another claim."))
    async with room.client("lead-token") as client:
        told = (await client.post("/api/bulk", json={"action": "approve", **ALL})).json()
    differs = {one["subject_id"]: one["differs"] for one in told["items"]}
    assert differs["c-1"] == [{"subject_id": "m", "state": "pending", "difference": "number"}]


@pytest.mark.parametrize("expected", [1_100, 1_000])
async def test_of_more_than_a_thousand_the_count_that_the_list_showed_is_taken(room, expected) -> None:
    fill(room, 1_100)
    async with room.client("lead-token") as client:
        listed = (await client.get("/api/queue")).json()["total"]
        done = await client.post("/api/assignments", json={"to": "lead", "expected": expected, **ALL})
        other = await client.post("/api/assignments", json={"to": "lead", "expected": 1_099, **ALL})
    assert (listed, done.json()["count"], other.status_code) == (1_100, 1_000, 409)

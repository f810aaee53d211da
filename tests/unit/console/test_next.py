"""Next leads to the first item that nobody has, however many others have something."""

from __future__ import annotations

from typing import Any

import pytest

from groundwire.console.queue import subject_of
from groundwire.review.model import Query
from tests.unit.console.rooms import ANA, Room, make_decision

TAKEN = 300


async def claimed(room: Room, rows: list[Any]) -> None:
    await room.site.assignments.give(map(subject_of, rows), ANA.name)


async def opened(room: Room, rows: list[Any]) -> None:
    for row in rows:
        await room.site.locks.claim(subject_of(row), ANA.name)


async def acted_on(room: Room, rows: list[Any]) -> None:
    ids = [{"id": row.decision_id, "revision": row.revision} for row in rows]
    async with room.client("lead-token") as client:
        sent = {"action": "approve", "ids": ids, "confirm": str(len(ids))}
        assert (await client.post("/api/bulk", json=sent)).status_code == 202


@pytest.mark.parametrize("take", [claimed, opened, acted_on])
async def test_next_is_the_first_free_item_behind_three_hundred_that_are_taken(room, lead, take) -> None:
    room.add(*(make_decision(f"c-{number:03}") for number in range(TAKEN + 3)))
    rows = room.board.pending(room.site.permissions.scope(ANA), Query(limit=200))
    later = room.board.pending(room.site.permissions.scope(ANA), Query(limit=200, cursor=rows.next))
    first, *taken, free, last = [*rows.rows, *later.rows]
    await take(room, taken)
    at_first = (await lead.get(f"/api/items/{first.decision_id}")).json()
    assert (at_first["next"], at_first["place"], at_first["total"]) == (free.decision_id, 1, TAKEN + 3)
    at_last = (await lead.get(f"/api/items/{last.decision_id}")).json()
    assert (at_last["previous"], at_last["then"]) == (free.decision_id, first.decision_id)
    assert at_last["place"] == TAKEN + 3


async def test_next_on_a_later_page_of_the_queue_goes_on_from_there(room, lead) -> None:
    room.add(*(make_decision(f"c-{number:03}") for number in range(60)))
    page = (await lead.get("/api/queue")).json()
    later = (await lead.get(f"/api{page['older'].replace('/?', '/queue?')}")).json()["items"]
    query = page["older"].partition("?")[2]
    found = (await lead.get(f"/api/items/{later[0]['id']}?{query}")).json()
    assert (found["previous"], found["next"], found["place"]) == (
        page["items"][-1]["id"],
        later[1]["id"],
        51,
    )

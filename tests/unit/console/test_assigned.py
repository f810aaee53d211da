"""Items are claimed and assigned: people are led past each other, and nobody is kept from acting."""

from __future__ import annotations

import asyncio
import html
from typing import Any

import pytest

from groundwire.console.assignments import LASTS
from groundwire.console.shared import MemoryShared
from tests.unit.console.rooms import Clock, Room, approved, blocked, csrf, make_decision, make_room, search
from tests.unit.console.test_shared import away

ALL = {"all": "yes"}


async def give(room: Room, to: str, *ids: str, who: str = "lead", **more: Any) -> int:
    async with room.client(f"{who}-token") as client:
        sent = {"to": to, "ids": [{"id": one, "revision": 1} for one in ids]} | more
        return (await client.post("/api/assignments", json=sent)).status_code


async def listed(room: Room, query: str = "", who: str = "lead") -> dict[str, str | None]:
    async with room.client(f"{who}-token") as client:
        items = (await client.get(f"/api/queue{query}")).json()["items"]
    return {item["subject_id"]: item["assigned"] for item in items}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def ids(room: Room) -> list[str]:
    return room.add(*(make_decision(f"c-{number}") for number in range(3)))


async def test_what_is_claimed_or_assigned_is_found_by_filters_and_given_back(room, ids) -> None:
    assert await give(room, "lead", ids[0]) == 200
    assert await give(room, "ana", ids[1]) == 200
    assert await listed(room) == {"c-0": "lead", "c-1": "ana", "c-2": None}
    assert await listed(room, "?assigned=mine") == {"c-0": "lead"}
    assert await listed(room, "?assigned=nobody") == {"c-2": None}
    assert await listed(room, "?assigned=mine", "ana") == {"c-1": "ana"}
    assert await give(room, "", ids[0]) == 200
    assert await listed(room, "?assigned=nobody") == {"c-0": None, "c-2": None}
    room.clock.forward(seconds=LASTS.total_seconds())
    assert set((await listed(room)).values()) == {None}


async def test_only_who_may_decide_an_item_gets_it_and_who_sees_their_own_gives_to_nobody_else(
    room, ids
) -> None:
    assert await give(room, "ben", ids[0]) == 400
    assert await give(room, "lead", ids[0], who="ana") == 400
    assert await give(room, "ana", ids[0], who="ana") == 200
    assert await give(room, "ben", ids[0], who="ben") == 404
    assert (await listed(room))["c-0"] == "ana"


async def test_next_leads_past_what_somebody_else_claimed_and_back_to_it_once_it_is_free(
    room, ids, lead
) -> None:
    first, second, third = [item["id"] for item in (await lead.get("/api/queue")).json()["items"]]
    await give(room, "ana", second, who="ana")
    assert (await lead.get(f"/api/items/{first}")).json()["next"] == third
    await give(room, "", second, who="ana")
    assert (await lead.get(f"/api/items/{first}")).json()["next"] == second


async def test_what_is_decided_by_anybody_by_any_way_is_given_back_at_every_console(clock) -> None:
    shared = MemoryShared(clock)
    one, other = make_room(shared, clock), make_room(shared, clock)
    for room in (one, other):
        ids = room.add(*(make_decision(f"c-{number}") for number in range(4)))
    await give(one, "ana", *ids[:2])
    await give(one, "lead", *ids[2:])
    await other.site.free_decided()
    review = {"action": "approve", "action_id": "a", "reviewer": "ben"}  # as a command sends it
    facts = {"clock": "2026-01-31T12:00:00Z", "place": "not_needed", "review": review}
    other.add(
        approved("c-0", revision=2, reason_code="human_approved", facts=facts),
        blocked("c-2", revision=2, reason_code="review_expired"),
    )
    await other.site.live.poll()
    await other.site.free_decided()
    taken = await one.site.assignments.read_all()
    assert {subject.subject_id: person for subject, person in taken.items()} == {"c-1": "ana", "c-3": "lead"}
    assert await other.site.live.poll(), "open lists are told"


async def test_a_running_console_gives_back_what_is_decided_by_itself(room, ids, monkeypatch) -> None:
    monkeypatch.setattr("groundwire.console.app._SHARED", 0.01)
    await give(room, "lead", ids[0])
    async with room.app.router.lifespan_context(room.app), asyncio.timeout(5):
        room.add(approved("c-0", revision=2))
        while await room.site.assignments.read_all():  # noqa: ASYNC110 - a store has no event
            await asyncio.sleep(0.01)


async def test_an_undone_decision_leaves_an_item_with_who_had_it(room, ids, lead) -> None:
    await give(room, "ana", ids[0], who="ana")
    acted = await lead.post(f"/api/items/{ids[0]}/actions", json={"action": "approve", "revision": 1})
    await room.site.free_decided()
    assert (await listed(room))["c-0"] == "ana"
    await lead.post(f"/api/actions/{acted.json()['action_id']}/undo", json={})
    await room.site.free_decided()
    assert (await listed(room))["c-0"] == "ana"


async def test_what_is_decided_while_redis_is_away_is_given_back_once_it_answers(clock) -> None:
    shared = MemoryShared(clock)
    room = make_room(shared, clock)
    ids = room.add(make_decision("c-0"))
    await give(room, "lead", *ids)
    room.add(approved("c-0", revision=2))
    room.site.assignments._shared = away()
    await room.site.free_decided()
    room.site.assignments._shared = shared
    await room.site.free_decided()
    assert await room.site.assignments.read_all() == {}


async def test_a_claim_keeps_nobody_from_deciding(room, ids, lead) -> None:
    await give(room, "ana", ids[0], who="ana")
    answer = await lead.post(f"/api/items/{ids[0]}/actions", json={"action": "approve", "revision": 1})
    assert answer.status_code == 202


async def test_all_that_match_are_claimed_at_once(room, ids) -> None:
    assert await give(room, "lead", all="yes", expected=3, query="user=ana&sort=newest") == 200
    assert set((await listed(room)).values()) == {"lead"}


async def test_open_lists_are_told_of_a_claim(room, ids) -> None:
    await room.site.live.poll()
    await give(room, "lead", ids[0])
    assert await room.site.live.poll()


async def test_without_redis_nobody_has_anything_and_to_claim_says_why_not(room) -> None:
    without = make_room(away())
    ids = without.add(make_decision("c-1"))
    assert await give(without, "lead", *ids) == 503
    assert await listed(without, "?assigned=nobody") == {"c-1": None}
    assert await listed(without, "?assigned=mine") == {}


async def test_pages_claim_and_give_back_by_plain_forms(room, ids, browser) -> None:
    token = await csrf(browser)
    one = {"csrf": token, "ids": f"{ids[0]}:1", "query": "sort=oldest"}
    done = await browser.post("/assignments", data={**one, "to": "lead", "back": "item"})
    assert (done.status_code, done.headers["location"]) == (303, f"/items/{ids[0]}?sort=oldest")
    assert "Give back" in (await browser.get(f"/items/{ids[0]}")).text
    assert "claimed by <bdi>lead</bdi>" in (await browser.get("/")).text
    done = await browser.post("/assignments", data={**one, "to": ""})
    assert (done.status_code, done.headers["location"]) == (303, "/?sort=oldest")
    assert "Claimed by nobody" in (await browser.get(f"/items/{ids[0]}")).text


# all that match


async def test_all_that_match_are_decided_with_their_count_and_undone_together(room, browser) -> None:
    room.add(*(make_decision(f"c-{number:03}", reason_code="technical_hedge") for number in range(120)))
    room.add(make_decision("other"), make_decision("grave", reason_code="phantom_source"))
    form = {
        "csrf": await csrf(browser),
        "action": "reject",
        "query": "reason=technical_hedge",
        "reason": "outdated",
    }
    asked = await browser.post("/bulk", data=form | ALL)
    assert asked.status_code == 409
    assert "Reject 120 items" in asked.text
    assert "and 20 more" in asked.text
    sent = asked.text.partition('name="ids" value="')[2].partition('"')[0]
    done = await browser.post("/bulk", data={**form, "sure": "yes", "ids": sent, "confirm": "120"})
    assert (done.status_code, done.headers["location"]) == (303, "/?reason=technical_hedge")
    assert len(room.held) == 120
    await browser.post(f"/actions/{room.held[0].order.action_id}/undo", data={"csrf": form["csrf"]})
    assert room.held == []


async def test_a_program_decides_all_that_match_only_where_it_knows_how_many(room, lead) -> None:
    room.add(*(make_decision(f"c-{number:03}") for number in range(30)))
    sent = {"action": "approve", "query": "user=ana", **ALL}
    refused = await lead.post("/api/bulk", json=sent)
    assert (refused.status_code, refused.json()["count"], room.held) == (409, 30, [])
    listed = {"confirm": "30", "digest": refused.json()["digest"]}
    room.settle("c-000")
    room.add(make_decision("never-listed"))
    again = await lead.post("/api/bulk", json=sent | listed)
    assert (again.status_code, again.json()["count"], room.held) == (400, 30, [])
    listed = {"confirm": "30", "digest": again.json()["digest"]}
    assert (await lead.post("/api/bulk", json=sent | listed)).status_code == 202
    assert len(room.held) == 30


async def test_a_program_confirms_few_of_all_that_match_and_what_is_left_out_does_not_count(
    room, lead
) -> None:
    room.add(*(make_decision(f"c-{number}") for number in range(3)))
    room.add(make_decision("grave", reason_code="phantom_source"))
    sent = {"action": "approve", "query": "", **ALL}
    asked = (await lead.post("/api/bulk", json=sent)).json()
    assert (asked["count"], len(asked["left_out"]), room.held) == (3, 1, [])
    done = await lead.post("/api/bulk", json=sent | {"confirm": "3", "digest": asked["digest"]})
    assert (done.status_code, len(room.held)) == (207, 3)


async def test_without_redis_nothing_is_selected_by_who_has_it() -> None:
    without = make_room(away())
    without.add(make_decision("c-1"))
    async with without.client("lead-token") as client:
        sent = {"action": "approve", "query": "assigned=nobody", **ALL}
        assert (await client.post("/api/bulk", json=sent)).status_code == 503
    assert without.held == []


async def test_of_all_that_match_one_gives_back_only_what_one_has(room, ids) -> None:
    await give(room, "ana", ids[0], who="ana")
    await give(room, "lead", ids[1])
    assert await give(room, "", all="yes", query="") == 200
    assert await listed(room) == {"c-0": "ana", "c-1": None, "c-2": None}


async def test_all_that_match_are_claimed_only_as_many_as_the_list_showed(room, ids) -> None:
    assert await give(room, "lead", all="yes", query="") == 400
    assert await give(room, "lead", all="yes", query="", expected=2) == 409
    assert await room.site.assignments.read_all() == {}


async def test_only_what_waits_is_claimed(room) -> None:
    for decided in room.add(approved("done"), blocked("stopped")):
        assert await give(room, "lead", decided) == 409
    assert await room.site.assignments.read_all() == {}


async def test_a_search_bounds_what_matches(room, browser) -> None:
    room.add(make_decision("c-1"), make_decision("c-2", "Ice is cold."))
    place = await search(browser, "ice", back="sort=newest")
    form = {"csrf": await csrf(browser), "query": place[2:], "action": "approve"}
    asked = await browser.post("/bulk", data={**form, **ALL})
    sent = asked.text.partition('name="ids" value="')[2].partition('"')[0]
    assert f'href="{place}">Cancel' in html.unescape(asked.text)
    done = await browser.post("/bulk", data={**form, "sure": "yes", "ids": sent})
    assert [entry.order.record.subject_id for entry in room.held] == ["c-2"]
    undo = f"/actions/{room.held[0].order.action_id}/undo"
    undone = await browser.post(undo, data={"csrf": form["csrf"]})
    assert done.headers["location"] == place
    assert undone.headers["location"].partition("?")[2] == place[2:], "it leads back to what was searched"


async def test_of_what_nothing_matches_nothing_is_done(room, lead) -> None:
    answer = await lead.post("/api/bulk", json={"action": "approve", "query": "user=nobody", **ALL})
    assert (answer.status_code, answer.json()["message"]) == (400, "ids: needed, one or more")


@pytest.mark.parametrize(
    ("query", "named"),
    [
        ("reason=low_confidnce", "reason"),
        ("resaon=low_confidence", "resaon"),
        ("user=nobody&age=over_2d", "age"),
        ("user=ana&user=ben", "user"),
        ("user", "name=value"),
    ],
)
@pytest.mark.parametrize(
    ("path", "sent"),
    [
        ("bulk", {"action": "approve", **ALL}),
        ("assignments", {"to": "lead", **ALL}),
        ("views", {"name": "mine"}),
    ],
)
async def test_a_mistyped_filter_selects_nothing_and_is_named(
    room, ids, lead, path, sent, query, named
) -> None:
    answer = await lead.post(f"/api/{path}", json={**sent, "query": query})
    assert (answer.status_code, room.held) == (400, [])
    assert named in answer.json()["message"]
    assert not await room.site.assignments.read_all()


async def test_all_is_never_meant_by_a_query_that_was_left_out(room, ids, lead) -> None:
    for path, sent in (("bulk", {"action": "approve"}), ("assignments", {"to": "lead"})):
        answer = await lead.post(f"/api/{path}", json={**sent, **ALL})
        assert (answer.status_code, answer.json()["message"][:6]) == (400, "query:")
    assert (room.held, await room.site.assignments.read_all()) == ([], {})


async def test_where_not_as_many_match_as_the_list_counted_that_is_said_and_nothing_claimed(
    room, browser
) -> None:
    room.add(*(make_decision(f"c-{number:03}") for number in range(60)))
    listed = (await browser.get("/")).text
    assert '<input type="hidden" name="expected" value="60">' in listed
    form = {"csrf": await csrf(browser), "query": "", "expected": "60", **ALL}
    same = await browser.post("/bulk", data=form | {"action": "reject"})
    room.add(make_decision("came-meanwhile"))
    other = await browser.post("/bulk", data=form | {"action": "reject"})
    claimed = await browser.post("/assignments", data=form | {"to": "lead"})
    said = "61 match by now; when you looked at the list there were 60."
    assert (same.status_code, said in same.text) == (409, False)
    assert (other.status_code, said in other.text) == (409, True)
    assert (claimed.status_code, "61 match by now" in claimed.text) == (409, True)
    assert "claimed by lead" not in (await browser.get("/")).text
    program = await browser.post(
        "/api/bulk",
        json={"action": "approve", "query": "", "expected": 60, **ALL},
        headers={"x-csrf-token": form["csrf"]},
    )
    assert program.json()["message"].startswith("expected: 61 match by now")

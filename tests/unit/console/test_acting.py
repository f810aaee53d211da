"""Acting on an item: nothing is published that can be undone, and nothing on an item that changed."""

from __future__ import annotations

from typing import Any

from groundwire.console.outbox import OrderState
from groundwire.console.queue import subject_of
from groundwire.review.model import Query
from tests.unit.console.rooms import (
    ANA,
    ITEM,
    LEAD,
    Room,
    act,
    approved,
    chosen,
    csrf,
    html,
    make_decision,
    make_room,
)


async def undo(room: Room, action_id: str) -> int:
    async with room.client("lead-token") as client:
        return (await client.post(f"/api/actions/{action_id}/undo", json={})).status_code


async def test_an_action_is_published_when_it_cannot_be_undone_any_more_and_not_before(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    answer = await act(room, decision_id)
    assert (answer.status_code, answer.json()["state"]) == (202, "held")
    counts = []
    for seconds in (4.9, 0.1):
        room.clock.forward(seconds=seconds)
        room.site.outbox.release()
        await room.site.outbox.delivered()
        counts.append(len(room.recorder.sent))

    assert counts == [0, 1]
    (sent,) = room.recorder.sent
    assert (sent.action, sent.subject_id, sent.expected_revision, sent.reviewer, sent.action_id) == (
        *("approve", "c-1", 1, "lead"),
        answer.json()["action_id"],
    )
    assert await undo(room, sent.action_id) == 409


async def test_an_undone_action_is_never_published_and_the_item_can_be_decided_again(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    assert await undo(room, (await act(room, decision_id)).json()["action_id"]) == 200
    await room.released()

    assert room.recorder.sent == []
    assert (await act(room, decision_id)).status_code == 202


async def test_without_undo_seconds_and_at_the_stop_of_a_console_actions_are_published_at_once() -> None:
    for seconds in (0, 5):
        room = make_room(undo_seconds=seconds)
        (decision_id,) = room.add(make_decision("c-1"))
        await act(room, decision_id)
        if seconds:
            await room.site.outbox.close()
        else:
            room.site.outbox.release()
            await room.site.outbox.delivered()
        assert len(room.recorder.sent) == 1


async def test_the_outcome_is_shown_to_its_person_alone() -> None:
    for applied, code, state in ((True, "human_approved", "applied"), (False, "stale", "refused")):
        room = make_room()
        room.recorder.applied, room.recorder.code = applied, code
        (decision_id,) = room.add(make_decision("c-1"))
        action_id = (await act(room, decision_id)).json()["action_id"]
        await room.released()
        async with room.client("lead-token") as lead, room.client("ana-token") as ana:
            told = (await lead.get(f"/api/actions/{action_id}")).json()
            (listed,) = (await lead.get("/api/actions")).json()["actions"]
            assert (await ana.get("/api/actions")).json() == {"actions": []}
            room.clock.forward(hours=1)
            (over,) = (await lead.get("/api/actions")).json()["actions"]

        assert (told["state"], told["outcome"]) == (state, code)
        assert told == listed
        assert over == {**told, "shown": False}
        assert told["sentence"]


async def test_an_action_that_cannot_be_published_is_reported_and_may_be_tried_again(room) -> None:
    room.recorder.fails = True
    (decision_id,) = room.add(make_decision("c-1"))
    await act(room, decision_id)
    await room.released()
    assert [entry.state for entry in room.site.outbox.of(LEAD)] == [OrderState.FAILED]

    room.recorder.fails = False
    assert (await act(room, decision_id)).status_code == 202


async def test_an_action_on_an_item_that_changed_is_refused_with_the_change(room) -> None:
    (old,) = room.add(make_decision("c-1"))
    review = {"action": "reject", "action_id": "a-1", "reviewer": "ana", "reason": "outdated"}
    facts = {"clock": "2026-01-31T12:00:00Z", "review": review}
    changed = {"tier": "tier_3", "verdict": "blocked", "reason_code": "human_rejected", "facts": facts}
    (new,) = room.add(make_decision("c-1", revision=2, **changed))
    for given in (
        {"action": "approve"},
        {"action": "reject", "reason": "other"},
        {"action": "edit", "content": "x"},
    ):
        for decision_id, revision in ((old, 1), (new, 1), (new, 2)):
            answer = await act(room, decision_id, revision=revision, **given)
            told = answer.json()
            assert answer.status_code == 409
            assert (told["id"], told["revision"], told["verdict"]) == (new, 2, "blocked")
            if revision == 1:
                assert {"what": "revision", "was": "1", "now": "2"} in told["problem"]["changes"]
                assert "by ana" in told["problem"]["changes"][-1]["now"]

    assert room.held == []


async def test_of_two_reviewers_the_first_counts_and_the_second_learns_who_was_first(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    assert (await act(room, decision_id)).status_code == 202
    second = await act(room, decision_id, who="ana-token", action="reject", reason="other")
    await room.released()

    assert second.status_code == 409
    assert "lead" in second.json()["problem"]["text"]
    assert [sent.action for sent in room.recorder.sent] == ["approve"]


async def test_a_change_while_an_action_is_held_stops_it_and_an_item_that_is_not_pending_takes_none(
    room,
) -> None:
    decision_id, settled = room.add(make_decision("c-1"), make_decision("c-2"))
    await act(room, decision_id)
    room.add(approved("c-1", revision=2, reason_code="human_approved"))
    await room.released()
    room.settle("c-2")

    assert room.recorder.sent == []
    assert [entry.state for entry in room.site.outbox.of(LEAD)] == [OrderState.STALE]
    assert (await act(room, settled)).status_code == 409


async def test_an_edit_is_published_as_it_was_written_and_one_that_changes_nothing_is_an_approval(
    room, browser
) -> None:
    written = "  Ⅷ \u202e line one\r\nline two\n"
    (decision_id,) = room.add(make_decision("c-0"))
    await act(room, decision_id, action="edit", content=written)
    texts = ("Water is wet.", "\nfirst line empty", "one\r\ntwo\rthree\n", " spaces ", "<b>&amp;")
    for number, text in enumerate(texts, start=1):
        (decision_id,) = room.add(make_decision(f"c-{number}", text))
        as_browsers_send_it = text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
        form = {
            "csrf": await csrf(browser),
            "action": "edit",
            "revision": "1",
            "content": as_browsers_send_it,
        }
        await browser.post(f"/items/{decision_id}/actions", data=form)
    await room.released()

    sent = [(one.action, one.content) for one in sorted(room.recorder.sent, key=lambda one: one.subject_id)]
    assert sent == [("edit", written), *[("approve", None)] * len(texts)]


async def test_retracting_needs_a_reason_and_an_approved_item_and_is_offered_in_its_list() -> None:
    for kind in ("claim", "response"):
        room = make_room()
        known, pending = room.add(approved("c-1", kind=kind), make_decision("c-2"))
        assert (await act(room, known, action="retract")).status_code == 400
        assert (await act(room, pending, action="retract", reason="outdated")).status_code == 409
        assert (await act(room, known, action="approve")).status_code == 409
        async with room.browser() as browser:
            link = f"/items/{known}?from=approved&do=retract"
            assert link in [
                one["href"] for one in (await html(browser, "/approved")).all("a", class_="retract")
            ]
            assert "open" in (await html(browser, link)).one(id="retract").attributes
        assert (await act(room, known, action="retract", reason="outdated")).status_code == 202
        await room.released()
        assert [(one.action, one.kind, one.reason) for one in room.recorder.sent] == [
            ("retract", kind, "outdated")
        ]


async def test_after_a_form_a_browser_goes_to_the_next_item_and_can_undo_there(room, browser) -> None:
    first, second = room.add(make_decision("c-1"), make_decision("c-2", "Fire is hot."))
    token = await csrf(browser)
    form = {"csrf": token, "action": "approve", "revision": "1", "next": second, "query": "sort=oldest"}
    answer = await browser.post(f"/items/{first}/actions", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/items/{second}?sort=oldest")
    undoing = (await html(browser, answer.headers["location"])).one("form", class_="undo")
    back = await browser.post(undoing["action"], data={"csrf": token})
    assert back.headers["location"] == f"/items/{first}?sort=oldest"

    assert room.held == []


async def test_filters_and_order_survive_bulk_cancel_and_undo(room, browser) -> None:
    ids = [f"{one}:1" for one in room.add(make_decision("c-1"), make_decision("c-2"))]
    listed = "user=ana&sort=newest"
    token = await csrf(browser)
    form = {"csrf": token, "action": "approve", "ids": ids, "query": listed}

    async def undone() -> str:
        path = f"/actions/{room.held[0].order.action_id}/undo"
        return (await browser.post(path, data={"csrf": token})).headers["location"]

    asked = await browser.post("/bulk", data=form)
    done = await browser.post("/bulk", data={**form, "sure": "yes"})
    assert f'href="/?{listed.replace("&", "&amp;")}">Cancel' in asked.text
    assert done.headers["location"] == await undone() == f"/?{listed}"
    item = f"/items/{ids[0][:-2]}"
    one = await browser.post(f"{item}/actions", data={**form, "ids": [], "revision": "1", "next": ""})
    assert (one.headers["location"], await undone()) == (f"/?{listed}", f"{item}?{listed}")


async def test_who_opens_an_item_is_named_to_others_and_hinders_nobody(room, browser) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    await room.site.live.poll()
    assert not (await html(browser, f"/items/{decision_id}")).all(id="reviewing")
    assert await room.site.live.poll(), "open lists ask again"
    async with room.client("ana-token") as ana:
        assert (await ana.get("/api/queue")).json()["items"][0]["reviewing"] == "lead"
        assert "Being reviewed by lead" in (await html(ana, f"/items/{decision_id}")).one(id="reviewing").text
        assert (await ana.post(f"/api/items/{decision_id}/lock", json={})).json() == {"reviewing": "lead"}
    assert (await act(room, decision_id, who="ana-token")).status_code == 202


async def test_a_lock_expires_unless_it_is_renewed_and_acting_releases_it(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    path, seen = f"/api/items/{decision_id}/lock", []
    async with room.client("lead-token") as lead, room.client("ana-token") as ana:
        for seconds in (0, 40):
            room.clock.forward(seconds=seconds)
            await lead.post(path, json={})
        for seconds in (40, 6):
            room.clock.forward(seconds=seconds)
            seen.append((await ana.get("/api/queue")).json()["items"][0]["reviewing"])
        assert seen == ["lead", None]
        await lead.post(path, json={})
        await act(room, decision_id)
        assert (await ana.post(path, json={})).json() == {"reviewing": None}


async def test_next_is_the_first_free_item_behind_three_hundred_that_others_have() -> None:
    async def opened(room: Room, rows: list[Any]) -> None:
        for row in rows:
            await room.site.locks.claim(subject_of(row), ANA.name)

    async def acted_on(room: Room, rows: list[Any]) -> None:
        async with room.client("lead-token") as client:
            sent = {**ITEM, "ids": chosen(row.decision_id for row in rows), "confirm": str(len(rows))}
            del sent["revision"]
            assert (await client.post("/api/bulk", json=sent)).status_code == 202

    for take in (opened, acted_on):
        room = make_room()
        room.add(*(make_decision(f"c-{number:03}") for number in range(303)))
        scope = room.site.permissions.scope(ANA)
        rows = room.board.pending(scope, Query(limit=200))
        later = room.board.pending(scope, Query(limit=200, cursor=rows.next))
        first, *taken, free, last = [*rows.rows, *later.rows]
        await take(room, taken)
        async with room.client("lead-token") as lead:
            at_first, at_last = [
                (await lead.get(f"/api/items/{one.decision_id}")).json() for one in (first, last)
            ]
        assert (at_first["next"], at_first["place"], at_first["total"]) == (free.decision_id, 1, 303)
        assert (at_last["previous"], at_last["then"]) == (free.decision_id, first.decision_id)
        assert at_last["place"] == 303


async def test_next_on_a_later_page_of_the_queue_goes_on_from_there(room, lead) -> None:
    room.add(*(make_decision(f"c-{number:03}") for number in range(60)))
    page = (await lead.get("/api/queue")).json()
    later = (await lead.get(f"/api{page['older'].replace('/?', '/queue?')}")).json()["items"]
    query = page["older"].partition("?")[2]
    found = (await lead.get(f"/api/items/{later[0]['id']}?{query}")).json()
    around = (found["previous"], found["next"], found["place"])
    assert around == (page["items"][-1]["id"], later[1]["id"], 51)

"""Acting on items: nothing is published that can be undone, nothing on what changed, one record for each item."""

from __future__ import annotations

import re
from typing import Any

import pytest

from groundwire.console.outbox import OrderState
from groundwire.console.queue import MOST_AT_ONCE
from tests.unit.console.rooms import LEAD, NOBODYS, Room, approved, csrf, make_decision, make_room

APPROVE = {"action": "approve", "revision": 1}


async def act(room: Room, decision_id: str, who: str = "lead-token", **action: Any) -> Any:
    async with room.client(who) as client:
        return await client.post(f"/api/items/{decision_id}/actions", json=APPROVE | action)


async def undo(room: Room, action_id: str, who: str = "lead-token") -> int:
    async with room.client(who) as client:
        return (await client.post(f"/api/actions/{action_id}/undo", json={})).status_code


async def test_an_action_is_published_when_its_seconds_are_over_and_not_before(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    answer = await act(room, decision_id)
    assert (answer.status_code, answer.json()["state"]) == (202, "held")

    room.clock.forward(seconds=4.9)
    room.site.outbox.release()
    await room.site.outbox.delivered()
    assert room.recorder.sent == []
    room.clock.forward(seconds=0.1)
    room.site.outbox.release()
    await room.site.outbox.delivered()

    (sent,) = room.recorder.sent
    assert (sent.action, sent.subject_id, sent.expected_revision, sent.reviewer) == (
        "approve",
        "c-1",
        1,
        "lead",
    )
    assert sent.action_id == answer.json()["action_id"]


async def test_what_is_undone_is_never_published(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    action_id = (await act(room, decision_id)).json()["action_id"]
    assert await undo(room, action_id) == 200
    await room.released()

    assert room.recorder.sent == []
    assert (await act(room, decision_id)).status_code == 202


async def test_what_is_published_cannot_be_undone(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    action_id = (await act(room, decision_id)).json()["action_id"]
    await room.released()

    assert await undo(room, action_id) == 409
    assert len(room.recorder.sent) == 1


async def test_without_undo_seconds_it_is_published_at_once() -> None:
    room = make_room(undo_seconds=0)
    (decision_id,) = room.add(make_decision("c-1"))
    await act(room, decision_id)
    room.site.outbox.release()
    await room.site.outbox.delivered()

    assert len(room.recorder.sent) == 1


async def test_a_console_that_stops_publishes_what_it_holds(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    await act(room, decision_id)
    await room.site.outbox.close()

    assert len(room.recorder.sent) == 1


@pytest.mark.parametrize(
    ("applied", "code", "state"), [(True, "human_approved", "applied"), (False, "stale", "refused")]
)
async def test_the_outcome_is_told_to_whom_it_belongs(room, lead, code, state, applied) -> None:
    room.recorder.applied, room.recorder.code = applied, code
    (decision_id,) = room.add(make_decision("c-1"))
    action_id = (await act(room, decision_id)).json()["action_id"]
    await room.released()
    told = (await lead.get(f"/api/actions/{action_id}")).json()
    (listed,) = (await lead.get("/api/actions")).json()["actions"]
    async with room.client("ana-token") as client:
        assert (await client.get("/api/actions")).json() == {"actions": []}

    room.clock.forward(hours=1)
    (over,) = (await lead.get("/api/actions")).json()["actions"]

    assert (told["state"], told["outcome"]) == (state, code)
    assert told == listed
    assert over == {**told, "shown": False}
    assert told["sentence"]


async def test_what_cannot_be_published_is_told_and_may_be_tried_again(room) -> None:
    room.recorder.fails = True
    (decision_id,) = room.add(make_decision("c-1"))
    await act(room, decision_id)
    await room.released()
    assert [entry.state for entry in room.site.outbox.of(LEAD)] == [OrderState.FAILED]

    room.recorder.fails = False
    assert (await act(room, decision_id)).status_code == 202


@pytest.mark.parametrize("action", ["approve", "reject", "edit"])
async def test_of_an_item_that_changed_the_change_is_told_and_nothing_held(room, action) -> None:
    (old,) = room.add(make_decision("c-1"))
    review = {"action": "reject", "action_id": "a-1", "reviewer": "ana", "reason": "outdated"}
    facts = {"clock": "2026-01-31T12:00:00Z", "review": review}
    changed = {"tier": "tier_3", "verdict": "blocked", "reason_code": "human_rejected", "facts": facts}
    (new,) = room.add(make_decision("c-1", revision=2, **changed))
    given = {"reject": {"reason": "other"}, "edit": {"content": "Water was wet."}}.get(action, {})
    for decision_id, revision in ((old, 1), (new, 1), (new, 2)):
        answer = await act(room, decision_id, action=action, revision=revision, **given)
        told = answer.json()
        assert answer.status_code == 409
        assert (told["id"], told["revision"], told["verdict"]) == (new, 2, "blocked")
        if revision == 1:
            assert {"what": "revision", "was": "1", "now": "2"} in told["problem"]["changes"]
            assert "by ana" in told["problem"]["changes"][-1]["now"]

    assert room.held == []


async def test_of_two_reviewers_the_first_counts_and_the_second_is_told(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    assert (await act(room, decision_id)).status_code == 202
    second = await act(room, decision_id, who="ana-token", action="reject", reason="other")
    await room.released()

    assert second.status_code == 409
    assert "lead" in second.json()["problem"]["text"]
    assert [sent.action for sent in room.recorder.sent] == ["approve"]


async def test_what_changes_while_an_action_is_held_stops_it(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    await act(room, decision_id)
    room.add(approved("c-1", revision=2, reason_code="human_approved"))
    await room.released()

    assert room.recorder.sent == []
    assert [entry.state for entry in room.site.outbox.of(LEAD)] == [OrderState.STALE]


async def test_what_waits_for_nobody_cannot_be_decided(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    room.settle("c-1")

    assert (await act(room, decision_id)).status_code == 409


async def test_an_edit_is_published_as_it_was_written(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    text = "  Ⅷ \u202e line one\r\nline two\n"
    await act(room, decision_id, action="edit", content=text)
    await room.released()

    assert [(sent.action, sent.content) for sent in room.recorder.sent] == [("edit", text)]


@pytest.mark.parametrize(
    "text", ["Water is wet.", "\nfirst line empty", "one\r\ntwo\rthree\n", " spaces ", "<b>&amp;"]
)
async def test_an_edit_by_form_that_changes_nothing_approves_the_text_as_it_is(room, browser, text) -> None:
    (decision_id,) = room.add(make_decision("c-1", text))
    as_browsers_send_it = text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
    form = {"csrf": await csrf(browser), "action": "edit", "revision": "1", "content": as_browsers_send_it}
    await browser.post(f"/items/{decision_id}/actions", data=form)
    await room.released()

    assert [(sent.action, sent.content) for sent in room.recorder.sent] == [("approve", None)]


async def test_retracting_needs_a_reason_and_something_approved(room) -> None:
    known, pending = room.add(approved("c-1"), make_decision("c-2"))
    assert (await act(room, known, action="retract")).status_code == 400
    assert (await act(room, pending, action="retract", reason="outdated")).status_code == 409
    assert (await act(room, known, action="approve")).status_code == 409
    assert (await act(room, known, action="retract", reason="outdated")).status_code == 202
    await room.released()

    assert [(sent.action, sent.reason, sent.subject_id) for sent in room.recorder.sent] == [
        ("retract", "outdated", "c-1")
    ]


async def test_after_a_form_a_browser_goes_to_the_next_item_and_can_undo_there(room, browser) -> None:
    first, second = room.add(make_decision("c-1"), make_decision("c-2", "Fire is hot."))
    token = await csrf(browser)
    form = {"csrf": token, "action": "approve", "revision": "1", "next": second, "query": "sort=oldest"}
    answer = await browser.post(f"/items/{first}/actions", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/items/{second}?sort=oldest")
    page = (await browser.get(answer.headers["location"])).text
    (held,) = room.held
    assert f'action="/actions/{held.order.action_id}/undo"' in page
    back = await browser.post(f"/actions/{held.order.action_id}/undo", data={"csrf": token})
    assert back.headers["location"] == f"/items/{first}?sort=oldest"

    assert room.held == []


class TestSeveral:
    def fill(self, room: Room, count: int) -> list[dict[str, Any]]:
        ids = room.add(*(make_decision(f"c-{number}", f"Text {number}.") for number in range(count)))
        return [{"id": decision_id, "revision": 1} for decision_id in ids]

    async def bulk(self, room: Room, ids: list[dict[str, Any]], **given: Any) -> Any:
        async with room.client("lead-token") as client:
            return await client.post("/api/bulk", json={"action": "approve", "ids": ids, **given})

    async def test_each_item_gets_a_record_of_its_own(self, room) -> None:
        answer = await self.bulk(room, self.fill(room, 20))
        await room.released()

        assert answer.status_code == 202
        assert {sent.subject_id for sent in room.recorder.sent} == {f"c-{number}" for number in range(20)}
        assert len({sent.action_id for sent in room.recorder.sent}) == 20

    @pytest.mark.parametrize("confirm", ["", "20", "yes", "021", "2 1"])
    async def test_above_twenty_the_number_has_to_be_typed(self, room, confirm) -> None:
        ids = self.fill(room, 21)
        assert (await self.bulk(room, ids, confirm=confirm)).status_code in (400, 409)
        assert room.held == []
        assert (await self.bulk(room, ids, confirm=21)).status_code == 202
        assert len(room.held) == 21

    async def test_an_item_named_twice_counts_once(self, room) -> None:
        ids = self.fill(room, 20)
        assert (await self.bulk(room, ids + ids)).status_code == 202
        assert len(room.held) == 20

    async def test_more_than_are_decided_at_once_are_refused(self, room) -> None:
        many = MOST_AT_ONCE + 1
        ids = [{"id": f"00000000-0000-4000-8000-{number:012}", "revision": 1} for number in range(many)]
        assert (await self.bulk(room, ids, confirm=str(many))).status_code == 400

    async def test_a_rejection_needs_a_reason(self, room) -> None:
        ids = self.fill(room, 2)
        refused = await self.bulk(room, ids, action="reject")
        assert (refused.status_code, refused.json()["message"].partition(":")[0]) == (400, "reason")
        assert room.held == []
        assert (
            await self.bulk(room, ids, action="reject", reason="outdated", note="Both.")
        ).status_code == 202
        await room.released()
        assert {(sent.action, sent.reason, sent.note) for sent in room.recorder.sent} == {
            ("reject", "outdated", "Both.")
        }

    async def test_what_cannot_be_done_is_told_item_by_item(self, room) -> None:
        first, second, third = self.fill(room, 3)
        room.settle("c-1")
        await act(room, third["id"])
        answer = await self.bulk(room, [first, second, third, {"id": NOBODYS, "revision": 1}])

        assert answer.status_code == 207
        assert [one["state"] for one in answer.json()["results"]] == [
            "held",
            "conflict",
            "conflict",
            "not_found",
        ]

    async def test_all_of_them_are_undone_at_once(self, room, lead) -> None:
        answer = await self.bulk(room, self.fill(room, 5))
        (told,) = (await lead.get("/api/actions")).json()["actions"]
        assert told["count"] == 5
        await lead.post(f"/api/actions/{answer.json()['results'][3]['action_id']}/undo", json={})
        await room.released()

        assert room.recorder.sent == []

    async def test_by_form_the_number_is_asked_for_and_then_it_is_done(self, room, browser) -> None:
        ids = [f"{one['id']}:1" for one in self.fill(room, 21)]
        form = {"csrf": await csrf(browser), "action": "approve", "ids": ids}
        asked = await browser.post("/bulk", data=form)
        assert asked.status_code == 409
        (sent,) = re.findall(r'name="ids" value="([^"]*)"', asked.text)
        assert sorted(sent.split()) == sorted(ids)
        done = await browser.post("/bulk", data={**form, "ids": sent, "confirm": "21"})

        assert (done.status_code, done.headers["location"]) == (303, "/")
        assert len(room.held) == 21


class TestLocks:
    async def test_who_opens_an_item_is_named_to_others_and_hinders_nobody(self, room, browser) -> None:
        (decision_id,) = room.add(make_decision("c-1"))
        assert 'id="reviewing"' not in (await browser.get(f"/items/{decision_id}")).text
        async with room.client("ana-token") as client:
            assert (await client.get("/api/queue")).json()["items"][0]["reviewing"] == "lead"
            assert (
                "being reviewed by <bdi>lead</bdi>"
                in (await client.get(f"/items/{decision_id}")).text.lower()
            )
            assert (await client.post(f"/api/items/{decision_id}/lock", json={})).json() == {
                "reviewing": "lead"
            }
        assert (await act(room, decision_id, who="ana-token")).status_code == 202

    async def test_a_lock_ends_by_itself_unless_it_is_renewed(self, room) -> None:
        (decision_id,) = room.add(make_decision("c-1"))
        async with room.client("lead-token") as lead, room.client("ana-token") as ana:
            await lead.post(f"/api/items/{decision_id}/lock", json={})
            room.clock.forward(seconds=40)
            await lead.post(f"/api/items/{decision_id}/lock", json={})
            room.clock.forward(seconds=40)
            assert (await ana.get("/api/queue")).json()["items"][0]["reviewing"] == "lead"
            room.clock.forward(seconds=6)
            assert (await ana.get("/api/queue")).json()["items"][0]["reviewing"] is None

    async def test_acting_gives_the_lock_back(self, room) -> None:
        (decision_id,) = room.add(make_decision("c-1"))
        async with room.client("lead-token") as lead, room.client("ana-token") as ana:
            await lead.post(f"/api/items/{decision_id}/lock", json={})
            await lead.post(f"/api/items/{decision_id}/actions", json=APPROVE)
            assert (await ana.post(f"/api/items/{decision_id}/lock", json={})).json() == {"reviewing": None}


@pytest.mark.parametrize("kind", ["claim", "response"])
async def test_what_is_approved_is_retracted_from_its_page_and_offered_so_in_the_list(
    room, browser, kind
) -> None:
    (decision_id,) = room.add(approved("c-1", kind=kind))
    assert f"/items/{decision_id}?from=approved&amp;do=retract" in (await browser.get("/approved")).text
    form = (await browser.get(f"/items/{decision_id}?from=approved&do=retract")).text
    assert '<details id="retract" open>' in form
    answer = await act(room, decision_id, action="retract", reason="incorrect")
    assert answer.status_code == 202
    await room.released()
    assert [(one.action, one.kind) for one in room.recorder.sent] == [("retract", kind)]


async def test_filters_and_order_survive_bulk_cancel_and_undo(room, browser) -> None:
    ids = [f"{one}:1" for one in room.add(make_decision("c-1"), make_decision("c-2"))]
    listed = "user=ana&sort=newest"
    form = {"csrf": await csrf(browser), "action": "approve", "ids": ids, "query": listed}
    asked = (await browser.post("/bulk", data=form)).text
    assert 'class="button quiet" href="/?user=ana&amp;sort=newest"' in asked
    done = await browser.post("/bulk", data={**form, "sure": "yes"})
    undone = await browser.post(
        f"/actions/{room.held[0].order.action_id}/undo", data={"csrf": await csrf(browser)}
    )
    assert done.headers["location"] == undone.headers["location"] == f"/?{listed}"
    one = await browser.post(
        f"/items/{ids[0][:-2]}/actions", data={**form, "ids": [], "revision": "1", "next": ""}
    )
    assert one.headers["location"] == f"/?{listed}"
    back = await browser.post(
        f"/actions/{room.held[0].order.action_id}/undo", data={"csrf": await csrf(browser)}
    )
    assert back.headers["location"] == f"/items/{ids[0][:-2]}?{listed}"


async def test_next_skips_what_somebody_else_has_open_and_lists_learn_of_it(room, browser) -> None:
    names = ["c-1", "c-2", "c-3"]
    first, second, third = room.add(*(make_decision(name) for name in names))
    await room.site.live.poll()
    order = [row["id"] for row in (await browser.get("/api/queue?sort=oldest")).json()["items"]]
    assert sorted(order) == sorted([first, second, third])
    async with room.client("ana-token") as ana:
        await ana.get(f"/items/{order[1]}")
        assert await room.site.live.poll()
        shown = (await browser.get(f"/api/items/{order[0]}?sort=oldest")).json()
        assert (shown["next"], shown["then"]) == (order[2], order[2])
        own = (await ana.get(f"/api/items/{order[1]}?sort=oldest")).json()
        assert (own["previous"], own["next"]) == (order[0], order[2])

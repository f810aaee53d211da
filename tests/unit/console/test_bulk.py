"""Several items at once: shown before they are decided, one record each, undone together."""

from __future__ import annotations

import asyncio
from typing import Any

from groundwire.console.queue import MOST_AT_ONCE
from groundwire.messages.records import ReviewDecision
from tests.unit.console.rooms import (
    NOBODYS,
    Html,
    Recorder,
    Room,
    act,
    blocked,
    chosen,
    compared,
    csrf,
    make_decision,
    make_room,
)

ALL = {"all": "yes", "query": ""}
CODES = ("technical_hedge", "ungrounded", "citation_unverified")


def fill(room: Room, count: int) -> list[dict[str, Any]]:
    made = (make_decision(f"c-{n:04}", f"Text {n}.", reason_code=CODES[n % 3]) for n in range(count))
    return chosen(room.add(*made))


async def bulk(room: Room, ids: list[dict[str, Any]], **given: Any) -> Any:
    async with room.client("lead-token") as client:
        return await client.post("/api/bulk", json={"action": "approve", "ids": ids, **given})


async def test_each_item_gets_a_record_of_its_own_and_one_named_twice_counts_once(room) -> None:
    ids = fill(room, 20)
    answer = await bulk(room, ids + ids)
    await room.released()

    assert answer.status_code == 202
    assert {sent.subject_id for sent in room.recorder.sent} == {f"c-{number:04}" for number in range(20)}
    assert len({sent.action_id for sent in room.recorder.sent}) == 20


async def test_above_twenty_the_number_has_to_be_typed_and_above_a_thousand_none_is_accepted(room) -> None:
    ids = fill(room, 21)
    for confirm in ("", "20", "yes", "021", "2 1"):
        assert (await bulk(room, ids, confirm=confirm)).status_code in (400, 409)
    assert room.held == []
    assert (await bulk(room, ids, confirm=21)).status_code == 202
    assert len(room.held) == 21
    many = chosen(f"00000000-0000-4000-8000-{number:012}" for number in range(MOST_AT_ONCE + 1))
    assert (await bulk(room, many, confirm=str(len(many)))).status_code == 400


async def test_a_rejection_needs_a_reason(room) -> None:
    ids = fill(room, 2)
    refused = await bulk(room, ids, action="reject")
    assert (refused.status_code, refused.json()["message"].partition(":")[0]) == (400, "reason")
    assert room.held == []
    done = await bulk(room, ids, action="reject", reason="outdated", note="Both.")
    assert done.status_code == 202
    await room.released()
    sent = {(one.action, one.reason, one.note) for one in room.recorder.sent}
    assert sent == {("reject", "outdated", "Both.")}


async def test_items_that_cannot_be_decided_are_reported_one_by_one(room) -> None:
    first, second, third = fill(room, 3)
    room.settle("c-0001")
    await act(room, third["id"])
    answer = await bulk(room, [first, second, third, *chosen([NOBODYS])])

    assert answer.status_code == 207
    states = [one["state"] for one in answer.json()["results"]]
    assert states == ["held", "conflict", "conflict", "not_found"]


async def test_one_undo_takes_all_of_them_back(room, lead) -> None:
    answer = await bulk(room, fill(room, 5))
    (told,) = (await lead.get("/api/actions")).json()["actions"]
    assert told["count"] == 5
    await lead.post(f"/api/actions/{answer.json()['results'][3]['action_id']}/undo", json={})
    await room.released()

    assert room.recorder.sent == []


async def test_by_form_the_items_are_shown_and_the_number_is_asked_for_and_then_it_is_done(
    room, browser
) -> None:
    ids = [f"{one['id']}:1" for one in fill(room, 21)]
    form = {"csrf": await csrf(browser), "action": "approve", "ids": ids}
    asked = await browser.post("/bulk", data=form)
    assert asked.status_code == 409
    sent = Html(asked.text).one("input", name="ids")["value"]
    assert sorted(sent.split()) == sorted(ids)
    done = await browser.post("/bulk", data={**form, "ids": sent, "confirm": "21"})

    assert (done.status_code, done.headers["location"]) == (303, "/")
    assert len(room.held) == 21


async def test_items_that_the_list_shows_in_part_are_left_out_of_an_approval_and_not_of_a_rejection(
    room, browser, lead
) -> None:
    texts = {
        "short": "Water is wet.",
        "long": "word " * 60,
        "odd": "a\u200bb",
        "gap": "Ice." + "\n" * 900 + "x",
    }
    ids = room.add(*(make_decision(name, text) for name, text in texts.items()))
    rows = (await lead.get("/api/queue")).json()["items"]
    form = {"csrf": await csrf(browser), "action": "approve", "ids": [f"{one}:1" for one in ids]}
    asked = await browser.post("/bulk", data=form)
    assert room.held == []
    done = await browser.post("/bulk", data={**form, "ids": f"{ids[0]}:1", "sure": "yes"})
    refused = (await bulk(room, chosen(ids[1:]))).json()["results"]
    rejected = await bulk(room, chosen(ids[1:]), action="reject", reason="other")

    assert {row["subject_id"]: row["whole"] for row in rows} == {name: name == "short" for name in texts}
    assert (asked.status_code, done.headers["location"]) == (409, "/")
    assert "Approve 1 item" in Html(asked.text).words
    assert "short no citation or trusted source low risk ana Water is wet." in Html(asked.text).words
    assert [one["state"] for one in refused] == ["partly_shown"] * 3
    assert rejected.status_code == 202


async def test_all_that_match_are_listed_first_decided_by_their_ids_and_undone_together(
    room, browser
) -> None:
    room.add(*(make_decision(f"c-{number:03}", reason_code="technical_hedge") for number in range(120)))
    room.add(make_decision("other"), make_decision("grave", reason_code="phantom_source"))
    query = "reason=technical_hedge"
    form = {"csrf": await csrf(browser), "action": "reject", "query": query, "reason": "outdated"}
    asked = await browser.post("/bulk", data={**form, "all": "yes"})
    page = Html(asked.text)
    sure = await browser.post("/bulk", data={**form, "all": "yes", "sure": "yes", "confirm": "120"})
    assert (asked.status_code, sure.status_code, room.held) == (409, 400, [])
    assert "Reject 120 items" in page.words
    assert "and 20 more" in page.words
    sent = page.one("input", name="ids")["value"]
    done = await browser.post("/bulk", data={**form, "sure": "yes", "ids": sent, "confirm": "120"})
    assert (done.status_code, done.headers["location"]) == (303, f"/?{query}")
    assert len(room.held) == 120
    await browser.post(f"/actions/{room.held[0].order.action_id}/undo", data={"csrf": form["csrf"]})
    assert room.held == []


async def test_a_program_gets_the_ids_of_all_that_match_and_sends_them_with_their_count(room, lead) -> None:
    fill(room, 30)
    room.add(make_decision("grave", reason_code="phantom_source"))
    asked = await lead.post("/api/bulk", json={"action": "approve", "query": "user=ana", "all": "yes"})
    told = asked.json()
    assert (asked.status_code, told["count"], len(told["left_out"]), room.held) == (409, 30, 1, [])
    room.add(make_decision("came-meanwhile"))
    sent = {"action": "approve", "ids": told["sent"], "confirm": "30"}
    assert (await lead.post("/api/bulk", json=sent)).status_code == 202
    assert "came-meanwhile" not in {entry.order.record.subject_id for entry in room.held}
    assert len(room.held) == 30


async def test_the_search_of_a_list_limits_what_matches(room, browser) -> None:
    room.add(make_decision("c-1"), make_decision("c-2", "Ice is cold."))
    query = "search=ice&sort=newest"
    form = {"csrf": await csrf(browser), "query": query, "action": "approve"}
    sent = Html((await browser.post("/bulk", data={**form, **ALL, "query": query})).text).one(
        "input", name="ids"
    )
    done = await browser.post("/bulk", data={**form, "sure": "yes", "ids": sent["value"]})
    assert [entry.order.record.subject_id for entry in room.held] == ["c-2"]
    assert done.headers["location"] == f"/?{query}"


async def test_a_mistyped_or_missing_query_matches_nothing_and_is_named(room, lead) -> None:
    fill(room, 3)
    named = {
        "reason=low_confidnce": "reason",
        "resaon=low_confidence": "resaon",
        "user=nobody&age=over_2d": "age",
        "user=ana&user=ben": "user",
        "user": "name=value",
        "user=nobody": "ids: needed, one or more",
        None: "query:",
    }
    found = {}
    for query in named:
        sent = {"action": "approve", "all": "yes"} | ({} if query is None else {"query": query})
        answer = await lead.post("/api/bulk", json=sent)
        found[query] = (answer.status_code, answer.json()["message"])
    assert {
        query for query, (status, said) in found.items() if status != 400 or named[query] not in said
    } == set()
    assert room.held == []


class Statements(list[str]):
    """The statements that a board runs."""

    def __init__(self, room: Room) -> None:
        super().__init__()
        room.board._connection.set_trace_callback(self.append)


async def test_as_many_statements_are_run_for_thirty_items_as_for_ninety_and_one_before_they_are_sent() -> (
    None
):
    for given in ({}, {"confirm": "{count}"}):
        room, counts = make_room(), []
        ids = fill(room, 120)
        for part in (ids[:30], ids[30:]):
            seen = Statements(room)
            more = {name: value.format(count=len(part)) for name, value in given.items()}
            await bulk(room, part, **more)
            counts.append(len(seen))
        assert counts[0] == counts[1] <= 8
    seen = Statements(room)
    await room.released()
    assert (len(seen), len(room.recorder.sent)) == (1, 120)


async def test_at_most_fifty_are_published_at_a_time(room, monkeypatch) -> None:
    going, most = 0, 0

    async def send(_: Recorder, decision: ReviewDecision) -> None:
        nonlocal going, most
        going += 1
        most = max(most, going)
        await asyncio.sleep(0)
        going -= 1

    monkeypatch.setattr(Recorder, "send", send)
    await bulk(room, fill(room, 120), confirm="120")
    await room.released()
    assert 0 < most <= 50


async def test_items_that_become_busy_while_orders_are_made_are_left_out(room) -> None:
    ids = fill(room, 120)
    answers = await asyncio.gather(*(bulk(room, ids, confirm="120") for _ in range(2)))
    assert sorted(answer.status_code for answer in answers) in ([202, 207], [202, 409])
    assert len(room.held) == 120


async def test_the_confirming_page_names_all_and_sums_them_by_reason_and_risk(room, browser) -> None:
    fill(room, 250)
    room.add(blocked("held"), make_decision("new", facts=compared("held", state="pending")))
    form = {"csrf": await csrf(browser), "action": "reject", "reason": "outdated", **ALL}
    page = Html((await browser.post("/bulk", data=form)).text)
    async with room.client("lead-token") as client:
        told = (await client.post("/api/bulk", json={"action": "reject", "reason": "outdated", **ALL})).json()
    named = {one.text for one in page.all(class_="subject")}
    assert {f"c-{number:04}" for number in range(250)} <= named
    assert page.one("details", id="others").text.startswith("and 151 more")
    assert "168 low risk" in page.one(id="by-risk").text
    assert {one["reason_code"]: one["count"] for one in told["by_reason"]} == {
        "citation_unverified": 83,
        "technical_hedge": 84,
        "ungrounded": 84,
    }
    assert told["by_risk"] == [{"risk": "medium", "count": 83}, {"risk": "low", "count": 168}]
    assert (len(told["items"]), len(told["others"]), told["more"]) == (100, 151, 151)
    differs = {one["subject_id"]: one["differs"] for one in told["items"] + told["others"]}
    assert [one["difference"] for one in differs["new"]] == ["number"]

"""Several items at once, shown before they are decided and undone together; what is decided on its own page only."""

from __future__ import annotations

import asyncio

from tests.unit.console.rooms import (
    NOBODYS,
    Html,
    Recorder,
    approved,
    blocked,
    chosen,
    compared,
    make_decision,
    make_room,
)

REPLACE = {"action": "replace", "reason": "outdated"}
KILN = "The kiln in Delft is fired every {} days by one potter."


def fill(room, count):
    codes = ("technical_hedge", "ungrounded", "citation_unverified")
    made = (make_decision(f"c-{n:04}", f"Text {n}.", reason_code=codes[n % 3]) for n in range(count))
    return chosen(room.add(*made))


async def bulk(room, ids, **given):
    async with room.client("lead-token") as client:
        return await client.post("/api/bulk", json={"action": "approve", "ids": ids, **given})


def stored(room, *, compares=True):
    """An approved memory and a claim that gives another value; return their ids."""
    checks = {"checks_passed": ["not_duplicate"], "checks_failed": []}
    new = make_decision("new", KILN.format(30), facts=compared("old") if compares else compared(), **checks)
    return room.add(approved("old", KILN.format(14), source="handbook"), new)


async def test_each_item_gets_a_record_of_its_own_and_one_named_twice_counts_once(room) -> None:
    ids = fill(room, 20)
    answer = await bulk(room, ids + ids, action="reject", reason="outdated", note="All.")
    await room.released()
    assert answer.status_code == 202
    assert {sent.subject_id for sent in room.recorder.sent} == {f"c-{number:04}" for number in range(20)}
    assert len({sent.action_id for sent in room.recorder.sent}) == 20
    sent = {(one.action, one.reason, one.note) for one in room.recorder.sent}
    assert sent == {("reject", "outdated", "All.")}


async def test_above_twenty_the_number_has_to_be_typed_and_above_a_thousand_none_is_accepted(room) -> None:
    ids = fill(room, 21)
    for confirm in ("", "20", "yes", "021", "2 1"):
        assert (await bulk(room, ids, confirm=confirm)).status_code in (400, 409)
    assert room.held == []
    assert (await bulk(room, ids, confirm=21)).status_code == 202
    assert len(room.held) == 21
    many = chosen(f"00000000-0000-4000-8000-{number:012}" for number in range(1_001))
    assert (await bulk(room, many, confirm=str(len(many)))).status_code == 400


async def test_items_that_cannot_be_decided_are_reported_one_by_one_also_where_two_ask_at_once(room) -> None:
    first, second, third, *others = fill(room, 123)
    room.settle("c-0001")
    await room.act(third["id"])
    answer = await bulk(room, [first, second, third, *chosen([NOBODYS])])
    assert answer.status_code == 207
    states = [one["state"] for one in answer.json()["results"]]
    assert states == ["held", "conflict", "conflict", "not_found"]
    answers = await asyncio.gather(*(bulk(room, others, confirm="120") for _ in range(2)))
    assert sorted(answer.status_code for answer in answers) in ([202, 207], [202, 409])
    assert len(room.held) == 122


async def test_items_shown_in_part_are_left_out_of_approvals_not_of_rejections(room, browser, lead) -> None:
    texts = {
        "short": "Water is wet.",
        "long": "word " * 60,
        "odd": "a\u200bb",
        "gap": "Ice." + "\n" * 900 + "x",
    }
    ids = room.add(*(make_decision(name, text) for name, text in texts.items()))
    rows = (await lead.get("/api/queue")).json()["items"]
    form = {"csrf": await browser.csrf(), "action": "approve", "ids": [f"{one}:1" for one in ids]}
    asked = await browser.post("/bulk", data=form)
    assert room.held == []
    done = await browser.post("/bulk", data={**form, "ids": f"{ids[0]}:1", "sure": "yes"})
    refused = (await bulk(room, chosen(ids[1:]))).json()["results"]
    rejected = await bulk(room, chosen(ids[1:]), action="reject", reason="other")
    assert {row["subject_id"]: row["whole"] for row in rows} == {name: name == "short" for name in texts}
    assert (asked.status_code, done.headers["location"]) == (409, "/")
    assert "Approve 1 item" in Html(asked.text).words
    assert "short no evidence low risk ana Water is wet." in Html(asked.text).words
    assert [one["state"] for one in refused] == ["partly_shown"] * 3
    assert rejected.status_code == 202


async def test_all_that_match_are_listed_decided_by_their_ids_and_undone_together(room, browser) -> None:
    room.add(*(make_decision(f"c-{number:03}", reason_code="technical_hedge") for number in range(120)))
    room.add(make_decision("other"), make_decision("grave", reason_code="phantom_source"))
    query = "reason=technical_hedge"
    form = {"csrf": await browser.csrf(), "action": "reject", "query": query, "reason": "outdated"}
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
    (told,) = (await lead.get("/api/actions")).json()["actions"]
    assert told["count"] == 30


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
    wrong = []
    for query, said in named.items():
        sent = {"action": "approve", "all": "yes"} | ({} if query is None else {"query": query})
        answer = await lead.post("/api/bulk", json=sent)
        if answer.status_code != 400 or said not in answer.json()["message"]:
            wrong.append((query, answer.text))
    assert (wrong, room.held) == ([], [])


async def test_statements_do_not_grow_with_the_items_and_fifty_are_published_at_a_time(monkeypatch) -> None:
    going, most = 0, 0

    async def send(_, __):
        nonlocal going, most
        going += 1
        most = max(most, going)
        await asyncio.sleep(0)
        going -= 1

    monkeypatch.setattr(Recorder, "send", send)
    for confirm in ("", "{count}"):
        room, counts = make_room(), []
        ids = fill(room, 120)
        for part in (ids[:30], ids[30:]):
            seen = []
            room.board._database.set_trace_callback(seen.append)
            await bulk(room, part, confirm=confirm.format(count=len(part)))
            counts.append(len(seen))
        assert counts[0] == counts[1] <= 8
    seen.clear()
    await room.released()
    assert len(seen) == 1, "before they are sent"
    assert 0 < most <= 50


async def test_the_confirming_page_names_all_and_sums_them_by_reason_and_risk(room, browser) -> None:
    fill(room, 250)
    room.add(blocked("held"), make_decision("new", facts=compared("held", state="pending")))
    everything = {"action": "reject", "reason": "outdated", "all": "yes", "query": ""}
    form = {"csrf": await browser.csrf(), **everything}
    page = Html((await browser.post("/bulk", data=form)).text)
    told = (await bulk(room, [], **everything)).json()
    named = {one.text for one in page.all(class_="subject")}
    assert {f"c-{number:04}" for number in range(250)} <= named
    assert page.one("details", id="others").text.startswith("and 151 more")
    assert "168 low risk" in page.one(id="by-risk").text
    counts = [one["count"] for one in told["by_reason"]]
    assert counts == [83, 84, 84], "of an unverified citation, a hedge, and no ground"
    assert told["by_risk"] == [{"risk": "medium", "count": 83}, {"risk": "low", "count": 168}]
    assert (len(told["items"]), len(told["others"]), told["more"]) == (100, 151, 151)
    differs = {one["subject_id"]: one["differs"] for one in told["items"] + told["others"]}
    assert [one["difference"] for one in differs["new"]] == ["number"]
    assert "differs in a number from held" in page.words


async def test_a_high_risk_is_left_out_of_a_bulk_and_decided_on_its_own_page_only() -> None:
    for grave, why in (
        ({"reason_code": "phantom_source"}, "high risk"),
        ({"reason_code": "conflicting_near_duplicate"}, "it contradicts a memory"),
        ({"checks_failed": ["snippet_mismatch: a.py"]}, "high risk"),
        ({"reason_code": "technical_hedge", "facts": compared("old")}, "it contradicts a memory"),
    ):
        room, said = make_room(), f"open it to decide: {why}"
        plain, high = room.add(make_decision("plain"), make_decision("high", **grave))
        async with room.client("lead-token") as lead, room.browser() as browser:
            for action in ("approve", "reject"):
                answer = await bulk(room, chosen([plain, high]), action=action, reason="other")
                results = answer.json()["results"]
                assert (grave, [one["state"] for one in results]) == (grave, ["held", "own_page"])
                await lead.post(f"/api/actions/{results[0]['action_id']}/undo", json={})
            assert [one.text for one in (await browser.html("/")).all(class_="own-page")] == [said]
            form = {"csrf": await browser.csrf(), "action": "approve"}
            for more in ({}, {"sure": "yes"}):
                page = await browser.post("/bulk", data={**form, "ids": f"{plain}:1 {high}:1", **more})
                assert said in Html(page.text).words
            held = len(room.held)
            form |= {"revision": "1"}
            refused = await browser.post(f"/items/{high}/actions", data={**form, "back": "queue"})
            assert (refused.status_code, len(room.held)) == (409, held)
            assert "Open this item to decide it" in refused.text
            assert (await browser.post(f"/items/{high}/actions", data=form)).status_code == 303
            assert len(room.held) == held + 1


async def test_what_contradicts_a_memory_is_not_approved_from_the_list_compared_or_not(room, browser) -> None:
    """And one that contradicts a memory that was retracted since is decided with others."""
    retracted = blocked("gone", reason_code="retracted")
    claim, _ = room.add(
        make_decision("c-1", reason_code="technical_hedge", facts=compared("gone")), retracted
    )
    answer = await bulk(room, chosen([claim]))
    assert (answer.status_code, answer.json()["results"][0]["state"]) == (202, "held")
    _, new = stored(room, compares=False)
    form = {"csrf": await browser.csrf(), "action": "approve", "revision": "1", "back": "queue"}
    refused = await browser.post(f"/items/{new}/actions", data=form)
    assert (refused.status_code, len(room.held)) == (409, 1)
    assert "It contradicts a memory" in refused.text


async def test_every_form_that_decides_is_marked_for_the_guard_against_haste(room, browser) -> None:
    pending, known = room.add(make_decision("c-1", facts=compared("old")), approved("old"))
    plain, _ = room.add(make_decision("c-2"), blocked("c-3"))
    asks = {"csrf": await browser.csrf(), "action": "reject", "ids": f"{plain}:1"}
    pages = [await browser.html(path) for path in ("/", f"/items/{pending}", f"/items/{known}")]
    pages.append(Html((await browser.post("/bulk", data=asks)).text))
    decide = [
        form
        for page in pages
        for form in page.all("form", method="post")
        if form.attributes.get("action", "").endswith("/actions")
        or form.attributes.get("id") == "quick"
        or (form.attributes.get("action") == "/bulk" and form.attributes.get("id") != "bulk")
    ]
    assert len(decide) == 9, "on the list, six of a claim, to retract, and of a bulk"
    assert all("data-decides" in form.attributes for form in decide)


async def test_memories_come_with_their_difference_and_only_what_none_comes_near_is_called_new() -> None:
    for compares in (True, False):
        room = make_room()
        _, new_id = stored(room, compares=compares)
        item = await room.get(f"/api/items/{new_id}")
        (memory,) = item["memories"]
        assert (memory["subject_id"], memory["compared"]) == ("old", compares)
        assert (memory["difference"], memory["source"], memory["age_seconds"]) == ("number", "handbook", 3600)
        assert [one["text"] for one in memory["changes"] if one["operation"] != "equal"] == ["14", "30"]
        (check,) = [one for one in item["checks"] if one["result"] == "look"]
        assert (check["name"], check["detail"]) == ("near_approved", "old")
        assert "not_duplicate" not in {one["name"] for one in item["checks"]}
    room = make_room()
    room.add(approved("other", "Bread is baked at night."), approved("old", KILN.format(14), user_id="ben"))
    new = make_decision("new", KILN.format(30), facts=compared(), checks_passed=["not_duplicate"])
    item = await room.get(f"/api/items/{room.add(new)[0]}")
    assert (item["memories"], item["checks"][-2]["result"]) == ([], "passed")


async def test_to_replace_is_to_approve_and_then_to_retract_and_is_undone_together(lead, room) -> None:
    for undone in (True, False):
        old_id, new_id = stored(room)
        answer = await room.act(new_id, **REPLACE, replaces={"id": old_id, "revision": 1})
        told = answer.json()
        assert (answer.status_code, told["replaces"], told["text"]) == (202, "old", "Replaced")
        if undone:
            assert (await lead.post(f"/api/actions/{told['action_id']}/undo", json={})).status_code == 200
        await room.released()
    sent = [(one.action, one.subject_id, one.reason) for one in room.recorder.sent]
    assert sent == [("approve", "new", None), ("retract", "old", "outdated")]
    assert (await room.get("/api/actions"))["actions"][0]["text"] == "Replaced"


async def test_nothing_is_retracted_where_the_new_claim_was_not_approved_and_failures_are_said() -> None:
    not_approved = ["Not retracted: the new claim was not approved"]
    stands = ["The new claim is approved, and the old one too: Refused by the gate", "Approved"]
    for outcome, sent, told in (
        ({"code": "duplicate"}, 1, not_approved),
        ({"code": "expired"}, 1, not_approved),
        ({"refused": {"approve": "stale"}}, 1, not_approved),
        ({"refused": {"retract": "stale"}}, 2, stands),
    ):
        room = make_room()
        for name, value in outcome.items():
            setattr(room.recorder, name, value)
        old_id, new_id = stored(room)
        await room.act(new_id, **REPLACE, replaces={"id": old_id, "revision": 1})
        await room.released()
        assert [one.action for one in room.recorder.sent] == ["approve", "retract"][:sent]
        texts = [one["text"] for one in (await room.get("/api/actions"))["actions"]]
        assert texts[: len(told)] == told


async def test_what_is_replaced_is_approved_at_the_revision_seen_free_and_of_the_same_owner(room) -> None:
    old_id, new_id = stored(room)
    (others,) = room.add(approved("others", user_id="ben"))
    old = {"id": old_id, "revision": 1}
    for given, status in (
        ({}, 400),
        ({"reason": None, "replaces": old}, 400),
        ({"replaces": old | {"revision": 2}}, 409),
        ({"replaces": {"id": new_id, "revision": 1}}, 409),
        ({"replaces": {"id": others, "revision": 1}}, 404),
    ):
        assert (given, (await room.act(new_id, **(REPLACE | given))).status_code) == (given, status)
    assert room.held == []
    await room.act(old_id, action="retract", reason="outdated")
    assert (await room.act(new_id, **REPLACE, replaces=old)).status_code == 409
    assert "replace" not in (await room.get(f"/api/items/{new_id}"))["allowed"]


async def test_items_that_differ_in_numbers_alone_are_one_row_but_for_risks_and_conflicts(
    room, browser
) -> None:
    kiln = [make_decision(f"k-{n}", KILN.format(n)) for n in range(9)]
    others = (
        make_decision("other-source", KILN.format(20), source="handbook"),
        make_decision("other-reason", KILN.format(21), reason_code="citation_unverified"),
        *(make_decision(f"grave-{n}", KILN.format(n), reason_code="phantom_source") for n in (22, 24)),
        make_decision("other-words", KILN.format(23).replace("one", "no")),
    )
    old, new = stored(room)
    ids = room.add(*kiln, *others)[:9]
    items = (await room.get("/api/queue?sort=oldest"))["items"]
    assert {one["id"] for one in items if one["alike"]} == {*ids}
    (row,) = (await browser.html("/")).all("li", class_="item group")
    assert row["data-ids"].split() == [one["id"] for one in items if one["alike"]]
    assert "9 alike" in row.text
    (box,) = [one for one in (await browser.html("/")).all("input", name="ids") if " " in one["value"]]
    form = {"csrf": await browser.csrf(), "action": "approve", "ids": box["value"], "sure": "yes"}
    assert (await browser.post("/bulk", data=form)).status_code == 303
    assert len({one.order.action_id for one in room.held}) == 9
    await browser.post(f"/actions/{room.held[4].order.action_id}/undo", data={"csrf": form["csrf"]})
    assert room.held == []
    assert {old, new}.isdisjoint(ids)


async def test_a_page_of_the_queue_ends_after_fifty_rows_however_many_are_alike(room) -> None:
    room.add(*(make_decision(f"k-{n:03}", KILN.format(n)) for n in range(70)))
    room.add(*(make_decision(f"o-{n:03}", "Water is " + "so " * n + "wet.") for n in range(60)))
    seen, path = [], "/?sort=oldest"
    while path:
        page = await room.get(f"/api/queue{path[1:]}")
        rows = {one["alike"] or one["id"] for one in page["items"]}
        seen.append((len(rows), {one["id"] for one in page["items"]}))
        path = page["older"]
    assert (len(seen), seen[0][0]) == (2, 50)
    assert len(seen[0][1]) + len(seen[1][1]) == len(seen[0][1] | seen[1][1]) == 130

"""Acting on an item: nothing is published that can be undone, or whose item changed; what is refused is given back."""

from __future__ import annotations

from typing import Any

from groundwire.console.item import speculation
from groundwire.console.outbox import OrderState
from groundwire.console.queue import subject_of
from groundwire.policy import Policy
from groundwire.review.model import Query
from tests.unit.console.rooms import (
    ANA,
    ITEM,
    LEAD,
    Html,
    Room,
    approved,
    blocked,
    chosen,
    compared,
    make_decision,
    make_room,
)

TYPED = 'Typed at length, <b>with care</b> & "quotes".'


def area(page: Html, name: str) -> str | None:
    """Return what stands in a text area, without the line end that browsers leave out."""
    found = page.all("textarea", id=name)
    return found[0].text.removeprefix("\n") if found else None


async def send(room: Room, decision_id: str, **fields: str) -> tuple[int, Html]:
    async with room.browser() as client:
        form = {"csrf": await client.csrf(), "action": "edit", "revision": "1", "note": "A note."} | fields
        answer = await client.post(f"/items/{decision_id}/actions", data=form)
    return answer.status_code, Html(answer.text)


async def test_an_action_is_published_once_it_cannot_be_undone_and_an_undone_one_never(room, lead) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    for undone in (True, False):
        answer = await room.act(decision_id)
        assert (answer.status_code, answer.json()["state"]) == (202, "held")
        undo, counts = f"/api/actions/{answer.json()['action_id']}/undo", []
        if undone:
            assert (await lead.post(undo, json={})).status_code == 200
        for seconds in (4.9, 0.1):
            room.clock.forward(seconds=seconds)
            room.site.outbox.release()
            await room.site.outbox.delivered()
            counts.append(len(room.recorder.sent))
        assert counts == ([0, 0] if undone else [0, 1])
    (sent,) = room.recorder.sent
    assert (sent.action, sent.subject_id, sent.expected_revision) == ("approve", "c-1", 1)
    assert sent.action_id == answer.json()["action_id"]
    assert (await lead.post(undo, json={})).status_code == 409


async def test_without_undo_seconds_and_at_the_stop_of_a_console_actions_are_published_at_once() -> None:
    for seconds in (0, 5):
        room = make_room(undo_seconds=seconds)
        await room.act(*room.add(make_decision("c-1")))
        if seconds:
            await room.site.outbox.close()
        else:
            room.site.outbox.release()
            await room.site.outbox.delivered()
        assert len(room.recorder.sent) == 1


async def test_the_outcome_is_shown_to_its_person_alone_and_a_failed_action_may_be_tried_again() -> None:
    for changes, state, outcome in (
        ({}, "applied", "human_approved"),
        ({"applied": False, "code": "stale"}, "refused", "stale"),
        ({"fails": True}, "failed", None),
    ):
        room = make_room()
        for name, value in changes.items():
            setattr(room.recorder, name, value)
        (decision_id,) = room.add(make_decision("c-1"))
        action_id = (await room.act(decision_id)).json()["action_id"]
        await room.released()
        told = await room.get(f"/api/actions/{action_id}")
        assert (told["state"], told["outcome"]) == (state, outcome)
        assert bool(told["sentence"]) == (state != "failed")
        assert await room.get("/api/actions") == {"actions": [told]}
        assert await room.get("/api/actions", "ana-token") == {"actions": []}
        room.clock.forward(hours=1)
        assert await room.get("/api/actions") == {"actions": [{**told, "shown": False}]}
    assert (await room.act(decision_id)).status_code == 202


async def test_an_action_on_an_item_that_changed_is_refused_with_the_change(room, browser) -> None:
    (old,) = room.add(make_decision("c-1"))
    review = {"action": "reject", "action_id": "a-1", "reviewer": "ana", "reason": "outdated"}
    facts = {"clock": "2026-01-31T12:00:00Z", "review": review}
    changed = {"tier": "tier_3", "verdict": "blocked", "reason_code": "human_rejected", "facts": facts}
    (new,) = room.add(make_decision("c-1", revision=2, **changed))
    for given in ({"action": "approve"}, {"action": "edit", "content": "x"}):
        for decision_id, revision in ((old, 1), (new, 1), (new, 2)):
            answer = await room.act(decision_id, revision=revision, **given)
            told = answer.json()
            assert answer.status_code == 409
            assert (told["id"], told["revision"], told["verdict"]) == (new, 2, "blocked")
            if revision == 1:
                assert {"what": "revision", "was": "1", "now": "2"} in told["problem"]["changes"]
                assert "by ana" in told["problem"]["changes"][-1]["now"]
    status, answer = await send(room, old, content=TYPED, query="kind=claim")
    again, later = [await browser.html(f"/items/{new}?seen={query}") for query in ("1&kind=claim", "2")]
    assert status == 409
    assert (area(answer, "typed-content"), area(answer, "typed-note")) == (TYPED, "A note.")
    assert answer.one(id="item")["data-address"] == f"/items/{new}?seen=1&kind=claim"
    for page in (answer, again):
        problem = page.one(id="problem").text
        assert "This item has changed." in problem
        assert "2026-01-31 11:00 UTC" in problem
        assert "2026-01-31T11:00" not in problem
    assert later.all(id="problem") == []
    assert room.held == []


async def test_the_first_who_acts_counts_and_stops_where_the_item_changes_or_is_not_pending(room) -> None:
    ids = room.add(*(make_decision(f"c-{number}") for number in range(3)))
    for decision_id in ids[:2]:
        assert (await room.act(decision_id)).status_code == 202
        second = await room.act(decision_id, who="ana-token", action="reject", reason="other")
        assert second.status_code == 409
        assert second.json()["problem"]["title"] == "lead already approved this."
    room.add(approved("c-1", revision=2, reason_code="human_approved"))
    await room.released()
    room.settle("c-2")
    assert [(one.action, one.subject_id) for one in room.recorder.sent] == [("approve", "c-0")]
    states = {entry.order.record.subject_id: entry.state for entry in room.site.outbox.of(LEAD)}
    assert (len(states), states["c-1"]) == (2, OrderState.STALE)
    assert (await room.act(ids[2])).status_code == 409


async def test_an_edit_is_published_as_written_and_one_of_nothing_is_an_approval(room, browser) -> None:
    written = "  Ⅷ \u2014 line one\r\nline two\n"
    (decision_id,) = room.add(make_decision("c-0"))
    await room.act(decision_id, action="edit", content=written)
    texts = ("Water is wet.", "\nfirst line empty", "one\r\ntwo\rthree\n", " spaces ", "<b>&amp;")
    for number, text in enumerate(texts, start=1):
        (decision_id,) = room.add(make_decision(f"c-{number}", text))
        as_browsers_send_it = text.replace("\r\n", "\n").replace("\r", "\n").replace("\n", "\r\n")
        form = {"csrf": await browser.csrf(), "action": "edit", "revision": "1"}
        form["content"] = as_browsers_send_it
        await browser.post(f"/items/{decision_id}/actions", data=form)
    await room.released()
    sent = [(one.action, one.content) for one in sorted(room.recorder.sent, key=lambda one: one.subject_id)]
    assert sent == [("edit", written), *[("approve", None)] * len(texts)]


async def test_a_block_of_the_gate_is_put_back_for_review_and_one_of_a_person_is_not() -> None:
    room = make_room()
    gates = room.add(
        blocked("c-1", reason_code="duplicate"), blocked("c-2", reason_code="personal_speculation")
    )
    (persons,) = room.add(blocked("c-3", reason_code="human_rejected"))
    assert (await room.act(persons, action="overrule")).status_code == 409
    for decision_id in gates:
        assert (await room.get(f"/api/items/{decision_id}"))["allowed"] == ["overrule"]
        assert (await room.act(decision_id, action="overrule", note="It is measured.")).status_code == 202
    await room.released()
    assert [one.action for one in room.recorder.sent] == ["overrule"] * 2


async def test_a_comment_needs_words_and_the_item_waits_on_after_it() -> None:
    room = make_room()
    (decision_id,) = room.add(make_decision("c-1"))
    assert (await room.act(decision_id, action="comment")).status_code == 400
    for action in ("comment", "pass"):
        assert (await room.act(decision_id, action=action, note="Which release?")).status_code == 202
        await room.released()
    assert [(one.action, one.note) for one in room.recorder.sent] == [
        ("comment", "Which release?"),
        ("pass", "Which release?"),
    ]
    assert (await room.act(decision_id)).status_code == 202


async def test_retracting_needs_a_reason_and_an_approved_item_and_is_offered_in_its_list() -> None:
    for kind in ("claim", "response"):
        room = make_room()
        known, pending = room.add(approved("c-1", kind=kind), make_decision("c-2"))
        assert (await room.act(known, action="retract")).status_code == 400
        assert (await room.act(pending, action="retract", reason="outdated")).status_code == 409
        assert (await room.act(known, action="approve")).status_code == 409
        async with room.browser() as browser:
            link = f"/items/{known}?from=approved&do=retract"
            offered = (await browser.html("/approved")).all("a", class_="retract")
            assert link in [one["href"] for one in offered]
            assert "open" in (await browser.html(link)).one(id="retract").attributes
        assert (await room.act(known, action="retract", reason="outdated")).status_code == 202
        await room.released()
        sent = [(one.action, one.kind, one.reason) for one in room.recorder.sent]
        assert sent == [("retract", kind, "outdated")]


async def test_forms_undo_bulk_and_cancel_lead_on_in_a_list_and_keep_its_query(room, browser) -> None:
    first, second = room.add(make_decision("c-1"), make_decision("c-2"))
    token, listed = await browser.csrf(), "user=ana&sort=newest"
    form = {"csrf": token, "action": "approve", "query": listed}

    async def undone() -> str:
        path = f"/actions/{room.held[0].order.action_id}/undo"
        return (await browser.post(path, data={"csrf": token})).headers["location"]

    for following, place in ((second, f"/items/{second}?{listed}"), ("", f"/?{listed}")):
        sent = {**form, "revision": "1", "next": following}
        one = await browser.post(f"/items/{first}/actions", data=sent)
        shown = (await browser.html(one.headers["location"])).one("form", class_="undo")["action"]
        assert shown == f"/actions/{room.held[0].order.action_id}/undo"
        assert (one.status_code, one.headers["location"]) == (303, place)
        assert await undone() == f"/items/{first}?{listed}"
    form["ids"] = [f"{first}:1", f"{second}:1"]
    asked = await browser.post("/bulk", data=form)
    done = await browser.post("/bulk", data={**form, "sure": "yes"})
    assert f"/?{listed}" in [one["href"] for one in Html(asked.text).all("a") if one.text == "Cancel"]
    assert done.headers["location"] == await undone() == f"/?{listed}"
    assert room.held == []


async def test_who_opens_an_item_is_named_to_others_for_a_while_and_hinders_nobody(room, browser) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    path, seen = f"/api/items/{decision_id}/lock", []
    await room.site.live.poll()
    assert not (await browser.html(f"/items/{decision_id}")).all(id="reviewing")
    assert await room.site.live.poll(), "open lists ask again"
    async with room.client("lead-token") as lead, room.client("ana-token") as ana:
        for client, seconds in ((lead, 40), (ana, 40), (ana, 6)):
            room.clock.forward(seconds=seconds)
            if client is lead:
                await lead.post(path, json={})
            else:
                seen.append((await ana.get("/api/queue")).json()["items"][0]["reviewing"])
        assert seen == ["lead", None]
        await lead.post(path, json={})
        assert "lead has this item open" in (await ana.html(f"/items/{decision_id}")).one(id="reviewing").text
        assert (await ana.post(path, json={})).json() == {"reviewing": "lead"}
        await room.act(decision_id)
        assert (await ana.post(path, json={})).json() == {"reviewing": None}
    (other,) = room.add(make_decision("c-2"))
    await browser.get(f"/items/{other}")
    assert (await room.act(other, who="ana-token")).status_code == 202


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


async def test_an_edit_that_speculates_or_is_blank_is_refused_before_it_is_held_and_given_back(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    text = f"{TYPED} I think water is wet."
    status, page = await send(room, decision_id, content=text)
    assert (status, area(page, "content"), area(page, "edit-note")) == (422, text, "A note.")
    assert "speculates and cannot be approved" in page.words
    assert "“I think”" in page.words
    assert page.one(id="item")["data-address"] == f"/items/{decision_id}?do=edit"
    for content in ("   ", "\u200b\u2060", "\n\u3164", "Pay \u202e01 euros"):
        status, page = await send(room, decision_id, content=content)
        twin = await room.act(decision_id, action="edit", content=content)
        assert (status, twin.status_code, twin.json()["error"]) == (422, 422, "hidden_text")
        assert "The edited text is blank or hides characters" in page.words
    assert room.held == []
    policy = Policy.model_validate({"hedges": {"block": ["acmish"]}})
    for content, refused in (("Water may be wet.", False), ("I think so.", True), ("Acmish is wet.", True)):
        assert (content, speculation(content, policy) is not None) == (content, refused)


async def test_an_edit_that_was_refused_undone_or_not_sent_is_in_the_form_again() -> None:
    for state in ("refused", "undone", "failed"):
        room = make_room()
        room.recorder.applied, room.recorder.code = False, "unreadable"
        room.recorder.fails = state == "failed"
        (decision_id,) = room.add(make_decision("c-1"))
        async with room.browser() as browser, room.browser(ANA) as another:
            token = await browser.csrf()
            form = {"csrf": token, "action": "edit", "revision": "1", "note": "A note.", "content": TYPED}
            await browser.post(f"/items/{decision_id}/actions", data=form)
            if state == "undone":
                await browser.post(f"/actions/{room.held[0].order.action_id}/undo", data={"csrf": token})
            else:
                await room.released()
            page, theirs = [await one.html(f"/items/{decision_id}") for one in (browser, another)]
        assert (area(page, "content"), area(page, "edit-note")) == (TYPED, "A note.")
        assert ("Refused by the gate." in page.words) is (state == "refused")
        assert area(theirs, "content") == "Water is wet."


async def test_a_refusal_is_shown_until_it_was_read_and_a_held_action_is_not_dismissed(room, browser) -> None:
    async def shown() -> list[Any]:
        return [one for one in (await browser.get("/api/actions")).json()["actions"] if one["shown"]]

    room.recorder.applied, room.recorder.code = False, "unreadable"
    edited, rejected, held = room.add(*(make_decision(f"c-{number}") for number in range(3)))
    token = await browser.csrf()
    form = {"csrf": token, "revision": "1"}
    await browser.post(f"/items/{edited}/actions", data={**form, "action": "edit", "content": TYPED})
    await browser.post(f"/items/{rejected}/actions", data={**form, "action": "reject", "reason": "other"})
    await room.released()
    first, second = await shown()
    await browser.get(f"/items/{edited}")
    assert (second["decision_id"], await shown()) == (edited, [first])
    await browser.post(f"/actions/{first['action_id']}/dismiss", data={"csrf": token})
    assert await shown() == []
    action_id = (await room.act(held)).json()["action_id"]
    await browser.post(f"/actions/{action_id}/dismiss", data={"csrf": token})
    assert [one["action_id"] for one in await shown()] == [action_id]


async def test_an_incomplete_form_is_given_back_and_no_reason_is_chosen_beforehand(room, browser) -> None:
    names = ["first", "second"]
    known, other, pending = room.add(
        *(approved(name, f"The kiln is fired every {name} day.") for name in names),
        make_decision("new", "The kiln is fired every third day.", facts=compared(*names)),
    )
    for fields, says in (
        ({"action": "reject"}, "Choose a reason first."),
        ({"action": "replace", "replaces": f"{other}:1"}, "Choose a reason first."),
        ({"content": "x" * 20_001}, "content"),
        ({"revision": "x", "content": TYPED}, "revision"),
    ):
        status, page = await send(room, pending, **fields)
        assert status == 400
        assert says in page.one(id="problem").text
        assert area(page, f"{fields.get('action', 'edit')}-note") == "A note."
        assert area(page, "content") == fields.get("content", "The kiln is fired every third day.")
        chosen = [one["value"] for one in page.all("input", name="replaces") if "checked" in one.attributes]
        assert fields.get("replaces", chosen[-1]) == chosen[-1]
    (plain,) = room.add(make_decision("c-1"))
    pages = [await browser.html(f"/items/{one}") for one in (plain, known)]
    form = {"csrf": await browser.csrf(), "action": "reject", "ids": f"{plain}:1", "note": "A note."}
    for more, status in (({}, 409), ({"sure": "yes"}, 400)):
        answer = await browser.post("/bulk", data=form | more)
        pages.append(Html(answer.text))
        assert (answer.status_code, area(pages[-1], "bulk-note")) == (status, "A note.")
    assert "Choose a reason first." in pages[-1].words
    for page in pages:
        assert page.all("input", name="reason")
        assert not [one for one in page.all("input", name="reason") if "checked" in one.attributes]
    assert room.held == []


async def test_the_page_of_an_ended_session_shows_what_was_typed_there_and_signing_in_leads_back() -> None:
    """And nothing that another site sent."""
    form = {"csrf": "of another session", "action": "edit", "revision": "1"}
    form |= {"content": TYPED, "note": "A note.", "query": "kind=claim"}
    own = {"sec-fetch-site": "same-origin"}
    for ended, headers, changes, back in (
        (True, own, {}, "?do=edit&kind=claim"),
        (True, own | {"origin": "null"}, {"action": "replace"}, "?do=replace&kind=claim"),
        (False, own, {}, None),
        *((True, other, {}, None) for other in ({}, {"sec-fetch-site": "none"})),
        *(
            (True, other, {}, None)
            for other in ({"sec-fetch-site": "cross-site"}, {"origin": "https://a.example"})
        ),
    ):
        room = make_room()
        (decision_id,) = room.add(make_decision("c-1"))
        async with room.browser() as browser:
            if ended:
                room.clock.forward(hours=9)
            path = f"/items/{decision_id}/actions"
            answer = await browser.post(path, data=form | changes, headers=headers)
            if back:
                signing = {"csrf": await browser.csrf("/signin"), "secret": room.site.links.issue(LEAD)}
                place = (await browser.post("/signin/link", data=signing)).headers["location"]
                assert place == f"/items/{decision_id}{back}"
        page, ours = Html(answer.text), headers.items() >= own.items()
        assert answer.status_code in ((401, 403) if not ours else (401,) if ended else (403,))
        typed = (area(page, "typed-content"), area(page, "typed-note"))
        assert (headers, typed) == (headers, (TYPED, "A note.") if ours else (None, None))
        assert ("Typed at length" in answer.text) == ours
        assert TYPED not in str(answer.headers)
        assert room.held == []


def by_person(subject_id, content, action, reviewer, **changes):
    """A claim that a person decided at its second revision."""
    verdict = {"approve": "approved", "reject": "blocked"}[action]
    review = {
        "action": action,
        "action_id": subject_id,
        "reviewer": reviewer,
        "reason": changes.pop("reason", None),
    }
    facts = {"clock": "2026-01-31T12:00:00Z", "review": review}
    given = {"verdict": verdict, "reason_code": f"human_{action}{'ed' if action == 'reject' else 'd'}"}
    return make_decision(subject_id, content, revision=2, facts=facts, **given, **changes)


async def test_an_item_shows_what_people_decided_on_similar_texts_of_its_tenant_and_the_queue_who_did(
    room,
) -> None:
    kiln = "The kiln in Delft is fired every {} days by one potter."
    room.add(
        by_person("no", kiln.format("fourteen"), "reject", "lena", user_id="ben", reason="outdated"),
        by_person("yes", kiln.format("nine"), "approve", "lead", user_id="ben"),
        by_person("elsewhere", kiln.format("two"), "reject", "eve", tenant_id="globex", user_id="ben"),
        approved("by-the-gate", kiln.format("ten"), user_id="ben"),
    )
    (new,) = room.add(make_decision("new", kiln.format("thirty")))
    found = {one["subject_id"]: one for one in (await room.get(f"/api/items/{new}"))["similar"]}
    assert set(found) == {"no", "yes"}
    assert (found["no"]["state"], found["no"]["reviewer"]) == ("rejected", "lena")
    async with room.browser() as client:
        said, queue = (await client.html(f"/items/{new}")).one(id="similar").text, await client.html("/")
    assert "by lena: outdated" in " ".join(said.split())
    assert not (await room.get(f"/api/items/{new}", "ana-token"))["similar"]
    assert "Decided today (UTC): 1 by you, 2 in all. The oldest item came 1 hour ago." in queue.words

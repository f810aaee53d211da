"""A reviewer gets back what they typed, with the reason, whenever an action is not carried out."""

from __future__ import annotations

from typing import Any

import httpx

from groundwire.console.item import speculation
from groundwire.policy import Policy
from tests.unit.console.rooms import (
    ANA,
    LEAD,
    Html,
    Room,
    act,
    approved,
    compared,
    csrf,
    html,
    make_decision,
    make_room,
)

TYPED = 'Typed at length, <b>with care</b> & "quotes".'
SPECULATION = "I think water is wet."


def area(page: Html, name: str) -> str | None:
    """Return what stands in a text area, without the line end that browsers leave out."""
    found = page.all("textarea", id=name)
    return found[0].text.removeprefix("\n") if found else None


async def send(room: Room, decision_id: str, **fields: str) -> tuple[int, Html]:
    async with room.browser() as client:
        form = {"csrf": await csrf(client), "action": "edit", "revision": "1", "note": "A note."} | fields
        answer = await client.post(f"/items/{decision_id}/actions", data=form)
    return answer.status_code, Html(answer.text)


async def test_an_edit_that_speculates_or_is_blank_is_refused_before_it_is_held_and_given_back(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    status, page = await send(room, decision_id, content=f"{TYPED} {SPECULATION}")
    assert (status, area(page, "content")) == (422, f"{TYPED} {SPECULATION}")
    assert area(page, "edit-note") == "A note."
    assert "speculates and cannot be approved" in page.words
    assert "“I think”" in page.words
    assert page.one(id="item")["data-address"] == f"/items/{decision_id}?do=edit"
    for content in ("   ", "\u200b\u2060", "\n\u3164"):
        status, page = await send(room, decision_id, content=content)
        twin = await act(room, decision_id, action="edit", content=content)
        assert (status, twin.status_code, twin.json()["error"]) == (422, 422, "blank")
        assert "The edited text is blank" in page.words
    assert room.held == []


def test_an_edit_that_the_gate_would_accept_is_no_speculation_and_the_operators_words_count() -> None:
    policy = Policy.model_validate({"hedges": {"block": ["acmish"]}})
    for content, refused in (
        ("Water is wet.", False),
        ("Water may be wet.", False),
        (SPECULATION, True),
        ("Acmish is wet.", True),
    ):
        assert (content, speculation(content, policy) is not None) == (content, refused)


async def test_an_edit_that_was_refused_undone_or_not_sent_stands_in_the_form_again() -> None:
    for state in ("refused", "undone", "failed"):
        room = make_room()
        room.recorder.applied, room.recorder.code = False, "unreadable"
        room.recorder.fails = state == "failed"
        (decision_id,) = room.add(make_decision("c-1"))
        async with room.browser() as browser, room.browser(ANA) as another:
            token = await csrf(browser)
            form = {"csrf": token, "action": "edit", "revision": "1", "note": "A note.", "content": TYPED}
            await browser.post(f"/items/{decision_id}/actions", data=form)
            if state == "undone":
                await browser.post(f"/actions/{room.held[0].order.action_id}/undo", data={"csrf": token})
            else:
                await room.released()
            page, theirs = [await html(one, f"/items/{decision_id}") for one in (browser, another)]

        assert (area(page, "content"), area(page, "edit-note")) == (TYPED, "A note.")
        assert ("Refused by the gate." in page.words) is (state == "refused")
        assert area(theirs, "content") == "Water is wet."


async def shown(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Return the actions that pages still show."""
    return [one for one in (await client.get("/api/actions")).json()["actions"] if one["shown"]]


async def test_a_refusal_that_was_read_is_not_shown_again_and_a_held_action_cannot_be_dismissed(
    room, browser
) -> None:
    room.recorder.applied, room.recorder.code = False, "unreadable"
    edited, rejected, held = room.add(*(make_decision(f"c-{number}") for number in range(3)))
    token = await csrf(browser)
    form = {"csrf": token, "revision": "1"}
    await browser.post(f"/items/{edited}/actions", data={**form, "action": "edit", "content": TYPED})
    await browser.post(f"/items/{rejected}/actions", data={**form, "action": "reject", "reason": "other"})
    await room.released()
    first, second = await shown(browser)
    await browser.get(f"/items/{edited}")
    assert [one["action_id"] for one in await shown(browser)] == [first["action_id"]]
    await browser.post(f"/actions/{first['action_id']}/dismiss", data={"csrf": token})
    assert await shown(browser) == []
    assert second["decision_id"] == edited

    action_id = (await act(room, held)).json()["action_id"]
    await browser.post(f"/actions/{action_id}/dismiss", data={"csrf": token})
    assert [one["action_id"] for one in await shown(browser)] == [action_id]


async def test_an_edit_of_an_item_that_changed_is_shown_beside_the_change(room, browser) -> None:
    (old,) = room.add(make_decision("c-1"))
    (new,) = room.add(approved("c-1", revision=2, reason_code="human_approved"))
    status, answer = await send(room, old, content=TYPED, query="kind=claim")
    again, later = [await html(browser, f"/items/{new}?seen={query}") for query in ("1&kind=claim", "2")]

    assert status == 409
    assert (area(answer, "typed-content"), area(answer, "typed-note")) == (TYPED, "A note.")
    assert answer.one(id="item")["data-address"] == f"/items/{new}?seen=1&kind=claim"
    for page in (answer, again):
        problem = page.one(id="problem").text
        assert "It has changed." in problem
        assert "2026-01-31 11:00 UTC" in problem
        assert "2026-01-31T11:00" not in problem
    assert later.all(id="problem") == []


async def test_an_incomplete_form_is_given_back_with_what_is_missing(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    for fields, says in (
        ({"action": "reject"}, "Choose a reason first."),
        ({"content": "x" * 20_001}, "content"),
        ({"revision": "x", "content": TYPED}, "revision"),
    ):
        status, page = await send(room, decision_id, **fields)
        assert status == 400
        assert says in page.one(id="problem").text
        assert area(page, f"{fields.get('action', 'edit')}-note") == "A note."
        assert area(page, "content") == fields.get("content", "Water is wet.")
    assert room.held == []


async def test_the_page_of_an_ended_session_shows_the_typed_text_and_signing_in_leads_back() -> None:
    for ended in (True, False):
        room = make_room()
        (decision_id,) = room.add(make_decision("c-1"))
        form = {"csrf": "of another session", "action": "edit", "revision": "1"}
        form |= {"content": TYPED, "note": "A note.", "query": "kind=claim"}
        async with room.browser() as browser:
            if ended:
                room.clock.forward(hours=9)
            path, own = f"/items/{decision_id}/actions", {"sec-fetch-site": "same-origin"}
            answer = await browser.post(path, data=form, headers=own)
            if ended:
                secret = room.site.links.issue(LEAD)
                signing = {"csrf": await csrf(browser, "/signin"), "secret": secret}
                back = await browser.post("/signin/link", data=signing)
                assert back.headers["location"] == f"/items/{decision_id}?do=edit&kind=claim"

        page = Html(answer.text)
        assert answer.status_code == (401 if ended else 403)
        assert (area(page, "typed-content"), area(page, "typed-note")) == (TYPED, "A note.")
        assert TYPED not in str(answer.headers)
        assert room.held == []


async def test_the_form_to_replace_comes_back_open_with_the_memory_that_was_chosen(room) -> None:
    names = ["first", "second"]
    *old, new = room.add(
        *(approved(name, f"The kiln is fired every {name} day.") for name in names),
        make_decision("new", "The kiln is fired every third day.", facts=compared(*names)),
    )
    status, page = await send(room, new, action="replace", replaces=f"{old[1]}:1")
    chosen = [one["value"] for one in page.all("input", name="replaces") if "checked" in one.attributes]
    assert (status, chosen) == (400, [f"{old[1]}:1"])
    async with room.browser() as browser:
        form = {"csrf": "of another session", "action": "replace", "revision": "1", "note": "A note."}
        own = {"sec-fetch-site": "same-origin"}
        over = Html((await browser.post(f"/items/{new}/actions", data=form, headers=own)).text)
    assert f"/items/{new}?do=replace" in [one["href"] for one in over.all("a")]


async def test_no_reason_is_chosen_before_the_reviewer_chose_it(room, browser) -> None:
    pending, known = room.add(make_decision("c-1"), approved("c-2"))
    pages = [await html(browser, f"/items/{one}") for one in (pending, known)]
    bulk = {"csrf": await csrf(browser), "action": "reject", "ids": f"{pending}:1"}
    pages.append(Html((await browser.post("/bulk", data=bulk)).text))
    again = await browser.post("/bulk", data={**bulk, "sure": "yes", "note": "A note."})

    for page in pages:
        assert page.all("input", name="reason")
        assert not [one for one in page.all("input", name="reason") if "checked" in one.attributes]
    assert again.status_code == 400
    assert "Choose a reason first." in Html(again.text).words
    assert area(Html(again.text), "bulk-note") == "A note."


async def test_the_page_of_an_ended_session_shows_no_text_that_another_site_sent(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    form = {"action": "edit", "revision": "1", "content": TYPED, "note": "A note."}
    for headers, back in (
        ({}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"origin": "https://elsewhere.example"}, False),
        ({"sec-fetch-site": "same-origin", "origin": "null"}, True),
    ):
        async with room.client() as client:
            answer = await client.post(f"/items/{decision_id}/actions", data=form, headers=headers)
        assert answer.status_code in {401, 403}
        assert [part in answer.text for part in ("Typed at length", "A note.")] == [back] * 2

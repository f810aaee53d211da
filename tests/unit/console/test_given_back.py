"""What a reviewer typed comes back with the reason, whatever stood against it."""

from __future__ import annotations

import html
import re
from typing import Any

import httpx
import pytest

from groundwire.console.item import speculation
from groundwire.policy import Policy
from tests.unit.console.rooms import ANA, LEAD, Room, approved, csrf, make_decision
from tests.unit.console.test_memories import facts

TYPED = 'Typed at length, <b>with care</b> & "quotes".'
SPECULATION = "I think water is wet."


def area(page: str, name: str) -> str | None:
    """Return what stands in a text area, as a browser reads it."""
    found = re.search(rf'<textarea [^>]*(?:id|name)="{name}"[^>]*>\n?(.*?)</textarea>', page, re.DOTALL)
    return html.unescape(found[1]) if found else None


async def send(room: Room, decision_id: str, **fields: str) -> Any:
    async with room.browser() as client:
        form = {"csrf": await csrf(client), "action": "edit", "revision": "1", "note": "A note."} | fields
        return await client.post(f"/items/{decision_id}/actions", data=form)


async def test_an_edit_that_speculates_is_refused_before_it_is_held_and_given_back(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    answer = await send(room, decision_id, content=f"{TYPED} {SPECULATION}")

    assert answer.status_code == 422
    assert area(answer.text, "content") == f"{TYPED} {SPECULATION}"
    assert area(answer.text, "edit-note") == "A note."
    assert "speculates and cannot be approved" in answer.text
    assert "“I think”" in answer.text
    assert f'data-address="/items/{decision_id}?do=edit"' in answer.text
    assert room.held == []


@pytest.mark.parametrize("content", ["   ", "\u200b\u2060", "\n\u3164"])
async def test_an_edit_that_shows_nothing_is_refused_at_once_to_people_and_programs(
    room, lead, content
) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    page = await send(room, decision_id, content=content)
    edit = {"action": "edit", "revision": 1, "content": content}
    twin = await lead.post(f"/api/items/{decision_id}/actions", json=edit)

    assert (page.status_code, twin.status_code, twin.json()["error"]) == (422, 422, "blank")
    assert "The edited text is blank" in page.text
    assert room.held == []


@pytest.mark.parametrize(
    ("content", "refused"),
    [("Water is wet.", False), ("Water may be wet.", False), (SPECULATION, True), ("Acmish is wet.", True)],
)
def test_what_the_gate_would_let_pass_is_no_speculation_and_the_operators_words_count(
    content, refused
) -> None:
    policy = Policy.model_validate({"hedges": {"block": ["acmish"]}})

    assert (speculation(content, policy) is not None) is refused


@pytest.mark.parametrize(("state", "told"), [("refused", True), ("undone", False), ("failed", False)])
async def test_an_edit_that_came_to_nothing_after_the_hold_stands_in_the_form_again(
    room, browser, state, told
) -> None:
    room.recorder.applied, room.recorder.code = False, "unreadable"
    room.recorder.fails = state == "failed"
    (decision_id,) = room.add(make_decision("c-1"))
    token = await csrf(browser)
    form = {"csrf": token, "action": "edit", "revision": "1", "note": "A note.", "content": TYPED}
    await browser.post(f"/items/{decision_id}/actions", data=form)
    if state == "undone":
        await browser.post(f"/actions/{room.held[0].order.action_id}/undo", data={"csrf": token})
    else:
        await room.released()
    page = (await browser.get(f"/items/{decision_id}")).text
    async with room.browser(ANA) as another:
        theirs = (await another.get(f"/items/{decision_id}")).text

    assert (area(page, "content"), area(page, "edit-note")) == (TYPED, "A note.")
    assert ("Refused by the gate." in page) is told
    assert area(theirs, "content") == "Water is wet."


async def shown(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    """Return the actions that pages still tell of."""
    return [one for one in (await client.get("/api/actions")).json()["actions"] if one["shown"]]


async def test_a_refusal_that_was_read_is_told_no_more(room, browser) -> None:
    room.recorder.applied, room.recorder.code = False, "unreadable"
    edited, rejected = room.add(make_decision("c-1"), make_decision("c-2"))
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


async def test_what_is_held_cannot_be_dismissed(room, lead) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    approve = {"action": "approve", "revision": 1}
    held = (await lead.post(f"/api/items/{decision_id}/actions", json=approve)).json()
    await lead.post(f"/api/actions/{held['action_id']}/dismiss", json={})
    assert len((await lead.get("/api/actions")).json()["actions"]) == 1


async def test_of_an_item_that_changed_the_typed_text_is_shown_beside_the_change(room, browser) -> None:
    (old,) = room.add(make_decision("c-1"))
    (new,) = room.add(approved("c-1", revision=2, reason_code="human_approved"))
    answer = await send(room, old, content=TYPED, query="kind=claim")
    again = await browser.get(f"/items/{new}?seen=1&kind=claim")
    later = await browser.get(f"/items/{new}?seen=2")

    assert answer.status_code == 409
    assert area(answer.text, "typed-content") == TYPED
    assert area(answer.text, "typed-note") == "A note."
    assert f'data-address="/items/{new}?seen=1&amp;kind=claim"' in answer.text
    for page in (answer.text, again.text):
        assert "It changed meanwhile." in page
        assert "2026-01-31 11:00 UTC" in page
        assert "2026-01-31T11:00" not in page[page.index('id="problem"') : page.index('class="columns"')]
    assert "It changed meanwhile." not in later.text


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"action": "reject"}, "Choose a reason first."),
        ({"content": "x" * 20_001}, "content"),
        ({"revision": "x", "content": TYPED}, "revision"),
    ],
)
async def test_a_form_that_is_not_complete_is_given_back_with_what_is_missing(room, fields, says) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    answer = await send(room, decision_id, **fields)

    assert answer.status_code == 400
    assert says in answer.text[answer.text.index('id="problem"') :]
    assert area(answer.text, f"{fields.get('action', 'edit')}-note") == "A note."
    if "content" in fields:
        assert area(answer.text, "content") == fields["content"]
    assert room.held == []


@pytest.mark.parametrize("ended", [True, False])
async def test_the_page_of_a_session_that_is_over_shows_what_was_typed_and_signing_in_leads_back(
    room, browser, ended
) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    form = {
        "csrf": "of another session",
        "action": "edit",
        "revision": "1",
        "content": TYPED,
        "note": "A note.",
    }
    if ended:
        room.clock.forward(hours=9)
    answer = await browser.post(
        f"/items/{decision_id}/actions",
        data={**form, "query": "kind=claim"},
        headers={"sec-fetch-site": "same-origin"},
    )
    if ended:
        secret = room.site.links.issue(LEAD)
        token = await csrf(browser, "/signin")
        back = await browser.post("/signin/link", data={"csrf": token, "secret": secret})
        assert back.headers["location"] == f"/items/{decision_id}?do=edit&kind=claim"

    assert answer.status_code == (401 if ended else 403)
    assert (area(answer.text, "typed-content"), area(answer.text, "typed-note")) == (TYPED, "A note.")
    assert TYPED not in str(answer.headers)
    assert room.held == []


async def test_the_form_to_replace_comes_back_open_and_with_the_memory_that_was_chosen(room) -> None:
    names = ["first", "second"]
    *old, new = room.add(*(approved(name, f"The kiln is fired every {name} day.") for name in names),
                         make_decision("new", "The kiln is fired every third day.", facts=facts(*names)))  # fmt: skip
    answer = await send(room, new, action="replace", replaces=f"{old[1]}:1")
    checked = re.findall(r'name="replaces" value="([^"]+)" required checked', answer.text)
    assert (answer.status_code, checked) == (400, [f"{old[1]}:1"])
    room.clock.forward(hours=9)
    async with room.browser() as browser:
        form = {"csrf": "of another session", "action": "replace", "revision": "1", "note": "A note."}
        over = await browser.post(
            f"/items/{new}/actions", data=form, headers={"sec-fetch-site": "same-origin"}
        )
    assert f'href="/items/{new}?do=replace"' in over.text


async def test_a_reason_is_chosen_by_nobody_but_the_reviewer(room, browser) -> None:
    pending, known = room.add(make_decision("c-1"), approved("c-2"))
    pages = [(await browser.get(f"/items/{one}")).text for one in (pending, known)]
    bulk = {"csrf": await csrf(browser), "action": "reject", "ids": f"{pending}:1"}
    pages.append((await browser.post("/bulk", data=bulk)).text)
    again = await browser.post("/bulk", data={**bulk, "sure": "yes", "note": "A note."})

    for page in pages:
        assert 'name="reason"' in page
        assert not re.search(r'name="reason"[^>]*checked', page)
    assert again.status_code == 400
    assert "Choose a reason first." in again.text
    assert area(again.text, "bulk-note") == "A note."


@pytest.mark.parametrize(
    ("headers", "back"),
    [
        ({}, False),
        ({"sec-fetch-site": "none"}, False),
        ({"sec-fetch-site": "cross-site"}, False),
        ({"origin": "https://elsewhere.example"}, False),
        ({"sec-fetch-site": "same-origin", "origin": "null"}, True),
    ],
)
async def test_the_page_of_a_session_that_is_over_speaks_in_nobody_elses_words(room, headers, back) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    async with room.client() as client:
        form = {"action": "edit", "revision": "1", "content": TYPED, "note": "A note."}
        answer = await client.post(f"/items/{decision_id}/actions", data=form, headers=headers)
    assert answer.status_code in {401, 403}
    assert ("Typed at length" in answer.text, "A note." in answer.text) == (back, back)

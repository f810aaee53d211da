"""What is found where: how much of the queue a list shows, what was approved, what several at once come to."""

from __future__ import annotations

import html
import re

import pytest

from groundwire.console.auth import place_asked_for, remember_place
from groundwire.console.render import VERSION
from tests.unit.console.rooms import ANA, LEAD, approved, blocked, csrf, make_decision, make_room, search


def said(page: str) -> str:
    """Return the words of a page."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", page)).split())


async def test_a_search_says_how_much_of_the_queue_it_shows_and_how_to_be_rid_of_it(room, browser) -> None:
    room.add(*(make_decision(f"c-{number}", f"Water {number}.") for number in range(3)))
    room.add(make_decision("c-9", "Fire."))
    pages = [(await browser.get(await search(browser, text))).text for text in ("water", "nothing", "")]
    filtered = (await browser.get("/?memory_type=fact")).text
    cleared = await browser.get("/")

    found, none, all_of_it = pages
    assert "3 of 4 search: water Clear" in said(found)
    assert "0 of 4 search: nothing Clear" in said(none)
    assert "Queue 4" in said(none)
    assert "Nothing here matches." in none
    assert "Nothing waits" not in none
    assert 'id="matches"' not in all_of_it + cleared.text
    assert "4 of 4 1 filter Clear" in said(filtered)


async def test_what_was_approved_has_a_page_from_which_it_can_be_retracted(room, lead) -> None:
    known, pending, _ = room.add(approved("c-1"), make_decision("c-2"), blocked("c-3"))
    rows = (await lead.get("/api/approved")).json()["rows"]
    page = (await lead.get("/approved")).text
    item = (await lead.get(f"/api/items/{known}")).json()
    opened = (await lead.get(f"/items/{known}?do=reject")).text

    assert [row["id"] for row in rows] == [known]
    assert f'href="/items/{known}?from=approved"' in page
    assert pending not in page
    assert item["allowed"] == ["retract"]
    assert '<details id="retract" open>' in opened


@pytest.mark.parametrize("listed", ["approved", "blocked"])
async def test_a_list_is_searched_like_the_queue_and_its_address_holds_what_is_sought_encrypted(
    room, lead, browser, listed
) -> None:
    made = approved if listed == "approved" else blocked
    room.add(made("c-1", content="Water is wet."), made("c-2", content="Fire is hot."), make_decision("c-3"))
    pages = {}
    for text in ("WAT", "nothing", ""):
        place = await search(browser, text, listed)
        assert place.startswith(f"/{listed}?search=" if text else f"/{listed}")
        pages[text] = (await browser.get(place)).text
    place = await search(browser, "fire", listed)
    queue = (await browser.get("/")).text
    held = (await browser.get(place)).text
    cleared = (await browser.get(f"/{listed}")).text
    opened = re.search(r'class="open" href="([^"]+)"', held)
    assert opened is not None
    item = html.unescape((await browser.get(html.unescape(opened[1]))).text)
    exported = await browser.get(f"/api/export/{listed}.csv?{place.partition('?')[2]}")
    found = (await lead.post(f"/api/{listed}/search", json={"search": "water"})).json()

    assert "1 of 2 search: WAT Clear" in said(pages["WAT"])
    assert "0 of 2 search: nothing Clear Nothing here matches." in said(pages["nothing"])
    assert 'id="matches"' not in pages[""] + cleared + queue
    assert "1 of 2 search: fire Clear" in said(held)
    assert f'id="to-queue" href="{place}"' in item
    assert f'href="/api/export/{listed}.csv?{place.partition("?")[2]}"' in html.unescape(held)
    assert exported.text.count("\r\n") == 2
    assert [row["subject_id"] for row in found["rows"]] == ["c-1"]
    assert (found["total"], found["in_all"], found["search"]) == (1, 2, "water")


async def test_an_item_leads_back_to_the_page_of_the_list_that_it_was_opened_from(room, browser) -> None:
    room.add(*(approved(f"c-{number:02}") for number in range(60)))
    older = re.search(r'rel="next" href="([^"]+)"', (await browser.get("/approved")).text)
    assert older is not None
    place = html.unescape(older[1])
    listed = (await browser.get(place)).text
    opened = re.search(r'class="open" href="([^"]+)"', listed)
    assert opened is not None
    page = (await browser.get(html.unescape(opened[1]))).text
    query = re.search(r'name="query" value="([^"]*)"', page)
    assert query is not None
    form = {"action": "retract", "revision": "1", "query": html.unescape(query[1])}
    token = await csrf(browser)
    path = html.unescape(opened[1]).partition("?")[0]
    refused = await browser.post(f"{path}/actions", data={**form, "csrf": token})
    done = await browser.post(f"{path}/actions", data={**form, "csrf": token, "reason": "other"})

    assert place.startswith("/approved?cursor=")
    assert f'<a id="to-queue" href="{place}">Approved</a>' in html.unescape(page)
    assert f'<a id="to-queue" href="{place}">Approved</a>' in html.unescape(refused.text)
    assert done.headers["location"] == place


@pytest.mark.parametrize("path", ["/responses", "/approved", "/blocked"])
async def test_a_list_says_what_it_shows_and_names_each_item_and_its_reason(room, lead, path) -> None:
    response = {"kind": "response", "evidence": None, "facts": {"clock": "2026-01-31T12:00:00Z"}}
    room.add(
        make_decision("answer-1", **response, reason_code="critical_gap"), approved("c-1"), blocked("c-2")
    )
    subject = {"/responses": "answer-1", "/approved": "c-1", "/blocked": "c-2"}[path]
    page = (await lead.get(path)).text

    assert subject in said(page)
    assert re.search(r'class="note about">\w+', page)
    if path == "/responses":
        assert 'title="critical_gap">critical statement unsupported' in page


async def test_who_signed_out_reads_how_to_sign_in_again_where_only_a_link_does() -> None:
    room = make_room(one_time=LEAD)
    async with room.browser() as client:
        room.site.links.redeem(room.secret or "")
        await client.post("/signout", data={"csrf": await csrf(client)})
        page = said((await client.get("/signin")).text)

    assert "make demo-console" in page
    assert "groundwire console --one-time-link" in page


async def test_only_what_waits_has_a_risk(room, lead) -> None:
    ids = room.add(make_decision("c-1"), approved("c-2"), blocked("c-3"))
    found = [(await lead.get(f"/api/items/{one}")).json()["risk"] for one in ids]
    pages = [(await lead.get(f"/items/{one}")).text for one in ids]

    assert found == ["low", None, None]
    assert [" risk</span>" in page for page in pages] == [True, False, False]


async def test_before_several_are_approved_they_are_listed_and_those_shown_in_part_left_out(
    room, browser
) -> None:
    texts = {
        "short": "Water is wet.",
        "long": "word " * 60,
        "odd": "a\u200bb",
        "gap": "Ice is cold." + "\n" * 900 + "x",
    }
    ids = room.add(*(make_decision(name, text) for name, text in texts.items()))
    form = {"csrf": await csrf(browser), "action": "approve", "ids": [f"{one}:1" for one in ids]}
    asked = await browser.post("/bulk", data=form)
    assert room.held == []
    done = await browser.post("/bulk", data={**form, "ids": f"{ids[0]}:1", "sure": "yes"})
    async with room.client("ana-token") as client:
        sent = {"action": "approve", "ids": [{"id": one, "revision": 1} for one in ids[1:]]}
        refused = (await client.post("/api/bulk", json=sent)).json()["results"]

    assert asked.status_code == 409
    assert "Approve 1 item" in said(asked.text)
    assert "short nothing vouches for it low risk ana Water is wet." in said(asked.text)
    assert asked.text.count('name="ids"') == 1
    assert [one["state"] for one in refused] == ["partly_shown"] * 3
    assert done.headers["location"] == "/"
    assert [entry.order.record.subject_id for entry in room.held] == ["short"]


async def test_what_the_list_shows_in_part_can_be_rejected_with_others(room, lead) -> None:
    ids = room.add(make_decision("long", "word " * 60), make_decision("c-1"))
    reject = {"action": "reject", "reason": "other", "ids": [{"id": one, "revision": 1} for one in ids]}
    assert (await lead.post("/api/bulk", json=reject)).status_code == 202


async def test_what_is_held_tells_for_how_many_seconds_it_can_be_undone(room, lead) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    approve = {"action": "approve", "revision": 1}
    await lead.post(f"/api/items/{decision_id}/actions", json=approve)
    left = []
    for seconds in (0, 1.5, 3):
        room.clock.forward(seconds=seconds)
        (row,) = (await lead.get("/api/queue")).json()["items"]
        left.append(row["undo_left"])
    page = (await lead.get("/")).text

    assert left == [5, 4, 1]
    assert "approved by lead; can be undone for 1 s" in said(page)


async def test_whoever_signs_out_is_told_what_happens_with_what_is_held(room, browser) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    token = await csrf(browser)
    form = {"csrf": token, "action": "approve", "revision": "1"}
    await browser.post(f"/items/{decision_id}/actions", data=form)
    await browser.post("/signout", data={"csrf": token})
    first, second = [(await browser.get("/signin")).text for _ in range(2)]
    await room.released()

    assert "1 action, is published all the same" in said(first)
    assert "published all the same" not in second
    assert len(room.recorder.sent) == 1


@pytest.mark.parametrize("path", ["/approved", "/?kind=claim&sort=oldest", "/status"])
async def test_after_signing_in_one_lands_on_the_page_that_was_asked_for(room, path) -> None:
    async with room.client() as client:
        await client.get(path)
        form = {"csrf": await csrf(client, "/signin"), "secret": room.site.links.issue(LEAD)}
        assert (await client.post("/signin/link", data=form)).headers["location"] == path
        form = {"csrf": await csrf(client, "/signin"), "secret": room.site.links.issue(ANA)}
        assert (await client.post("/signin/link", data=form)).headers["location"] == "/"


@pytest.mark.parametrize(
    "path", ["//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", ""]
)
def test_after_signing_in_one_never_lands_elsewhere(path) -> None:
    session: dict[str, object] = {}
    remember_place(session, path)

    assert place_asked_for(session) == "/"
    assert session == {}


def test_what_was_asked_for_fits_into_a_cookie() -> None:
    session: dict[str, object] = {}
    remember_place(session, "/", "user=" + "x" * 5_000)

    assert place_asked_for(session) == "/"


async def test_files_are_kept_by_browsers_under_the_address_of_their_version_alone(room) -> None:
    async with room.client() as client:
        page = (await client.get("/signin")).text
        kept = await client.get(f"/static/{VERSION}/drafts.js")
        asked_about = await client.get("/static/drafts.js")
        other = await client.get("/static/000000000000/drafts.js")

    assert f'src="/static/{VERSION}/console.js"' in page
    assert "immutable" in kept.headers["cache-control"]
    assert asked_about.headers["cache-control"] == "no-cache"
    assert kept.text == asked_about.text
    assert other.status_code == 404


def of_source(name: str, **changes):
    """A claim whose producer says where it comes from."""
    given = make_decision(name, **changes)
    metadata = {"page": {"title": "<b>Kilns</b>"}, "tags": ["clay"]}
    return given | {"evidence": given["evidence"] | {"source_id": "doc 7/a?b", "metadata": metadata}}


@pytest.mark.parametrize("typed", ["c-77", "zoe@", "doc 7"])
async def test_an_item_is_found_by_its_id_its_user_and_its_source(room, lead, typed) -> None:
    found, _ = room.add(of_source("c-77", user_id="zoe@acme.example"), make_decision("c-78"))
    answer = (await lead.post("/api/queue/search", json={"search": typed})).json()
    assert [one["id"] for one in answer["items"]] == [found]


async def test_a_page_says_which_of_how_many_it_is(room, browser) -> None:
    room.add(*(make_decision(f"c-{number}") for number in range(3)))
    items = (await browser.get("/api/queue?sort=newest")).json()["items"]
    page = (await browser.get(f"/items/{items[1]['id']}?sort=newest")).text
    assert '<span id="place">2 of 3</span>' in page


async def test_a_source_id_leads_where_the_settings_say_and_metadata_is_folded() -> None:
    for template, link in (
        (None, None),
        ("https://wiki.acme.example/{source_id}?v=1", "doc%207%2Fa%3Fb?v=1"),
    ):
        room = make_room(source_url=template)
        (item,) = room.add(of_source("c-1"))
        async with room.client("lead-token") as client:
            origin = (await client.get(f"/api/items/{item}")).json()["origin"]
            page = (await client.get(f"/items/{item}")).text
        assert origin["url"] == (link and f"https://wiki.acme.example/{link}")
        assert origin["metadata"][0] == {"name": "page", "value": "title: <b>Kilns</b>"}
        assert "<details><summary>Metadata, 2</summary>" in page
        assert "title: &lt;b&gt;Kilns" in page


@pytest.mark.parametrize(
    "template", ["javascript:{source_id}", "https://{source_id}/", "https://wiki.acme.example/"]
)
def test_an_address_of_sources_that_could_lead_anywhere_is_refused(template) -> None:
    with pytest.raises(ValueError, match="source_url"):
        make_room(source_url=template)


async def views(client) -> dict[str, str]:
    return {view["name"]: view["query"] for view in (await client.get("/api/queue")).json()["views"]}


async def test_a_view_is_saved_for_its_person_alone_replaced_and_removed(room, browser) -> None:
    form = {"csrf": await csrf(browser), "name": "  Old   hedges "}
    saved = await browser.post("/views", data=form | {"query": "reason=technical_hedge&age=over_1d&cursor=x"})
    assert saved.headers["location"] == "/?reason=technical_hedge&age=over_1d"
    assert await views(browser) == {"Old hedges": "reason=technical_hedge&age=over_1d"}
    page = (await browser.get(saved.headers["location"])).text
    assert 'href="/?reason=technical_hedge&amp;age=over_1d" aria-current="true"' in page
    async with room.client("ana-token") as other:
        assert await views(other) == {}
    await browser.post("/views", data=form | {"query": "sort=oldest"})
    assert await views(browser) == {"Old hedges": "sort=oldest"}
    await browser.post("/views", data=form | {"remove": "yes"})
    assert await views(browser) == {}


async def test_what_is_no_filter_or_no_name_is_not_saved_and_twenty_are_all(room, lead) -> None:
    for name in ("", " ", "a\u202eb", "x" * 61):
        assert (await lead.post("/api/views", json={"name": name, "query": "sort=oldest"})).status_code == 400
    odd = await lead.post("/api/views", json={"name": "odd", "query": "colour=red&search=secret"})
    assert (odd.status_code, await views(lead)) == (400, {})
    await lead.post("/api/views", json={"name": "odd", "query": ""})
    for number in range(19):
        assert (await lead.post("/api/views", json={"name": str(number)})).status_code == 200
    assert (await lead.post("/api/views", json={"name": "one more"})).status_code == 409
    assert (await lead.post("/api/views", json={"name": "odd", "query": "sort=newest"})).status_code == 200

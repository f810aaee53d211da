"""Lists: filters, search and pages in a URL, the way back from an item, and where signing in leads."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import pytest

from groundwire.console.auth import place_asked_for, remember_place
from groundwire.console.pages import VERSION
from tests.unit.console.rooms import (
    ANA,
    ITEM,
    LEAD,
    Html,
    approved,
    blocked,
    csrf,
    html,
    make_decision,
    make_room,
)


async def test_the_queue_filters_orders_searches_and_pages_by_its_query(room, lead) -> None:
    room.add(
        *(make_decision(f"c-{number}", f"Text {number}.") for number in range(60)),
        make_decision("conflict", "Text.", reason_code="conflicting_near_duplicate", user_id="ben"),
    )
    first = (await lead.get("/api/queue")).json()
    second = (await lead.get(first["older"].replace("/?", "/api/queue?"))).json()
    found = {}
    for query in ("user=ben&reason=conflicting_near_duplicate", "search=confl", "search=BEN", "age=over_1d"):
        items = (await lead.get(f"/api/queue?{query}")).json()["items"]
        found[query] = [item["subject_id"] for item in items]
    refused = ("reason=nonsense", "text=x", "cursor=x", f"search={'x' * 201}")
    statuses = [(await lead.get(f"/api/queue?{query}")).status_code for query in refused]

    assert (first["total"], len(first["items"]), len(second["items"])) == (61, 50, 11)
    assert first["items"][0]["subject_id"] == "conflict"
    assert list(found.values()) == [["conflict"], ["conflict"], ["conflict"], []]
    assert statuses == [400] * 4
    gauges = {gauge["name"]: (gauge["used"], gauge["limit"]) for gauge in first["gauges"]}
    assert gauges["total"] == (61, 10_000)


async def test_a_search_says_how_much_of_the_queue_it_shows_and_how_to_clear_it(room, browser) -> None:
    room.add(*(make_decision(f"c-{number}", f"Water {number}.") for number in range(3)))
    room.add(make_decision("c-9", "Fire."))
    found, none, odd, filtered, cleared = [
        await html(browser, f"/?{query}")
        for query in ("search=water", "search=nothing", "search=%3Cb%3E", "memory_type=fact", "search=")
    ]

    assert "3 of 4 search: water Clear" in found.words
    assert found.one("input", id="search")["value"] == "water"
    assert "0 of 4 search: nothing Clear" in none.words
    assert "Queue 4" in none.words
    assert "Nothing matches." in none.words
    assert "0 of 4 search: <b> Clear" in odd.words
    assert "4 of 4 1 filter Clear" in filtered.words
    assert cleared.all(id="matches") == []


async def test_each_list_is_searched_exported_and_returned_to_from_an_item(room, lead, browser) -> None:
    for listed, made in (("approved", approved), ("blocked", blocked)):
        room.add(made(f"{listed}-1", content="Water is wet."), made(f"{listed}-2", content="Fire is hot."))
        found = (await lead.get(f"/api/{listed}?search=WAT")).json()
        page, none, cleared = [
            await html(browser, f"/{listed}{query}") for query in ("?search=fire", "?search=nothing", "")
        ]
        item = await html(browser, page.one(class_="open")["href"])
        exported = next(one["href"] for one in page.all("a") if ".csv" in one.attributes.get("href", ""))

        assert [row["subject_id"] for row in found["rows"]] == [f"{listed}-1"]
        assert (found["total"], found["in_all"], found["search"]) == (1, 2, "WAT")
        assert "1 of 2 search: fire Clear" in page.words
        assert "0 of 2 search: nothing Clear Nothing matches." in none.words
        assert cleared.all(id="matches") == []
        assert item.one(id="to-queue")["href"] == f"/{listed}?search=fire"
        assert exported == f"/api/export/{listed}.csv?search=fire"
        assert (await browser.get(exported)).text.count("\r\n") == 2


async def test_an_item_leads_back_to_the_page_of_the_list_that_it_was_opened_from(room, browser) -> None:
    room.add(*(approved(f"c-{number:02}") for number in range(60)), make_decision("risky"))
    place = (await html(browser, "/approved")).one("a", rel="next")["href"]
    opened = (await html(browser, place)).all(class_="open")[0]["href"]
    page = await html(browser, opened)
    path, form = (
        opened.partition("?")[0],
        page.one("form", method="post", action=f"{opened.partition('?')[0]}/actions"),
    )
    sent = {"csrf": await csrf(browser), "action": "retract", "revision": "1"}
    query = {one["value"] for one in page.all("input", name="query")}.pop()
    refused = await browser.post(f"{path}/actions", data={**sent, "query": query})
    done = await browser.post(f"{path}/actions", data={**sent, "query": query, "reason": "other"})
    other = (await html(browser, "/approved")).all(class_="open")[0]["href"]
    plain = await browser.post(f"{other.partition('?')[0]}/actions", data={**sent, "reason": "other"})
    queued = await html(browser, f"{path}?from=//evil.example&kind=claim")

    assert place.startswith("/approved?cursor=")
    assert form["action"].endswith("/actions")
    for shown in (page, Html(refused.text)):
        assert (shown.one(id="to-queue")["href"], shown.one(id="to-queue").text) == (place, "Approved")
        assert shown.all(id="next") == []
    assert (done.headers["location"], plain.headers["location"]) == (place, "/approved")
    assert queued.one(id="to-queue")["href"] == "/?kind=claim"


async def test_a_list_says_what_it_shows_and_names_each_item_and_its_reason(room, lead) -> None:
    response = {"kind": "response", "evidence": None, "facts": {"clock": "2026-01-31T12:00:00Z"}}
    ids = room.add(
        make_decision("answer-1", **response, reason_code="critical_gap"), approved("c-1"), blocked("c-2")
    )
    for path, subject in (("/responses", "answer-1"), ("/approved", "c-1"), ("/blocked", "c-2")):
        page = await html(lead, path)
        assert [one.text for one in page.all(class_="id")] == [subject]
        assert page.one(class_="note about").text
        if path == "/responses":
            assert page.one(title="critical_gap").text == "critical statement unsupported"
    risks = [(await lead.get(f"/api/items/{one}")).json()["risk"] for one in ids]
    assert risks == [None, None, None], "only a pending item has a risk"


async def test_a_held_action_says_for_how_many_seconds_it_can_be_undone(room, lead) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    await lead.post(f"/api/items/{decision_id}/actions", json=ITEM)
    left = []
    for seconds in (0, 1.5, 3):
        room.clock.forward(seconds=seconds)
        (row,) = (await lead.get("/api/queue")).json()["items"]
        left.append(row["undo_left"])

    assert left == [5, 4, 1]
    assert "approved by lead; can be undone for 1 s" in (await html(lead, "/")).words


async def test_signing_out_says_what_happens_to_held_actions_and_how_to_sign_in_again() -> None:
    room = make_room(one_time=LEAD)
    (decision_id,) = room.add(make_decision("c-1"))
    async with room.browser() as browser:
        room.site.links.redeem(room.secret or "")
        token = await csrf(browser)
        form = {"csrf": token, "action": "approve", "revision": "1"}
        await browser.post(f"/items/{decision_id}/actions", data=form)
        await browser.post("/signout", data={"csrf": token})
        first, second = [(await html(browser, "/signin")).words for _ in range(2)]
    await room.released()

    assert "1 action that you could still undo will be published" in first
    assert "will be published" not in second
    assert "make demo-console" in first
    assert "groundwire console --one-time-link" in first
    assert len(room.recorder.sent) == 1


async def test_signing_in_leads_to_the_page_that_was_asked_for_and_never_elsewhere(room) -> None:
    for path in ("/approved", "/?kind=claim&sort=oldest", "/status"):
        async with room.client() as client:
            await client.get(path)
            for person, place in ((LEAD, path), (ANA, "/")):
                form = {"csrf": await csrf(client, "/signin"), "secret": room.site.links.issue(person)}
                assert (await client.post("/signin/link", data=form)).headers["location"] == place
    elsewhere = ("//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "")
    for path, query in (*((one, "") for one in elsewhere), ("/", "user=" + "x" * 5_000)):
        session: dict[str, object] = {}
        remember_place(session, path, query)  # one that does not fit into a cookie loses its query
        assert (place_asked_for(session), session) == ("/", {})


async def test_browsers_keep_static_files_under_the_address_of_their_version_alone(room) -> None:
    async with room.client() as client:
        page = await html(client, "/signin")
        kept, asked_about, other = [
            await client.get(f"/static/{place}drafts.js") for place in (f"{VERSION}/", "", "000000000000/")
        ]

    assert f"/static/{VERSION}/console.js" in [one["src"] for one in page.all("script")]
    assert "immutable" in kept.headers["cache-control"]
    assert asked_about.headers["cache-control"] == "no-cache"
    assert kept.text == asked_about.text
    assert other.status_code == 404


async def test_an_item_is_found_by_its_ids_and_its_source_id_leads_where_the_settings_say() -> None:
    given = make_decision("c-77", user_id="zoe@acme.example")
    metadata = {"page": {"title": "<b>Kilns</b>"}, "tags": ["clay"]}
    given |= {"evidence": given["evidence"] | {"source_id": "doc 7/a?b", "metadata": metadata}}
    link = "https://wiki.acme.example/doc%207%2Fa%3Fb?v=1"
    for template, url in ((None, None), ("https://wiki.acme.example/{source_id}?v=1", link)):
        room = make_room(source_url=template)
        found, _ = room.add(given, make_decision("c-78"))
        async with room.client("lead-token") as client:
            for typed in ("c-77", "zoe@", "doc 7"):
                items = (await client.get("/api/queue", params={"search": typed})).json()["items"]
                assert [one["id"] for one in items] == [found]
            origin = (await client.get(f"/api/items/{found}")).json()["origin"]
            page = await html(client, f"/items/{found}")
        assert origin["url"] == url
        assert origin["metadata"][0] == {"name": "page", "value": "title: <b>Kilns</b>"}
        assert "Metadata, 2" in page.one(id="origin").text
        assert "title: <b>Kilns" in page.one(id="origin").text
    for wrong in ("javascript:{source_id}", "https://{source_id}/", "https://wiki.acme.example/"):
        with pytest.raises(ValueError, match="source_url"):
            make_room(source_url=wrong)


async def test_a_page_says_which_of_how_many_it_is_and_keeps_the_query_of_its_list(room, browser) -> None:
    room.add(*(make_decision(f"c-{number}") for number in range(3)))
    items = (await browser.get("/api/queue?sort=newest&search=water")).json()["items"]
    page = await html(browser, f"/items/{items[1]['id']}?sort=newest&search=water")
    assert page.one(id="place").text == "2 of 3"
    query = parse_qs(urlsplit(page.one(id="next")["href"]).query)
    assert query == {"sort": ["newest"], "search": ["water"]}

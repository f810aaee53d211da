"""Pages show every text as text; lists have filters, search and pages in a URL, and leave as files."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.console import words
from groundwire.console.auth import place_asked_for, remember_place
from groundwire.console.cited import CitedTexts
from groundwire.console.evidence import citations, marked
from groundwire.console.pages import VERSION
from groundwire.messages.base import to_milliseconds
from groundwire.messages.decisions import AuditEvent
from groundwire.messages.headers import InboundRecord
from groundwire.messages.topics import TopicName
from groundwire.text.visible import INVISIBLE, hidden
from groundwire.verify.citations import CitationVerifier, Sources
from tests.unit.console.rooms import (
    ANA,
    ITEM,
    LEAD,
    NOW,
    Html,
    approved,
    blocked,
    compared,
    make_decision,
    make_room,
)

odd = st.sampled_from("<>&\"' \n\u202e\u200b\U0001f600e\u0301")
texts = st.text(alphabet=st.one_of(st.characters(codec="utf-8"), odd), max_size=60)
kinds = st.sampled_from(["quote", "hedge-review", "citation-unknown"])
marks = st.builds(words.TextMark, st.integers(-5, 70), st.integers(-5, 70), kinds, st.just("t"))


@given(texts, st.lists(marks, max_size=12))
def test_marks_over_any_text_never_lose_add_or_change_a_character(text, given_marks) -> None:
    found = words.segments(text, given_marks)
    assert "".join(segment.text for segment in found) == text
    place = 0
    for segment in found:
        for at in range(place, place + len(segment.text)):
            assert set(segment.marks) == {
                words.TextMark(max(0, one.start), min(len(text), one.end), one.kind, one.title)
                for one in given_marks
                if one.start <= at < one.end
            }
        place += len(segment.text)


@given(texts)
async def test_a_page_shows_any_text_as_it_is(text) -> None:
    text = text.replace("\x00", "") or "x"
    room = make_room()
    cut = len(text) // 2
    hedges = [{"text": text[:cut], "category": "c", "action": "review", "start": 0, "end": cut}]
    (decision_id,) = room.add(make_decision("c-1", text, hedges=hedges))
    async with room.client("lead-token") as client:
        page = Html((await client.get(f"/items/{decision_id}")).content.decode())
        twin = (await client.get(f"/api/items/{decision_id}")).json()
    assert page.one(id="text").text == text
    # the first line end of a text area is left out by browsers
    assert page.one(id="content").text == "\n" + text
    assert "".join(segment["text"] for segment in twin["segments"]) == text


@given(texts, texts)
def test_a_difference_adds_up_to_both_texts(old, new) -> None:
    changes = [(change["operation"], change["text"]) for change in words.word_diff(old, new)]
    assert "".join(text for operation, text in changes if operation != "insert") == old
    assert "".join(text for operation, text in changes if operation != "delete") == new
    assert all(text for _, text in changes)


def test_texts_codes_and_numbers_are_shown_as_words() -> None:
    changes = words.word_diff("closes after 40 entries", "closes after 400 entries")
    assert [one["text"] for one in changes] == ["closes after ", "40", "400", " entries"]
    assert [one["operation"] for one in changes] == ["equal", "delete", "insert", "equal"]
    assert words.label("citation_unverified") == "citation not verified"
    assert words.number(12_345) == "12\u202f345"
    ages = [words.age(seconds) for seconds in (3, 60, 7_300, 200_000)]
    assert ages == ["just now", "1 minute ago", "2 hours ago", "2 days ago"]
    quotes = words.quote_marks("say what is said", ["is", "IS", "", "said"])
    assert [(one.start, one.end) for one in quotes] == [(9, 11), (12, 16)], (
        "where they stand letter for letter"
    )


async def test_every_invisible_character_is_marked_and_keeps_a_row_from_quick_approval(room, lead) -> None:
    unseen = re.findall(f"[{INVISIBLE}]", "".join(map(chr, range(0x110000))))
    assert [char for char in unseen if not words.hidden_marks(f"a{char}b")] == []
    assert [char for char in unseen if not hidden(f" {char} ")] == []
    assert words.hidden_marks("\u2764\ufe0f") == [], "a selector behind an emoji shows"
    found = marked(make_decision("c-1"), "a\u202eb\u200bc\td\n")["segments"]
    assert [part["title"] for part in found if "hidden" in part["kinds"]] == ["U+202E", "U+200B"]
    some = unseen[:: len(unseen) // 40]
    room.add(*(make_decision(f"c-{n}", f"The limit is {char} five.") for n, char in enumerate(some)))
    room.add(make_decision("heart", "We \u2764\ufe0f tea."), make_decision("letter", "We a\ufe0f tea."))
    items = (await lead.get("/api/queue")).json()["items"]
    assert len(items) == len(some) + 2
    assert [item["subject_id"] for item in items if item["whole"]] == ["heart"]


async def test_a_verified_citation_shows_what_it_names_and_a_console_that_cannot_read_it_says_so(
    room, lead, tmp_path
):
    (tmp_path / "ADR-003-retries.md").write_text("# Retries\n\nA call is retried three times.\n")
    cited = {
        "type": "adr",
        "value": "003",
        "start": 0,
        "end": 7,
        "state": "verified",
        "detail": "",
        "checked_at": None,
    }
    room.add(make_decision("c1", "ADR-003 says so.", citations=[cited]))
    (row,) = (await lead.get("/api/queue")).json()["items"]
    assert "This console cannot read it now" in (await lead.get(f"/items/{row['id']}")).text
    room.site.cited = CitedTexts(CitationVerifier({"*": Sources(adr_dir=tmp_path)}, network=False))
    words = Html((await lead.get(f"/items/{row['id']}")).text).words
    assert "Retries A call is retried three times." in words


async def test_only_what_the_gate_found_on_the_web_is_a_link_and_it_sends_no_referrer(room, lead) -> None:
    linked = ["https://docs.example/a?b=c#d", "http://docs.example"]
    cases = [(value, "verified") for value in linked]
    cases += [("https://docs.example", state) for state in ("unknown", "not_found", "not_checked")]
    cases += [
        (value, "verified")
        for value in (
            *("javascript:alert(1)", "JAVASCRIPT://docs.example/%0aalert(1)", "data:text/html,x", "https://"),
            *("//docs.example", "https://docs.example@evil.example", "https://d\u043ecs.example"),
            *("https://docs.example/\u202egnp", "https://[::1", "java\nscript:x"),
        )
    ]
    span = {"type": "url", "start": 0, "end": 1, "detail": "", "checked_at": None}
    given = [{**span, "value": value, "state": state} for value, state in cases]
    urls = [one["url"] for one in citations({"citations": given})]
    assert urls == linked + [None] * (len(cases) - 2)
    (decision_id,) = room.add(make_decision("c-1", citations=given[:1]))
    links = (await lead.html(f"/items/{decision_id}")).all("a")
    elsewhere = [(one["href"], one["rel"]) for one in links if urlsplit(one["href"]).netloc]
    assert elsewhere == [(linked[0], "noopener noreferrer")]


async def test_hostile_text_stays_text_on_every_page_and_none_has_a_script_or_style(room, browser) -> None:
    """In every field that a producer, a person or a check fills."""
    hostile = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 }}{% raw %}</textarea>&lt;"
    clock, span = "2026-01-31T12:00:00Z", {"start": 5, "end": 40}
    hedge = {"text": hostile, "category": hostile, "action": "review", **span}
    citation = {"type": hostile, "value": hostile, "state": "unknown", "detail": hostile, "checked_at": None}
    match = {"subject_id": hostile, "inter": 9, "union": 10, "difference": hostile, "class": "approved"}
    facts = {"clock": clock, "place": "free", "dedup": {"status": "ok", "scheme": "s", "matches": [match]}}
    checks = {f"checks_{result}": [f"{hostile}: {hostile}"] for result in ("passed", "failed", "skipped")}
    names = {"user_id": hostile, "source": hostile, "reason": hostile, "memory_type": hostile}
    common: dict[str, Any] = {**names, **checks, "hedges": [hedge], "citations": [citation | span]}
    quotes = {"validated": {hostile: [hostile]}}
    warnings = [{"type": hostile, "message": hostile}]
    report = {"warnings": warnings, "quotes": quotes, hostile: {hostile: hostile}}
    origin = make_decision("x")["origin"] | {"topic": hostile}
    policy = {"policy": {"version": hostile, "sha256": hostile}, "engine": hostile, "origin": origin}
    review = {"action": hostile, "action_id": "a", "reviewer": hostile, "reason": hostile}
    response = {**common, "kind": "response", "evidence": None, "report": report, "facts": {"clock": clock}}
    near = {"facts": facts, "conflicting_memory_id": hostile}
    ids = room.add(
        make_decision("c-1" + hostile, hostile, **common, **policy, **near),
        approved(hostile, content=hostile, **common),
        blocked("c-2" + hostile, hostile, **common),
        make_decision("c-3" + hostile, hostile, **common, facts={**facts, "review": review}),
        make_decision("r" + hostile, **response),
    )
    detail = {"action_id": "a", "action": hostile, "outcome": hostile}
    event = {"event_id": "e", "type": "refused_action", "at": NOW, "tenant_id": "acme", "actor": hostile}
    event = AuditEvent(**event, subject_id=hostile, decision_id=ids[0], detail=detail)
    value = event.model_dump_json().encode()
    room.board.add([InboundRecord(TopicName.AUDIT, 0, 0, to_milliseconds(NOW), b"", value)])
    owner = {"tenant_id": "acme", "user_id": hostile, "subject_id": "c-1" + hostile, "action_id": "b"}
    note = {
        **owner,
        "expected_revision": 1,
        "action": "comment",
        "reviewer": "ben",
        "note": f"who says {hostile}",
    }
    detail = {
        "kind": "claim",
        "user_id": hostile,
        "action_id": "b",
        "action": "comment",
        "outcome": "commented",
    }
    event = {"event_id": "f", "type": "review_action", "at": NOW, "tenant_id": "acme", "actor": "ben"}
    event = AuditEvent(**event, subject_id=owner["subject_id"], decision_id=ids[0], detail=detail)
    for topic, value in (
        (TopicName.AUDIT, event.model_dump_json().encode()),
        (TopicName.REVIEW_DECISIONS, json.dumps(note).encode()),
    ):
        room.board.add([InboundRecord(topic, 0, 1, to_milliseconds(NOW), b"", value)])
    paths = ["/", "/responses", "/approved", "/blocked", "/dead-letters", "/status"]
    paths += [f"/items/{one}" for one in ids]
    pages = [await browser.get(path) for path in paths]
    token = await browser.csrf()
    await browser.post(f"/items/{ids[0]}/actions", data={"csrf": token, "action": "approve", "revision": "1"})
    pages.append(await browser.get("/"))
    stale = {"csrf": token, "action": "approve", "revision": "7"}
    pages.append(await browser.post(f"/items/{ids[3]}/actions", data=stale))
    several = {"csrf": token, "action": "reject", "ids": [f"{one}:1" for one in ids], "note": hostile}
    pages.append(await browser.post("/bulk", data=several))
    pages.append(await browser.post("/bulk", data={**several, "reason": "other"}))
    asked = (("/", "search"), ("/approved", "search"), ("/", "user"))
    pages += [await browser.get(path, params={name: hostile}) for path, name in asked]
    statuses = [page.status_code for page in pages]
    assert statuses == [200] * (len(paths) + 1) + [409, 409, 207, 200, 200, 200]
    shown = [Html(page.text) for page in pages]
    assert f"who says {hostile}" in shown[6].words
    assert sum("alert(1)" in page.words for page in shown) >= len(pages) - 4
    for page in shown:
        scripts = [one.attributes.get("src", "") for one in page.all("script")]
        assert [source.rpartition("/")[2] for source in scripts] == ["guard.js", "console.js"]
        assert {one.attributes.get("src") for one in page.all("img")} == {"/static/icon.svg"}
        assert [one.text for one in page.all("script")] == ["", ""]
        assert page.all("style") == []
        for attributes in (one.attributes for one in page.elements):
            assert not [name for name in attributes if name.startswith("on") or name == "style"]
            targets = [attributes.get(name, "/") for name in ("href", "action", "src", "formaction")]
            assert [one for one in targets if not one.startswith(("/", "#"))] == []


async def test_page_and_api_show_the_same_of_an_item(room, lead) -> None:
    known = approved("c-0", content="Water is always wet.")
    facts = compared("c-0", difference="negation")
    _, decision_id = room.add(known, make_decision("c-1", "Water is never wet.", facts=facts))
    twin = (await lead.get(f"/api/items/{decision_id}")).json()
    page = await lead.html(f"/items/{decision_id}")
    (memory,) = twin["memories"]
    assert memory["difference"] == "negation"
    assert [change["text"] for change in memory["changes"]] == ["Water is ", "always", "never", " wet."]
    assert [(one.tag, one.text) for one in page.all() if one.tag in ("del", "ins")][:2] == [
        ("del", "always"),
        ("ins", "never"),
    ]
    assert twin["source"]["facts"][0] == {"name": "approved", "value": 1}
    assert {"result": "failed", "name": "citation_missing", "detail": ""} in twin["checks"]
    assert "75% of the words in common" in page.words
    assert "came in on" in page.words
    assert "retracted" not in page.words
    room.add(blocked("c-0", revision=2, reason_code="retracted"))
    assert "approved then; retracted since" in (await lead.html(f"/items/{decision_id}")).words


async def test_an_item_names_what_it_rests_on_and_what_rests_on_it(room, browser, lead) -> None:
    child, _, _ = room.add(
        make_decision("child", derived_from=["base", "gone"]),
        approved("other", derived_from=["base"], user_id="ben"),
        approved("heir", derived_from=["base"]),
    )
    (base,) = room.add(approved("base", content="What all rests on."))
    before = (await lead.get(f"/api/items/{base}")).json()
    (now,) = room.add(blocked("base", "What all rests on.", revision=2, reason_code="retracted"))
    after, rests = [(await lead.get(f"/api/items/{one}")).json() for one in (now, child)]
    page, told = [await browser.html(f"/items/{one}") for one in (child, now)]
    assert [one["name"] for one in before["resting"]] == ["heir"]
    assert after["resting"] == before["resting"]
    states = [(one["name"], one["state"]) for one in rests["rests_on"]]
    assert states == [("base", "retracted"), ("gone", None)]
    assert rests["rests_on"][0]["excerpt"] == "What all rests on."
    assert f"/items/{now}" in [one["href"] for one in page.all("a")]
    assert "1 approved claim is based on it; they stay approved." in told.words


async def test_the_standing_of_an_item_changes_when_it_was_decided_elsewhere_or_is_acted_on(room) -> None:
    (item,) = room.add(make_decision("c-1"))
    async with room.client("lead-token") as client, room.client("eve-token") as stranger:
        first, again = [(await client.get(f"/api/items/{item}")).json()["standing"] for _ in range(2)]
        await client.post(f"/api/items/{item}/actions", json={"action": "approve", "revision": 1})
        acted = (await client.get(f"/api/items/{item}/standing")).json()
        (now,) = room.add(approved("c-1", revision=2, reason_code="human_approved"))
        decided = (await client.get(f"/api/items/{item}/standing")).json()
        assert (await stranger.get(f"/api/items/{item}/standing")).status_code == 404
    assert first == again
    assert len({first, acted["standing"], decided["standing"]}) == 3
    assert decided["id"] == now


async def test_the_queue_filters_orders_and_searches_by_its_query(room, lead) -> None:
    room.add(
        *(make_decision(f"c-{number}", f"Text {number}.") for number in range(3)),
        make_decision("conflict", "Text.", reason_code="conflicting_near_duplicate", user_id="ben"),
    )
    first, found = (await lead.get("/api/queue")).json(), []
    for query in ("user=ben&reason=conflicting_near_duplicate", "search=confl", "search=BEN", "age=over_1d"):
        items = (await lead.get(f"/api/queue?{query}")).json()["items"]
        found.append([item["subject_id"] for item in items])
    refused = ("reason=nonsense", "text=x", "cursor=x", f"search={'x' * 201}")
    assert [(await lead.get(f"/api/queue?{query}")).status_code for query in refused] == [400] * 4
    assert (first["items"][0]["subject_id"], first["total"]) == ("conflict", 4)
    assert found == [["conflict"], ["conflict"], ["conflict"], []]
    gauges = {gauge["name"]: (gauge["used"], gauge["limit"]) for gauge in first["gauges"]}
    assert gauges["total"] == (4, 10_000)


async def test_each_list_is_searched_exported_and_returned_to_from_an_item(room, lead, browser) -> None:
    """And says how much of it a search shows, and how to clear that."""
    for listed, path, made in (
        ("queue", "/", make_decision),
        ("approved", "/approved", approved),
        ("blocked", "/blocked", blocked),
    ):
        room.add(made(f"{listed}-1", content="Water is wet."), made(f"{listed}-2", content="Fire is hot."))
        found = (await lead.get(f"/api/{listed}?search=WAT")).json()
        page, none, cleared = [
            await browser.html(f"{path}{query}") for query in ("?search=fire", "?search=nothing", "?search=")
        ]
        item = await browser.html(page.one(class_="open")["href"])
        exported = next(one["href"] for one in page.all("a") if ".csv" in one.attributes.get("href", ""))
        rows = found["items"] if listed == "queue" else found["rows"]
        assert [row["subject_id"] for row in rows] == [f"{listed}-1"]
        assert (found["total"], found.get("in_all", 2), found["search"]) == (1, 2, "WAT")
        assert "1 of 2 search: fire Clear" in page.words
        assert page.one("input", id="search")["value"] == "fire"
        assert "0 of 2 search: nothing Clear" in none.words
        assert "Nothing matches." in none.words
        assert listed != "queue" or "Queue 2" in none.words
        assert cleared.all(id="matches") == []
        assert item.one(id="to-queue")["href"] == f"{path}?search=fire"
        assert exported == f"/api/export/{listed}.csv?search=fire"
        assert (await browser.get(exported)).text.count("\r\n") == 2
    assert "2 of 2 1 filter Clear" in (await browser.html("/?memory_type=fact")).words


async def test_an_item_leads_back_to_the_page_of_the_list_that_it_was_opened_from(room, browser) -> None:
    room.add(*(approved(f"c-{number:02}") for number in range(60)), approved("fire", "Fire is hot."))
    place = (await browser.html("/approved?search=water")).one("a", rel="next")["href"]
    rows = (await browser.html(place)).all(class_="open")
    page = await browser.html(rows[0]["href"])
    path = rows[0]["href"].partition("?")[0]
    assert page.one("form", method="post", action=f"{path}/actions")
    sent = {"csrf": await browser.csrf(), "action": "retract", "revision": "1"}
    query = {one["value"] for one in page.all("input", name="query")}.pop()
    refused = await browser.post(f"{path}/actions", data={**sent, "query": query})
    done = await browser.post(f"{path}/actions", data={**sent, "query": query, "reason": "other"})
    other = (await browser.html("/approved")).all(class_="open")[0]["href"]
    plain = await browser.post(f"{other.partition('?')[0]}/actions", data={**sent, "reason": "other"})
    queued = await browser.html(f"{path}?from=//evil.example&kind=claim")
    assert parse_qs(urlsplit(place).query).keys() == {"search", "cursor"}
    assert len(rows) == 10
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
        page = await lead.html(path)
        assert [one.text for one in page.all(class_="id")] == [subject]
        assert page.one(class_="note about").text
        if path == "/responses":
            assert page.one(title="critical_gap").text == "no support for a critical statement"
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
    assert "approved by lead; can be undone for 1 s" in (await lead.html("/")).words


async def test_signing_out_says_what_happens_to_held_actions_and_how_to_sign_in_again() -> None:
    room = make_room(one_time=LEAD)
    (decision_id,) = room.add(make_decision("c-1"))
    async with room.browser() as browser:
        room.site.links.redeem(room.secret or "")
        token = await browser.csrf()
        form = {"csrf": token, "action": "approve", "revision": "1"}
        await browser.post(f"/items/{decision_id}/actions", data=form)
        await browser.post("/signout", data={"csrf": token})
        first, second = [(await browser.html("/signin")).words for _ in range(2)]
    await room.released()
    assert "1 action that you could still undo will now be published" in first
    assert "will be published" not in second
    assert "make demo-console" in first
    assert "groundwire console --one-time-link" in first
    assert len(room.recorder.sent) == 1


async def test_signing_in_leads_to_the_page_that_was_asked_for_and_never_elsewhere(room) -> None:
    for path in ("/approved", "/?kind=claim&sort=oldest", "/status"):
        async with room.client() as client:
            await client.get(path)
            for person, place in ((LEAD, path), (ANA, "/")):
                form = {"csrf": await client.csrf("/signin"), "secret": room.site.links.issue(person)}
                assert (await client.post("/signin/link", data=form)).headers["location"] == place
    elsewhere = ("//evil.example", "/\\evil.example", "https://evil.example", "javascript:alert(1)", "")
    for path, query in (*((one, "") for one in elsewhere), ("/", "user=" + "x" * 5_000)):
        session: dict[str, object] = {}
        remember_place(session, path, query)  # one that does not fit into a cookie loses its query
        assert (place_asked_for(session), session) == ("/", {})


async def test_browsers_keep_static_files_under_the_address_of_their_version_alone(room) -> None:
    async with room.client() as client:
        page = await client.html("/signin")
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
            page = await client.html(f"/items/{found}")
        assert origin["url"] == url
        assert origin["metadata"][0] == {"name": "page", "value": "title: <b>Kilns</b>"}
        assert "doc 7" in page.one(id="origin").text
        assert "title: <b>Kilns" in page.one(id="metadata").text
    for wrong in ("javascript:{source_id}", "https://{source_id}/", "https://wiki.acme.example/"):
        with pytest.raises(ValueError, match="source_url"):
            make_room(source_url=wrong)


async def test_the_next_page_and_its_items_keep_the_search_and_say_which_of_how_many(room, lead) -> None:
    room.add(
        *(make_decision(f"c-{number:02}") for number in range(60)), make_decision("fire", "Fire is hot.")
    )
    first = (await lead.get("/api/queue?sort=newest&search=water")).json()
    query = first["older"].partition("?")[2]
    second = (await lead.get(f"/api/queue?{query}")).json()
    ids = [item["id"] for item in (*first["items"], *second["items"])]
    page = await lead.html(f"/items/{ids[50]}?{query}")
    links = [urlsplit(page.one(id=name)["href"]) for name in ("previous", "next")]
    assert len(set(ids)) == first["total"] == second["total"] == 60
    assert (second["search"], page.one(id="place").text) == ("water", "51 of 60")
    assert [link.path for link in links] == [f"/items/{ids[at]}" for at in (49, 51)]
    for link in links:
        assert parse_qs(link.query).items() >= {"sort": ["newest"], "search": ["water"]}.items()


async def exported(client: Any, path: str) -> list[Any]:
    answer = await client.get(f"/api/export/{path}")
    assert answer.status_code == 200
    assert answer.headers["content-disposition"].startswith("attachment")
    if ".jsonl" in path:
        return [json.loads(line) for line in answer.text.splitlines()]
    assert answer.content.startswith(codecs.BOM_UTF8 + b"id,"), "a spreadsheet is told that it is UTF-8"
    return list(csv.DictReader(io.StringIO(answer.content.decode("utf-8-sig"))))


async def test_a_file_holds_all_pages_of_a_list_under_its_filters_as_its_reader_sees_it(room, lead) -> None:
    room.add(*(make_decision(f"c-{number}") for number in range(450)), approved("done"))
    room.add(make_decision("bens", user_id="ben"), make_decision("ice", "Größe 7 μm."))
    for form in ("csv", "jsonl"):
        assert len({row["subject_id"] for row in await exported(lead, f"queue.{form}")}) == 452
        for query, found in (
            ("queue.{}?user=ben", "bens"),
            ("queue.{}?search=GRÖSSE", "ice"),
            ("approved.{}", "done"),
        ):
            rows = await exported(lead, query.format(form))
            assert [row["subject_id"] for row in rows] == [found]
    async with room.client("ben-token") as ben, room.client() as stranger:
        assert [row["subject_id"] for row in await exported(ben, "queue.jsonl")] == ["bens"]
        assert (await stranger.get("/api/export/queue.csv")).status_code == 401
    refused = await lead.get("/api/export/queue.csv?colour=red")
    assert (refused.status_code, "colour" in refused.json()["message"]) == (400, True)
    for path in ("queue.xls", "nothing.csv", "dead-letters.csv"):
        assert (await lead.get(f"/api/export/{path}")).status_code == 404
    texts = [
        f"{before}{sign}1+1"
        for sign in ("=", "+", "-", "@", "\uff1d", "\uff0b")
        for before in ("", "a;", "a|", "\u200b", "a; \u3164")
    ]
    room.add(*(approved(f"f-{n}", text) for n, text in enumerate(texts)))
    cells = [row["excerpt"] for row in await exported(lead, "approved.csv?search=1%2B1")]
    assert sorted(cell.replace("'", "") for cell in cells) == sorted(texts)
    assert [cell for cell in cells if "'" not in cell or cell.startswith("=")] == [], "no cell is a formula"

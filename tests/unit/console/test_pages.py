"""What pages show: every text as text, marks that lose nothing, differences that add up."""

from __future__ import annotations

import html
import json
import re
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from groundwire.console.evidence import citations, marked
from groundwire.console.words import TextMark, age, label, number, quote_marks, segments, share, word_diff
from groundwire.messages.base import format_time
from groundwire.messages.decisions import AuditEvent
from tests.unit.console.rooms import NOW, Room, approved, blocked, csrf, make_decision, make_room, search

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 }}{% raw %}</textarea>&lt;"
PAGES = ["/", "/responses", "/approved", "/blocked", "/sample", "/dead-letters", "/status"]

odd = st.sampled_from("<>&\"' \n\u202e\u200b\U0001f600e\u0301")
texts = st.text(alphabet=st.one_of(st.characters(codec="utf-8"), odd), max_size=60)
kinds = st.sampled_from(["quote", "hedge-review", "citation-unknown"])
marks = st.builds(TextMark, st.integers(-5, 70), st.integers(-5, 70), kinds, st.just("t"))


class Text(HTMLParser):
    """Collects the characters inside the element with an id, as a browser would."""

    def __init__(self, wanted: str) -> None:
        super().__init__(convert_charrefs=True)
        self.wanted, self.depth, self.found, self.tags = wanted, 0, "", []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if self.depth or dict(attrs).get("id") == self.wanted:
            self.depth += 1

    def handle_endtag(self, tag: str) -> None:  # noqa: ARG002 - its base
        self.depth -= bool(self.depth)

    def handle_data(self, data: str) -> None:
        self.found += data if self.depth else ""


def read(page: str, wanted: str) -> Text:
    parser = Text(wanted)
    parser.feed(page)
    return parser


def read_value(page: str, name: str) -> str:
    """Return the value of a form's hidden field."""
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None
    return html.unescape(found[1])


@pytest.fixture
def room() -> Room:
    return make_room(audit_share=1)


@given(texts, st.lists(marks, max_size=12))
def test_marks_over_any_text_never_lose_add_or_change_a_character(text, given_marks) -> None:
    found = segments(text, given_marks)

    assert "".join(segment.text for segment in found) == text
    place = 0
    for segment in found:
        for at in range(place, place + len(segment.text)):
            assert set(segment.marks) == {
                TextMark(max(0, one.start), min(len(text), one.end), one.kind, one.title)
                for one in given_marks
                if one.start <= at < one.end
            }
        place += len(segment.text)


@given(texts)
@settings(max_examples=60, deadline=None)
async def test_a_page_shows_any_text_as_it_is(text) -> None:
    text = text.replace("\x00", "") or "x"
    room = make_room()
    cut = len(text) // 2
    hedges = [{"text": text[:cut], "category": "c", "action": "review", "start": 0, "end": cut}]
    (decision_id,) = room.add(make_decision("c-1", text, hedges=hedges))
    async with room.client("lead-token") as client:
        page = (await client.get(f"/items/{decision_id}")).content.decode()
        twin = (await client.get(f"/api/items/{decision_id}")).json()

    assert read(page, "text").found == text
    # the first line end of a text area is left out by browsers
    assert read(page, "content").found == "\n" + text
    assert "".join(segment["text"] for segment in twin["segments"]) == text


@given(texts, texts)
def test_a_difference_adds_up_to_both_texts(old, new) -> None:
    changes = word_diff(old, new)

    assert "".join(change.text for change in changes if change.operation != "insert") == old
    assert "".join(change.text for change in changes if change.operation != "delete") == new
    assert all(change.text for change in changes)


def test_a_difference_is_of_words_and_tells_the_old_one_first() -> None:
    changes = word_diff("closes after 40 entries", "closes after 400 entries")

    assert [(change.operation, change.text) for change in changes] == [
        ("equal", "closes after "),
        ("delete", "40"),
        ("insert", "400"),
        ("equal", " entries"),
    ]


def test_characters_that_nobody_sees_are_named() -> None:
    found = marked(make_decision("c-1"), "a\u202eb\u200bc\td\n")["segments"]

    assert [(part["text"], part["title"]) for part in found if "hidden" in part["kinds"]] == [
        ("\u202e", "U+202E"),
        ("\u200b", "U+200B"),
    ]


def test_a_quote_is_marked_where_it_stands_letter_for_letter() -> None:
    assert quote_marks("say what is said", ["is", "IS", "", "said"]) == [
        TextMark(9, 11, "quote", "quote"),
        TextMark(12, 16, "quote", "quote"),
    ]


@pytest.mark.parametrize(
    ("value", "state", "linked"),
    [
        ("https://docs.example/a?b=c#d", "verified", True),
        ("http://docs.example", "verified", True),
        ("https://docs.example", "unknown", False),
        ("https://docs.example", "not_found", False),
        ("https://docs.example", "not_checked", False),
        ("javascript:alert(1)", "verified", False),
        ("JAVASCRIPT://docs.example/%0aalert(1)", "verified", False),
        ("data:text/html,x", "verified", False),
        ("//docs.example", "verified", False),
        ("https://", "verified", False),
        ("https://docs.example@evil.example", "verified", False),
        ("https://d\u043ecs.example", "verified", False),
        ("https://docs.example/\u202egnp", "verified", False),
        ("https://[::1", "verified", False),
        ("java\nscript:x", "verified", False),
    ],
)
def test_only_what_the_gate_found_on_the_web_is_a_link(value, state, linked) -> None:
    citation = {
        "type": "url",
        "value": value,
        "start": 0,
        "end": 1,
        "state": state,
        "detail": "",
        "checked_at": None,
    }
    (found,) = citations({"citations": [citation]})

    assert found["url"] == (value if linked else None)


async def test_links_to_elsewhere_tell_nothing_of_here(room, lead) -> None:
    citation = {"type": "url", "value": "https://docs.example/a", "start": 0, "end": 5, "state": "verified"}
    citation |= {"detail": "ok", "checked_at": "2026-01-31T12:00:00Z"}
    (decision_id,) = room.add(make_decision("c-1", citations=[citation]))
    page = (await lead.get(f"/items/{decision_id}")).text
    elsewhere = [
        attributes for tag, attributes in read(page, "").tags if urlsplit(attributes.get("href") or "").netloc
    ]

    assert [(one["href"], one["rel"]) for one in elsewhere] == [
        ("https://docs.example/a", "noopener noreferrer")
    ]


def hostile_records() -> list[dict[str, Any]]:
    """Return decisions with hostile text in every field that a producer, a person or a check fills."""
    clock = "2026-01-31T12:00:00Z"
    span = {"start": 5, "end": 40}
    hedge = {"text": HOSTILE, "category": HOSTILE, "action": "review", **span}
    citation = {
        "type": HOSTILE,
        "value": HOSTILE,
        "state": "unknown",
        "detail": HOSTILE,
        "checked_at": None,
        **span,
    }
    match = {"subject_id": HOSTILE, "inter": 9, "union": 10, "difference": HOSTILE, "class": "approved"}
    facts = {"clock": clock, "place": "free", "dedup": {"status": "ok", "scheme": "s", "matches": [match]}}
    checks = {f"checks_{result}": [f"{HOSTILE}: {HOSTILE}"] for result in ("passed", "failed", "skipped")}
    names = {"user_id": HOSTILE, "source": HOSTILE, "reason": HOSTILE, "memory_type": HOSTILE}
    common = {**names, **checks, "hedges": [hedge], "citations": [citation]}
    report = {
        "warnings": [{"type": HOSTILE, "message": HOSTILE}],
        "quotes": {"validated": {HOSTILE: [HOSTILE]}},
        HOSTILE: {HOSTILE: HOSTILE},
    }
    origin = make_decision("x")["origin"] | {"topic": HOSTILE}
    policy = {"policy": {"version": HOSTILE, "sha256": HOSTILE}, "engine": HOSTILE, "origin": origin}
    review = {"action": HOSTILE, "action_id": "a", "reviewer": HOSTILE, "reason": HOSTILE}
    response = {**common, "kind": "response", "evidence": None, "report": report, "facts": {"clock": clock}}
    return [
        make_decision(
            "c-1" + HOSTILE, HOSTILE, **common, **policy, facts=facts, conflicting_memory_id=HOSTILE
        ),
        approved(HOSTILE, content=HOSTILE, **common),
        blocked("c-2" + HOSTILE, HOSTILE, **common),
        make_decision("c-3" + HOSTILE, HOSTILE, **common, facts={**facts, "review": review}),
        make_decision("r" + HOSTILE, **response),
    ]


async def test_hostile_text_in_every_field_stays_text_on_every_page(room, browser) -> None:
    ids = room.add(*hostile_records())
    room.audit(
        AuditEvent(event_id="e", type="refused_action", at=NOW, tenant_id="acme", actor=HOSTILE, subject_id=HOSTILE,
                   decision_id=ids[0], detail={"action_id": "a", "action": HOSTILE, "outcome": HOSTILE})
    )  # fmt: skip
    pages = [await browser.get(path) for path in (*PAGES, *(f"/items/{one}" for one in ids))]
    token = await csrf(browser)
    await browser.post(f"/items/{ids[0]}/actions", data={"csrf": token, "action": "approve", "revision": "1"})
    pages.append(await browser.get("/"))
    stale = {"csrf": token, "action": "approve", "revision": "7"}
    pages.append(await browser.post(f"/items/{ids[3]}/actions", data=stale))
    several = {"csrf": token, "action": "reject", "ids": [f"{one}:1" for one in ids], "note": HOSTILE}
    pages.append(await browser.post("/bulk", data=several))
    pages.append(await browser.post("/bulk", data={**several, "reason": "other"}))
    pages.append(await browser.get(await search(browser, HOSTILE)))
    pages.append(await browser.get(f"/?user={HOSTILE.replace('&', '%26')}"))

    assert [page.status_code for page in pages] == [200] * (len(PAGES) + len(ids) + 1) + [
        409,
        409,
        207,
        200,
        200,
    ]
    assert sum("alert(1)" in html.unescape(page.text) for page in pages) >= len(pages) - 4
    for page in pages:
        tags = read(page.text, "").tags
        scripts = [attributes.get("src", "") for name, attributes in tags if name == "script"]
        assert [source.rpartition("/")[2] for source in scripts] == ["guard.js", "console.js"]
        assert not any(
            name == "img" and attributes.get("src") != "/static/icon.svg" for name, attributes in tags
        )
        for _, attributes in tags:
            assert not any(name.startswith("on") for name in attributes)
            for name in ("href", "action", "src", "formaction"):
                target = attributes.get(name)
                assert target is None or target.startswith(("/", "#")), target


async def test_the_twin_of_a_page_tells_what_it_tells(room, lead) -> None:
    known = approved("c-0", content="Water is always wet.", user_id="ana")
    match = {"subject_id": "c-0", "inter": 9, "union": 10, "difference": "negation", "class": "approved"}
    facts = {
        "clock": "2026-01-31T12:00:00Z",
        "place": "free",
        "dedup": {"status": "ok", "scheme": "s", "matches": [match]},
    }
    _, decision_id = room.add(known, make_decision("c-1", "Water is never wet.", facts=facts))
    twin = (await lead.get(f"/api/items/{decision_id}")).json()
    page = html.unescape((await lead.get(f"/items/{decision_id}")).text)

    assert twin["memories"][0]["difference"] == "negation"
    assert [change["text"] for change in twin["memories"][0]["changes"]] == [
        "Water is ",
        "always",
        "never",
        " wet.",
    ]
    assert "<del>always</del><ins>never</ins>" in page
    assert twin["source"]["facts"][0] == {"name": "approved so far", "value": 1}
    assert {"result": "failed", "name": "citation_missing", "detail": ""} in twin["checks"]
    assert "90%" in page
    assert "came in on" in page
    assert json.dumps(twin)


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
    page = (await browser.get(f"/items/{child}")).text
    told = (await browser.get(f"/items/{now}")).text

    assert [one["name"] for one in before["resting"]] == ["heir"]
    assert after["resting"] == before["resting"]
    assert [(one["name"], one["state"]) for one in rests["rests_on"]] == [
        ("base", "retracted"),
        ("gone", None),
    ]
    assert rests["rests_on"][0]["excerpt"] == "What all rests on."
    assert f'href="/items/{now}"' in page
    assert "1 approved claim rests on it; nothing is withdrawn with it." in told


async def test_from_a_list_one_goes_back_to_it_and_not_on_in_the_queue(room, browser) -> None:
    _, held, other = room.add(make_decision("risky"), approved("held"), approved("other"))
    listed = (await browser.get("/approved")).text
    page = (await browser.get(f"/items/{held}?from=approved")).text
    form = {"csrf": await csrf(browser), "action": "retract", "revision": "1", "reason": "outdated"}
    sent = {**form, "next": read_value(page, "next"), "query": read_value(page, "query")}
    answer = await browser.post(f"/items/{held}/actions", data=sent)
    plain = await browser.post(f"/items/{other}/actions", data=form)
    queued = (await browser.get(f"/items/{held}?from=//evil.example&kind=claim")).text

    assert f'href="/items/{held}?from=approved"' in listed
    assert '<a id="to-queue" href="/approved">Approved</a>' in page
    assert 'id="next"' not in page
    assert (answer.headers["location"], plain.headers["location"]) == ("/approved", "/approved")
    assert '<a id="to-queue" href="/?kind=claim">Queue</a>' in queued


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


async def test_the_nearest_memory_is_told_as_it_stands_now(room, browser) -> None:
    match = {"subject_id": "m", "inter": 2, "union": 4, "difference": "none", "class": "approved"}
    facts = {
        "clock": format_time(NOW),
        "place": "free",
        "dedup": {"status": "ok", "scheme": "s", "matches": [match]},
    }
    near, _ = room.add(make_decision("near", facts=facts), approved("m"))
    before = (await browser.get(f"/items/{near}")).text
    room.add(blocked("m", revision=2, reason_code="retracted"))
    after = (await browser.get(f"/items/{near}")).text

    assert ("retracted" in before, "approved then; retracted since" in after) == (False, True)


async def test_the_queue_filters_orders_and_pages_by_codes(room, lead) -> None:
    room.add(
        *(make_decision(f"c-{number}", f"Text {number}.") for number in range(60)),
        make_decision("conflict", "Text.", reason_code="conflicting_near_duplicate", user_id="ben"),
    )
    first = (await lead.get("/api/queue")).json()
    second = (await lead.get(first["older"].replace("/?", "/api/queue?"))).json()
    mine = (await lead.get("/api/queue?user=ben&reason=conflicting_near_duplicate")).json()
    young = (await lead.get("/api/queue?age=over_1d")).json()
    assert (await lead.get("/api/queue?reason=nonsense")).status_code == 400
    assert (await lead.get("/api/queue?text=x")).status_code == 400
    assert (await lead.get("/api/queue?cursor=x")).status_code == 400

    assert (first["total"], len(first["items"]), len(second["items"])) == (61, 50, 11)
    assert first["items"][0]["subject_id"] == "conflict"
    assert [item["subject_id"] for item in mine["items"]] == ["conflict"]
    assert young["total"] == 0
    assert {gauge["name"]: (gauge["used"], gauge["limit"]) for gauge in first["gauges"]}["total"] == (
        61,
        10_000,
    )


async def test_what_the_list_does_not_show_in_full_is_not_offered_for_approval_there(room, lead) -> None:
    room.add(make_decision("short"), make_decision("long", "word " * 60), make_decision("odd", "a\u200bb"))
    items = (await lead.get("/api/queue")).json()["items"]

    assert {item["subject_id"]: item["whole"] for item in items} == {
        "short": True,
        "long": False,
        "odd": False,
    }


async def test_the_blind_sample_hides_the_verdict_until_an_opinion_stands(room, lead) -> None:
    (decision_id,) = room.add(blocked("c-1", "A guess."))
    assert 'href="/sample"' in (await lead.get("/")).text
    (row,) = (await lead.get("/api/sample")).json()["rows"]
    assert not {"verdict", "reason_code", "tier"} & set(row)
    told = (await lead.post(f"/api/sample/{decision_id}", json={"opinion": "approve"})).json()
    assert (await lead.get("/api/sample")).json()["rows"] == []
    blind = (await lead.get("/api/status")).json()["judged"]["blind"]

    assert (told["verdict"], told["agrees"]) == ("blocked", False)
    assert blind == {"approved": 0, "approved_agreed": 0, "blocked": 1, "blocked_agreed": 0}


async def test_the_blind_sample_is_off_by_default() -> None:
    room = make_room()
    (decision_id,) = room.add(blocked("c-1", "A guess."))
    async with room.client("lead-token") as client:
        assert (await client.get("/api/sample")).json()["rows"] == []
        assert "Blind sample" not in (await client.get("/")).text
        assert (
            await client.post(f"/api/sample/{decision_id}", json={"opinion": "approve"})
        ).status_code == 404


def test_numbers_and_codes_read_as_words() -> None:
    assert label("citation_unverified") == "citation not verified"
    assert number(12_345) == "12\u202f345"
    assert [age(seconds) for seconds in (3, 60, 7_300, 200_000)] == [
        "just now",
        "1 minute ago",
        "2 hours ago",
        "2 days ago",
    ]
    assert (share(1, 3), share(0, 0)) == ("33%", "\u2013")

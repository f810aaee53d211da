"""Pages show every text as text, marks that lose nothing, and differences that add up."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from hypothesis import given
from hypothesis import strategies as st

from groundwire.console.evidence import citations, marked
from groundwire.console.words import (
    TextMark,
    age,
    hidden_marks,
    label,
    number,
    quote_marks,
    segments,
    word_diff,
)
from groundwire.messages.decisions import AuditEvent
from groundwire.review.actions import is_blank
from groundwire.text.visible import INVISIBLE
from tests.unit.console.rooms import (
    NOW,
    Html,
    approved,
    blocked,
    compared,
    csrf,
    html,
    make_decision,
    make_room,
)

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 }}{% raw %}</textarea>&lt;"
PAGES = ["/", "/responses", "/approved", "/blocked", "/dead-letters", "/status"]

odd = st.sampled_from("<>&\"' \n\u202e\u200b\U0001f600e\u0301")
texts = st.text(alphabet=st.one_of(st.characters(codec="utf-8"), odd), max_size=60)
kinds = st.sampled_from(["quote", "hedge-review", "citation-unknown"])
marks = st.builds(TextMark, st.integers(-5, 70), st.integers(-5, 70), kinds, st.just("t"))


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
    changes = word_diff(old, new)

    assert "".join(change["text"] for change in changes if change["operation"] != "insert") == old
    assert "".join(change["text"] for change in changes if change["operation"] != "delete") == new
    assert all(change["text"] for change in changes)


def test_a_difference_is_of_words_and_tells_the_old_one_first() -> None:
    changes = word_diff("closes after 40 entries", "closes after 400 entries")

    assert [(change["operation"], change["text"]) for change in changes] == [
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


def test_only_what_the_gate_found_on_the_web_is_a_link() -> None:
    cases = (
        ("https://docs.example/a?b=c#d", "verified", True),
        ("http://docs.example", "verified", True),
        *(("https://docs.example", state, False) for state in ("unknown", "not_found", "not_checked")),
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
    )
    span = {"type": "url", "start": 0, "end": 1, "detail": "", "checked_at": None}
    found = citations({"citations": [{**span, "value": value, "state": state} for value, state, _ in cases]})
    assert [one["url"] for one in found] == [value if linked else None for value, _, linked in cases]


async def test_links_to_elsewhere_send_no_referrer(room, lead) -> None:
    citation = {"type": "url", "value": "https://docs.example/a", "start": 0, "end": 5, "state": "verified"}
    citation |= {"detail": "ok", "checked_at": "2026-01-31T12:00:00Z"}
    (decision_id,) = room.add(make_decision("c-1", citations=[citation]))
    links = (await html(lead, f"/items/{decision_id}")).all("a")
    elsewhere = [(one["href"], one["rel"]) for one in links if urlsplit(one["href"]).netloc]

    assert elsewhere == [("https://docs.example/a", "noopener noreferrer")]


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
    detail = {"action_id": "a", "action": HOSTILE, "outcome": HOSTILE}
    event = {"event_id": "e", "type": "refused_action", "at": NOW, "tenant_id": "acme", "actor": HOSTILE}
    room.audit(AuditEvent(**event, subject_id=HOSTILE, decision_id=ids[0], detail=detail))
    pages = [await browser.get(path) for path in (*PAGES, *(f"/items/{one}" for one in ids))]
    token = await csrf(browser)
    await browser.post(f"/items/{ids[0]}/actions", data={"csrf": token, "action": "approve", "revision": "1"})
    pages.append(await browser.get("/"))
    stale = {"csrf": token, "action": "approve", "revision": "7"}
    pages.append(await browser.post(f"/items/{ids[3]}/actions", data=stale))
    several = {"csrf": token, "action": "reject", "ids": [f"{one}:1" for one in ids], "note": HOSTILE}
    pages.append(await browser.post("/bulk", data=several))
    pages.append(await browser.post("/bulk", data={**several, "reason": "other"}))
    asked = (("/", "search"), ("/approved", "search"), ("/", "user"))
    pages += [await browser.get(path, params={name: HOSTILE}) for path, name in asked]

    statuses = [page.status_code for page in pages]
    assert statuses == [200] * (len(PAGES) + len(ids) + 1) + [409, 409, 207, 200, 200, 200]
    shown = [Html(page.text) for page in pages]
    assert sum("alert(1)" in page.words for page in shown) >= len(pages) - 4
    for page in shown:
        scripts = [one.attributes.get("src", "") for one in page.all("script")]
        assert [source.rpartition("/")[2] for source in scripts] == ["guard.js", "console.js"]
        assert {one.attributes.get("src") for one in page.all("img")} == {"/static/icon.svg"}
        for attributes in (one.attributes for one in page.elements):
            assert not [name for name in attributes if name.startswith("on")]
            targets = [
                attributes[name] for name in ("href", "action", "src", "formaction") if name in attributes
            ]
            assert [one for one in targets if not one.startswith(("/", "#"))] == []


async def test_page_and_api_show_the_same_of_an_item(room, lead) -> None:
    known = approved("c-0", content="Water is always wet.")
    facts = compared("c-0", difference="negation")
    _, decision_id = room.add(known, make_decision("c-1", "Water is never wet.", facts=facts))
    twin = (await lead.get(f"/api/items/{decision_id}")).json()
    page = await html(lead, f"/items/{decision_id}")

    (memory,) = twin["memories"]
    assert memory["difference"] == "negation"
    assert [change["text"] for change in memory["changes"]] == ["Water is ", "always", "never", " wet."]
    assert [(one.tag, one.text) for one in page.all() if one.tag in ("del", "ins")][:2] == [
        ("del", "always"),
        ("ins", "never"),
    ]
    assert twin["source"]["facts"][0] == {"name": "approved so far", "value": 1}
    assert {"result": "failed", "name": "citation_missing", "detail": ""} in twin["checks"]
    assert "75% of the words in common" in page.words
    assert "came in on" in page.words


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
    page, told = [await html(browser, f"/items/{one}") for one in (child, now)]

    assert [one["name"] for one in before["resting"]] == ["heir"]
    assert after["resting"] == before["resting"]
    states = [(one["name"], one["state"]) for one in rests["rests_on"]]
    assert states == [("base", "retracted"), ("gone", None)]
    assert rests["rests_on"][0]["excerpt"] == "What all rests on."
    assert f"/items/{now}" in [one["href"] for one in page.all("a")]
    assert "1 approved claim rests on it; they stay approved." in told.words


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


async def test_the_nearest_memory_is_shown_as_it_stands_now(room, browser) -> None:
    near, _ = room.add(make_decision("near", facts=compared("m", difference="none")), approved("m"))
    before = await html(browser, f"/items/{near}")
    room.add(blocked("m", revision=2, reason_code="retracted"))
    after = await html(browser, f"/items/{near}")

    assert "retracted" not in before.words
    assert "approved then; retracted since" in after.words


def test_numbers_and_codes_read_as_words() -> None:
    assert label("citation_unverified") == "citation not verified"
    assert number(12_345) == "12\u202f345"
    ages = [age(seconds) for seconds in (3, 60, 7_300, 200_000)]
    assert ages == ["just now", "1 minute ago", "2 hours ago", "2 days ago"]


UNSEEN = re.findall(f"[{INVISIBLE}]", "".join(map(chr, range(0x110000))))


async def test_every_invisible_character_is_marked_and_no_text_and_keeps_a_row_from_approval_in_the_list(
    room, lead
) -> None:
    assert [char for char in UNSEEN if not hidden_marks(f"a{char}b")] == []
    assert [char for char in UNSEEN if not is_blank(f" {char} ")] == []
    assert hidden_marks("\u2764\ufe0f") == [], "a selector behind an emoji shows"
    some = UNSEEN[:: len(UNSEEN) // 40]
    room.add(*(make_decision(f"c-{n}", f"The limit is {char} five.") for n, char in enumerate(some)))
    room.add(make_decision("heart", "We \u2764\ufe0f tea."), make_decision("letter", "We a\ufe0f tea."))
    items = (await lead.get("/api/queue")).json()["items"]
    assert len(items) == len(some) + 2
    assert [item["subject_id"] for item in items if item["whole"]] == ["heart"]

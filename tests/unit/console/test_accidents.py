"""Nothing is decided by accident: what is grave is decided on its own page, and what is confirmed at once is shown."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit.console.rooms import approved, blocked, csrf, make_decision, make_room


def compared_with(state: str) -> dict[str, Any]:
    """Facts of a claim that gives another value than a memory in this state."""
    match = {"subject_id": "old", "class": state, "inter": 9, "union": 12, "difference": "number"}
    dedup = {"status": "ok", "scheme": "s", "matches": [match]}
    return {"clock": "2026-01-31T12:00:00Z", "place": "free", "dedup": dedup}


CONTRADICTS = {"reason_code": "technical_hedge", "facts": compared_with("approved")}
GRAVE = [
    {"reason_code": "phantom_source"},
    {"reason_code": "conflicting_near_duplicate"},
    {"checks_failed": ["snippet_mismatch: a.py"]},
    CONTRADICTS,
]


@pytest.mark.parametrize("action", ["approve", "reject"])
@pytest.mark.parametrize("grave", GRAVE)
async def test_what_is_grave_is_left_out_of_a_bulk(room, lead, grave, action) -> None:
    plain, high = room.add(make_decision("plain"), make_decision("high", **grave))
    ids = [{"id": one, "revision": 1} for one in (plain, high)]
    answer = await lead.post("/api/bulk", json={"action": action, "reason": "other", "ids": ids})
    assert {one["subject_id"]: one["state"] for one in answer.json()["results"]} == {
        "plain": "held",
        "high": "own_page",
    }
    assert [entry.order.record.subject_id for entry in room.held] == ["plain"]


@pytest.mark.parametrize("grave", GRAVE)
async def test_what_is_grave_is_not_approved_from_the_list_but_on_its_page(room, browser, grave) -> None:
    (high,) = room.add(make_decision("high", **grave))
    listed = (await browser.get("/")).text
    assert "data-own-page" in listed
    form = {"csrf": await csrf(browser), "action": "approve", "revision": "1"}
    refused = await browser.post(f"/items/{high}/actions", data={**form, "back": "queue"})
    assert (refused.status_code, room.held) == (409, [])
    assert "not decided from the list" in refused.text
    assert (await browser.post(f"/items/{high}/actions", data=form)).status_code == 303
    assert len(room.held) == 1


async def test_the_page_that_confirms_names_reason_risk_and_differences(room, browser) -> None:
    facts = compared_with("pending")
    (one,) = room.add(make_decision("c-1", facts=facts, reason_code="technical_hedge"))
    form = {"csrf": await csrf(browser), "action": "approve", "ids": f"{one}:1"}
    page = (await browser.post("/bulk", data=form)).text
    for part in ("worded as uncertain", "low risk", "differs in a number", "old"):
        assert part in page


@pytest.mark.parametrize(
    ("grave", "why"),
    [
        ({"reason_code": "phantom_source"}, "its risk is high"),
        (CONTRADICTS, "it contradicts a memory"),
    ],
)
async def test_why_an_item_is_decided_on_its_own_page_stands_beside_it_wherever_it_is_left_out(
    room, browser, grave, why
) -> None:
    plain, high = room.add(make_decision("plain"), make_decision("high", **grave))
    said = f"decided on its own page only: {why}"
    assert (await browser.get("/")).text.count(said) == 1
    form = {"csrf": await csrf(browser), "action": "approve", "ids": f"{plain}:1 {high}:1"}
    assert said in (await browser.post("/bulk", data=form)).text
    assert said in (await browser.post("/bulk", data=form | {"sure": "yes"})).text


async def test_what_contradicts_a_memory_that_was_retracted_since_is_decided_with_others(room, lead) -> None:
    claim, _ = room.add(
        make_decision("c-1", **CONTRADICTS), make_decision("old", verdict="blocked", reason_code="retracted")
    )
    answer = await lead.post("/api/bulk", json={"action": "approve", "ids": [{"id": claim, "revision": 1}]})
    assert (answer.status_code, answer.json()["results"][0]["state"]) == (202, "held")


async def test_what_differs_from_something_approved_below_the_rule_is_not_approved_from_the_list(
    room, browser
) -> None:
    text = "The kiln in Delft is fired every {} days by one potter."
    _, new = room.add(approved("old", text.format(14)), make_decision("new", text.format(30)))
    form = {"csrf": await csrf(browser), "action": "approve", "revision": "1", "back": "queue"}
    refused = await browser.post(f"/items/{new}/actions", data=form)
    assert (refused.status_code, room.held) == (409, [])
    assert "It contradicts a memory" in refused.text


async def test_every_form_that_decides_is_marked_for_the_guard_that_waits_until_it_was_seen() -> None:
    room = make_room(audit_share=1)
    match = compared_with("approved")
    pending, known = room.add(make_decision("c-1", facts=match), approved("old"))
    plain, _ = room.add(make_decision("c-2"), blocked("c-3"))
    async with room.browser() as browser:
        asks = {"csrf": await csrf(browser), "action": "reject", "ids": f"{plain}:1"}
        paths = ("/", f"/items/{pending}", f"/items/{known}", "/sample")
        pages = [(await browser.get(path)).text for path in paths]
        pages.append((await browser.post("/bulk", data=asks)).text)
    forms = [form for page in pages for form in re.findall("<form [^>]*>", page)]
    decide = [form for form in forms if re.search(r"/actions\b|/bulk\"(?! id)|/sample/|quick", form)]
    assert len(decide) == 9, "on the list, four of a claim, to retract, two in the sample, and of a bulk"
    assert all("data-decides" in form for form in decide)

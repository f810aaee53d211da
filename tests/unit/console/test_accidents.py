"""Nothing is decided by accident: high risks are decided on their own page, and a bulk is shown before it is done."""

from __future__ import annotations

from groundwire.messages.base import format_time
from tests.unit.console.rooms import (
    NOW,
    Html,
    approved,
    blocked,
    chosen,
    compared,
    csrf,
    html,
    make_decision,
    make_room,
)

CONTRADICTS = {"reason_code": "technical_hedge", "facts": compared("old")}
GRAVE = (
    ({"reason_code": "phantom_source"}, "its risk is high"),
    ({"reason_code": "conflicting_near_duplicate"}, "it contradicts a memory"),
    ({"checks_failed": ["snippet_mismatch: a.py"]}, "its risk is high"),
    (CONTRADICTS, "it contradicts a memory"),
)


async def test_a_high_risk_is_left_out_of_a_bulk_and_decided_on_its_own_page_only() -> None:
    for grave, why in GRAVE:
        room = make_room()
        plain, high = room.add(make_decision("plain"), make_decision("high", **grave))
        sent = {"reason": "other", "ids": chosen([plain, high])}
        async with room.client("lead-token") as lead, room.browser() as browser:
            for action in ("approve", "reject"):
                answer = await lead.post("/api/bulk", json={"action": action, **sent})
                states = {one["subject_id"]: one["state"] for one in answer.json()["results"]}
                assert (grave, states) == (grave, {"plain": "held", "high": "own_page"})
                undo = answer.json()["results"][0]["action_id"]
                await lead.post(f"/api/actions/{undo}/undo", json={})
            said = f"decided on its own page only: {why}"
            assert [one.text for one in (await html(browser, "/")).all(class_="own-page")] == [said]
            form = {"csrf": await csrf(browser), "action": "approve"}
            for more in ({}, {"sure": "yes"}):
                bulk = await browser.post("/bulk", data={**form, "ids": f"{plain}:1 {high}:1", **more})
                assert said in Html(bulk.text).words
            held = len(room.held)
            form |= {"revision": "1"}
            refused = await browser.post(f"/items/{high}/actions", data={**form, "back": "queue"})
            assert (refused.status_code, len(room.held)) == (409, held)
            assert "not decided from the list" in refused.text
            assert (await browser.post(f"/items/{high}/actions", data=form)).status_code == 303
            assert len(room.held) == held + 1


async def test_the_confirming_page_names_reason_risk_and_differences(room, browser) -> None:
    (one,) = room.add(
        make_decision("c-1", facts=compared("old", state="pending"), reason_code="technical_hedge")
    )
    form = {"csrf": await csrf(browser), "action": "approve", "ids": f"{one}:1"}
    page = Html((await browser.post("/bulk", data=form)).text).words
    assert "worded as uncertain low risk ana" in page
    assert "differs in a number from old" in page


async def test_a_claim_that_contradicts_a_memory_retracted_since_is_decided_with_others(room, lead) -> None:
    claim, _ = room.add(
        make_decision("c-1", **CONTRADICTS), make_decision("old", verdict="blocked", reason_code="retracted")
    )
    answer = await lead.post("/api/bulk", json={"action": "approve", "ids": chosen([claim])})
    assert (answer.status_code, answer.json()["results"][0]["state"]) == (202, "held")


async def test_a_claim_that_differs_from_an_approved_one_below_the_rule_is_not_approved_from_the_list(
    room, browser
) -> None:
    text = "The kiln in Delft is fired every {} days by one potter."
    _, new = room.add(approved("old", text.format(14)), make_decision("new", text.format(30)))
    form = {"csrf": await csrf(browser), "action": "approve", "revision": "1", "back": "queue"}
    refused = await browser.post(f"/items/{new}/actions", data=form)
    assert (refused.status_code, room.held) == (409, [])
    assert "It contradicts a memory" in refused.text


async def test_every_form_that_decides_is_marked_for_the_guard_that_waits_until_it_was_seen(
    room, browser
) -> None:
    facts = compared("old") | {"clock": format_time(NOW)}
    pending, known = room.add(make_decision("c-1", facts=facts), approved("old"))
    plain, _ = room.add(make_decision("c-2"), blocked("c-3"))
    asks = {"csrf": await csrf(browser), "action": "reject", "ids": f"{plain}:1"}
    pages = [await html(browser, path) for path in ("/", f"/items/{pending}", f"/items/{known}")]
    pages.append(Html((await browser.post("/bulk", data=asks)).text))
    decide = [
        form
        for page in pages
        for form in page.all("form", method="post")
        if form.attributes.get("action", "").endswith("/actions")
        or form.attributes.get("id") == "quick"
        or (form.attributes.get("action") == "/bulk" and form.attributes.get("id") != "bulk")
    ]
    assert len(decide) == 7, "on the list, four of a claim, to retract, and of a bulk"
    assert all("data-decides" in form.attributes for form in decide)

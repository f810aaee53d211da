"""What each reviewer did is told: decided, in which time, undone, and how far two agree who judged the same blind."""

from __future__ import annotations

from typing import Any

from tests.unit.console.rooms import ANA, Room, approved, csrf, make_decision, make_room

STATUS = "/api/status"


async def told(room: Room) -> dict[str, dict[str, Any]]:
    async with room.client("lead-token") as client:
        rows = (await client.get(STATUS)).json()["judged"]["reviewers"]
    return {row.pop("name"): row for row in rows}


async def decide(
    room: Room,
    browser: Any,
    decision_id: str,
    seconds: float,
    *,
    look: bool = True,
    carried_out: bool = True,
) -> None:
    if look:
        await browser.get(f"/items/{decision_id}")
    room.clock.forward(seconds=seconds)
    sent = {"csrf": await csrf(browser), "action": "approve", "revision": "1"}
    await browser.post(f"/items/{decision_id}/actions", data=sent)
    if carried_out:
        room.carry_out(room.site.outbox.on(decision_id).order.action_id)


async def test_the_median_is_of_the_time_at_the_page_and_what_was_undone_counts_apart(room, browser) -> None:
    ids = room.add(*(make_decision(f"c-{number}") for number in range(5)))
    for decision_id, seconds in zip(ids, (3, 4, 90), strict=False):
        await decide(room, browser, decision_id, seconds)
    await decide(room, browser, ids[3], 500, look=False)
    assert (await told(room))["lead"]["median"] == 4
    await decide(room, browser, ids[4], 1, carried_out=False)
    entry = room.site.outbox.on(ids[4])
    await browser.post(f"/actions/{entry.order.action_id}/undo", data={"csrf": await csrf(browser)})
    found = (await told(room))["lead"]
    assert (found["median"], found["undone"], found["decided"]) == (4, 1, 0)


async def test_what_was_decided_is_counted_by_who_decided_it_wherever_that_was_sent_from(room) -> None:
    review = {"action": "approve", "action_id": "a", "reviewer": "ben"}
    facts = {"clock": "2026-01-31T12:00:00Z", "place": "not_needed", "review": review}
    room.add(make_decision("c-1"), approved("c-1", revision=2, reason_code="human_approved", facts=facts))
    assert {name: row["decided"] for name, row in (await told(room)).items()} == {"ben": 1}


async def test_two_who_judge_the_same_sample_blind_are_compared_pair_by_pair() -> None:
    room = make_room(audit_share=1)
    ids = room.add(*(approved(f"c-{number}") for number in range(3)))
    for who, opinions in (("lead", ("approve", "approve", "reject")), ("ana", ("approve", "reject"))):
        async with room.client(f"{who}-token") as client:
            for decision_id, opinion in zip(ids, opinions, strict=False):
                await client.post(f"/api/sample/{decision_id}", json={"opinion": opinion})
    found = await told(room)
    assert {name: (row["agreed"], row["compared"]) for name, row in found.items()} == {
        "lead": (1, 2),
        "ana": (1, 2),
    }


async def test_nobody_learns_of_work_on_items_that_they_do_not_see(room, browser) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    await decide(room, browser, decision_id, 3)
    review = {"action": "approve", "action_id": "a", "reviewer": "eve"}
    facts = {"clock": "2026-01-31T12:00:00Z", "place": "not_needed", "review": review}
    theirs = {"tenant_id": "globex", "user_id": "eve"}
    room.add(make_decision("c-2", **theirs), approved("c-2", revision=2, facts=facts, **theirs))
    assert list(await told(room)) == ["lead"]


async def test_the_page_names_reviewers_with_their_figures(room, browser) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    await decide(room, browser, decision_id, 7)
    page = (await browser.get("/status")).text
    assert "<bdi>lead</bdi>: 0 decided, median 7 s at the page, 0 undone" in page


async def test_over_review_is_the_share_approved_unchanged_with_what_would_change_it(room, lead) -> None:
    def done(subject: str, action: str, code: str) -> list[dict[str, Any]]:
        review = {"action": action, "action_id": subject, "reviewer": ANA.name}
        facts = {"clock": "2026-01-31T12:00:00Z", "place": "not_needed", "review": review}
        make = approved if action != "reject" else make_decision
        more = {} if action != "reject" else {"verdict": "blocked"}
        outcome = "human_rejected" if action == "reject" else "human_approved"
        return [
            make_decision(subject, reason_code=code),
            make(subject, revision=2, reason_code=outcome, facts=facts, **more),
        ]

    for subject, action, code in (
        ("a", "approve", "flagged_claims"),
        ("b", "edit", "flagged_claims"),
        ("c", "reject", "flagged_claims"),
        ("d", "approve", "ungrounded"),
    ):
        room.add(*done(subject, action, code))
    found = (await lead.get("/api/status")).json()["judged"]
    assert (found["total"]["decided"], found["total"]["approved"]) == (4, 2)
    rows = {row["name"]: (row["decided"], row["approved"], row["lever"]) for row in found["reasons"]}
    assert rows["ungrounded"] == (1, 1, "trusted_sources")
    assert rows["flagged_claims"][:2] == (3, 1)
    assert rows["flagged_claims"][2].startswith("groundwire evaluate labels.jsonl --calibrate")
    page = (await lead.get("/status")).text
    assert "<strong>50%</strong>" in page
    assert "groundwire evaluate labels.jsonl --calibrate" in page

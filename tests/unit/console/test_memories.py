"""Memories beside a claim show contradictions; replacing one approves the new claim before it retracts the old one."""

from __future__ import annotations

from typing import Any

from tests.unit.console.rooms import Room, act, approved, compared, make_decision, make_room

CLAIM = "The kiln in Delft is fired every 30 days by one potter."


def stored(room: Room, *, compares: bool = True) -> tuple[str, str]:
    """An approved memory and a claim that gives another value; return their ids."""
    checks = {"checks_passed": ["not_duplicate"], "checks_failed": []}
    old = approved("old", "The kiln in Delft is fired every 14 days by one potter.", source="handbook")
    new = make_decision("new", CLAIM, facts=compared("old") if compares else compared(), **checks)
    old_id, new_id = room.add(old, new)
    return old_id, new_id


async def seen(room: Room, decision_id: str) -> dict[str, Any]:
    async with room.client("lead-token") as client:
        found: dict[str, Any] = (await client.get(f"/api/items/{decision_id}")).json()
        return found


async def replacing(room: Room, decision_id: str, **given: Any) -> Any:
    return await act(room, decision_id, **({"action": "replace", "reason": "outdated"} | given))


async def replace(room: Room) -> Any:
    old_id, new_id = stored(room)
    return await replacing(room, new_id, replaces={"id": old_id, "revision": 1})


async def told(room: Room) -> list[str]:
    async with room.client("lead-token") as client:
        return [one["text"] for one in (await client.get("/api/actions")).json()["actions"]]


async def test_memories_come_with_difference_source_and_age(room) -> None:
    _, new_id = stored(room)
    (memory,) = (await seen(room, new_id))["memories"]
    assert (memory["difference"], memory["source"], memory["age_seconds"]) == ("number", "handbook", 3600)
    assert [one["text"] for one in memory["changes"] if one["operation"] != "equal"] == ["14", "30"]


async def test_no_claim_is_called_new_that_gives_another_value_than_an_approved_one() -> None:
    for compares in (True, False):
        room = make_room()
        _, new_id = stored(room, compares=compares)
        item = await seen(room, new_id)
        assert [(one["subject_id"], one["compared"]) for one in item["memories"]] == [("old", compares)]
        (check,) = [one for one in item["checks"] if one["result"] == "look"]
        assert (check["name"], check["detail"]) == ("near_approved", "old")
        assert "not_duplicate" not in {one["name"] for one in item["checks"]}


async def test_a_claim_that_nothing_approved_comes_near_is_new(room) -> None:
    room.add(approved("other", "Bread is baked at night in the village."))
    (new_id,) = room.add(make_decision("new", CLAIM, facts=compared(), checks_passed=["not_duplicate"]))
    item = await seen(room, new_id)
    assert (item["memories"], item["checks"][-2]["result"]) == ([], "passed")


async def test_memories_of_somebody_else_are_not_compared(room) -> None:
    room.add(approved("old", CLAIM.replace("30", "14"), user_id="ben"))
    (new_id,) = room.add(make_decision("new", CLAIM, facts=compared()))
    assert (await seen(room, new_id))["memories"] == []


async def test_to_replace_is_to_approve_and_then_to_retract_signed_one_by_one(room) -> None:
    answer = await replace(room)
    assert (answer.status_code, answer.json()["replaces"], answer.json()["text"]) == (202, "old", "Replaced")
    await room.released()
    sent = [(one.action, one.subject_id, one.reason) for one in room.recorder.sent]
    assert sent == [("approve", "new", None), ("retract", "old", "outdated")]
    assert await told(room) == ["Replaced"]


async def test_one_undo_takes_both_back(room) -> None:
    action_id = (await replace(room)).json()["action_id"]
    async with room.client("lead-token") as client:
        assert (await client.post(f"/api/actions/{action_id}/undo", json={})).status_code == 200
    await room.released()
    assert room.recorder.sent == []


async def test_nothing_is_retracted_where_the_new_claim_was_not_approved() -> None:
    for outcome in ({"code": "duplicate"}, {"code": "expired"}, {"refused": {"approve": "stale"}}):
        room = make_room()
        for name, value in outcome.items():
            setattr(room.recorder, name, value)
        await replace(room)
        await room.released()
        assert [one.action for one in room.recorder.sent] == ["approve"]
        assert "Not retracted: the new claim was not approved" in await told(room)


async def test_where_the_retraction_is_refused_the_approval_stands_and_that_is_said(room) -> None:
    room.recorder.refused = {"retract": "stale"}
    await replace(room)
    await room.released()
    assert await told(room) == [
        "The new claim is approved, and the old one still stands: Refused by the gate",
        "Approved",
    ]


async def test_what_is_replaced_has_to_be_approved_at_the_revision_seen_and_of_the_same_owner(room) -> None:
    old_id, new_id = stored(room)
    assert (await replacing(room, new_id)).status_code == 400
    assert (
        await replacing(room, new_id, reason=None, replaces={"id": old_id, "revision": 1})
    ).status_code == 400
    assert (await replacing(room, new_id, replaces={"id": old_id, "revision": 2})).status_code == 409
    assert (await replacing(room, new_id, replaces={"id": new_id, "revision": 1})).status_code == 409
    (others,) = room.add(approved("others", user_id="ben"))
    assert (await replacing(room, new_id, replaces={"id": others, "revision": 1})).status_code == 404
    assert room.held == []


async def test_a_memory_on_which_an_action_is_on_its_way_cannot_be_replaced(room) -> None:
    old_id, new_id = stored(room)
    await act(room, old_id, action="retract", reason="outdated")
    assert (await replacing(room, new_id, replaces={"id": old_id, "revision": 1})).status_code == 409
    assert "replace" not in (await seen(room, new_id))["allowed"]

"""What a program is told: the list of paths, what is wrong with what it sent, and why it is not let in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from starlette.routing import Route

from groundwire.console.pages import ROUTES
from tests.unit.console.rooms import Room, approved, make_decision

PAGE = (Path(__file__).resolve().parents[3] / "docs/use/review.md").read_text()


async def listed(room: Room) -> list[dict[str, Any]]:
    async with room.client("lead-token") as client:
        answer = await client.get("/api/")
        assert (await client.get("/api", follow_redirects=True)).json() == answer.json()
    paths: list[dict[str, Any]] = answer.json()["paths"]
    return paths


async def test_the_list_has_every_path_for_programs_with_its_method_and_what_it_does(room) -> None:
    found = await listed(room)
    there = [
        route for route in room.app.routes if isinstance(route, Route) and route.path.startswith("/api/")
    ]
    expected = {
        (method, route.path.replace(":uuid", ""))
        for route in there
        for method in (route.methods or ()) - {"HEAD"}
    }
    own = {
        (method, path) for method, path in expected if path in ("/api/", "/api/live") or "/export/" in path
    }
    assert {(one["method"], one["path"]) for one in found} == expected - own
    assert all(one["does"] for one in found)
    assert set(re.findall(r"`(GET|POST) (/api/\S*)`", PAGE)) == expected, "and so has the page"


async def test_a_body_in_the_list_is_the_schema_of_what_its_path_takes(room, lead) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    for place, one in zip(ROUTES, await listed(room), strict=True):
        names = list(place.takes.model_fields) if place.takes else []
        assert list((one["body"] or {}).get("properties", ())) == names
        if place.method == "GET" or not names:
            continue
        path = one["path"].format(decision_id=decision_id, action_id=decision_id)
        answer = await lead.post(path, json={name: [] for name in [*names, "surely_not"]})
        assert (answer.status_code, "surely_not: unknown" in answer.json()["message"]) == (400, True)
    (action,) = [one["body"] for one in await listed(room) if one["path"].endswith("{decision_id}/actions")]
    assert action["required"] == ["action", "revision"]
    assert "reject" in action["properties"]["action"]["enum"]
    assert "incorrect" in action["$defs"]["RejectReason"]["enum"]


async def test_all_that_is_missing_unknown_or_wrong_is_named_at_once_with_what_there_is(room, lead) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    answer = await lead.post(
        f"/api/items/{decision_id}/actions", json={"akshun": "approve", "reson": "x", "note": 5}
    )
    filtered = await lead.get("/api/queue?search=x&colour=red")

    told = answer.json()["message"]
    for part in ("action: missing", "revision: missing", "akshun: unknown", "reson: unknown", "note: "):
        assert part in told
    assert "needed: action, revision; permitted: reason, note, content" in told
    told = filtered.json()["message"]
    assert told.startswith("colour: unknown; permitted: search, reason, tenant, user")


async def test_a_parameter_that_no_path_knows_is_refused_by_name_on_every_path_that_is_read(
    room, lead
) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    for one in await listed(room):
        if one["method"] == "GET" and "{action_id}" not in one["path"]:
            path = one["path"].replace("{decision_id}", decision_id)
            plain = await lead.get(path)
            answer = await lead.get(path, params={"colour": "red"})
            assert (path, plain.status_code, answer.status_code) == (path, 200, 400)
            assert "colour: unknown" in answer.json()["message"]
    assert (await lead.get("/api/approved", params={"cursor": ""})).status_code == 200


async def test_a_thousand_wrong_fields_do_not_make_a_thousand_sentences(room, lead) -> None:
    answer = await lead.post("/api/bulk", json={f"{n}{'x' * 500}": 1 for n in range(300)})

    assert "and 281 more" in answer.json()["message"]
    assert len(answer.text) < 4_000


async def test_another_content_type_is_told_the_one_that_is_taken(room, lead) -> None:
    answer = await lead.post("/api/bulk", data={"action": "approve"})
    page = await lead.post("/bulk", json={"action": "approve"})

    assert (answer.status_code, page.status_code) == (415, 415)
    assert "application/json" in answer.json()["message"]
    assert answer.headers["accept-post"] == "application/json"
    assert "application/x-www-form-urlencoded" in page.text


async def test_who_is_not_let_in_learns_why(room) -> None:
    for header, told in (
        ("Bearer gwt_gone", "Token unknown or revoked"),
        ("Bearer " + "x" * 600, "Token unknown or revoked"),
        ("Basic YTpi", "must be Bearer"),
        (None, "Authorization: Bearer"),
    ):
        async with room.client(**({"authorization": header} if header else {})) as client:
            answer = await client.get("/api/queue")

        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert told in answer.json()["message"]
        assert header is None or header.split()[1] not in answer.text


async def test_every_refusal_says_what_it_is_and_why_in_words(room, lead) -> None:
    old, pending = room.add(make_decision("c-1"), make_decision("c-2"))
    room.add(approved("c-1", revision=2, reason_code="human_approved"))
    ids = [{"id": pending, "revision": 1}]
    edit = {"action": "edit", "revision": 1, "content": "I think it is wet."}
    many = [{"id": one, "revision": 1} for one in room.add(*(make_decision(f"m-{n}") for n in range(21)))]
    asked = [
        ("bulk", {"action": "reject", "ids": ids}, 400, "reason: "),
        ("bulk", {"action": "approve", "ids": many}, 409, "confirm: "),
        (f"items/{old}/actions", {"action": "approve", "revision": 1}, 409, "It has changed."),
        (f"items/{pending}/actions", edit, 422, "“I think”"),
        (f"items/{pending}/actions", {"action": "reject", "revision": 1}, 400, "reason: "),
        ("none", {}, 404, "no such"),
    ]
    answers = [await lead.post(f"/api/{path}", json=sent) for path, sent, _, _ in asked]
    foreign = await lead.post("/api/bulk", json={}, headers={"sec-fetch-site": "cross-site"})
    large = await lead.post("/api/bulk", content=b"x" * 3_000_000)

    for (path, _, status, said), answer in zip(asked, answers, strict=True):
        assert (path, answer.status_code) == (path, status)
        assert answer.json()["error"]
        assert said in answer.json()["message"]
    assert answers[3].json()["error"] == "personal_speculation"
    assert room.held == []
    for answer, status in ((foreign, 403), (large, 413)):
        assert answer.status_code == status
        assert set(answer.json()) == {"error", "message"}


async def test_a_search_is_turned_page_by_page(room, lead) -> None:
    room.add(
        *(make_decision(f"c-{n}", f"Water is wet, says {n}.") for n in range(70)), make_decision("d", "Fire.")
    )
    seen: list[str] = []
    path = "/?sort=newest&search=water"
    while path and len(seen) < 200:  # or else the same page comes again and again
        page = (await lead.get(path.replace("/?", "/api/queue?"))).json()
        seen += [one["subject_id"] for one in page["items"]]
        path = page["older"]

    assert sorted(seen) == sorted(f"c-{n}" for n in range(70))

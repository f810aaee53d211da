"""Who gets what, on every route; and what a program is told: the list of paths, and why it is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
from starlette.routing import Mount, Route

from groundwire.console.pages import ROUTES
from tests.unit.console.rooms import EVE, ITEM, NOBODYS, approved, blocked, chosen, make_decision, make_room

PAGE = (Path(__file__).resolve().parents[3] / "docs/use/review.md").read_text()
# path -> what a POST sends, None for a GET: every route for signed-in people
ONE, ACTION = "/items/{decision_id:uuid}", "/actions/{action_id:uuid}"
BOTH: dict[str, Any] = {
    **dict.fromkeys(["/responses", "/approved", "/blocked", "/dead-letters", "/status", ONE]),
    f"{ONE}/actions": ITEM,
    f"{ACTION}/dismiss": {},
    f"{ACTION}/undo": {},
}
LISTS = ("queue", "responses", "approved", "blocked")
SIGNED_IN = {
    **dict.fromkeys(["/", "/api/", "/api/queue", "/api/actions", "/api/live", f"/api{ACTION}"]),
    **dict.fromkeys(f"/api/export/{listed}.{form}" for listed in LISTS for form in ("csv", "jsonl")),
    **{f"{root}{path}": sent for path, sent in BOTH.items() for root in ("", "/api")},
    f"/api{ONE}/standing": None,
    f"/api{ONE}/lock": {},
    "/bulk": {"action": "approve", "ids": f"{NOBODYS}:1"},
    "/api/bulk": {"action": "approve", "ids": chosen([NOBODYS])},
}


async def ask(client, path, sent, target=NOBODYS):
    """Ask a route as its kind of caller does: forms to pages, JSON to the API."""
    url = re.sub(r"\{\w+:uuid\}", target, path)
    if sent is None:
        return await client.get(url)
    if path.startswith("/api/"):
        return await client.post(url, json=sent)
    return await client.post(url, data=sent or {"csrf": ""})


def test_every_route_has_a_rule_and_takes_one_method(room) -> None:
    public = {"/healthz": None, "/signin": None, "/signin/oidc": None, "/signin/oidc/callback": None}
    known = {**SIGNED_IN, **public, "/static": None, "/signin/link": {}, "/signout": {}}
    assert sorted(route.path for route in room.app.routes) == sorted(known)
    wrong = [
        (route.path, route.methods)
        for route in room.app.routes
        if not isinstance(route, Mount)
        and route.methods != ({"GET", "HEAD"} if known[route.path] is None else {"POST"})
    ]
    assert wrong == []


async def test_nobody_is_served_unknown_and_no_wrong_token_beside_a_session(room, browser) -> None:
    room.add(make_decision("c-1", "A secret text."))
    browser.headers["authorization"] = "Bearer something"
    wrong = []
    async with room.client() as client:
        for path, sent in SIGNED_IN.items():
            answer = await ask(client, path, sent)
            leads = sent is None and not path.startswith("/api/")
            found = (answer.status_code, answer.headers.get("location"))
            if found != ((303, "/signin") if leads else (401, None)) or "secret text" in answer.text:
                wrong.append((path, found))
            if (refused := (await ask(browser, path, sent)).status_code) != 401:
                wrong.append((path, "beside a session", refused))
    assert wrong == []
    assert room.recorder.sent == []


async def test_another_tenants_items_are_in_no_list_and_on_no_page_by_token_or_in_a_session(room) -> None:
    pending, _ = room.add(make_decision("c-1", "A secret text."), blocked("c-2", "A secret text."))
    wrong = []
    async with room.client("eve-token") as program, room.browser(EVE) as browser:
        for client in (program, browser):
            for path, sent in SIGNED_IN.items():
                if sent is None and "action_id" not in path and "/status" not in path and path != "/api/live":
                    answer = await ask(client, path, None, pending)
                    shown = any(one in answer.text for one in ("secret", "c-1", "acme"))
                    if shown or answer.status_code != (404 if "{" in path else 200):
                        wrong.append((client is browser, path, answer.status_code))
    assert wrong == []


async def test_anothers_item_or_action_and_none_get_the_same_answer(room) -> None:
    def everything_of(response: httpx.Response) -> tuple[Any, ...]:
        """Return all that a caller can tell answers apart by; the token of a form is drawn anew in each."""
        body = re.sub(r'(csrf"? ?(value)?="?)[\w-]+', r"\1", response.text)
        headers = sorted((name, value) for name, value in response.headers.items() if name != "set-cookie")
        return response.status_code, body, headers

    pending, final = room.add(make_decision("c-1", "A secret text."), blocked("c-2"))
    action = (await room.act(pending)).json()["action_id"]
    wrong = []
    for token, part, targets in (
        ("eve-token", "decision_id", (pending, final)),
        ("ben-token", "decision_id", (pending, final)),
        ("ana-token", "action_id", (action,)),  # who owns the item, and did not act
    ):
        async with room.client(token) as client:
            for path, sent in SIGNED_IN.items():
                if part in path:
                    none = everything_of(await ask(client, path, sent))
                    found = [everything_of(await ask(client, path, sent, one)) for one in targets]
                    if none[0] != 404 or found != [none] * len(targets):
                        wrong.append((token, path))
    async with room.client("eve-token") as client:
        for path, named in (("/api/bulk", chosen([pending])), ("/bulk", f"{pending}:1")):
            theirs = everything_of(await ask(client, path, SIGNED_IN[path] | {"ids": named}))
            missing = everything_of(await ask(client, path, SIGNED_IN[path]))
            if (theirs[0], theirs[1].replace(pending, NOBODYS)) != missing[:2]:
                wrong.append(("eve-token", path))
    assert wrong == []
    await room.released()
    assert [one.action_id for one in room.recorder.sent] == [action]


async def test_who_may_only_look_decides_nothing(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    decides = {path: sent for path, sent in SIGNED_IN.items() if sent is not None}
    async with room.client("viewer-token") as client:
        found = {
            path: (await ask(client, path, sent, decision_id)).status_code for path, sent in decides.items()
        }
        page = await client.get(f"/items/{decision_id}")
    assert found == dict.fromkeys(decides, 403)
    assert (page.status_code, 'id="approve"' in page.text, room.held) == (200, False, [])


async def test_the_reviewer_is_who_was_authenticated_whatever_a_request_says(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    url = f"/api/items/{decision_id}/actions"
    async with room.client("lead-token", **{"x-forwarded-user": "ana"}) as client:
        asked = (url, ITEM | {"reviewer": "ana"}), (f"{url}?reviewer=ana", ITEM), (url, ITEM)
        found = [(await client.post(path, json=sent)).status_code for path, sent in asked]
    await room.released()
    assert found == [400, 400, 202]
    assert [(one.reviewer, one.user_id) for one in room.recorder.sent] == [("lead", "ana")]


async def test_only_the_proxy_says_who_asks_and_its_writes_need_the_token_of_their_page() -> None:
    person = {"x-auth-user": "lead", "x-auth-tenants": "acme"}
    names = {"proxy_header": "x-auth-user", "proxy_tenants_header": "x-auth-tenants"}
    room = make_room(**names, proxy_addresses="10.0.0.7/32")
    (decision_id,) = room.add(make_decision("c-1"))
    url, let_in = f"/api/items/{decision_id}/actions", []
    async with room.client(address="10.0.0.7", **person) as client:
        assert (await client.get("/api/queue")).json()["total"] == 1
        for headers, status in (({}, 403), ({"x-csrf-token": await client.csrf()}, 202)):
            assert (await client.post(url, json=ITEM, headers=headers)).status_code == status
    forged = {"x-forwarded-for": "10.0.0.7", "forwarded": "for=10.0.0.7"}
    for token in (None, "lead-token"):
        for address in ("10.0.0.8", "127.0.0.1", "::1", ""):
            async with room.client(token, address, **person, **forged) as client:
                found = [(await client.get(path)).status_code for path in ("/api/queue", "/")]
            if found != [403, 403]:
                let_in.append((token, address))
    async with room.client(address="10.0.0.7") as client:
        for headers in (
            [*person.items(), ("x-auth-user", "ana")],
            {"x-auth-user": "lead"},
            person | {"x-auth-user": ""},
            person | {"x-auth-tenants": " , "},
            person | {"x-auth-tenants": "no/tenant"},
        ):
            found = (await client.get("/api/queue", headers=headers)).status_code
            assert (headers, found) == (headers, 403)
    async with make_room().client(address="10.0.0.7", **person) as client:  # one without the setting
        if (await client.get("/api/queue")).status_code != 401:
            let_in.append(None)
    assert let_in == []


async def test_the_list_of_the_api_has_every_path_what_it_does_and_the_schema_of_its_body(room, lead) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    answer = await lead.get("/api/")
    assert (await lead.get("/api", follow_redirects=True)).json() == answer.json()
    found = answer.json()["paths"]
    expected = {
        (method, route.path.replace(":uuid", ""))
        for route in room.app.routes
        if isinstance(route, Route) and route.path.startswith("/api/")
        for method in (route.methods or ()) - {"HEAD"}
    }
    own = {one for one in expected if one[1] in ("/api/", "/api/live") or "/export/" in one[1]}
    assert {(one["method"], one["path"]) for one in found} == expected - own
    assert all(one["does"] for one in found)
    assert set(re.findall(r"`(GET|POST) (/api/\S*)`", PAGE)) == expected, "and so has the page"
    for place, one in zip(ROUTES, found, strict=True):
        names = list(place.takes.model_fields) if place.takes else []
        assert list((one["body"] or {}).get("properties", ())) == names
        if names:
            path = one["path"].format(decision_id=decision_id, action_id=decision_id)
            refused = await lead.post(path, json={name: [] for name in [*names, "surely_not"]})
            assert (refused.status_code, "surely_not: unknown" in refused.json()["message"]) == (400, True)
    (action,) = [one["body"] for one in found if one["path"].endswith("{decision_id}/actions")]
    assert action["required"] == ["action", "revision"]
    assert "reject" in action["properties"]["action"]["enum"]
    assert "incorrect" in action["$defs"]["RejectReason"]["enum"]


async def test_fields_and_parameters_that_are_missing_unknown_or_wrong_are_named_at_once(room, lead) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    sent = {"akshun": "approve", "reson": "x", "note": 5}
    told = (await lead.post(f"/api/items/{decision_id}/actions", json=sent)).json()["message"]
    for part in ("action: missing", "revision: missing", "akshun: unknown", "reson: unknown", "note: "):
        assert part in told
    assert "needed: action, revision; permitted: reason, note, content" in told
    told = (await lead.get("/api/queue?search=x&colour=red")).json()["message"]
    assert told.startswith("colour: unknown; permitted: search, reason, tenant, user")
    many = await lead.post("/api/bulk", json={f"{n}{'x' * 500}": 1 for n in range(300)})
    assert ("and 281 more" in many.json()["message"], len(many.text) < 4_000) == (True, True)
    for one in (await lead.get("/api/")).json()["paths"]:
        if one["method"] == "GET" and "{action_id}" not in one["path"]:
            path = one["path"].replace("{decision_id}", decision_id)
            plain, answer = await lead.get(path), await lead.get(path, params={"colour": "red"})
            assert (path, plain.status_code, answer.status_code) == (path, 200, 400)
            assert "colour: unknown" in answer.json()["message"]
    assert (await lead.get("/api/approved", params={"cursor": ""})).status_code == 200


async def test_another_content_type_is_refused_with_the_accepted_one(lead) -> None:
    plain = await lead.post("/api/bulk", content=b"{}", headers={"content-type": "text/plain"})
    form = await lead.post("/api/bulk", data={"action": "approve"})
    page = await lead.post("/bulk", json={"action": "approve"})
    assert [answer.status_code for answer in (plain, form, page)] == [415, 415, 415]
    assert "application/json" in form.json()["message"]
    assert form.headers["accept-post"] == "application/json"
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
    many = chosen(room.add(*(make_decision(f"m-{n}") for n in range(21))))
    for path, sent, status, error, said in (
        ("bulk", {"action": "reject", "ids": chosen([pending])}, 400, "", "reason: "),
        ("bulk", {"action": "approve", "ids": many}, 409, "", "confirm: "),
        (f"items/{old}/actions", ITEM, 409, "", "This item has changed."),
        (f"items/{pending}/actions", ITEM | {"action": "edit", "content": "I think it is wet."},
         422, "personal_speculation", "“I think”"),
        (f"items/{pending}/actions", ITEM | {"action": "reject"}, 400, "", "reason: "),
        ("none", {}, 404, "", "no such"),
        ("bulk", {"note": "x" * 3_000_000}, 413, "", ""),
    ):  # fmt: skip
        answer = await lead.post(f"/api/{path}", json=sent)
        told = answer.json()
        assert (path, answer.status_code, error or told["error"]) == (path, status, told["error"])
        assert told["error"]
        assert said in told["message"]
    foreign = await lead.post("/api/bulk", json={}, headers={"sec-fetch-site": "cross-site"})
    assert (foreign.status_code, set(foreign.json())) == (403, {"error", "message"})
    assert room.held == []

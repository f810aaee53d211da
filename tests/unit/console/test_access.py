"""Who gets what: every route, every kind of caller; another's item looks like one that does not exist."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import httpx
import pytest
from starlette.routing import Mount, Route

from groundwire.console.settings import ConsoleSettings
from tests.unit.console.rooms import (
    EVE,
    ITEM,
    LEAD,
    NOBODYS,
    Room,
    act,
    blocked,
    chosen,
    csrf,
    make_decision,
    make_room,
)


def with_api(pages: dict[str, Any], **api: Any) -> dict[str, Any]:
    """Return pages with the same addresses of the API, and what the API alone has."""
    twins = {"/api/queue" if path == "/" else f"/api{path}": sent for path, sent in pages.items()}
    return {**pages, **twins, **{f"/api{path}": sent for path, sent in api.items()}}


# path -> what a POST sends, None for a GET; every route of the application is in exactly one of these tables
PUBLIC: dict[str, Any] = {
    **dict.fromkeys(["/healthz", "/signin", "/signin/oidc", "/signin/oidc/callback", "/static"]),
    "/signin/link": {},
    "/signout": {},
}
LISTS = ("/queue", "/responses", "/approved", "/blocked")
EXPORTED = [f"/export{path}.{form}" for path in LISTS for form in ("csv", "jsonl")]
OPEN_TO_READERS = with_api(
    dict.fromkeys(["/", "/responses", "/approved", "/blocked", "/dead-letters"]),
    **dict.fromkeys(["/actions", "/live", "/", *EXPORTED]),
)
OF_DELEGATES = with_api({"/status": None})
ONE, ACTION = "/items/{decision_id:uuid}", "/actions/{action_id:uuid}"
OF_AN_ITEM = with_api({ONE: None, f"{ONE}/actions": ITEM}, **{f"{ONE}/standing": None, f"{ONE}/lock": {}})
OF_AN_ACTION = with_api({f"{ACTION}/dismiss": {}, f"{ACTION}/undo": {}}, **{ACTION: None})
OF_SEVERAL: dict[str, Any] = {
    "/bulk": {"action": "approve", "ids": f"{NOBODYS}:1"},
    "/api/bulk": {"action": "approve", "ids": chosen([NOBODYS])},
}
SIGNED_IN = {**OPEN_TO_READERS, **OF_DELEGATES, **OF_AN_ITEM, **OF_AN_ACTION, **OF_SEVERAL}
DECIDING = {
    path: sent for path, sent in {**OF_AN_ITEM, **OF_AN_ACTION, **OF_SEVERAL}.items() if sent is not None
}


async def ask(client: httpx.AsyncClient, path: str, sent: Any, target: str = NOBODYS) -> httpx.Response:
    """Ask a route as its kind of caller does: forms to pages, JSON to the API."""
    url = re.sub(r"\{\w+:uuid\}", target, path)
    if sent is None:
        return await client.get(url)
    if path.startswith("/api/"):
        return await client.post(url, json=sent)
    return await client.post(url, data=sent or {"csrf": ""})


def everything_of(response: httpx.Response) -> tuple[Any, ...]:
    """Return all that a caller can tell answers apart by; the token of a form is drawn anew in each."""
    body = re.sub(r'(csrf"? ?(value)?="?)[\w-]+', r"\1", response.text)
    headers = sorted((name, value) for name, value in response.headers.items() if name != "set-cookie")
    return response.status_code, body, headers


def test_every_route_has_a_rule_in_the_tables_above_and_takes_one_method(room) -> None:
    routes = [route for route in room.app.routes if isinstance(route, (Route, Mount))]
    known = {**PUBLIC, **SIGNED_IN}

    assert len(routes) == len(room.app.routes)
    assert sorted(route.path for route in routes) == sorted(known)
    assert {
        route.path: route.methods
        for route in routes
        if isinstance(route, Route)
        and route.methods != ({"GET", "HEAD"} if known[route.path] is None else {"POST"})
    } == {}


async def test_nobody_reads_or_writes_without_saying_who_they_are_and_a_wrong_token_is_refused_beside_a_session(
    room, browser
) -> None:
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


async def test_lists_show_nothing_of_another_tenant(room) -> None:
    room.add(make_decision("c-1", "A secret text."), blocked("c-2", "A secret text."))
    wrong = []
    async with room.client("eve-token") as client:
        for path in sorted(OPEN_TO_READERS.keys() - {"/api/live"}):
            answer = await ask(client, path, None)
            if answer.status_code != 200 or any(one in answer.text for one in ("secret", "c-1", "acme")):
                wrong.append((path, answer.status_code))
    assert wrong == []


async def test_anothers_item_and_none_get_the_same_answer(room) -> None:
    ids = room.add(make_decision("c-1", "A secret text."), blocked("c-2"))
    wrong = []
    for token in ("eve-token", "ben-token"):
        async with room.client(token) as client:
            for path, sent in OF_AN_ITEM.items():
                none = everything_of(await ask(client, path, sent))
                found = [everything_of(await ask(client, path, sent, one)) for one in ids]
                if none[0] != 404 or found != [none] * 2:
                    wrong.append((token, path))
    assert wrong == []
    assert room.site.outbox.of(LEAD) == []


async def test_anothers_action_and_none_get_the_same_answer(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    action = (await act(room, decision_id)).json()["action_id"]
    async with room.client("ana-token") as client:  # who owns the item, and did not act
        for path, sent in OF_AN_ACTION.items():
            theirs = await ask(client, path, sent, action)
            none = await ask(client, path, sent)
            assert (path, none.status_code) == (path, 404)
            assert everything_of(theirs) == everything_of(none)
    await room.released()
    assert len(room.recorder.sent) == 1


async def test_of_several_anothers_item_and_none_get_the_same_answer(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    async with room.client("eve-token") as client:
        for path, sent in OF_SEVERAL.items():
            named = chosen([decision_id]) if path.startswith("/api/") else f"{decision_id}:1"
            theirs = everything_of(await ask(client, path, sent | {"ids": named}))
            missing = everything_of(await ask(client, path, sent))
            assert (theirs[0], theirs[1].replace(decision_id, NOBODYS)) == missing[:2]
    await room.released()
    assert room.recorder.sent == []


async def test_who_may_only_look_decides_nothing(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    async with room.client("viewer-token") as client:
        found = {
            path: (await ask(client, path, sent, decision_id)).status_code for path, sent in DECIDING.items()
        }
        page = await client.get(f"/items/{decision_id}")

    assert found == dict.fromkeys(DECIDING, 403)
    assert page.status_code == 200
    assert 'id="approve"' not in page.text
    assert room.held == []


async def test_an_item_is_for_its_owner_and_for_delegated_reviewers() -> None:
    for token, sees in (("lead-token", True), ("ana-token", True), ("ben-token", False)):
        room = make_room()
        (decision_id,) = room.add(make_decision("c-1"))
        assert (await act(room, decision_id, token)).status_code == (202 if sees else 404)
        await room.released()
        assert len(room.recorder.sent) == sees


async def test_the_reviewer_is_who_was_authenticated_whatever_a_request_says(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    async with room.client("lead-token", **{"x-forwarded-user": "ana"}) as client:
        refused = await client.post(f"/api/items/{decision_id}/actions", json={**ITEM, "reviewer": "ana"})
        asked = await client.post(f"/api/items/{decision_id}/actions?reviewer=ana", json=ITEM)
        taken = await client.post(f"/api/items/{decision_id}/actions", json=ITEM)
    await room.released()

    assert (refused.status_code, asked.status_code, taken.status_code) == (400, 400, 202)
    assert [(one.reviewer, one.user_id) for one in room.recorder.sent] == [("lead", "ana")]


class TestProxyHeader:
    HEADERS: ClassVar = {"x-auth-user": "lead", "x-auth-tenants": "acme"}

    @pytest.fixture
    def room(self) -> Room:
        names = {"proxy_header": "x-auth-user", "proxy_tenants_header": "x-auth-tenants"}
        return make_room(**names, proxy_addresses="10.0.0.7/32")

    async def test_only_the_proxy_says_who_it_is_even_beside_a_token(self, room) -> None:
        room.add(make_decision("c-1"))
        async with room.client(address="10.0.0.7", **self.HEADERS) as client:
            assert (await client.get("/api/queue")).json()["total"] == 1
        forged = {"x-forwarded-for": "10.0.0.7", "forwarded": "for=10.0.0.7"}
        for token in (None, "lead-token"):
            for address in ("10.0.0.8", "127.0.0.1", "::1", ""):
                async with room.client(token, address, **self.HEADERS, **forged) as client:
                    assert (await client.get("/api/queue")).status_code == 403
                    assert (await client.get("/")).status_code == 403

    async def test_half_an_identity_or_a_header_sent_twice_is_refused(self, room) -> None:
        twice = [("x-auth-user", "lead"), ("x-auth-user", "ana"), ("x-auth-tenants", "acme")]
        halves = (
            {"x-auth-user": "lead"},
            {"x-auth-user": "", "x-auth-tenants": "acme"},
            {"x-auth-user": "lead", "x-auth-tenants": " , "},
            {"x-auth-user": "lead", "x-auth-tenants": "no/tenant"},
        )
        async with room.client(address="10.0.0.7") as client:
            for headers in (twice, *(list(half.items()) for half in halves)):
                assert (headers, (await client.get("/api/queue", headers=headers)).status_code) == (
                    headers,
                    403,
                )

    async def test_a_write_through_the_proxy_needs_the_token_of_its_page(self, room) -> None:
        (decision_id,) = room.add(make_decision("c-1"))
        url = f"/api/items/{decision_id}/actions"
        async with room.client(address="10.0.0.7", **self.HEADERS) as client:
            token = await csrf(client)
            assert (await client.post(url, json=ITEM)).status_code == 403
            assert (await client.post(url, json=ITEM, headers={"x-csrf-token": token})).status_code == 202

    async def test_without_the_setting_a_header_says_nothing(self) -> None:
        room = make_room()
        async with room.client(address="10.0.0.7", **self.HEADERS) as client:
            assert (await client.get("/api/queue")).status_code == 401


async def test_a_session_shows_each_person_their_own(room) -> None:
    room.add(make_decision("c-1"), make_decision("c-2", tenant_id="globex", user_id="eve"))
    async with room.browser(EVE) as client:
        found = (await client.get("/api/queue")).json()["items"]

    assert [item["subject_id"] for item in found] == ["c-2"]


def test_a_console_on_the_network_needs_a_public_address_by_https() -> None:
    with pytest.raises(ValueError, match="PUBLIC_URL"):
        ConsoleSettings(host="0.0.0.0")  # noqa: S104 - what is refused
    with pytest.raises(ValueError, match="https"):
        ConsoleSettings(host="0.0.0.0", public_url="http://review.acme.example")  # noqa: S104 - as above

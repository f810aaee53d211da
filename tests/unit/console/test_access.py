"""Who gets what: every route, every kind of caller; what is another's is what does not exist."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import httpx
import pytest
from starlette.routing import Mount, Route

from groundwire.console.settings import ConsoleSettings
from tests.unit.console.rooms import EVE, LEAD, NOBODYS, Room, blocked, csrf, make_decision, make_room

ITEM = {"action": "approve", "revision": 1}
BULK = {"action": "approve", "ids": [{"id": NOBODYS, "revision": 1}]}


def with_api(pages: dict[str, Any], **api: Any) -> dict[str, Any]:
    """Return pages with the same addresses of the API, and what the API alone has."""
    twins = {"/api/queue" if path == "/" else f"/api{path}": sent for path, sent in pages.items()}
    return {**pages, **twins, **{f"/api{path}": sent for path, sent in api.items()}}


# path -> what a POST sends, None for a GET; every route of the application is in exactly one of these tables
PUBLIC: dict[str, Any] = {
    "/healthz": None,
    "/signin": None,
    "/signin/link": {},
    "/signin/oidc": None,
    "/signin/oidc/callback": None,
    "/signout": {},
    "/static": None,
}
SEARCHED = ("/queue", "/responses", "/approved", "/blocked")
EXPORTED = [f"/export{path}.{form}" for path in SEARCHED for form in ("csv", "jsonl")]
READ = ("/", "/responses", "/approved", "/blocked", "/dead-letters", "/sample")
VIEW = {"/views": {"name": "old ones", "query": "age=over_1d"}}
OPEN_TO_READERS = with_api(
    dict.fromkeys(READ) | VIEW | {f"{path}/search": {"search": "water"} for path in SEARCHED},
    **dict.fromkeys(["/actions", "/live", "/", *EXPORTED]),
)
OF_DELEGATES = with_api({"/status": None})
ONE = "/items/{decision_id:uuid}"
OF_AN_ITEM = with_api(
    {ONE: None, f"{ONE}/actions": ITEM, "/sample/{decision_id:uuid}": {"opinion": "approve"}},
    **{f"{ONE}/standing": None, f"{ONE}/lock": {}},
)
ACTION = "/actions/{action_id:uuid}"
OF_AN_ACTION = with_api({f"{ACTION}/dismiss": {}, f"{ACTION}/undo": {}}, **{ACTION: None})
OF_SEVERAL: dict[str, Any] = {"/bulk": {"action": "approve", "ids": f"{NOBODYS}:1"}, "/api/bulk": BULK}
OF_SEVERAL |= with_api({"/assignments": {"ids": f"{NOBODYS}:1"}})
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


@pytest.fixture
def room() -> Room:
    return make_room(audit_share=1)


def test_every_route_has_a_rule_in_the_tables_above(room) -> None:
    found = [route.path for route in room.app.routes if isinstance(route, (Route, Mount))]

    assert len(found) == len(room.app.routes)
    assert sorted(found) == sorted([*PUBLIC, *SIGNED_IN])


def test_every_route_takes_one_method(room) -> None:
    known = {**PUBLIC, **SIGNED_IN}
    for route in room.app.routes:
        if isinstance(route, Route):
            expected = {"GET", "HEAD"} if known[route.path] is None else {"POST"}
            assert route.methods == expected, route.path


@pytest.mark.parametrize("path", SIGNED_IN)
async def test_nobody_reads_or_writes_without_saying_who_they_are(room, path) -> None:
    room.add(make_decision("c-1", "A secret text."))
    async with room.client() as client:
        answer = await ask(client, path, SIGNED_IN[path])

    if SIGNED_IN[path] is None and not path.startswith("/api/"):
        assert (answer.status_code, answer.headers["location"]) == (303, "/signin")
    else:
        assert answer.status_code == 401
    assert "secret text" not in answer.text
    assert room.recorder.sent == []


@pytest.mark.parametrize("path", SIGNED_IN)
async def test_a_wrong_token_is_refused_even_beside_a_session_that_holds(room, browser, path) -> None:
    browser.headers["authorization"] = "Bearer something"
    answer = await ask(browser, path, SIGNED_IN[path])

    assert answer.status_code == 401


@pytest.mark.parametrize("path", [path for path in OPEN_TO_READERS if path != "/api/live"])
async def test_lists_show_of_another_tenant_nothing(room, path) -> None:
    room.add(make_decision("c-1", "A secret text."), blocked("c-2", "A secret text."))
    async with room.client("eve-token") as client:
        answer = await ask(client, path, OPEN_TO_READERS[path])

    assert answer.status_code in (200, 303)
    assert "secret" not in answer.text
    assert "c-1" not in answer.text
    assert "acme" not in answer.text


@pytest.mark.parametrize("token", ["eve-token", "ben-token"])
@pytest.mark.parametrize("path", OF_AN_ITEM)
async def test_anothers_item_and_none_get_the_same_answer(room, path, token) -> None:
    first, second = room.add(make_decision("c-1", "A secret text."), blocked("c-2"))
    async with room.client(token) as client:
        none = await ask(client, path, OF_AN_ITEM[path])
        for decision_id in (first, second):
            assert everything_of(await ask(client, path, OF_AN_ITEM[path], decision_id)) == everything_of(
                none
            )

    assert none.status_code == 404
    assert room.site.outbox.of(LEAD) == []


@pytest.mark.parametrize("path", OF_AN_ACTION)
async def test_anothers_action_and_none_get_the_same_answer(room, lead, path) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    action = (await lead.post(f"/api/items/{decision_id}/actions", json=ITEM)).json()["action_id"]
    async with room.client("ana-token") as client:  # who owns the item, and did not act
        theirs = await ask(client, path, OF_AN_ACTION[path], action)
        none = await ask(client, path, OF_AN_ACTION[path])

    assert none.status_code == 404
    assert everything_of(theirs) == everything_of(none)
    await room.released()
    assert len(room.recorder.sent) == 1


@pytest.mark.parametrize("path", OF_SEVERAL)
async def test_of_several_anothers_item_and_none_get_the_same_answer(room, path) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    async with room.client("eve-token") as client:
        if path.startswith("/api/"):
            answer = await client.post(
                path, json=OF_SEVERAL[path] | {"ids": [{"id": decision_id, "revision": 1}]}
            )
        else:
            answer = await client.post(path, data=OF_SEVERAL[path] | {"ids": f"{decision_id}:1"})
        none = await ask(client, path, OF_SEVERAL[path])

    theirs, missing = everything_of(answer), everything_of(none)
    assert (theirs[0], theirs[1].replace(decision_id, NOBODYS)) == missing[:2]
    await room.released()
    assert room.recorder.sent == []


@pytest.mark.parametrize("path", DECIDING)
async def test_who_may_only_look_decides_nothing(room, path) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    async with room.client("viewer-token") as client:
        answer = await ask(client, path, DECIDING[path], decision_id)
        page = await client.get(f"/items/{decision_id}")

    assert answer.status_code == 403
    assert page.status_code == 200
    assert 'id="approve"' not in page.text
    assert room.held == []


@pytest.mark.parametrize(("token", "sees"), [("lead-token", True), ("ana-token", True), ("ben-token", False)])
async def test_an_item_is_for_its_owner_and_for_delegated_reviewers(room, token, sees) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    async with room.client(token) as client:
        answer = await client.post(f"/api/items/{decision_id}/actions", json=ITEM)

    assert answer.status_code == (202 if sees else 404)
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

    async def test_the_proxy_says_who_it_is(self, room) -> None:
        room.add(make_decision("c-1"))
        async with room.client(address="10.0.0.7", **self.HEADERS) as client:
            assert (await client.get("/api/queue")).json()["total"] == 1

    @pytest.mark.parametrize("address", ["10.0.0.8", "127.0.0.1", "::1", ""])
    async def test_from_anybody_else_the_header_is_refused(self, room, address) -> None:
        room.add(make_decision("c-1"))
        forged = {"x-forwarded-for": "10.0.0.7", "forwarded": "for=10.0.0.7"}
        async with room.client(address=address, **self.HEADERS, **forged) as client:
            assert (await client.get("/api/queue")).status_code == 403
            assert (await client.get("/")).status_code == 403

    async def test_from_anybody_else_it_is_refused_even_beside_a_token(self, room) -> None:
        async with room.client("lead-token", address="10.0.0.8", **self.HEADERS) as client:
            assert (await client.get("/api/queue")).status_code == 403

    @pytest.mark.parametrize("headers", [{"x-auth-user": "lead"}, {"x-auth-user": "", "x-auth-tenants": "acme"},
                                         {"x-auth-user": "lead", "x-auth-tenants": " , "},
                                         {"x-auth-user": "lead", "x-auth-tenants": "no/tenant"}])  # fmt: skip
    async def test_half_an_identity_is_none(self, room, headers) -> None:
        async with room.client(address="10.0.0.7", **headers) as client:
            assert (await client.get("/api/queue")).status_code == 403

    async def test_a_header_sent_twice_is_refused(self, room) -> None:
        async with room.client(address="10.0.0.7") as client:
            twice = [("x-auth-user", "lead"), ("x-auth-user", "ana"), ("x-auth-tenants", "acme")]
            assert (await client.get("/api/queue", headers=twice)).status_code == 403

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

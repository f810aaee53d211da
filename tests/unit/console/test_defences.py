"""What stands before the routes: headers, hosts, origins, tokens of forms, limits, cookies and logs."""

from __future__ import annotations

import httpx
import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from groundwire.console.app import create_app
from groundwire.console.auth import OneTimeLinks
from groundwire.console.guard import MAX_BODY, Rates
from groundwire.console.settings import ConsoleSettings
from groundwire.console.site import Parts
from groundwire.errors import UsageError
from groundwire.review.permissions import Person
from tests.unit.console.rooms import ANA, ITEM, LEAD, Clock, csrf, html, make_decision, make_room

PATHS = (
    *("/", "/healthz", "/signin", "/static/console.css", "/static/none", "/none", "/api/queue", "/api/none"),
    "/blocked",
)


async def test_every_answer_carries_the_headers_that_confine_a_page(room, lead) -> None:
    wrong = []
    for path in PATHS:
        for method in ("GET", "POST", "DELETE"):
            headers = (await lead.request(method, path)).headers
            policy = headers["content-security-policy"]
            kept = "no-cache" if (path, method) == ("/static/console.css", "GET") else "no-store"
            if (
                not all(part in policy for part in ("default-src 'self'", "frame-ancestors 'none'"))
                or "unsafe" in policy
                or headers["x-content-type-options"] != "nosniff"
                or headers["referrer-policy"] != "no-referrer"
                or headers["cache-control"] != kept
                or "strict-transport-security" in headers
            ):
                wrong.append((method, path, dict(headers)))
    assert wrong == []


async def test_answers_that_come_before_any_route_carry_them_too(room) -> None:
    async with room.client() as client:
        answers = [
            await client.get("/", headers={"host": "evil.example"}),
            await client.post("/bulk", content=b"x" * (MAX_BODY + 1)),
            await client.post("/bulk", headers={"origin": "https://evil.example"}),
        ]

    assert [answer.status_code for answer in answers] == [421, 413, 403]
    assert all("frame-ancestors 'none'" in answer.headers["content-security-policy"] for answer in answers)


async def test_a_fault_tells_nothing_and_carries_the_headers(room, lead, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("the text of a claim")

    monkeypatch.setattr(type(room.board), "pending", broken)
    answer = await lead.get("/api/queue")

    assert answer.status_code == 500
    assert "text of a claim" not in answer.text
    assert "content-security-policy" in answer.headers


async def test_pages_hold_no_script_and_no_style_of_their_own(room, browser) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    for path in ("/", f"/items/{decision_id}", "/status", "/signin"):
        page = await html(browser, path)
        assert page.all("style") == []
        assert not [
            one for one in page.elements for name in one.attributes if name == "style" or name[:2] == "on"
        ]
        scripts = [(one.attributes.get("src", "")[:8], one.text) for one in page.all("script")]
        assert scripts == [("/static/", "")] * 2


async def test_by_https_the_browser_is_held_to_it() -> None:
    room = make_room(public_url="https://review.acme.example")
    transport = httpx.ASGITransport(room.app)
    async with httpx.AsyncClient(transport=transport, base_url="https://review.acme.example") as client:
        answer = await client.get("/signin")

    assert "max-age=" in answer.headers["strict-transport-security"]
    cookie = answer.headers["set-cookie"].lower()
    assert cookie.startswith("__host-groundwire=")
    assert "; secure" in cookie


async def test_cookies_are_for_this_site_and_for_no_script(room) -> None:
    async with room.client() as client:
        cookie = (await client.get("/signin")).headers["set-cookie"].lower()

    assert {"httponly", "samesite=lax"} <= set(cookie.split("; "))


async def test_only_the_console_s_own_names_are_answered(lead) -> None:
    for host in ("evil.example", "127.0.0.1:8701", "localhost:8700.evil.example", ""):
        assert (await lead.get("/api/queue", headers={"host": host})).status_code == 421
        assert (await lead.get("/healthz", headers={"host": host})).text == "ok\n"


async def test_a_write_from_another_site_is_refused_with_every_token(room, browser, lead) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    token, url, taken = await csrf(browser), f"/api/items/{decision_id}/actions", []
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://127.0.0.1:8700", "sec-fetch-site": "cross-site"},
        {"origin": "https://evil.example", "sec-fetch-site": "same-origin"},
    ):
        by_page = await browser.post(url, json=ITEM, headers={"x-csrf-token": token, **headers})
        by_token = await lead.post(url, json=ITEM, headers=headers)
        if (by_page.status_code, by_token.status_code) != (403, 403):
            taken.append(headers)
    assert taken == []
    assert room.held == []


async def test_a_form_of_our_own_page_is_accepted_with_its_token_alone() -> None:
    for headers in (
        {},
        {"origin": "http://127.0.0.1:8700"},
        {"origin": "null", "sec-fetch-site": "same-origin"},
    ):
        room = make_room()
        (decision_id,) = room.add(make_decision("c-1"))
        form = {"action": "approve", "revision": "1"}
        async with room.browser() as client, room.browser(ANA) as another:
            tokens = (None, "x", await csrf(another), await csrf(client))
            answers = [
                await client.post(
                    f"/items/{decision_id}/actions",
                    data=form | ({} if token is None else {"csrf": token}),
                    headers=headers,
                )
                for token in tokens
            ]
        assert (headers, [one.status_code for one in answers]) == (headers, [403, 403, 403, 303])
        assert len(room.held) == 1


async def test_json_needs_the_token_in_a_header_and_json_as_its_type(room, browser) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    url = f"/api/items/{decision_id}/actions"
    token = await csrf(browser)
    assert (await browser.post(url, json={**ITEM, "csrf": token})).status_code == 403
    plain = {"x-csrf-token": token, "content-type": "text/plain"}
    assert (
        await browser.post(url, content=b'{"action": "approve", "revision": 1}', headers=plain)
    ).status_code == 415
    assert (await browser.post(url, json=ITEM, headers={"x-csrf-token": token})).status_code == 202


async def test_sign_in_and_sign_out_need_the_token_of_their_form(room, browser) -> None:
    secret = room.site.links.issue(LEAD)
    async with room.client() as client:
        await client.get("/signin")
        assert (await client.post("/signin/link", data={"secret": secret})).status_code == 403
    assert (await browser.post("/signout", data={"csrf": ""})).status_code == 403
    assert (await browser.get("/api/queue")).status_code == 200


async def test_a_link_signs_in_once_and_the_session_is_a_new_one(room) -> None:
    secret = room.site.links.issue(LEAD)
    async with room.client() as client, room.client() as thief:
        before = await csrf(client, "/signin")
        answer = await client.post("/signin/link", data={"csrf": before, "secret": secret})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert await csrf(client) != before
        again = await thief.post(
            "/signin/link", data={"csrf": await csrf(thief, "/signin"), "secret": secret}
        )
        assert again.status_code == 403
        assert (await thief.get("/api/queue")).status_code == 401


def test_a_link_works_for_ten_minutes() -> None:
    for minutes, works in ((9.99, True), (10, False)):
        clock = Clock()
        links = OneTimeLinks(clock)
        secret = links.issue(LEAD)
        clock.forward(minutes=minutes)

        assert (links.redeem(secret) == LEAD) is works
        assert links.redeem(secret) is None


async def test_signing_out_ends_the_session_for_copies_of_its_cookie_too(room) -> None:
    async with room.browser() as client, room.client() as copy:
        copy.cookies = httpx.Cookies(client.cookies)
        assert (await copy.get("/api/queue")).status_code == 200
        await client.post("/signout", data={"csrf": await csrf(client)})
        assert (await copy.get("/api/queue")).status_code == 401
        assert (await client.get("/api/queue")).status_code == 401


async def test_a_session_ends_after_its_hours_however_much_it_is_used(room, browser) -> None:
    room.clock.forward(hours=7.9)
    assert (await browser.get("/api/queue")).status_code == 200
    room.clock.forward(hours=0.1)
    assert (await browser.get("/api/queue")).status_code == 401


async def test_a_cookie_that_this_console_did_not_sign_is_none(room) -> None:
    other = make_room()
    async with other.browser() as client, room.client() as copy:
        copy.cookies = httpx.Cookies(client.cookies)
        assert (await copy.get("/api/queue")).status_code == 401


async def test_a_body_of_unknown_length_is_cut_off(room) -> None:
    async def endless() -> object:
        while True:
            yield b"x" * 65_536

    async with room.client("lead-token", **{"content-type": "application/json"}) as client:
        answer = await client.post("/api/bulk", content=endless())  # type: ignore[arg-type]

    assert answer.status_code == 413


NO_ACTIONS = [
    b"",
    b"[]",
    b"{",
    b'{"action": "approve", "action": "reject"}',
    b"\xff",
    b"NaN",
    b'{"action": "approve", "revision": true}',
    b'{"action": "approve", "revision": 0}',
    b'{"action": "expire", "revision": 1}',
    b'{"revision": 1}',
    b'{"action": "approve", "revision": 1, "tenant_id": "x"}',
    b'{"action": "reject", "revision": 1}',
    b'{"action": "reject", "revision": 1, "reason": "because"}',
    b'{"action": "approve", "revision": 1, "note": "\\u0000"}',
    b'{"action": "edit", "revision": 1}',
    b'{"action": "approve", "revision": 1, "content": "x"}',
]


async def test_a_request_that_is_no_action_is_refused_and_nothing_is_held(room) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    path = f"/api/items/{decision_id}/actions"
    async with room.client("lead-token", **{"content-type": "application/json"}) as client:
        found = {one: (await client.post(path, content=one)).status_code for one in NO_ACTIONS}

    assert found == dict.fromkeys(NO_ACTIONS, 400)
    assert room.held == []


async def test_who_asks_too_often_waits_whichever_address_they_use() -> None:
    room = make_room(rate_identity=3)
    answers = []
    for number in range(4):
        async with room.client("lead-token", address=f"10.0.0.{number}") as client:
            answers.append(await client.get("/api/queue"))
    async with room.client("ana-token") as client:
        assert (await client.get("/api/queue")).status_code == 200

    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert int(answers[3].headers["retry-after"]) >= 1


async def test_an_address_that_asks_too_often_waits_whoever_it_says_it_is() -> None:
    room = make_room(rate_address=3)
    async with room.client() as client:
        statuses = [(await client.get("/signin")).status_code for _ in range(4)]
        room.clock.forward(seconds=21)
        statuses.append((await client.get("/signin")).status_code)

    assert statuses == [200, 200, 200, 429, 200]


async def test_secrets_cannot_be_tried_in_quick_succession() -> None:
    room = make_room(rate_signin=2)
    async with room.client() as client:
        form = {"csrf": await csrf(client, "/signin"), "secret": "guess"}
        statuses = [(await client.post("/signin/link", data=form)).status_code for _ in range(3)]

    assert statuses == [403, 403, 429]


@given(st.lists(st.tuples(st.integers(0, 30_000), st.floats(0, 100)), max_size=50))
def test_limits_keep_a_bounded_memory_and_never_let_more_through_at_once(calls) -> None:
    now = 0.0
    rates = Rates(5, lambda: now)
    for caller, later in calls:
        now += later
        passed = [rates.take(str(caller)) == 0.0 for _ in range(8)]
        assert sum(passed) <= 5
    for caller in range(20_050):
        rates.take(f"other {caller}")

    assert len(rates) == 20_000


async def test_logs_hold_no_text_no_query_and_no_secret(room) -> None:
    (decision_id,) = room.add(make_decision("c-1", "A secret text."))
    secret = room.site.links.issue(LEAD)
    with structlog.testing.capture_logs() as logs:
        async with room.client() as client:
            token = await csrf(client, "/signin")
            await client.post("/signin/link", data={"csrf": token, "secret": secret})
            token = await csrf(client)
            await client.get("/?user=ana&tenant=acme&search=sought+words")
            await client.get("/sought/words?q=sought")
            reject = {
                "csrf": token,
                "action": "reject",
                "revision": "1",
                "reason": "other",
                "note": "noted words",
            }
            await client.post(f"/items/{decision_id}/actions", data=reject)
            await room.released()

    said = str(logs)
    assert len(logs) > 6
    for text in ("secret text", "sought", "noted", secret, "user=ana", token):
        assert text not in said


async def test_the_log_tells_of_pages_and_not_of_the_files_that_they_are_made_of(room) -> None:
    with structlog.testing.capture_logs() as logs:
        async with room.client() as client:
            assert (await client.get("/static/console.css")).status_code == 200
            assert logs == []
            assert (await client.get("/static/none.css")).status_code == 404
            await client.get("/signin")

    assert [(line["route"], line["status"]) for line in logs][1:] == [("/signin", 200)]
    assert logs[0]["status"] == 404


def test_a_console_without_a_way_to_sign_in_does_not_start() -> None:
    room = make_room()
    parts = Parts(room.board, room.site.permissions, room.recorder)
    with pytest.raises(UsageError, match="no way to sign in"):
        create_app(ConsoleSettings(), parts)
    app, secret = create_app(ConsoleSettings(), parts, Person("ann", frozenset({"acme"})))
    assert secret is not None
    assert app.state.site.links

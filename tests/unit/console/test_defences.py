"""What a request passes before the routes, how the console starts, and that it ends with no socket open."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from types import SimpleNamespace

import httpx
import pytest
import structlog
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from groundwire.cli import console as command
from groundwire.cli.console import console
from groundwire.console.app import make_server, serve
from groundwire.console.guard import MAX_BODY, Rates
from groundwire.console.settings import ConsoleSettings
from groundwire.errors import UsageError
from tests.unit.console.rooms import ANA, ITEM, LEAD, make_decision, make_room


async def test_every_answer_carries_the_headers_that_confine_a_page(room, lead, monkeypatch) -> None:
    """Also a refusal before any route, as of another host's name, and a fault, which tells nothing."""
    wrong = []
    for path in ("/", "/healthz", "/signin", "/static/console.css", "/static/none", "/none", "/api/queue"):
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

    def broken(*_: object) -> None:
        raise RuntimeError("the text of a claim")

    async def endless() -> object:
        while True:
            yield b"x" * 65_536

    monkeypatch.setattr(type(room.board), "pending", broken)
    hosts = ("evil.example", "127.0.0.1:8701", "localhost:8700.evil.example", "")
    answers = [
        *[await lead.get("/api/queue", headers={"host": host}) for host in hosts],
        await lead.post("/bulk", content=b"x" * (MAX_BODY + 1)),
        await lead.post("/api/bulk", content=endless(), headers={"content-type": "application/json"}),
        await lead.post("/bulk", headers={"origin": "https://evil.example"}),
        await lead.get("/api/queue"),
    ]
    assert [answer.status_code for answer in answers] == [421] * 4 + [413, 413, 403, 500]
    assert all("frame-ancestors 'none'" in answer.headers["content-security-policy"] for answer in answers)
    assert "text of a claim" not in answers[-1].text
    for host in hosts:
        assert (await lead.get("/healthz", headers={"host": host})).text == "ok\n"


async def test_cookies_are_for_this_site_and_for_no_script_and_by_https_the_browser_is_held_to_it() -> None:
    for settings, url in (
        ({}, "http://127.0.0.1:8700"),
        ({"public_url": "https://a.example"}, "https://a.example"),
    ):
        transport = httpx.ASGITransport(make_room(**settings).app)
        async with httpx.AsyncClient(transport=transport, base_url=url) as client:
            answer = await client.get("/signin")
        cookie, secure = answer.headers["set-cookie"].lower(), bool(settings)
        assert {"httponly", "samesite=lax"} <= set(cookie.split("; "))
        assert (cookie.startswith("__host-groundwire="), "; secure" in cookie) == (secure, secure)
        assert ("max-age=" in answer.headers.get("strict-transport-security", "")) == secure


async def test_a_write_from_another_site_is_refused_with_every_token(room, browser, lead) -> None:
    (decision_id,) = room.add(make_decision("c-1"))
    token, url, taken = await browser.csrf(), f"/api/items/{decision_id}/actions", []
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


async def test_a_write_of_our_own_page_is_accepted_with_the_token_of_that_page_alone() -> None:
    """Forms carry it in a field, requests of scripts in a header; also those to sign in and out."""
    for headers in (
        {},
        {"origin": "http://127.0.0.1:8700"},
        {"origin": "null", "sec-fetch-site": "same-origin"},
    ):
        room = make_room()
        first, second = room.add(make_decision("c-1"), make_decision("c-2"))
        async with room.client() as stranger, room.browser() as client, room.browser(ANA) as another:
            tokens = ("", "x", await another.csrf(), await client.csrf())
            found = []
            for token in tokens:
                form = ITEM | {"csrf": token}
                sent = [
                    await client.post(f"/items/{first}/actions", data=form, headers=headers),
                    await client.post(f"/api/items/{second}/actions", json=form, headers=headers),
                    await client.post(
                        f"/api/items/{second}/actions", json=ITEM, headers={**headers, "x-csrf-token": token}
                    ),
                ]
                found.append([answer.status_code for answer in sent])
            assert (headers, found) == (headers, [[403, 403, 403]] * 3 + [[303, 403, 202]])
            assert len(room.held) == 2
            await stranger.get("/signin")
            form = {"secret": room.site.links.issue(LEAD)}
            assert (await stranger.post("/signin/link", data=form, headers=headers)).status_code == 403
            assert (await client.post("/signout", data={"csrf": ""}, headers=headers)).status_code == 403
            assert (await client.get("/api/queue")).status_code == 200


async def test_a_link_signs_in_once_within_ten_minutes_and_the_session_is_a_new_one(room) -> None:
    secret = room.site.links.issue(LEAD)
    async with room.client() as client, room.client() as thief:
        before = await client.csrf("/signin")
        answer = await client.post("/signin/link", data={"csrf": before, "secret": secret})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert await client.csrf() != before
        form = {"csrf": await thief.csrf("/signin"), "secret": secret}
        assert (await thief.post("/signin/link", data=form)).status_code == 403
        assert (await thief.get("/api/queue")).status_code == 401
    for minutes, works in ((9.99, True), (10, False)):
        secret = room.site.links.issue(LEAD)
        room.clock.forward(minutes=minutes)
        assert (room.site.links.redeem(secret) == LEAD) == works


async def test_a_session_ends_by_signing_out_for_copies_of_its_cookie_too_and_after_its_hours(room) -> None:
    async with room.browser() as client, room.client() as copy, make_room().browser() as foreign:
        copy.cookies = httpx.Cookies(client.cookies)
        assert (await copy.get("/api/queue")).status_code == 200
        await client.post("/signout", data={"csrf": await client.csrf()})
        assert [(await one.get("/api/queue")).status_code for one in (copy, client)] == [401, 401]
        copy.cookies = httpx.Cookies(foreign.cookies)
        assert (await copy.get("/api/queue")).status_code == 401, "this console did not sign it"
    async with room.browser() as client:
        for hours, status in ((7.9, 200), (0.1, 401)):
            room.clock.forward(hours=hours)
            assert (await client.get("/api/queue")).status_code == status


async def test_a_request_that_is_no_action_is_refused_and_nothing_is_held(room) -> None:
    requests = [
        *(b"", b"[]", b"{", b"\xff", b"NaN", b'{"action": "approve", "action": "reject"}'),
        b'{"action": "approve", "revision": true}',
        b'{"action": "approve", "revision": 0}',
        b'{"action": "expire", "revision": 1}',
        b'{"action": "reject", "revision": 1, "reason": "because"}',
        b'{"action": "approve", "revision": 1, "note": "\\u0000"}',
        b'{"action": "edit", "revision": 1}',
        b'{"action": "approve", "revision": 1, "content": "x"}',
    ]
    (decision_id,) = room.add(make_decision("c-1"))
    path = f"/api/items/{decision_id}/actions"
    async with room.client("lead-token", **{"content-type": "application/json"}) as client:
        found = {one: (await client.post(path, content=one)).status_code for one in requests}
    assert found == dict.fromkeys(requests, 400)
    assert room.held == []


async def test_a_person_an_address_and_who_tries_secrets_wait_after_too_many_requests() -> None:
    room = make_room(rate_identity=3)
    answers = []
    for number in range(4):
        async with room.client("lead-token", address=f"10.0.0.{number}") as client:
            answers.append(await client.get("/api/queue"))
    async with room.client("ana-token") as client:
        assert (await client.get("/api/queue")).status_code == 200
    assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
    assert int(answers[3].headers["retry-after"]) >= 1
    room = make_room(rate_address=3)
    async with room.client() as client:
        statuses = [(await client.get("/signin")).status_code for _ in range(4)]
        room.clock.forward(seconds=21)
        statuses.append((await client.get("/signin")).status_code)
    assert statuses == [200, 200, 200, 429, 200]
    async with make_room(rate_signin=2).client() as client:
        form = {"csrf": await client.csrf("/signin"), "secret": "guess"}
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


async def test_logs_tell_of_pages_not_of_their_files_and_hold_no_text_query_or_secret(room) -> None:
    (decision_id,) = room.add(make_decision("c-1", "A secret text."))
    secret = room.site.links.issue(LEAD)
    with structlog.testing.capture_logs() as logs:
        async with room.client() as client:
            assert (await client.get("/static/console.css")).status_code == 200
            assert logs == []
            assert (await client.get("/static/none.css")).status_code == 404
            token = await client.csrf("/signin")
            await client.post("/signin/link", data={"csrf": token, "secret": secret})
            token = await client.csrf()
            await client.get("/?user=ana&tenant=acme&search=sought+words")
            await client.get("/sought/words?q=sought")
            reject = {"csrf": token, "action": "reject", "revision": "1", "reason": "other", "note": "noted"}
            await client.post(f"/items/{decision_id}/actions", data=reject)
            await room.released()
    said = str(logs)
    assert logs[0]["status"] == 404
    assert (logs[1]["route"], logs[1]["status"]) == ("/signin", 200)
    assert len(logs) > 6
    for text in ("secret text", "sought", "noted", secret, "user=ana", token):
        assert text not in said


def test_a_console_that_lacks_a_setting_or_a_port_does_not_start_and_names_it_and_no_secret(tmp_path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text("""
[keys.console]
secret = "s"
tenants = ["acme"]
roles = ["reviewer"]
[keys.docs]
secret = "d"
tenants = ["acme"]
""")
    keys.chmod(0o600)

    def said_at_the_start(arguments: list[str], **environment: str) -> str:
        given = {"KEYS_FILE": str(keys), "CONSOLE_PORT": "0"} | environment
        named = {f"GROUNDWIRE_{name}": value for name, value in given.items()}
        result = CliRunner().invoke(console, arguments, env=named)
        assert result.exit_code == 2
        return result.output

    link = ["--one-time-link", "--name", "ann"]
    wrong = []
    for environment, said in (
        ({}, "GROUNDWIRE_CONSOLE_KEY is not set"),
        ({"CONSOLE_KEY": "other"}, "GROUNDWIRE_CONSOLE_KEY: no key 'other'"),
        ({"CONSOLE_KEY": "docs"}, "role reviewer"),
        ({"KEYS_FILE": ""}, "GROUNDWIRE_KEYS_FILE is not set"),
        ({"KEYS_FILE": "/nowhere", "CONSOLE_KEY": "x"}, "GROUNDWIRE_KEYS_FILE: keys file /nowhere"),
        ({"CONSOLE_PORT": "8o00"}, "GROUNDWIRE_CONSOLE_PORT"),
        ({"CONSOLE_PORT": "8o00"}, "'8o00'"),
        ({"CONSOLE_HOST": "192.0.2.1"}, "GROUNDWIRE_CONSOLE_PUBLIC_URL"),
        ({"CONSOLE_HOST": "192.0.2.1", "CONSOLE_PUBLIC_URL": "http://review.acme.example"}, "https"),
        ({"CONSOLE_UNDO_SECONDS": "-1"}, "GROUNDWIRE_CONSOLE_UNDO_SECONDS"),
        ({"CONSOLE_SECRET": "tooshort"}, "GROUNDWIRE_CONSOLE_SECRET"),
        ({"CONSOLE_OIDC_ISSUER": "https://id.example"}, "GROUNDWIRE_CONSOLE_OIDC_CLIENT_ID"),
        ({"CONSOLE_PROXY_HEADER": "x-user"}, "GROUNDWIRE_CONSOLE_PROXY_ADDRESSES"),
        ({"CONSOLE_PUBLIC_URL": "review.example"}, "GROUNDWIRE_CONSOLE_PUBLIC_URL"),
    ):
        output = said_at_the_start(link, **environment)
        if said not in output or "tooshort" in output:
            wrong.append((environment, output))
    assert wrong == []
    assert all(field.description for field in ConsoleSettings.model_fields.values()), "each is explained"
    assert "no way to sign in" in said_at_the_start([], CONSOLE_KEY="console")
    assert "--name" in said_at_the_start(["--one-time-link"])
    assert "--one-time-link" in said_at_the_start(["--name", "ann"])
    for name in ("CONSOLE_PORT", "METRICS_PORT"):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            output = said_at_the_start(link, **{"CONSOLE_KEY": "console", name: str(port)})
        assert f"127.0.0.1:{port} cannot be bound" in output
        assert f"GROUNDWIRE_{name}" in output


def app_of(*routes: Route) -> Starlette:
    async def close() -> None: ...

    app = Starlette(routes=routes)
    app.state.site = SimpleNamespace(live=SimpleNamespace(close=close))
    return app


def test_the_console_ends_with_what_its_feed_ends_with(monkeypatch) -> None:
    """Else its pages would stay as they are."""

    async def run() -> None:
        raise UsageError("board.db: database or disk is full")

    monkeypatch.setattr(command, "create_app", lambda *_: (app_of(), None))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = command._serve(ConsoleSettings(), None, SimpleNamespace(run=run), listening, ())
        with pytest.raises(UsageError, match="disk is full"):
            asyncio.run(asyncio.wait_for(serving, 10))


def test_who_does_not_read_the_answer_to_its_end_leaves_no_socket_open() -> None:
    """What is still open when the server ends is cut off."""
    asked = asyncio.Event()

    async def large(_: Request) -> Response:
        asked.set()
        return Response(b"x" * 20_000_000)

    async def served_once(listening: socket.socket) -> None:
        app = app_of(Route("/", large))
        server = make_server(app)
        server.config.timeout_graceful_shutdown = 0
        serving = asyncio.create_task(serve(server, app, listening))
        await asked.wait()
        server.should_exit = True
        await serving

    with (
        warnings.catch_warnings(record=True) as told,
        socket.create_server(("127.0.0.1", 0)) as listening,
        socket.create_connection(listening.getsockname()) as client,
    ):
        warnings.simplefilter("always")
        client.sendall(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
        asyncio.run(served_once(listening))
        gc.collect()
    assert [str(one.message) for one in told if one.category is ResourceWarning] == []

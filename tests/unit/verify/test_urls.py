"""URLs at servers of every kind (S0-65, S0-75, C-15)."""

import asyncio
import contextlib
import gzip
import socket

import httpx
import pytest

from groundwire.config import Settings
from groundwire.verify.pacing import HostPausedError, NotAskedError, Pacer, PacingLimits
from groundwire.verify.ssrf import AddressGuard
from groundwire.verify.url import GuardedTransport, UrlChecker, page_text
from tests.unit.checks.growth import assert_linear

from .server import Reply


async def asked_alone(url, guard=None, **options):
    checker = UrlChecker(guard, pacer=Pacer(PacingLimits(spacing=0.0)))
    check = await checker.check(url, **options)
    await checker.close()
    return check.state.value, check.detail


async def test_only_a_final_status_of_200_verifies_to_head_or_where_that_is_refused_to_a_ranged_get(
    server, urls
):
    expected = {200: "verified", 404: "not_found", 410: "not_found"}
    expected |= dict.fromkeys((201, 204, 206, 300, 304, 400, 401, 403, 418, 429, 500, 502, 503), "unknown")
    found = {}
    for status in expected:
        server.routes["/x"] = Reply(status)
        check = await urls.check(server.url("/x"), tenant=str(status))
        assert check.detail == f"HTTP {status}"
        found[status] = check.state.value
    assert found == expected
    server.asked.clear()  # with HEAD, and without credentials or cookies
    server.routes["/x"] = Reply(200, {"Set-Cookie": "id=1; Path=/"})
    for _ in range(2):
        await urls.check(server.url("/x"))
    assert [a.method for a in server.asked] == ["HEAD", "HEAD"]
    assert not any({"cookie", "authorization"} & a.headers.keys() for a in server.asked)
    wrong = []
    for refusal in (405, 501):
        for answer, state in ((200, "verified"), (206, "verified"), (404, "not_found")):
            server.asked.clear()
            server.routes["/x"] = lambda asked, r=refusal, a=answer: Reply(r if asked.method == "HEAD" else a)
            found = (await urls.check(server.url("/x"))).state
            methods = [(a.method, a.headers.get("range")) for a in server.asked]
            if (found, methods) != (state, [("HEAD", None), ("GET", "bytes=0-0")]):
                wrong.append((refusal, answer, found, methods))
    assert wrong == []


async def test_redirects_are_followed_to_the_final_status_at_most_five(server, urls):
    server.routes["/b"] = Reply(200)
    for status in (301, 302, 303, 307, 308):
        server.routes["/a"] = Reply(status, {"Location": "b"})
        check = await urls.check(server.url("/a"))
        assert (check.state, check.detail) == ("verified", "HTTP 200"), status
    server.routes["/a"] = Reply(302)
    assert (await urls.check(server.url("/a"))).detail == "HTTP 302", "without a target"
    for hops, state in ((5, "verified"), (6, "unknown")):
        server.asked.clear()
        server.routes |= {f"/{n}": Reply(302, {"Location": f"/{n + 1}"}) for n in range(hops)}
        server.routes[f"/{hops}"] = Reply(200)
        assert ((await urls.check(server.url("/0"))).state, len(server.asked)) == (state, 6)


async def test_a_redirect_proves_nothing_at_another_host_or_a_sign_in_page():
    """Only a page of the cited host, or of one that the operator allows, shows that what is cited exists."""

    async def end_at(location, cited="http://cited.example/page"):
        def answer(request):
            if request.url.host == "cited.example" and request.url.path.startswith("/page"):
                return httpx.Response(302, headers={"Location": location})
            return httpx.Response(200)

        hosts = "publisher.example", ".group.example"
        return await UrlChecker(transport=httpx.MockTransport(answer), redirect_hosts=hosts).check(cited)

    away, sign_in, wrong = "redirected to another host", "redirected to a sign-in page", []
    for location, detail in (
        ("https://cited.example/moved/page", "HTTP 200"),
        ("https://www.cited.example/elsewhere", "HTTP 200"),
        ("https://parked.example/", away),
        ("https://cited.example.evil.example/", away),
        ("https://sub.cited.example/", away),
        ("https://cited.example/login?next=/page", sign_in),
        ("https://cited.example/users/sign_in", sign_in),
        ("https://login.cited.example/", sign_in),
        ("https://publisher.example/article", "HTTP 200"),
        ("https://cdn.group.example/article", "HTTP 200"),
        ("https://group.example/article", away),
        ("https://publisher.example/oauth2/authorize", sign_in),
    ):
        check = await end_at(location)
        state = "verified" if detail == "HTTP 200" else "unknown"
        if (check.state, check.detail, check.may_pass) != (state, detail, False):
            wrong.append((location, check))
    assert wrong == []
    own = await end_at("https://cited.example/moved/login", "http://cited.example/page/login")
    assert own.state == "verified", "who cites a page about signing in cites that page"


async def test_what_may_be_reached_and_where_citations_may_end_stands_in_the_settings(server):
    server.routes["/a"] = Reply(302, {"Location": f"http://localhost:{server.port}/b"})
    server.routes["/b"] = Reply(200)
    reach = {"allow_networks": "127.0.0.0/8, ::1/128", "allow_ports": str(server.port)}
    for settings, state in (
        (Settings(**reach, redirect_hosts=" .example.org,localhost"), "verified"),
        (Settings(**reach), "unknown"),
        (Settings(), "unknown"),
    ):
        checker = UrlChecker.of(settings)
        assert (await checker.check(server.url("/a"))).state == state
        await checker.close()


async def test_a_host_that_refuses_is_healthy_and_one_that_cannot_answer_is_paused(server):
    """401 and 403 are answers: no other citation of the host has to wait for them."""
    guard = AddressGuard(["127.0.0.0/8"], ports=[server.port])
    for status, paused in ((401, False), (403, False), (418, False), (429, True), (503, True)):
        server.routes["/x"], server.routes["/y"] = Reply(status), Reply(200)
        checker = UrlChecker(guard, pacer=Pacer(PacingLimits(spacing=0.0, failures=2)))
        for _ in range(3):
            with contextlib.suppress(NotAskedError):
                await checker.check(server.url("/x"))
        with pytest.raises(HostPausedError) if paused else contextlib.nullcontext():
            assert (await checker.check(server.url("/y"))).state == "verified", status
        assert (await checker.check(server.url("/y"), tenant="another")).state == "verified", status
        await checker.close()


async def test_a_url_or_redirect_that_may_not_or_cannot_be_asked_is_unknown_and_says_why(
    server, urls, monkeypatch
):
    expected = {
        "http://example.org:8080/": "port 8080 is not allowed",
        "http://example.org/" + "x" * 3000: "URL too long",
        "http://ex\x00ample.org/": "invalid URL",
    }
    others = "ftp://example.org/x", "javascript:alert(1)", "/relative", ""
    expected |= dict.fromkeys(others, "only http and https are followed")
    credentials = "http://user:secret@example.org/", "http://user@example.org/"
    expected |= dict.fromkeys(credentials, "credentials in URL")
    hosts = "http:///x", "http://exa mple.org/", "http://[fe80::1%25eth0]/"
    expected |= dict.fromkeys(hosts, "invalid host")
    checks = {url: await urls.check(url) for url in expected}
    assert {url: check.detail for url, check in checks.items()} == expected
    assert {check.state for check in checks.values()} == {"unknown"}
    targets = "file:///etc/passwd", "ftp://example.org/", "http://a:b@127.0.0.1/"
    for location in (*targets, "http://127.0.0.1:22/", "http://[::"):  # it may not be followed
        server.asked.clear()
        server.routes["/a"] = Reply(302, {"Location": location})
        assert (await urls.check(server.url("/a"))).state == "unknown", location
        assert len(server.asked) == 1, location
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):  # no proxy is used
        monkeypatch.setenv(name, server.url(""))
    before = server.connections
    assert await asked_alone("http://127.0.0.1/") == ("unknown", "blocked address")
    assert server.connections == before

    async def nothing(host, port):
        raise socket.gaierror(-2, "Name or service not known")

    dead = AddressGuard(["127.0.0.0/8"], ports=[9])
    assert await asked_alone("http://127.0.0.1:9/", dead) == ("unknown", "connection refused")
    assert await asked_alone("http://no.example/", AddressGuard(resolver=nothing)) == ("unknown", "DNS error")
    for raw in (b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 200 OK\r\n" + b"A: " + b"x" * 2_000_000):
        server.routes["/x"] = Reply(raw=raw)
        assert (await urls.check(server.url("/x"))).state == "unknown"
    check = await urls.check(f"https://127.0.0.1:{server.port}/", budget=0.3)
    assert check.state == "unknown", "a TLS handshake with a plain server"


async def test_a_slow_answer_name_server_or_redirect_spends_the_budget_and_waiting_for_a_place_does_not(
    server, urls
):
    pacer = Pacer(PacingLimits(per_host=1, spacing=0.0))
    checker = UrlChecker(AddressGuard(["127.0.0.0/8"], ports=[server.port]), pacer=pacer)
    server.routes["/x"] = Reply(200, delay=0.5)
    checks = await asyncio.gather(*(checker.check(server.url("/x"), budget=2) for _ in range(5)))
    await checker.close()
    assert {c.state for c in checks} == {"verified"}
    assert server.most_in_flight == 1

    async def never(*_):
        await asyncio.Event().wait()

    server.routes["/x"] = never
    check = await urls.check(server.url("/x"), budget=0.2)
    assert (check.state, check.detail) == ("unknown", "timeout after 0.2 s")
    guard = AddressGuard(["127.0.0.0/8"], resolver=never)
    assert await asked_alone("http://slow.example/", guard, budget=0.1) == ("unknown", "timeout after 0.1 s")
    for n in range(5):
        server.routes[f"/{n}"] = Reply(302, {"Location": f"/{n + 1}"}, delay=0.15)
    server.routes["/5"] = Reply(200)
    assert (await urls.check(server.url("/0"), budget=0.4)).state == "unknown"


async def test_a_body_is_read_no_further_than_needed_and_layers_are_never_unpacked_twice(server, urls):
    big = b"word " * 10_000_000
    server.routes["/x"] = lambda asked: Reply(405 if asked.method == "HEAD" else 200, body=big)
    assert (await urls.check(server.url("/x"))).state == "verified"
    server.routes["/x"] = Reply(200, {"Content-Type": "text/plain"}, big)
    assert (await urls.check(server.url("/x"), want_text=True)).state == "verified"
    assert server.written < len(big)
    server.routes["/x"] = lambda asked: Reply(405 if asked.method == "HEAD" else 200, body=b"x" * 1_000_000)
    guard = AddressGuard(["127.0.0.0/8"], ports=[server.port])
    checker = UrlChecker(guard, transport=GuardedTransport(guard, max_connections=1))
    states = [(await checker.check(server.url("/x"), budget=10.0)).state for _ in range(3)]
    await checker.close()
    assert states == ["verified"] * 3
    bomb = gzip.compress(b"word " * 5_000_000)
    text = page_text(bomb, {"content-type": "text/plain", "content-encoding": "gzip"})
    assert 0 < len(text or "") <= 262_144
    layers = gzip.compress(gzip.compress(b"\0" * 20_000_000))
    for body, encoding in ((bomb, "gzip"), *((layers, e) for e in ("gzip, gzip", "gzip", "br", "zstd"))):
        server.routes["/x"] = Reply(200, {"Content-Type": "text/plain", "Content-Encoding": encoding}, body)
        check = await urls.check(server.url("/x"), want_text=True)
        assert (check.state, len(check.text or "") <= 20_000) == ("verified", True), encoding


async def test_text_is_the_words_of_a_page_without_markup_and_scripts_at_linear_cost_and_of_text_alone(
    server, urls
):
    page = b"<html><script>var nonsense</script><p>Postgres &amp; Redis</p><style>p{}</style> stay</html>"
    for kind, text in (
        ("text/html; charset=utf-8", "Postgres & Redis stay"),
        ("image/png", None),
        ("application/octet-stream", None),
    ):
        server.routes["/x"] = Reply(200, {"Content-Type": kind}, page)
        check = await urls.check(server.url("/x"), want_text=True)
        assert (check.state, check.text) == ("verified", text), kind
    for markup in ("<script", "<a <b>"):
        assert_linear(lambda page: page_text(page.encode(), {"content-type": "text/html"}), markup)

"""URLs at servers of every kind (S0-65, S0-75, C-15)."""

import asyncio
import contextlib
import gzip
import time

import httpx
import pytest

from groundwire.config import Settings
from groundwire.verify.pacing import HostPausedError, NotAskedError, Pacer, PacingLimits
from groundwire.verify.ssrf import AddressGuard
from groundwire.verify.transport import GuardedTransport
from groundwire.verify.url import UrlChecker, page_text

from .server import Reply


@pytest.mark.parametrize(
    ("status", "state"),
    [(200, "verified"), (404, "not_found"), (410, "not_found")]
    + [(s, "unknown") for s in (201, 204, 206, 300, 304, 400, 401, 403, 418, 429, 500, 502, 503)],
)
async def test_state_follows_the_final_status_and_only_200_verifies(server, urls, status, state):
    server.routes["/x"] = Reply(status)
    check = await urls.check(server.url("/x"))
    assert (check.state, check.detail) == (state, f"HTTP {status}")


async def test_a_url_is_asked_with_head_and_without_credentials_or_cookies(server, urls):
    server.routes["/x"] = Reply(200, {"Set-Cookie": "id=1; Path=/"})
    for _ in range(2):
        await urls.check(server.url("/x"))
    assert [a.method for a in server.asked] == ["HEAD", "HEAD"]
    assert not any({"cookie", "authorization"} & a.headers.keys() for a in server.asked)


@pytest.mark.parametrize("refusal", [405, 501])
@pytest.mark.parametrize("answer", [200, 206])
async def test_where_head_is_refused_a_ranged_get_decides(server, urls, refusal, answer):
    server.routes["/x"] = lambda asked: Reply(refusal if asked.method == "HEAD" else answer, body=b"x")
    assert (await urls.check(server.url("/x"))).state == "verified"
    assert [(a.method, a.headers.get("range")) for a in server.asked] == [
        ("HEAD", None),
        ("GET", "bytes=0-0"),
    ]


async def test_a_ranged_get_that_finds_nothing_is_not_found(server, urls):
    server.routes["/x"] = lambda asked: Reply(405 if asked.method == "HEAD" else 404)
    assert (await urls.check(server.url("/x"))).state == "not_found"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_redirects_are_followed_to_the_final_status(server, urls, status):
    server.routes["/a"] = Reply(status, {"Location": "b"})
    server.routes["/b"] = Reply(200)
    check = await urls.check(server.url("/a"))
    assert (check.state, check.detail) == ("verified", "HTTP 200")


@pytest.mark.parametrize(("hops", "state"), [(5, "verified"), (6, "unknown")])
async def test_at_most_five_redirects_are_followed(server, urls, hops, state):
    for n in range(hops):
        server.routes[f"/{n}"] = Reply(302, {"Location": f"/{n + 1}"})
    server.routes[f"/{hops}"] = Reply(200)
    assert (await urls.check(server.url("/0"))).state == state
    assert len(server.asked) == 6


def redirecting(location: str, *hosts: str) -> UrlChecker:
    """Return a checker of a web in which `cited.example` redirects to `location`, and all else answers 200."""

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "cited.example" and request.url.path.startswith("/page"):
            return httpx.Response(302, headers={"Location": location})
        return httpx.Response(200)

    pacer = Pacer(PacingLimits(spacing=0.0))
    return UrlChecker(transport=httpx.MockTransport(answer), redirect_hosts=hosts, pacer=pacer)


@pytest.mark.parametrize(
    ("location", "detail"),
    [
        ("https://cited.example/moved/page", "HTTP 200"),
        ("https://www.cited.example/elsewhere", "HTTP 200"),
        ("https://parked.example/", "redirected to another host"),
        ("https://cited.example.evil.example/", "redirected to another host"),
        ("https://sub.cited.example/", "redirected to another host"),
        ("https://cited.example/login?next=/page", "redirected to a sign-in page"),
        ("https://cited.example/users/sign_in", "redirected to a sign-in page"),
        ("https://login.cited.example/", "redirected to a sign-in page"),
        ("https://publisher.example/article", "HTTP 200"),
        ("https://cdn.group.example/article", "HTTP 200"),
        ("https://group.example/article", "redirected to another host"),
        ("https://publisher.example/oauth2/authorize", "redirected to a sign-in page"),
    ],
)
async def test_a_redirect_proves_nothing_at_another_host_or_a_sign_in_page(location, detail):
    """Only a page of the cited host, or of one that the operator allows, shows that what is cited exists."""
    check = await redirecting(location, "publisher.example", ".group.example").check(
        "http://cited.example/page"
    )
    assert (check.state.value, check.detail) == ("verified" if detail == "HTTP 200" else "unknown", detail)
    assert not check.may_pass


async def test_what_may_be_reached_and_where_citations_may_end_stands_in_the_settings(server):
    """A checker made from settings reaches their networks and ports, and ends at their hosts."""
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


async def test_who_cites_a_page_about_signing_in_cites_that_page():
    """Words of the cited address itself do not make a redirect one to a sign-in page."""
    check = await redirecting("https://cited.example/moved/login").check("http://cited.example/page/login")
    assert check.state == "verified"


@pytest.mark.parametrize(
    ("status", "paused"), [(401, False), (403, False), (418, False), (429, True), (503, True)]
)
async def test_a_host_that_refuses_is_healthy_and_one_that_cannot_answer_is_paused(server, status, paused):
    """401 and 403 are answers: no other citation of the host has to wait for them."""
    server.routes["/x"], server.routes["/y"] = Reply(status), Reply(200)
    guard = AddressGuard(["127.0.0.0/8"], ports=[server.port])
    checker = UrlChecker(guard, pacer=Pacer(PacingLimits(spacing=0.0, failures=2)))
    for _ in range(3):
        with contextlib.suppress(NotAskedError):
            await checker.check(server.url("/x"))
    if paused:
        with pytest.raises(HostPausedError):
            await checker.check(server.url("/y"))
        assert (await checker.check(server.url("/y"), tenant="another")).state == "verified"
    else:
        assert (await checker.check(server.url("/y"))).state == "verified"
    await checker.close()


@pytest.mark.parametrize(
    "location",
    [
        "file:///etc/passwd",
        "ftp://example.org/",
        "http://a:b@127.0.0.1/",
        "http://127.0.0.1:22/",
        "http://[::",
    ],
)
async def test_a_redirect_that_may_not_be_followed_is_unknown(server, urls, location):
    server.routes["/a"] = Reply(302, {"Location": location})
    assert (await urls.check(server.url("/a"))).state == "unknown"
    assert len(server.asked) == 1


async def test_a_redirect_without_a_target_is_unknown(server, urls):
    server.routes["/a"] = Reply(302)
    assert (await urls.check(server.url("/a"))).detail == "HTTP 302"


@pytest.mark.parametrize(
    ("url", "detail"),
    [
        ("ftp://example.org/x", "only http and https are followed"),
        ("javascript:alert(1)", "only http and https are followed"),
        ("/relative", "only http and https are followed"),
        ("http://user:secret@example.org/", "credentials in URL"),
        ("http://user@example.org/", "credentials in URL"),
        ("http://example.org:8080/", "port 8080 is not allowed"),
        ("http:///x", "invalid host"),
        ("http://exa mple.org/", "invalid host"),
        ("http://[fe80::1%25eth0]/", "invalid host"),
        ("http://example.org/" + "x" * 3000, "URL too long"),
        ("http://ex\x00ample.org/", "invalid URL"),
        ("", "only http and https are followed"),
    ],
)
async def test_a_url_that_must_not_be_asked_is_unknown_and_says_why(urls, url, detail):
    check = await urls.check(url)
    assert (check.state, check.detail) == ("unknown", detail)


async def test_a_refused_connection_is_unknown(urls, server):
    dead = UrlChecker(AddressGuard(["127.0.0.0/8"], ports=[9]))
    check = await dead.check("http://127.0.0.1:9/")
    await dead.close()
    assert (check.state, check.detail) == ("unknown", "connection refused")


async def test_a_name_without_an_address_is_unknown():
    async def nothing(host, port):
        raise __import__("socket").gaierror(-2, "Name or service not known")

    checker = UrlChecker(AddressGuard(resolver=nothing))
    check = await checker.check("http://no.example/")
    await checker.close()
    assert (check.state, check.detail) == ("unknown", "DNS error")


async def test_a_server_that_does_not_speak_http_is_unknown(server, urls):
    server.routes["/x"] = Reply(raw=b"SSH-2.0-OpenSSH_9.2\r\n")
    assert (await urls.check(server.url("/x"))).state == "unknown"


async def test_headers_without_end_are_not_read_without_end(server, urls):
    server.routes["/x"] = Reply(raw=b"HTTP/1.1 200 OK\r\n" + b"A: " + b"x" * 2_000_000)
    assert (await urls.check(server.url("/x"))).state == "unknown"


async def test_a_tls_handshake_with_a_plain_server_is_unknown(server, urls):
    check = await urls.check(f"https://127.0.0.1:{server.port}/", budget=0.3)
    assert check.state == "unknown"


async def test_a_slow_answer_is_unknown_once_the_budget_is_spent(server, urls):
    server.routes["/x"] = Reply(200, delay=30)
    started = time.monotonic()
    check = await urls.check(server.url("/x"), budget=0.2)
    assert (check.state, check.detail) == ("unknown", "timeout after 0.2 s")
    assert time.monotonic() - started < 25, "the answer would come after 30 s"


async def test_the_budget_holds_for_all_redirects_together(server, urls):
    for n in range(5):
        server.routes[f"/{n}"] = Reply(302, {"Location": f"/{n + 1}"}, delay=0.15)
    server.routes["/5"] = Reply(200)
    assert (await urls.check(server.url("/0"), budget=0.4)).state == "unknown"


async def test_a_slow_name_server_spends_the_budget_too():
    async def slow(host, port):
        await asyncio.sleep(30)
        return ["127.0.0.1"]

    checker = UrlChecker(AddressGuard(["127.0.0.0/8"], resolver=slow))
    assert (await checker.check("http://slow.example/", budget=0.1)).detail == "timeout after 0.1 s"
    await checker.close()


async def test_waiting_for_a_place_at_the_host_does_not_spend_the_budget(server):
    pacer = Pacer(PacingLimits(per_host=1, spacing=0.0))
    checker = UrlChecker(AddressGuard(["127.0.0.0/8"], ports=[server.port]), pacer=pacer)
    server.routes["/x"] = Reply(200, delay=0.5)
    checks = await asyncio.gather(*(checker.check(server.url("/x"), budget=2) for _ in range(5)))
    await checker.close()
    assert {c.state for c in checks} == {"verified"}
    assert server.most_in_flight == 1


async def test_proxies_of_the_environment_are_not_used(server, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, server.url(""))
    checker = UrlChecker()
    check = await checker.check("http://127.0.0.1/")
    await checker.close()
    assert check.detail == "blocked address"
    assert server.connections == 0


async def test_a_body_is_not_read_where_only_existence_is_asked_for(server, urls):
    big = b"x" * 50_000_000
    server.routes["/x"] = lambda asked: Reply(405) if asked.method == "HEAD" else Reply(200, body=big)
    assert (await urls.check(server.url("/x"))).state == "verified"
    assert server.written < len(big) / 2


async def test_a_connection_with_an_unread_body_is_given_back(server):
    server.routes["/x"] = lambda asked: (
        Reply(405) if asked.method == "HEAD" else Reply(200, body=b"x" * 1_000_000)
    )
    guard = AddressGuard(["127.0.0.0/8"], ports=[server.port])
    checker = UrlChecker(guard, transport=GuardedTransport(guard, max_connections=1))
    states = [(await checker.check(server.url("/x"), budget=1.0)).state for _ in range(3)]
    await checker.close()
    assert states == ["verified"] * 3


def test_a_compressed_page_is_unpacked_only_so_far():
    body = gzip.compress(b"word " * 5_000_000)
    text = page_text(body, {"content-type": "text/plain", "content-encoding": "gzip"})
    assert text is not None
    assert len(text) <= 262_144


async def test_text_is_the_words_of_the_page_without_markup_and_scripts(server, urls):
    page = b"<html><script>var nonsense</script><p>Postgres &amp; Redis</p><style>p{}</style> stay</html>"
    server.routes["/x"] = Reply(200, {"Content-Type": "text/html; charset=utf-8"}, page)
    check = await urls.check(server.url("/x"), want_text=True)
    assert check.text == "Postgres & Redis stay"


@pytest.mark.parametrize("kind", ["image/png", "application/octet-stream"])
async def test_what_is_not_text_has_no_text(server, urls, kind):
    server.routes["/x"] = Reply(200, {"Content-Type": kind}, b"words")
    check = await urls.check(server.url("/x"), want_text=True)
    assert (check.state, check.text) == ("verified", None)


async def test_a_compression_bomb_is_cut_off(server, urls):
    bomb = gzip.compress(b"word " * 5_000_000)
    server.routes["/x"] = Reply(200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, bomb)
    check = await urls.check(server.url("/x"), want_text=True)
    assert check.text is not None
    assert len(check.text) <= 20_000


async def test_an_endless_page_is_cut_off(server, urls):
    big = b"word " * 10_000_000
    server.routes["/x"] = Reply(200, {"Content-Type": "text/plain"}, big)
    assert (await urls.check(server.url("/x"), want_text=True)).state == "verified"
    assert server.written < len(big) / 2


async def test_hostile_markup_costs_linear_time(server, urls):
    server.routes["/x"] = Reply(200, {"Content-Type": "text/html"}, b"<script" * 200_000)
    started = time.monotonic()
    await urls.check(server.url("/x"), want_text=True)
    assert time.monotonic() - started < 20, "quadratic, it would take minutes"

"""Addresses that cited URLs, redirects, names and language models may not lead to (S0-74)."""

import asyncio
import ipaddress
import socket
import threading

import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.epistemic.model import ModelRequest
from groundwire.verify.pacing import Pacer, PacingLimits
from groundwire.verify.ssrf import AddressGuard, BlockedAddressError, is_disguised, system_resolver
from groundwire.verify.url import GuardedTransport, PinnedBackend, UrlChecker
from tests.services.serving import serving

from .model_service import KINDS, ModelLimits, fault_of
from .server import Reply

PUBLIC = "93.184.215.14"
BLOCKED = "unknown", "blocked address"


def words(text):
    return text.split()


def resolving(*answers):
    async def resolve(host, port):
        resolve.asked += 1
        return answers[min(resolve.asked, len(answers)) - 1]

    resolve.asked = 0
    return resolve


async def closed(guard, host, port=80):
    try:
        await guard.addresses(host, port)
    except BlockedAddressError:
        return True
    return False


async def seen(url, guard, **options):
    urls = UrlChecker(guard, pacer=Pacer(PacingLimits(spacing=0.0)))
    check = await urls.check(url, **options)
    await urls.close()
    return check.state, check.detail


async def test_a_global_unicast_address_is_let_through_and_any_other_blocked_as_literal_and_as_answer():
    """An address with a zone is one of this machine's links, whatever its prefix says."""
    addresses = words("""
        0.0.0.0 10.1.2.3 100.64.0.1 100.127.255.254 127.0.0.1 127.255.255.254 169.254.169.254 172.16.0.1
        172.31.255.255 192.0.0.8 192.0.2.1 192.168.1.1 198.18.0.1 198.51.100.1 203.0.113.1 224.0.0.1
        239.255.255.255 240.0.0.1 255.255.255.255 :: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:169.254.169.254
        ::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::10.0.0.1 64:ff9b:1::1 100::1 2001::1
        2001:0:4136:e378:8000:63bf:80ff:fffe 2001:db8::1 2002:7f00:1::1 2002:a00:1:: 3fff::1 5f00::1 fc00::1
        fe80::1 fe80::1%eth0 fec0::1 ff02::1 2606:4700::1111%eth0 ::1%lo ::ffff:127.0.0.1%lo
        168.63.129.16 100.100.100.200 192.0.0.192 169.254.170.2 fd00:ec2::254 fd20:ce::254 64:ff9b::a9fe:a9fe
        2002:a9fe:a9fe::1
    """)  # the last two lines are cloud metadata services: of Azure, Alibaba, Oracle, AWS and Google
    answered = {address: AddressGuard(resolver=resolving([address])) for address in addresses}
    assert [each for each in addresses if not await closed(AddressGuard(), each)] == []
    assert [each for each, guard in answered.items() if not await closed(guard, "name.example")] == []
    odd = AddressGuard(resolver=resolving(["localhost"]))
    assert await closed(odd, "odd.example"), "an answer that is no address"
    for address in words("""
        93.184.215.14 1.1.1.1 100.63.255.255 100.128.0.1 172.32.0.1 192.167.1.1 2606:4700:4700::1111
        2a00:1450:4001::1 ::ffff:1.1.1.1 64:ff9b::1.1.1.1
    """):
        guard = AddressGuard(resolver=resolving([address]))
        assert await guard.addresses("name.example", 80) == [str(ipaddress.ip_address(address))]
    with pytest.raises(OSError, match="no address"):
        await AddressGuard(resolver=resolving([])).addresses("empty.example", 80)


async def test_one_closed_address_or_another_port_condemns_a_host_and_an_allowed_network_lets_through_itself_alone():
    many = [f"93.184.215.{n}" for n in range(200)]
    for at in (0, 1, 200):
        answer = [*many[:at], "10.0.0.1", *many[at:]]
        assert await closed(AddressGuard(resolver=resolving(answer)), "mixed.example"), at
    assert [port for port in (22, 6379, 8080, 0) if not await closed(AddressGuard(), PUBLIC, port)] == []
    guard = AddressGuard(["10.1.0.0/16"])
    assert await guard.addresses("10.1.2.3", 80) == ["10.1.2.3"]
    assert await guard.addresses("::ffff:10.1.2.3", 80)
    assert await closed(guard, "10.2.0.1")
    for network, own, other in (("::/0", "::1", "127.0.0.1"), ("0.0.0.0/0", "127.0.0.1", "::1")):
        assert await AddressGuard([network]).addresses(own, 80) == [own]
        assert await closed(AddressGuard([network]), other)


async def test_nobody_is_asked_what_a_number_in_disguise_means():
    resolver = resolving([PUBLIC])
    for host in ("127.1", "2130706433", "0x7f.1", "0177.0.0.1", "1.2.3.4.5", "8.8.8.8."):
        assert await closed(AddressGuard(resolver=resolver), host), host
    assert resolver.asked == 0
    names = PUBLIC, "::1", "example.org", "3com.example", "1e100.net"
    assert [is_disguised(host) for host in names] == [False] * 5
    assert [is_disguised(host) for host in ("1", "0x7f", "a.1", "1.2.3", "01.2.3.4", "a.0x1.")] == [True] * 6


@given(st.ip_addresses(v=4))
def test_an_ipv6_address_that_stands_for_an_ipv4_address_is_never_more_open_than_that(v4):
    guard = AddressGuard()
    forms = [ipaddress.IPv6Address(base | int(v4)) for base in (0xFFFF << 32, 0x64FF9B << 96, 0)]
    forms.append(ipaddress.IPv6Address(0x2002 << 112 | int(v4) << 80))
    assert not any(guard.permits(f) for f in forms if not guard.permits(v4))


@given(st.ip_addresses())
def test_nothing_is_open_that_the_standard_library_calls_private_or_special(address):
    if AddressGuard().permits(address):
        real = getattr(address, "ipv4_mapped", None) or address
        special = ("private", "loopback", "link_local", "multicast", "reserved", "unspecified")
        # NAT64 is reserved to the library; what it stands for is judged above
        nat64 = real in ipaddress.ip_network("64:ff9b::/96")
        assert nat64 or not [s for s in special if getattr(real, f"is_{s}")]


async def test_no_spelling_of_an_address_or_url_of_two_readings_connects_to_an_address_that_is_closed(server):
    """Each is a way to write the loopback or 169.254.169.254, or to write what some resolver reads as it.

    The same server answers 200 once the network is allowed (test_urls): the guard alone stands between.
    """
    server.routes["/x"] = Reply(200)
    guard = AddressGuard(ports=[server.port])
    loopback = words("""
        127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.0.0.1 0x7F.1 0177.0.0.1 017700000001 127.0.0.1. 0
        0x localhost LOCALHOST [::1] [::ffff:127.0.0.1] [::127.0.0.1] [64:ff9b::7f00:1] [2002:7f00:1::]
        [0:0:0:0:0:ffff:7f00:1] 127。0。0。1 1.2.3.4.5 999.1.1.1 256.256.256.256
    """)
    assert [host for host in loopback if await seen(server.url("/x", host), guard) != BLOCKED] == []
    guard, found = AddressGuard(ports=[server.port], resolver=resolving(["169.254.169.254"])), {}
    for host in words("""
        localhost. １２７.0.0.1 ①②⑦.0.0.1 127.0.0.1%2f@example.org
        2852039166 0xA9FEA9FE 0251.0376.0251.0376 025177524776 169.254.43518
        0xa9.254.43518 169.0xfe.0251.254 169.254.169.254. 0000251.254.169.254 169。254。169。254 169．254．169．254
        169｡254｡169｡254 １６９.254.169.254 ①⑥⑨.254.169.254 %31%36%39.254.169.254 0ｘa9fea9fe [::ffff:a9fe:a9fe]
        [0:0:0:0:0:ffff:169.254.169.254] [::169.254.169.254] [fe80::a9fe:a9fe%25eth0]
        [64:ff9b::169.254.169.254] [2002:a9fe:a9fe::] [fe80::a9fe:a9fe%eth0] １６９｡２５４｡１６９｡２５４
    """):
        found[host] = await seen(server.url("/x", host), guard)
    refused = {BLOCKED, *(("unknown", f"{what} URL") for what in ("invalid", "credentials in"))}
    refused.add(("unknown", "invalid host"))
    assert [host for host, answer in found.items() if answer not in refused] == []
    assert server.connections == 0
    found = {}  # of a URL that two readers read differently; credentials are never sent
    for url in (
        *("http://docs.example@127.0.0.1/", "http://127.0.0.1%23@docs.example/", "http://:@docs.example/"),
        *("http://a:b@docs.example/", "http://docs.example:pw@169.254.169.254/", "http://@127.0.0.1/"),
        *("http://docs.example\\@127.0.0.1/", "http://127.0.0.1\\@docs.example/", "http:\\\\127.0.0.1/"),
        *("http://docs.example /x@127.0.0.1/", "http:/127.0.0.1/", "//127.0.0.1/"),
        "http://127.0.0.1\t.example/",
    ):
        found[url] = await seen(url, AddressGuard(resolver=resolving(["127.0.0.1"])))
    refused.add(("unknown", "only http and https are followed"))
    assert {url: answer for url, answer in found.items() if answer not in refused} == {}


async def test_each_redirect_is_checked_again(server):
    """A public page that redirects to the metadata service or to the loopback leads nowhere."""

    async def resolve(host, port):
        return {"open.example": ["127.0.0.1"], "closed.example": ["10.0.0.1"]}[host]

    guard = AddressGuard(["127.0.0.1/32"], ports=[80, server.port], resolver=resolve)
    for target in ("http://169.254.169.254/latest/meta-data/", "http://closed.example/", "http://[::1]/"):
        server.routes["/a"] = Reply(302, {"Location": target})
        assert await seen(server.url("/a", "open.example"), guard) == BLOCKED


async def test_a_name_is_resolved_once_a_connection_and_connected_to_where_it_was_checked(
    server,
):
    """First answer public, second the loopback: the connection goes to the first, and a new one nowhere."""

    class Recorder(httpcore.AsyncNetworkBackend):
        def __init__(self, port):
            self.port, self.went, self.inner = port, [], httpcore.AnyIOBackend()

        async def connect_tcp(self, host, *_):
            self.went.append(host)
            if self.port is None:
                raise httpcore.ConnectError("no")
            return await self.inner.connect_tcp("127.0.0.1", self.port)

    server.routes["/x"] = Reply(200)
    for again in (False, True):
        resolver, recorder = resolving([PUBLIC], ["127.0.0.1"]), Recorder(server.port)
        guard = AddressGuard(resolver=resolver)
        checker = UrlChecker(guard, transport=GuardedTransport(guard, inner=recorder))
        if again:
            elsewhere = {"Location": "http://rebind.example:443/x", "Connection": "close"}
            server.routes["/x"] = Reply(302, elsewhere)
        check = await checker.check("http://rebind.example/x")
        await checker.close()
        assert check.detail == ("blocked address" if again else "HTTP 200")
        assert (recorder.went, resolver.asked) == ([PUBLIC], 1 + again)
    assert server.asked[0].headers["host"] == "rebind.example"
    deaf = Recorder(None)  # the next address is tried where one does not answer
    backend = PinnedBackend(AddressGuard(resolver=resolving([PUBLIC, "1.1.1.1"])), deaf)
    with pytest.raises(httpcore.ConnectError):
        await backend.connect_tcp("two.example", 80)
    assert deaf.went == [PUBLIC, "1.1.1.1"]
    with pytest.raises(NotImplementedError):
        await backend.connect_unix_socket("/run/docker.sock")


async def test_tls_keeps_the_name_of_the_url():
    """The certificate is checked against the name, not against the pinned address."""
    names = []

    class Stream(httpcore.AsyncNetworkStream):
        async def start_tls(self, *_, server_hostname, **__):
            names.append(server_hostname)
            raise httpcore.ConnectError("enough seen")

        async def aclose(self):
            pass

    class Backend(httpcore.AsyncNetworkBackend):
        async def connect_tcp(self, *_):
            return Stream()

    guard = AddressGuard(resolver=resolving([PUBLIC]))
    checker = UrlChecker(guard, transport=GuardedTransport(guard, inner=Backend()))
    assert (await checker.check("https://name.example/")).detail == "connection failed"
    await checker.close()
    assert names == ["name.example"]


async def test_the_system_resolver_knows_the_loopback_holds_no_caller_and_bounds_what_hangs(monkeypatch):
    assert set(await system_resolver("localhost", 80)) & {"127.0.0.1", "::1"}
    hanging = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: hanging.wait(60) and [])
    asked = [asyncio.ensure_future(system_resolver("slow.example", 80)) for _ in range(70)]
    try:
        while not any(one.done() for one in asked):  # noqa: ASYNC110 - threads tell nobody
            await asyncio.sleep(0.01)
        assert sum(f.done() and isinstance(f.exception(), OSError) for f in asked) == 6
    finally:
        hanging.set()
        await asyncio.gather(*asked, return_exceptions=True)


async def test_a_page_or_a_models_answer_that_comes_a_byte_at_a_time_is_given_up_when_its_time_is_up():
    async def drip(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 9000000\r\n\r\n")
        while True:
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(0.02)

    async with serving(drip) as port:
        guard, url = AddressGuard(["127.0.0.1/32"], ports=[port]), f"http://127.0.0.1:{port}/"
        answer = await seen(url, guard, budget=0.3, want_text=True)
        assert answer == ("unknown", "timeout after 0.3 s")
        for kind in KINDS.values():
            model = kind(url, "key", limits=ModelLimits(attempts=1))
            assert (await fault_of(model, ModelRequest("data", "haiku", timeout=0.3))).code == "timeout"

"""Addresses that a cited URL may not lead to (S0-74)."""

import asyncio
import ipaddress
import socket
import threading

import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from groundwire.verify.ssrf import AddressGuard, BlockedAddressError, system_resolver
from groundwire.verify.transport import GuardedTransport, PinnedBackend
from groundwire.verify.url import UrlChecker

from .server import Reply, running

PUBLIC = "93.184.215.14"
CLOSED = [
    "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.127.255.254", "127.0.0.1",  # noqa: S104 - an address to refuse
    "127.255.255.254",
    "169.254.169.254", "172.16.0.1", "172.31.255.255", "192.0.0.8", "192.0.2.1", "192.168.1.1", "198.18.0.1",
    "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "::",
    "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::10.0.0.1", "64:ff9b:1::1", "100::1", "2001::1",
    "2001:0:4136:e378:8000:63bf:80ff:fffe", "2001:db8::1", "2002:7f00:1::1", "2002:a00:1::", "3fff::1",
    "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1",
]  # fmt: skip
NAT64 = ipaddress.ip_network("64:ff9b::/96")
OPEN = [
    "93.184.215.14", "1.1.1.1", "100.63.255.255", "100.128.0.1", "172.32.0.1", "192.167.1.1",
    "2606:4700:4700::1111", "2a00:1450:4001::1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1",
]  # fmt: skip
LOOPBACK = [
    "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0x7F.1", "0177.0.0.1",
    "017700000001", "127.0.0.1.", "0", "0x", "localhost", "LOCALHOST", "[::1]", "[::ffff:127.0.0.1]",
    "[::127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]", "[0:0:0:0:0:ffff:7f00:1]", "127。0。0。1",
    "1.2.3.4.5", "999.1.1.1", "256.256.256.256",
]  # fmt: skip


def resolving(*answers):
    """A resolver that gives one answer after the other, the last one for ever, and counts."""

    async def resolve(host, port):
        resolve.asked += 1
        return answers[min(resolve.asked, len(answers)) - 1]

    resolve.asked = 0
    return resolve


@pytest.mark.parametrize("address", CLOSED)
async def test_an_address_that_is_not_global_unicast_is_blocked_as_literal_and_as_answer(address):
    with pytest.raises(BlockedAddressError):
        await AddressGuard().addresses(address, 80)
    with pytest.raises(BlockedAddressError):
        await AddressGuard(resolver=resolving([address])).addresses("name.example", 80)


@pytest.mark.parametrize("address", OPEN)
async def test_a_global_unicast_address_is_let_through_as_it_is(address):
    assert await AddressGuard(resolver=resolving([address])).addresses("name.example", 80) == [
        str(ipaddress.ip_address(address))
    ]


@pytest.mark.parametrize("place", [0, 1, 2])
async def test_one_closed_address_among_open_ones_condemns_the_host(place):
    answer = [PUBLIC, "1.1.1.1"]
    answer.insert(place, "10.0.0.1")
    with pytest.raises(BlockedAddressError):
        await AddressGuard(resolver=resolving(answer)).addresses("mixed.example", 80)


@pytest.mark.parametrize("host", ["127.1", "2130706433", "0x7f.1", "0177.0.0.1", "1.2.3.4.5", "8.8.8.8."])
async def test_the_guard_does_not_ask_anyone_what_a_number_in_disguise_means(host):
    resolver = resolving([PUBLIC])
    with pytest.raises(BlockedAddressError):
        await AddressGuard(resolver=resolver).addresses(host, 80)
    assert resolver.asked == 0


async def test_an_answer_that_is_no_address_is_blocked():
    with pytest.raises(BlockedAddressError):
        await AddressGuard(resolver=resolving(["localhost"])).addresses("odd.example", 80)


async def test_a_host_without_addresses_is_an_os_error():
    with pytest.raises(OSError, match="no address"):
        await AddressGuard(resolver=resolving([])).addresses("empty.example", 80)


@pytest.mark.parametrize("port", [22, 6379, 8080, 0])
async def test_other_ports_are_blocked(port):
    with pytest.raises(BlockedAddressError):
        await AddressGuard().addresses(PUBLIC, port)


async def test_an_allowed_network_is_let_through_and_its_neighbour_is_not():
    guard = AddressGuard(["10.1.0.0/16"])
    assert await guard.addresses("10.1.2.3", 80) == ["10.1.2.3"]
    assert await guard.addresses("::ffff:10.1.2.3", 80)
    with pytest.raises(BlockedAddressError):
        await guard.addresses("10.2.0.1", 80)


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
        assert real in NAT64 or not [s for s in special if getattr(real, f"is_{s}")]


@pytest.mark.parametrize("host", LOOPBACK)
async def test_no_spelling_of_the_loopback_reaches_a_local_server(server, host):
    """The same server answers 200 once the network is allowed (test_urls): only the guard stands between."""
    server.routes["/x"] = Reply(200)
    checker = UrlChecker(AddressGuard(ports=[server.port]))
    check = await checker.check(server.url("/x", host))
    await checker.close()
    assert (check.state, check.detail) == ("unknown", "blocked address")
    assert server.connections == 0


@pytest.mark.parametrize("host", ["１２７.0.0.1", "①②⑦.0.0.1", "127.0.0.1%2f@example.org", "localhost."])
async def test_a_disguise_in_other_characters_reaches_no_local_server(server, host):
    checker = UrlChecker(AddressGuard(ports=[server.port]))
    check = await checker.check(server.url("/x", host))
    await checker.close()
    assert check.state == "unknown"
    assert server.connections == 0


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
async def test_an_ipv6_server_is_reached_only_where_its_network_is_allowed():
    try:
        async with running("::1") as server:
            server.routes["/x"] = Reply(200)
            for allowed, state in (([], "unknown"), (["::1/128"], "verified")):
                checker = UrlChecker(AddressGuard(allowed, ports=[server.port]))
                assert (await checker.check(server.url("/x", "[::1]"))).state == state
                await checker.close()
            assert server.connections == 1
    except OSError:
        pytest.skip("no IPv6 loopback here")


async def test_each_redirect_is_checked_again(server):
    """A public page that redirects to the metadata service or to the loopback leads nowhere."""

    async def resolve(host, port):
        return {"open.example": ["127.0.0.1"], "closed.example": ["10.0.0.1"]}[host]

    guard = AddressGuard(["127.0.0.1/32"], ports=[80, server.port], resolver=resolve)
    checker = UrlChecker(guard)
    for target in ("http://169.254.169.254/latest/meta-data/", "http://closed.example/", "http://[::1]/"):
        server.routes["/a"] = Reply(302, {"Location": target})
        check = await checker.check(server.url("/a", "open.example"))
        assert (check.state, check.detail) == ("unknown", "blocked address")
    await checker.close()


class Recorder(httpcore.AsyncNetworkBackend):
    """Opens every connection to the local server, and records where it was told to go."""

    def __init__(self, port):
        self.port = port
        self.went = []
        self.inner = httpcore.AnyIOBackend()

    async def connect_tcp(self, host, *_):
        self.went.append(host)
        return await self.inner.connect_tcp("127.0.0.1", self.port)


async def test_a_rebinding_name_is_resolved_once_and_connected_to_where_it_was_checked(server):
    """First answer public, second the loopback: the connection goes to the first, and nobody asks again."""
    server.routes["/x"] = Reply(200)
    resolver, recorder = resolving([PUBLIC], ["127.0.0.1"]), Recorder(server.port)
    guard = AddressGuard(resolver=resolver)
    checker = UrlChecker(guard, transport=GuardedTransport(guard, inner=recorder))
    assert (await checker.check("http://rebind.example/x")).state == "verified"
    assert recorder.went == [PUBLIC]
    assert resolver.asked == 1
    assert server.asked[0].headers["host"] == "rebind.example"
    await checker.close()


async def test_a_rebinding_name_is_blocked_when_it_is_resolved_for_a_new_connection(server):
    server.routes["/x"] = Reply(302, {"Location": "http://rebind.example:443/x", "Connection": "close"})
    resolver, recorder = resolving([PUBLIC], ["127.0.0.1"]), Recorder(server.port)
    guard = AddressGuard(resolver=resolver)
    checker = UrlChecker(guard, transport=GuardedTransport(guard, inner=recorder))
    assert (await checker.check("http://rebind.example/x")).detail == "blocked address"
    assert recorder.went == [PUBLIC]
    await checker.close()


async def test_the_next_address_is_tried_where_one_does_not_answer():
    class Deaf(Recorder):
        async def connect_tcp(self, host, *_):
            self.went.append(host)
            raise httpcore.ConnectError("no")

    deaf = Deaf(0)
    backend = PinnedBackend(AddressGuard(resolver=resolving([PUBLIC, "1.1.1.1"])), deaf)
    with pytest.raises(httpcore.ConnectError):
        await backend.connect_tcp("two.example", 80)
    assert deaf.went == [PUBLIC, "1.1.1.1"]


async def test_tls_keeps_the_name_of_the_url():
    """The certificate is checked against the name, not against the pinned address."""
    names = []

    class Stream(httpcore.AsyncNetworkStream):
        async def start_tls(self, _, server_hostname, *__):
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


async def test_a_socket_file_is_never_connected_to():
    with pytest.raises(httpcore.UnsupportedProtocol):
        await PinnedBackend(AddressGuard()).connect_unix_socket("/run/docker.sock")


async def test_the_system_resolver_holds_neither_the_loop_nor_the_caller(monkeypatch):
    hanging = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: hanging.wait(10) and [])
    try:
        async with asyncio.timeout(1):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(system_resolver("slow.example", 80), 0.05)
    finally:
        hanging.set()


async def test_the_system_resolver_knows_the_loopback():
    assert set(await system_resolver("localhost", 80)) & {"127.0.0.1", "::1"}


async def test_hanging_lookups_are_bounded(monkeypatch):
    hanging = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: hanging.wait(10) and [])
    asked = [asyncio.ensure_future(system_resolver("slow.example", 80)) for _ in range(70)]
    try:
        await asyncio.sleep(0.05)
        assert sum(f.done() and isinstance(f.exception(), OSError) for f in asked) == 6
    finally:
        hanging.set()
        await asyncio.gather(*asked, return_exceptions=True)

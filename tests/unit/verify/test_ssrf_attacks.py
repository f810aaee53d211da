"""Attempts to have this machine connect somewhere, or wait or read without end, by what is cited or answered."""

from __future__ import annotations

import asyncio
import gzip

import pytest

from groundwire.epistemic.model import ModelRequest
from groundwire.verify.pacing import Pacer, PacingLimits
from groundwire.verify.ssrf import AddressGuard, BlockedAddressError, is_disguised
from groundwire.verify.url import UrlChecker
from tests.services.serving import serving

from .model_service import KINDS, PATHS, ModelLimits, fault_of, model_of, replying
from .server import Reply

PUBLIC = "93.184.215.14"
METADATA = [
    "169.254.169.254",  # AWS, Azure, Google, and most others
    "169.254.170.2",  # AWS, of containers
    "168.63.129.16",  # Azure's host agent
    "100.100.100.200",  # Alibaba
    "192.0.0.192",  # Oracle
    "fd00:ec2::254",  # AWS
    "fd20:ce::254",  # Google
    "64:ff9b::a9fe:a9fe",
    "::ffff:169.254.169.254",
    "2002:a9fe:a9fe::1",
]


def resolver(*answer):
    async def resolve(host, port):
        return list(answer)

    return resolve


def checker(guard):
    return UrlChecker(guard, pacer=Pacer(PacingLimits(spacing=0.0)))


async def seen(url, guard):
    urls = checker(guard)
    try:
        check = await urls.check(url)
    finally:
        await urls.close()
    return check.state, check.detail


@pytest.mark.parametrize("address", METADATA)
async def test_no_cloud_hands_its_metadata_over_by_address_or_by_a_name_for_it(address):
    literal = f"[{address}]" if ":" in address else address
    assert await seen(f"http://{literal}/latest/meta-data/", AddressGuard()) == ("unknown", "blocked address")
    guard = AddressGuard(resolver=resolver(address))
    for name in ("metadata.google.internal", "instance-data", "169.254.169.254.nip.io"):
        assert await seen(f"http://{name}/computeMetadata/v1/", guard) == ("unknown", "blocked address")


@pytest.mark.parametrize(
    "host",
    [
        *(
            "2852039166",
            "0xA9FEA9FE",
            "0251.0376.0251.0376",
            "025177524776",
            "169.254.43518",
            "0xa9.254.43518",
        ),
        *(
            "169.0xfe.0251.254",
            "169.254.169.254.",
            "0000251.254.169.254",
            "169。254。169。254",
            "169．254．169．254",
        ),
        *("169｡254｡169｡254", "１６９.254.169.254", "①⑥⑨.254.169.254", "%31%36%39.254.169.254", "0ｘa9fea9fe"),
        *(
            "[::ffff:a9fe:a9fe]",
            "[0:0:0:0:0:ffff:169.254.169.254]",
            "[::169.254.169.254]",
            "[fe80::a9fe:a9fe%25eth0]",
        ),
        *(
            "[64:ff9b::169.254.169.254]",
            "[2002:a9fe:a9fe::]",
            "[fe80::a9fe:a9fe%eth0]",
            "１６９｡２５４｡１６９｡２５４",
        ),
    ],
)
async def test_no_spelling_of_an_address_is_asked_about_or_connected_to(host):
    """Each one is a way to write 169.254.169.254, or to write what some resolver reads as it."""
    state, detail = await seen(f"http://{host}/", AddressGuard(resolver=resolver("169.254.169.254")))
    assert (state, detail) in {
        ("unknown", "blocked address"),
        ("unknown", "invalid host"),
        ("unknown", "invalid URL"),
    }


@pytest.mark.parametrize(
    "url",
    [
        *("http://docs.example@127.0.0.1/", "http://127.0.0.1%23@docs.example/", "http://:@docs.example/"),
        *("http://a:b@docs.example/", "http://docs.example:pw@169.254.169.254/", "http://@127.0.0.1/"),
        *("http://docs.example\\@127.0.0.1/", "http://127.0.0.1\\@docs.example/", "http:\\\\127.0.0.1/"),
        *(
            "http://docs.example /x@127.0.0.1/",
            "http:/127.0.0.1/",
            "//127.0.0.1/",
            "http://127.0.0.1\t.example/",
        ),
    ],
)
async def test_a_url_that_two_readers_read_differently_connects_to_no_address_that_is_closed(url):
    """Whatever host is found in it, it is that one that is looked at, and credentials are never sent."""
    guard = AddressGuard(resolver=resolver("127.0.0.1"))
    state, detail = await seen(url, guard)
    assert state == "unknown"
    assert detail in {
        *("blocked address", "credentials in URL", "invalid URL", "invalid host"),
        "only http and https are followed",
    }


@pytest.mark.parametrize("zone", ["2606:4700::1111%eth0", "fe80::1%1", "::1%lo", "::ffff:127.0.0.1%lo"])
async def test_a_zone_opens_no_network(zone):
    """An address with a zone is one of this machine's links, whatever its prefix says."""
    guard = AddressGuard(resolver=resolver(zone))
    for host in (zone, "name.example"):
        with pytest.raises(BlockedAddressError):
            await guard.addresses(host, 80)


def test_a_dotted_quad_is_no_disguise_and_neither_is_a_name():
    assert [is_disguised(host) for host in (PUBLIC, "::1", "example.org", "3com.example", "1e100.net")] == [
        False
    ] * 5
    assert [is_disguised(host) for host in ("1", "0x7f", "a.1", "1.2.3", "01.2.3.4", "a.0x1.")] == [True] * 6


async def test_an_allowed_network_of_one_family_says_nothing_of_the_other():
    guard = AddressGuard(["::/0"])
    assert await guard.addresses("::1", 80) == ["::1"]
    with pytest.raises(BlockedAddressError):
        await guard.addresses("127.0.0.1", 80)
    guard = AddressGuard(["0.0.0.0/0"])
    assert await guard.addresses("127.0.0.1", 80) == ["127.0.0.1"]
    with pytest.raises(BlockedAddressError):
        await guard.addresses("::1", 80)


async def _drip(reader, writer):
    """Answer at once, and then a byte at a time without end."""
    await reader.readuntil(b"\r\n\r\n")
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 9000000\r\n\r\n")
    while True:
        writer.write(b"a")
        await writer.drain()
        await asyncio.sleep(0.02)


async def test_a_page_that_comes_a_byte_at_a_time_is_unknown_once_its_time_is_up():
    async with serving(_drip) as port:
        urls = checker(AddressGuard(["127.0.0.1/32"], ports=[port]))
        check = await urls.check(f"http://127.0.0.1:{port}/", budget=0.3, want_text=True)
        await urls.close()
    assert (check.state, check.detail) == ("unknown", "timeout after 0.3 s")


@pytest.mark.parametrize("api", sorted(KINDS))
async def test_an_answer_of_a_model_that_comes_a_byte_at_a_time_is_given_up_when_its_time_is_up(api):
    async with serving(_drip) as port:
        model = KINDS[api](f"http://127.0.0.1:{port}", "key", limits=ModelLimits(attempts=1))
        fault = await fault_of(model, ModelRequest("data", "haiku", timeout=0.3))
    assert fault.code == "timeout"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("api", sorted(KINDS))
async def test_a_model_leads_its_key_and_question_nowhere_else(server, api, status):
    replying(server, api, Reply(status, {"Location": server.url("/elsewhere")}))
    assert (await fault_of(model_of(api, server))).code == "rejected"
    assert {asked.path for asked in server.asked} == {PATHS[api]}


async def test_a_page_that_unpacks_to_a_thousand_times_its_size_in_layers_is_never_unpacked_twice(
    server, urls
):
    bomb = gzip.compress(gzip.compress(b"\0" * 20_000_000))
    for encoding in ("gzip, gzip", "gzip", "br", "zstd"):
        server.routes["/x"] = Reply(200, {"Content-Type": "text/plain", "Content-Encoding": encoding}, bomb)
        check = await urls.check(server.url("/x"), want_text=True)
        assert check.state == "verified"
        assert len(check.text or "") <= 20_000


async def test_a_name_that_resolves_to_many_addresses_is_closed_by_any_one_of_them():
    many = [f"93.184.215.{n}" for n in range(200)] + ["10.0.0.1"]
    with pytest.raises(BlockedAddressError):
        await AddressGuard(resolver=resolver(*many)).addresses("many.example", 80)

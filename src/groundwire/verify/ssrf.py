"""Which addresses a cited URL may lead to (S0-74).

Claims are written by others, so a cited URL is an attempt to make this machine connect somewhere until shown
otherwise. The guard resolves a name once, looks at every address it got, and hands back the very addresses
that may be connected to; `transport.py` connects to those and to nothing else, so a second, different DNS
answer (rebinding) has no one who asks for it.
"""

import asyncio
import contextlib
import ipaddress
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Turns (host, port) into the textual addresses of that host; raises OSError where there are none."""

# The IANA special-purpose registries, written out: what `ipaddress` calls global differs between Python
# versions.
_CLOSED_V4: tuple[Network, ...] = tuple(
    ipaddress.ip_network(n)
    for n in (
        "0.0.0.0/8",  # this network, unspecified
        "10.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",
        "169.254.0.0/16",  # link-local, cloud metadata
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
        "168.63.129.16/32",  # a cloud's host agent, inside public space
    )
)
_GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")  # the only global unicast block handed out
_CLOSED_V6: tuple[Network, ...] = tuple(
    ipaddress.ip_network(n)
    for n in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarking
        "2001:db8::/32",
        "2002::/16",  # 6to4 embeds an IPv4 address
        "2620:4f:8000::/48",
        "3fff::/20",
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# `inet_aton` reads 2130706433, 0x7f.1 and 0177.0.0.1 as addresses. No name ends in a number, so such a host
# is either a canonical dotted quad or a disguise.
_NUMERIC_END = re.compile(r"(?:.*\.)?(?:\d+|0x[0-9a-f]*)\.?", re.IGNORECASE)
_MAX_LOOKUPS = 64
_lookups = threading.BoundedSemaphore(_MAX_LOOKUPS)


class BlockedAddressError(Exception):
    """The host is, or resolves to, an address that must not be connected to."""

    detail = "blocked address"


class AddressGuard:
    """Decides what may be connected to.

    Args:
        allow_networks: Networks allowed although they are not global unicast, e.g. an intranet's; none by
            default.
        ports: Ports that may be connected to.
        resolver: Asks the name service; the system's by default.
    """

    def __init__(
        self,
        allow_networks: Iterable[str | Network] = (),
        *,
        ports: Iterable[int] = (80, 443),
        resolver: Resolver | None = None,
    ) -> None:
        self._allowed = tuple(ipaddress.ip_network(n) for n in allow_networks)
        self.ports = frozenset(ports)
        self._resolver = resolver or system_resolver

    def permits(self, address: Address) -> bool:
        """Return whether `address` is allowed by configuration or is global unicast."""
        real = _unwrap(address)
        if any(a in n for a in (address, real) for n in self._allowed):
            return True
        if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
            return False  # a zone names one of this machine's links, whatever the prefix says
        if isinstance(real, ipaddress.IPv4Address):
            return not any(real in n for n in _CLOSED_V4)
        return real in _GLOBAL_V6 and not any(real in n for n in _CLOSED_V6)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Resolve `host` once and return the addresses to connect to.

        Raises:
            BlockedAddressError: If the port is not allowed, the host is a number in disguise, or any of its
                addresses is not permitted. One bad address among good ones condemns the host: which one a
                connection would take is not ours to choose.
            OSError: If the host has no address.
        """
        if port not in self.ports:
            raise BlockedAddressError
        if is_disguised(host):
            raise BlockedAddressError
        literal = _literal(host)
        found = [literal] if literal else [_literal(a) for a in await self._resolver(host, port)]
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        checked = [a for a in found if a is not None and self.permits(a)]
        if len(checked) != len(found):
            raise BlockedAddressError
        return list(dict.fromkeys(str(a) for a in checked))


def is_disguised(host: str) -> bool:
    """Return whether `host` is an IPv4 address in decimal, octal, hexadecimal or shortened form."""
    return _literal(host) is None and _NUMERIC_END.fullmatch(host) is not None


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _unwrap(address: Address) -> Address:
    """Return the IPv4 address that a mapped or NAT64 IPv6 address stands for."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


async def system_resolver(host: str, port: int) -> list[str]:
    """Ask the system's name service, on a daemon thread of its own.

    A name server that never answers then holds neither the event loop, nor the pool that other work uses, nor
    the process's exit.

    Raises:
        OSError: If the name has no address, or 64 lookups are hanging already.
    """
    if not _lookups.acquire(blocking=False):
        raise OSError("too many lookups in progress")
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def settle(addresses: list[str] | None, error: OSError | UnicodeError | None) -> None:
        if answer.done():  # the caller's time was up
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(addresses or [])

    def look_up() -> None:
        try:
            rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            outcome: tuple[list[str] | None, OSError | UnicodeError | None] = (
                [str(r[4][0]) for r in rows],
                None,
            )
        except (OSError, UnicodeError) as error:
            outcome = (None, error)
        finally:
            _lookups.release()
        with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile: nobody waits
            loop.call_soon_threadsafe(settle, *outcome)

    threading.Thread(target=look_up, name="groundwire-dns", daemon=True).start()
    return await answer

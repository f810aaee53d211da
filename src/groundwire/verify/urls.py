"""Does a cited URL answer with 200 (S0-65, S0-74, S0-75, C-15)?

HEAD, then a ranged GET where HEAD is not allowed; redirects are followed by hand so that each hop passes the
address guard; no cookies, no credentials, no proxy; a budget of seconds for everything together.
"""

import asyncio
import re
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

import httpcore
import httpx

from groundwire.verify.pacing import NotAskedError, Pacer, Visit
from groundwire.verify.results import CitationCheck, CitationState, Clock, utc_now
from groundwire.verify.ssrf import AddressGuard, BlockedAddressError, is_disguised
from groundwire.verify.text import MAX_BODY, page_text
from groundwire.verify.transport import GuardedTransport

BUDGET = 5.0  # seconds for one URL, name lookup and redirects included
MAX_REDIRECTS = 5
MAX_URL = 2048  # characters
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_GONE = frozenset({404, 410})
_HOST = re.compile(r"[a-z0-9._:-]{1,255}")
_DOTTED = re.compile(r"https?://[\d.]+(?=[:/?#]|$)", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}

_Ask = Literal["HEAD", "GET", "RANGE"]


class _RefusedError(Exception):
    """The URL is not asked, or not asked further; the message is the detail."""


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    location: str | None
    text: str | None


@dataclass(slots=True)
class _Budget:
    """Seconds left on the network; waiting for a place at a host does not count."""

    left: float
    monotonic: Callable[[], float]

    @asynccontextmanager
    async def spend(self) -> AsyncIterator[None]:
        started = self.monotonic()
        try:
            async with asyncio.timeout(self.left):
                yield
        finally:
            self.left = max(0.0, self.left - (self.monotonic() - started))


class UrlChecker:
    """Asks cited URLs. Belongs to one event loop.

    Args:
        guard: What may be connected to; the public internet on ports 80 and 443 by default.
        transport: How requests are sent; by default connections are pinned to addresses that `guard` checked.
        pacer: Limits requests per host.
        clock: Gives `checked_at`.
        monotonic: Seconds, for the budget.
    """

    def __init__(
        self,
        guard: AddressGuard | None = None,
        *,
        transport: httpx.AsyncBaseTransport | None = None,
        pacer: Pacer | None = None,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._guard = guard or AddressGuard()
        self._transport = transport or GuardedTransport(self._guard)
        self._pacer = pacer or Pacer()
        self._clock = clock
        self._monotonic = monotonic

    async def check(
        self, url: str, *, budget: float = BUDGET, deadline: float | None = None, want_text: bool = False
    ) -> CitationCheck:
        """Ask one URL; every failure is a state, never verified.

        Args:
            url: As cited.
            budget: Seconds on the network for all hops together.
            deadline: On the pacer's clock: when waiting for a place at the host ends.
            want_text: Read the page as well, for relevance.

        Raises:
            NotAskedError: If pacing kept the host from being asked.
        """
        purse = _Budget(budget, self._monotonic)
        text: str | None = None
        try:
            state, detail, text = await self._follow(url, purse, deadline, want_text=want_text)
        except NotAskedError:
            raise
        except Exception as error:  # noqa: BLE001 - fails closed: whatever broke, the citation is unknown
            state, detail = CitationState.UNKNOWN, describe(error, budget)
        return CitationCheck(state, detail, self._clock(), text)

    async def close(self) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def _follow(
        self, url: str, purse: _Budget, deadline: float | None, *, want_text: bool
    ) -> tuple[CitationState, str, str | None]:
        target, ask = self._admit(url), _first_ask(want_text=want_text)
        for _ in range(MAX_REDIRECTS + 1):
            reply = await self._ask(ask, target, purse, deadline)
            if ask == "HEAD" and reply.status in (405, 501):
                ask = "RANGE"
                reply = await self._ask(ask, target, purse, deadline)
            if reply.location is None:
                return *_verdict(ask, reply.status), reply.text
            target = self._admit(reply.location, base=target)
        raise _RefusedError(f"more than {MAX_REDIRECTS} redirects")

    def _admit(self, url: str, base: httpx.URL | None = None) -> httpx.URL:
        """Parse one hop and refuse what must not even be resolved."""
        if len(url) > MAX_URL:
            raise _RefusedError("URL too long")
        try:
            target = base.join(url) if base else httpx.URL(url)
        except httpx.InvalidURL:
            if _DOTTED.match(url):  # an octal or overlong dotted quad
                raise BlockedAddressError from None
            raise _RefusedError("invalid URL") from None
        if target.scheme not in _PORTS:
            raise _RefusedError("only http and https are followed")
        if target.userinfo:
            raise _RefusedError("credentials in URL")
        host = target.raw_host.decode("ascii")
        if is_disguised(host):
            raise BlockedAddressError
        if not _HOST.fullmatch(host):
            raise _RefusedError("invalid host")
        port = target.port or _PORTS[target.scheme]
        if port not in self._guard.ports:
            raise _RefusedError(f"port {port} is not allowed")
        return target.copy_with(fragment=None)

    async def _ask(self, ask: _Ask, target: httpx.URL, purse: _Budget, deadline: float | None) -> _Reply:
        headers = {"User-Agent": "groundwire", "Accept": "*/*", "Accept-Encoding": "identity"}
        if ask == "RANGE":
            headers["Range"] = "bytes=0-0"
        # No httpx timeouts: two that end at the same moment cancel each other's cleaning up.
        request = httpx.Request("HEAD" if ask == "HEAD" else "GET", target, headers=headers)
        async with self._pacer.visit(target.raw_host.decode("ascii"), deadline) as visit, purse.spend():
            return await self._send(request, visit, want_text=ask == "GET")

    async def _send(self, request: httpx.Request, visit: Visit, *, want_text: bool) -> _Reply:
        response = await self._transport.handle_async_request(request)
        response.request = request
        try:
            status = response.status_code
            visit.ok = status < 400 or status in _GONE
            location = response.headers.get("location") if status in _REDIRECTS else None
            text = page_text(await _read(response), response.headers) if want_text and status == 200 else None
            return _Reply(status, location, text)
        finally:
            await response.aclose()  # whatever is unread stays unread


def _first_ask(*, want_text: bool) -> _Ask:
    return "GET" if want_text else "HEAD"


def _verdict(ask: _Ask, status: int) -> tuple[CitationState, str]:
    detail = f"HTTP {status}"
    if status == 200 or (status == 206 and ask == "RANGE"):
        return CitationState.VERIFIED, detail
    return (CitationState.NOT_FOUND if status in _GONE else CitationState.UNKNOWN), detail


async def _read(response: httpx.Response) -> bytes:
    body = bytearray()
    async for part in response.aiter_raw():
        body += part
        if len(body) >= MAX_BODY:
            break
    return bytes(body[:MAX_BODY])


def describe(error: BaseException, budget: float) -> str:
    """Say in a few words why a request failed; never the text of a foreign exception, which may hold secrets.

    Args:
        error: What was raised.
        budget: Seconds that were given, for the timeout's wording.
    """
    if isinstance(error, _RefusedError):
        return str(error)
    if isinstance(error, TimeoutError | httpcore.TimeoutException | httpx.TimeoutException):
        return f"timeout after {budget:g} s"
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and len(causes) < 8:  # a chain may be circular
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    for kind, detail in _CAUSES:
        if any(isinstance(c, kind) for c in causes):
            return detail
    return type(error).__name__


_CAUSES: tuple[tuple[type[BaseException], str], ...] = (
    (BlockedAddressError, BlockedAddressError.detail),
    (socket.gaierror, "DNS error"),
    (UnicodeError, "invalid host"),
    (ConnectionRefusedError, "connection refused"),
    (ssl.SSLError, "TLS error"),
    (httpcore.ConnectError, "connection failed"),
    (httpx.ConnectError, "connection failed"),
)

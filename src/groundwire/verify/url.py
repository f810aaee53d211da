"""Checks that a cited URL answers with 200 (S0-65, S0-74, S0-75, C-15).

HEAD, then a ranged GET where HEAD is not allowed. Redirects are followed by hand so that each hop passes the address
guard, and prove nothing where they end at another host or a sign-in page. No cookies, no credentials, no proxy.
"""

from __future__ import annotations

import asyncio
import contextlib
import html
import re
import socket
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

import httpcore
import httpx
from httpcore import SOCKET_OPTION

from groundwire.verify.pacing import NotAskedError, Pacer, PacingLimits
from groundwire.verify.results import BUDGET, CitationCheck, CitationState, Clock, utc_now
from groundwire.verify.ssrf import AddressGuard, BlockedAddressError, is_disguised

if TYPE_CHECKING:
    from groundwire.config import Settings

MAX_BODY = 65_536  # bytes read from the network
_MAX_DECODED = 262_144  # bytes after decompression: a bomb of 64 kB stops here
_TEXTUAL = ("text/", "application/json", "application/xml", "application/xhtml+xml")
_LATIN = frozenset({"iso-8859-1", "latin-1", "latin1", "windows-1252", "cp1252"})
_UNREAD = frozenset({"script", "style", "template", "noscript"})


def page_text(body: bytes, headers: Mapping[str, str]) -> str | None:
    """Return the words of a response, or None where they cannot be read; `MAX_BODY` bytes count at most."""
    kind, _, parameters = headers.get("content-type", "").lower().partition(";")
    kind = kind.strip()
    if not kind.startswith(_TEXTUAL):
        return None
    encoding, decoded = headers.get("content-encoding", "identity").strip().lower(), body[:MAX_BODY]
    if encoding in ("gzip", "x-gzip", "deflate"):
        try:
            decoded = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(decoded, _MAX_DECODED)
        except zlib.error:
            return None
    elif encoding not in ("identity", ""):
        return None
    charset = parameters.partition("charset=")[2].partition(";")[0].strip(" \"'")
    text = decoded.decode("cp1252" if charset in _LATIN else "utf-8", errors="replace")
    return " ".join((_without_tags(text) if "html" in kind else text).split())


def _without_tags(page: str) -> str:
    """Drop tags, scripts and styles. Splitting, not a parser: hostile markup must not cost quadratic time."""
    head, *parts = page.split("<")
    kept, inside = [head], ""
    for part in parts:
        tag, _, rest = part.partition(">")
        name = (tag.split(maxsplit=1) or [""])[0].lower()
        if inside:
            inside = "" if name == f"/{inside}" else inside
            kept.append("" if inside else rest)
        elif name in _UNREAD:
            inside = name
        else:
            kept.append(rest)
    return html.unescape(" ".join(kept))


MAX_REDIRECTS = 5
MAX_URL = 2048  # characters
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

_SIGN_IN = {
    *("login", "logon", "signin", "signon", "sso", "auth"),
    *("oauth", "oauth2", "authorize", "authenticate", "saml2"),
}
"""Words of the path by which a sign-in page is known, as web frameworks and identity providers name it."""

_HOST = re.compile(r"[a-z0-9._:-]{1,255}")
_DOTTED = re.compile(r"https?://[\d.]+(?=[:/?#]|$)", re.IGNORECASE)
_PORTS = {"http": 80, "https": 443}

_Ask = Literal["HEAD", "GET", "RANGE"]


class _RefusedError(Exception):
    """The URL, or one that it redirects to, is not requested; the message is the detail."""


class _Reply(NamedTuple):
    status: int
    location: str | None
    text: str | None


@dataclass(slots=True)
class _NetworkBudget:
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
    """Requests cited URLs. Belongs to one event loop."""

    def __init__(
        self,
        guard: AddressGuard | None = None,
        *,
        redirect_hosts: Iterable[str] = (),
        transport: httpx.AsyncBaseTransport | None = None,
        pacer: Pacer | None = None,
        clock: Clock = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._guard = guard or AddressGuard()
        self._redirect_hosts = tuple(host.lower() for host in redirect_hosts)
        self._transport = transport or GuardedTransport(self._guard)
        self._pacer = pacer or Pacer()
        self._clock = clock
        self._monotonic = monotonic

    @classmethod
    def of(cls, settings: Settings, *, pacer: Pacer | None = None, clock: Clock = utc_now) -> Self:
        guard = AddressGuard(settings.networks, ports=settings.ports)
        return cls(guard, redirect_hosts=settings.redirecting, pacer=pacer, clock=clock)

    async def check(
        self,
        url: str,
        *,
        budget: float = BUDGET,
        deadline: float | None = None,
        want_text: bool = False,
        tenant: str = "",
    ) -> CitationCheck:
        """Request one URL; every failure is a state, never verified. Raises: NotAskedError."""
        left = _NetworkBudget(budget, self._monotonic)
        asking = partial(self._ask, left=left, deadline=deadline, tenant=tenant)
        text: str | None = None
        try:
            state, detail, text = await self._follow(url, asking, want_text=want_text)
        except NotAskedError:
            raise
        except Exception as error:  # noqa: BLE001 - fails closed: whatever broke, the citation is unknown
            state, detail = CitationState.UNKNOWN, describe(error, budget)
        return CitationCheck(state, detail, self._clock(), text)

    async def close(self) -> None:
        await self._transport.aclose()

    async def _follow(
        self, url: str, asking: Callable[[_Ask, httpx.URL], Awaitable[_Reply]], *, want_text: bool
    ) -> tuple[CitationState, str, str | None]:
        target = cited = self._admit(url)
        ask: _Ask = "GET" if want_text else "HEAD"
        for _ in range(MAX_REDIRECTS + 1):
            reply = await asking(ask, target)
            if ask == "HEAD" and reply.status in (405, 501):
                ask = "RANGE"
                reply = await asking(ask, target)
            if reply.location is None:
                detail = f"HTTP {reply.status}"
                if reply.status != 200 and not (reply.status == 206 and ask == "RANGE"):
                    gone = reply.status in {404, 410}
                    return CitationState.NOT_FOUND if gone else CitationState.UNKNOWN, detail, reply.text
                # what is at the end of redirects may not be what was cited
                if _sign_in_words(target) - _sign_in_words(cited):
                    return CitationState.UNKNOWN, "redirected to a sign-in page", None
                allowed = target.host.removeprefix("www.") == cited.host.removeprefix("www.") or any(
                    target.host == one or (one.startswith(".") and target.host.endswith(one))
                    for one in self._redirect_hosts
                )
                if not allowed:
                    return CitationState.UNKNOWN, "redirected to another host", None
                return CitationState.VERIFIED, detail, reply.text
            target = self._admit(reply.location, base=target)
        raise _RefusedError(f"more than {MAX_REDIRECTS} redirects")

    def _admit(self, url: str, base: httpx.URL | None = None) -> httpx.URL:
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

    async def _ask(
        self, ask: _Ask, target: httpx.URL, *, left: _NetworkBudget, deadline: float | None, tenant: str
    ) -> _Reply:
        headers = {"User-Agent": "groundwire", "Accept": "*/*", "Accept-Encoding": "identity"}
        if ask == "RANGE":
            headers["Range"] = "bytes=0-0"
        # No httpx timeouts: two that end together cancel each other's cleaning up.
        request = httpx.Request("HEAD" if ask == "HEAD" else "GET", target, headers=headers)
        host = target.raw_host.decode("ascii")
        async with self._pacer.visit(host, deadline, tenant=tenant) as visit, left.spend():
            response = await self._transport.handle_async_request(request)
            response.request = request
            try:
                status, text = response.status_code, None
                # 401 and 403 are answers of a healthy host
                visit.ok = status < 500 and status not in {408, 425, 429}
                location = response.headers.get("location") if status in _REDIRECTS else None
                if ask == "GET" and status == 200:
                    body = bytearray()
                    async for part in response.aiter_raw():
                        body += part
                        if len(body) >= MAX_BODY:
                            break
                    text = page_text(bytes(body), response.headers)
                return _Reply(status, location, text)
            finally:
                await response.aclose()  # whatever is unread stays unread


def _sign_in_words(url: httpx.URL) -> set[str]:
    """Return what in host and path names signing in, hyphens and underscores aside: `accounts.` too, `/log-in`."""
    parts = re.split(r"[./]", f"{url.host}{url.path}".lower())
    return {word for part in parts if (word := re.sub(r"[-_]", "", part)) in _SIGN_IN}


def describe(error: BaseException, budget: float) -> str:
    """Say why a request failed; never the text of a foreign exception, which may hold secrets."""
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


_CONNECTIONS = PacingLimits().total  # one that waits for another's would spend its budget on that
_MAX_ADDRESSES = 3  # addresses of one host that are tried in turn
_ATTEMPT = 1.5  # seconds for an address that is not the last


class PinnedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections to the guard's addresses instead of to names; socket files, as in httpcore's base, to none.

    The name is resolved inside `connect_tcp`, the last step before the socket, which no redirect or reused client can
    bypass. `Host` and the TLS server name stay the URL's.
    """

    def __init__(self, guard: AddressGuard, inner: httpcore.AsyncNetworkBackend | None = None) -> None:
        self._guard = guard
        self._inner = inner or httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        *others, last = (await self._guard.addresses(host, port))[:_MAX_ADDRESSES]
        for address in others:
            with contextlib.suppress(httpcore.ConnectError, httpcore.ConnectTimeout):
                return await self._connect(address, port, _ATTEMPT, local_address, socket_options)
        return await self._connect(last, port, timeout, local_address, socket_options)

    async def _connect(
        self,
        address: str,
        port: int,
        timeout: float | None,  # noqa: ASYNC109 - httpcore's
        local_address: str | None,
        socket_options: Iterable[SOCKET_OPTION] | None,
    ) -> httpcore.AsyncNetworkStream:
        stream = await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
        start_tls = stream.start_tls

        async def start_tls_or_close(*arguments: Any, **named: Any) -> httpcore.AsyncNetworkStream:  # noqa: ANN401 - httpcore's
            try:
                return await start_tls(*arguments, **named)
            except BaseException:  # httpcore closes the connection on errors, not when it is cancelled
                await stream.aclose()
                raise

        stream.start_tls = start_tls_or_close  # type: ignore[method-assign]
        return stream


class _Body(httpx.AsyncByteStream):
    def __init__(self, reply: httpcore.Response) -> None:
        self._reply = reply

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._reply.aiter_stream():
            yield part

    async def aclose(self) -> None:
        await self._reply.aclose()


class GuardedTransport(httpx.AsyncBaseTransport):
    """HTTP/1.1 over pinned connections, with no proxy, whatever the environment says."""

    def __init__(
        self,
        guard: AddressGuard,
        *,
        inner: httpcore.AsyncNetworkBackend | None = None,
        ssl_context: ssl.SSLContext | None = None,
        max_connections: int = _CONNECTIONS,
    ) -> None:
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=ssl_context or httpx.create_ssl_context(trust_env=False),
            max_connections=max_connections,
            max_keepalive_connections=max_connections // 2,
            keepalive_expiry=5.0,
            network_backend=PinnedBackend(guard, inner),
        )

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if not isinstance(request.stream, httpx.AsyncByteStream):
            raise TypeError("an asynchronous transport sends no body of a synchronous request")
        reply = await self._pool.handle_async_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(
                    scheme=request.url.raw_scheme,
                    host=request.url.raw_host,
                    port=request.url.port,
                    target=request.url.raw_path,
                ),
                headers=request.headers.raw,
                content=request.stream,
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            reply.status, headers=reply.headers, stream=_Body(reply), extensions=reply.extensions
        )

    async def aclose(self) -> None:
        await self._pool.aclose()

"""What every request passes before its route: host check, rate limits, response headers, access log, origin check."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping
from ipaddress import ip_address
from typing import Final

import structlog
from cachetools import LRUCache
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groundwire.console.settings import ConsoleSettings, Network

logger = structlog.get_logger(__name__)

_MAX_CALLERS: Final = 20_000  # callers whose bucket is kept; beyond it the least recent one is dropped
MAX_BODY: Final = 300_000
"""Bytes of a request's body: an edited text of 20,000 characters, each up to 12 bytes in a form, and its fields."""
_HEADERS: Final = {
    "content-security-policy": "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self';"
    " frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
}
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Guard:
    """An ASGI middleware: checks host, sizes and the rate of an address, adds security headers, and logs requests.

    A log line has method, route, status and time: never the path as sent, its query or its body.
    """

    def __init__(self, app: ASGIApp, settings: ConsoleSettings, addresses: Rates) -> None:
        self._app = app
        self._headers = dict(_HEADERS)
        if settings.secure:
            self._headers["strict-transport-security"] = "max-age=31536000"
        self._hosts = frozenset(origin.partition("://")[2].lower() for origin in settings.origins)
        self._proxies = settings.proxies
        self._addresses = addresses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        began, status, size = time.perf_counter(), 0, 0

        async def outgoing(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers.update(self._headers)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        async def limited() -> Message:
            """Stop reading a body over `MAX_BODY`, whatever length its sender announced."""
            nonlocal size
            message = await receive()
            size += len(message.get("body", b""))
            if size > MAX_BODY:
                raise HTTPException(413)
            return message

        try:
            await (self.refusal(scope) or self._app)(scope, limited, outgoing)
        except Exception as exc:  # noqa: BLE001 - answered, and logged without its message
            frames = traceback.extract_tb(exc.__traceback__)
            where = f"{frames[-1].name}:{frames[-1].lineno}" if frames else ""
            logger.error("fault", error=type(exc).__name__, where=where)  # noqa: TRY400 - no message: it may be text
            if status:
                raise _Broken from None  # the answer has begun: let the server cut the connection
            said = {"error": "That did not work", "message": "The console has a fault."}
            await JSONResponse(said, 500)(scope, receive, outgoing)
        finally:
            if not scope["path"].startswith("/static/") or status >= 400:
                logger.info(
                    "request",
                    method=scope["method"] if scope["method"] in _METHODS else "other",
                    route=getattr(scope.get("route"), "path", "none"),
                    status=status,
                    ms=round((time.perf_counter() - began) * 1000),
                )

    def refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        known = len(hosts) == 1 and hosts[0].lower() in self._hosts
        # an orchestrator asks /healthz under any host name; it reveals nothing
        if not known and scope["path"] != "/healthz":
            return refused(scope, 421, "this is not the console's address")
        if not scope["query_string"].isascii():
            return refused(scope, 400, "an address has ASCII characters only: write others as %XX")
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or len(length) > 12 or int(length) > MAX_BODY:
            return refused(scope, 413, f"a request may have {MAX_BODY} bytes")
        address = peer(scope)
        if among(address, self._proxies):  # it speaks for everybody; people are counted one by one
            return None
        wait = self._addresses.take(address)
        if not wait:
            return None
        return refused(scope, 429, "too many requests", {"retry-after": str(max(1, round(wait)))})


class _Broken(Exception):
    """An answer failed half-way, and was logged."""


def refused(scope: Scope, status: int, why: str, headers: Mapping[str, str] | None = None) -> Response:
    if scope["path"].startswith("/api/"):
        return JSONResponse({"error": "Refused", "message": why}, status, headers)
    return PlainTextResponse(f"{why}\n", status, headers)


def check_rate(rates: Rates, caller: str) -> None:
    wait = rates.take(caller)
    if wait:
        raise HTTPException(429, headers={"retry-after": str(max(1, round(wait)))})


def peer(scope: Scope | HTTPConnection) -> str:
    """Return the address of the connection's peer; headers are ignored."""
    client = scope["client"] if scope.get("client") else None
    return client[0] if client else ""


def among(address: str, networks: Iterable[Network]) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found.version == network.version and found in network for network in networks)


class Origins:
    """An ASGI middleware that refuses writes from other sites' pages before anything of them is read."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = frozenset(origin.lower() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] not in ("GET", "HEAD", "OPTIONS"):
            headers = Headers(scope=scope)
            site = headers.get("sec-fetch-site")
            # a page without referrer names no origin in its forms; that it is ours, the browser says elsewhere
            known = self._origins | {"null"} if site == "same-origin" else self._origins
            foreign = any(origin.lower() not in known for origin in headers.getlist("origin"))
            if foreign or site not in (None, "same-origin", "none"):
                await refused(scope, 403, "the request comes from another site")(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Rates:
    """Token buckets: each caller passes `per_minute` times a minute, at most so many at once."""

    def __init__(self, per_minute: int, monotonic: Callable[[], float]) -> None:
        self.per_minute = per_minute
        self._now = monotonic
        self._buckets: LRUCache[str, tuple[float, float]] = LRUCache(_MAX_CALLERS)

    def take(self, caller: str) -> float:
        """Count one request; return 0.0 where it may pass, else the seconds to wait."""
        now = self._now()
        left, since = self._buckets.get(caller, (float(self.per_minute), now))
        left = min(float(self.per_minute), left + (now - since) * self.per_minute / 60)
        passed = left >= 1
        self._buckets[caller] = (left - 1 if passed else left, now)
        return 0.0 if passed else (1 - left) * 60 / self.per_minute

    def __len__(self) -> int:
        return len(self._buckets)

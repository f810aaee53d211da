"""What stands before every route: host check, limits, headers of every answer, and the access log."""

from __future__ import annotations

import time
import traceback
from collections.abc import Iterable, Mapping
from ipaddress import ip_address
from typing import Final

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from groundwire.console.rates import Rates
from groundwire.console.settings import ConsoleSettings, Network

logger = structlog.get_logger(__name__)

_PROBE: Final = "/healthz"
"""Asked by an orchestrator under whatever name; says nothing."""
_STATIC: Final = "/static/"
"""What pages are made of: that it was fetched says nothing that the page's own line does not."""
_REFUSED: Final = 400
MAX_BODY: Final = 300_000
"""Bytes of a request's body: an edited text of 20,000 characters, each up to 12 bytes in a form, and its fields."""

_POLICY: Final = (
    "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=()",
}


class Guard:
    """An ASGI middleware that lets through what is meant for the console, in sensible amounts.

    It logs method, route, status and time of every request but those for static files that there are: never the
    path as sent, its query or its body.
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
        """Serve one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        outgoing = _Outgoing(send, self._headers)
        refusal = self._refusal(scope)
        try:
            await (refusal or self._app)(scope, _limited(receive), outgoing.send)
        except Exception as exc:  # noqa: BLE001 - answered, and told of in the log without what it says
            logger.error("fault", error=type(exc).__name__, where=_where(exc))  # noqa: TRY400 - what it says may be text
            if outgoing.status:
                raise _Broken from None  # the answer has begun: let the server cut the connection
            await _fault()(scope, receive, outgoing.send)
        finally:
            outgoing.log(scope)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if scope["path"] != _PROBE and (len(hosts) != 1 or hosts[0].lower() not in self._hosts):
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


class _Outgoing:
    """An answer on its way: gets its headers, and is remembered for the log."""

    def __init__(self, send: Send, headers: dict[str, str]) -> None:
        self._send = send
        self._headers = headers
        self._began = time.perf_counter()
        self.status = 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            for name, value in self._headers.items():
                headers[name] = value
            headers.setdefault("cache-control", "no-store")
        await self._send(message)

    def log(self, scope: Scope) -> None:
        if scope["path"].startswith(_STATIC) and self.status < _REFUSED:
            return
        logger.info(
            "request",
            method=scope["method"] if scope["method"] in _METHODS else "other",
            route=getattr(scope.get("route"), "path", "none"),
            status=self.status,
            ms=round((time.perf_counter() - self._began) * 1000),
        )


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def _limited(receive: Receive) -> Receive:
    """Stop reading a body that is longer than it may be, whatever its sender announced."""
    size = 0

    async def read() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > MAX_BODY:
            raise HTTPException(413)
        return message

    return read


class _Broken(Exception):
    """Something failed in the middle of an answer; the log has said what."""


def _where(exc: Exception) -> str:
    """Return where an exception was raised."""
    frames = traceback.extract_tb(exc.__traceback__)
    return f"{frames[-1].name}:{frames[-1].lineno}" if frames else ""


def _fault() -> JSONResponse:
    return JSONResponse({"error": "That did not work", "message": "The console has a fault."}, 500)


def refused(scope: Scope, status: int, why: str, headers: Mapping[str, str] | None = None) -> Response:
    """Return the answer to what no route sees: a line of text, and JSON under `/api`."""
    if scope["path"].startswith("/api/"):
        return JSONResponse({"error": "Refused", "message": why}, status, headers)
    return PlainTextResponse(f"{why}\n", status, headers)


def peer(scope: Scope | HTTPConnection) -> str:
    """Return the address that the connection came from; no header has a say in it."""
    client = scope["client"] if scope.get("client") else None
    return client[0] if client else ""


def among(address: str, networks: Iterable[Network]) -> bool:
    """Say whether an address lies in one of the networks; what is no address does not."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    return any(found.version == network.version and found in network for network in networks)

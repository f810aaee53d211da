"""Writes from other sites' pages are refused before anything of them is read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from groundwire.console.guard import refused

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Origins:
    """An ASGI middleware that takes writes from the console's own pages, and from what is no browser."""

    def __init__(self, app: ASGIApp, origins: Collection[str]) -> None:
        self._app = app
        self._origins = frozenset(origin.lower() for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if (
            scope["type"] == "http"
            and scope["method"] not in _READS
            and self._is_foreign(Headers(scope=scope))
        ):
            await refused(scope, 403, "the request comes from another site")(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_foreign(self, headers: Headers) -> bool:
        site = headers.get("sec-fetch-site")
        if site not in (None, "same-origin", "none"):
            return True
        # a page without referrer names no origin in its forms; that it is ours, the browser says elsewhere
        known = self._origins | {"null"} if site == "same-origin" else self._origins
        return any(origin.lower() not in known for origin in headers.getlist("origin"))

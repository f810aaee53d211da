"""The console as an ASGI application, and serving it by uvicorn."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from groundwire.console.guard import Guard, Origins, Rates
from groundwire.console.pages import page, routes
from groundwire.console.settings import ConsoleSettings
from groundwire.console.site import Parts, Site
from groundwire.errors import UsageError
from groundwire.review.permissions import Person

TICK: Final = 0.2  # seconds between two rounds of sending what is due and announcing what changed
_SHARED: Final = 2.0  # seconds between two exchanges of sign-outs with other consoles
_TITLES: Final = {
    400: ("That cannot be read", "The request is not one that this page sends."),
    401: ("Not signed in", "Sign in and try again."),
    403: ("Refused", "You are not let in, or the request did not come from a page of this console."),
    404: ("Not found", "There is no such item, or it is not yours to see."),
    405: ("Refused", "That is not done here."),
    409: ("Not done", "It changed meanwhile."),
    413: ("Too large", "That is more than the console takes."),
    415: ("That cannot be read", "The request is not of a form that the console takes."),
    429: ("Too many requests", "Wait a moment and try again."),
    502: ("Sign-in is out of reach", "The issuer did not answer. Try again in a moment."),
    503: ("Busy", "Try again in a moment."),
}


def create_app(
    settings: ConsoleSettings, parts: Parts, one_time: Person | None = None
) -> tuple[Starlette, str | None]:
    """Return the application, and the secret of a sign-in link for `one_time`. Raises: UsageError, no sign-in."""
    require_sign_in(settings, other=parts.tokens is not None or one_time is not None)
    secret = settings.secret.get_secret_value() if settings.secret else secrets.token_urlsafe(32)
    site = Site(settings, parts)
    app = Starlette(
        routes=routes(site),
        middleware=[
            Middleware(Guard, settings=settings, addresses=Rates(settings.rate_address, parts.monotonic)),
            Middleware(Origins, origins=settings.origins),
            Middleware(
                SessionMiddleware,
                secret_key=secret,
                session_cookie="__Host-groundwire" if settings.secure else "groundwire",
                max_age=round(settings.session_hours * 3600),
                same_site="lax",
                https_only=settings.secure,
            ),
        ],
        exception_handlers={HTTPException: error_handler(site)},
        lifespan=background(site),
    )
    app.state.site = site
    return app, site.links.issue(one_time) if one_time else None


def require_sign_in(settings: ConsoleSettings, *, other: bool) -> None:
    """Raise UsageError if nobody could sign in; `other`: by API tokens or a one-time link, people can."""
    if not (settings.oidc_issuer or settings.proxy_header or other):
        raise UsageError(
            "the console has no way to sign in: set GROUNDWIRE_CONSOLE_OIDC_ISSUER, GROUNDWIRE_CONSOLE_PROXY_HEADER"
            " or GROUNDWIRE_TOKENS_FILE, or start it with --one-time-link"
        )


def error_handler(site: Site) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Return what answers errors as pages, or as JSON under `/api`; it repeats nothing of the request."""

    async def answer(request: Request, exc: Exception) -> Response:
        if not isinstance(exc, HTTPException):
            raise exc
        status = exc.status_code
        title, text = _TITLES.get(status, ("That did not work", ""))
        # Starlette fills in the status phrase where the console wrote no detail
        if status in (400, 401, 403, 404, 409, 415, 503) and exc.detail != HTTPException(status).detail:
            text = exc.detail
        if request.url.path.startswith("/api/"):
            response: Response = JSONResponse({"error": title, "message": text}, status)
        else:
            try:
                identity = site.authenticator.identify(request)
            except HTTPException:
                identity = None
            response = page(site, request, identity, "error.html", {"title": title, "text": text}, status)
        response.headers.update(exc.headers or {})
        return response

    return answer


def background(site: Site) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Return the application's lifespan, during which due actions, changes and sign-outs are sent."""

    async def tick() -> None:
        while True:
            site.outbox.release()
            await site.live.poll()
            await asyncio.sleep(TICK)

    async def share() -> None:
        while True:
            await site.sessions.share()
            await asyncio.sleep(_SHARED)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        # who was signed in before a restart is let in as soon as it is known
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(site.sessions.share(), _SHARED)
        tasks = [asyncio.create_task(tick()), asyncio.create_task(share())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await site.live.close()
            await site.outbox.close()

    return lifespan


def make_server(app: Starlette) -> uvicorn.Server:
    """Return a server without a Server header and access log that trusts no forwarding header."""
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=True,
            lifespan="on",
            ws="none",
            timeout_graceful_shutdown=5,
        )
    )


async def serve(server: uvicorn.Server, app: Starlette, listening: socket.socket) -> None:
    """Serve until SIGINT, SIGTERM or `server.should_exit`; open event streams are ended first."""

    async def end_streams() -> None:
        while not server.should_exit:  # noqa: ASYNC110 - uvicorn has a flag, not an event
            await asyncio.sleep(0.1)
        await app.state.site.live.close()

    ending = asyncio.create_task(end_streams())
    try:
        with ignored_signals():
            await server.serve(sockets=[listening])
    finally:
        ending.cancel()
        await asyncio.wait([ending])
        # cut off what is still open after the grace: a transport that outlives its loop keeps its socket open
        for connection in list(server.server_state.connections):
            if isinstance(connection.transport, asyncio.WriteTransport):
                connection.transport.abort()
        await asyncio.sleep(0)  # sockets are closed by the loop


@contextlib.contextmanager
def ignored_signals() -> Iterator[None]:
    """Keep the process alive after a signal that ended the server: uvicorn raises it a second time."""
    try:
        before = {one: signal.signal(one, lambda *_: None) for one in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: there are no signals here
        yield
        return
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)

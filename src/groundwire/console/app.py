"""The console as an ASGI application: one factory does all wiring."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.sessions import SessionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount

from groundwire.console.assets import Assets
from groundwire.console.desk import Desk, Reviews
from groundwire.console.guard import Guard
from groundwire.console.identity import Authenticator, TokenReader
from groundwire.console.live import Live
from groundwire.console.locks import Locks, MemoryLocks
from groundwire.console.onetime import OneTimeLinks
from groundwire.console.openid import OpenId
from groundwire.console.orders import Order
from groundwire.console.origins import Origins
from groundwire.console.rates import Rates
from groundwire.console.render import page
from groundwire.console.routes import routes
from groundwire.console.scraping import Scraper
from groundwire.console.sessions import Sessions
from groundwire.console.settings import ConsoleSettings
from groundwire.console.site import Site
from groundwire.errors import UsageError
from groundwire.policy import Limits, Policy
from groundwire.review.board import Board
from groundwire.review.people import Permissions, Person

TICK: Final = 0.2
"""Seconds between two looks at what is due and what is new."""

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


def utc_now() -> datetime:
    """Return the time."""
    return datetime.now(UTC)


def always_caught_up() -> bool:
    """Say that the board shows everything."""
    return True


def never_stale() -> None:
    """Say that what the board shows is up to date."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What a console is made of; tests put doubles in their place.

    Attributes:
        reviews: signs and publishes what people decide.
        policy: the gate's; under it an edited text is read before it is held.
        tokens: the API tokens, or None: none are taken.
        stale_since: since when the board may be out of date.
        caught_up: whether the board shows all that there was when the console started.
        review_ttl: after which an item expires, where the reviews agent has a key to say so.
        monotonic: seconds, for limits.
    """

    board: Board
    permissions: Permissions
    reviews: Reviews
    limits: Limits = field(default_factory=Limits)
    policy: Policy = field(default_factory=Policy)
    tokens: TokenReader | None = None
    locks: Locks | None = None
    stale_since: Callable[[], datetime | None] = never_stale
    caught_up: Callable[[], bool] = always_caught_up
    review_ttl: timedelta = timedelta(days=60)
    clock: Callable[[], datetime] = utc_now
    monotonic: Callable[[], float] = time.monotonic


def create_app(
    settings: ConsoleSettings, parts: Parts, one_time: Person | None = None
) -> tuple[Starlette, str | None]:
    """Return the application and, for `one_time`, the secret of a one-time sign-in link.

    Raises:
        UsageError: there is no way to sign in.
    """
    links = OneTimeLinks(parts.clock)
    require_sign_in(settings, other=parts.tokens is not None or one_time is not None)
    site = _site(settings, parts, links)
    secret = settings.secret.get_secret_value() if settings.secret else secrets.token_urlsafe(32)
    app = Starlette(
        routes=[
            *routes(site),
            Mount("/static", Assets(), name="public"),
        ],
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
        exception_handlers={HTTPException: _Errors(site).answer},
        lifespan=_lifespan(site),
    )
    app.state.site = site
    return app, links.issue(one_time) if one_time else None


def require_sign_in(settings: ConsoleSettings, *, other: bool) -> None:
    """Raise UsageError if nobody could sign in; `other`: by API tokens or a one-time link, people can."""
    if not (settings.oidc_issuer or settings.proxy_header or other):
        raise UsageError(
            "the console has no way to sign in: set GROUNDWIRE_CONSOLE_OIDC_ISSUER, GROUNDWIRE_CONSOLE_PROXY_HEADER"
            " or GROUNDWIRE_TOKENS_FILE, or start it with --one-time-link"
        )


def _site(settings: ConsoleSettings, parts: Parts, links: OneTimeLinks) -> Site:
    board, clock = parts.board, parts.clock
    sessions = Sessions(timedelta(hours=settings.session_hours), clock)
    stands = _Stands(board, parts.permissions)
    desk = Desk(parts.reviews, stands.check, timedelta(seconds=settings.undo_seconds), clock)
    return Site(
        settings=settings,
        board=board,
        permissions=parts.permissions,
        limits=parts.limits,
        policy=parts.policy,
        desk=desk,
        locks=parts.locks or MemoryLocks(timedelta(seconds=settings.lock_seconds), clock),
        live=Live(lambda: (board.version, desk.version, parts.stale_since(), parts.caught_up())),
        sessions=sessions,
        authenticator=Authenticator(settings, sessions, parts.tokens, clock),
        links=links,
        openid=OpenId(settings) if settings.oidc_issuer else None,
        stale_since=parts.stale_since,
        caught_up=parts.caught_up,
        clock=clock,
        identities=Rates(settings.rate_identity, parts.monotonic),
        attempts=Rates(settings.rate_signin, parts.monotonic),
        has_tokens=parts.tokens is not None,
        scraper=Scraper(settings.targets, clock),
        review_ttl=parts.review_ttl,
    )


class _Stands:
    """Whether an item is still as an order takes it to be, and still its person's to decide."""

    def __init__(self, board: Board, permissions: Permissions) -> None:
        self._board = board
        self._permissions = permissions

    def check(self, order: Order) -> bool:
        record = order.record
        if not self._permissions.may_decide(order.person, record.tenant_id, record.user_id):
            return False
        item = self._board.item(self._permissions.scope(order.person), order.decision_id)
        return item is not None and item.current.revision == record.expected_revision


class _Errors:
    """Errors as pages, or as JSON under `/api`; they say nothing of what was asked for."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def answer(self, request: Request, exc: Exception) -> Response:
        if not isinstance(exc, HTTPException):
            raise exc
        title, text = _TITLES.get(exc.status_code, ("That did not work", ""))
        own = exc.detail if exc.status_code in (400, 401, 403, 404, 409, 415, 503) and _is_own(exc) else text
        if request.url.path.startswith("/api/"):
            response: Response = JSONResponse({"error": title, "message": own}, exc.status_code)
        else:
            try:
                identity = self._site.authenticator.identify(request)
            except HTTPException:
                identity = None
            response = page(
                self._site, request, identity, "error.html", {"title": title, "text": own}, exc.status_code
            )
        response.headers.update(exc.headers or {})
        return response


def _is_own(exc: HTTPException) -> bool:
    """Whether the console wrote the detail: Starlette fills in the status phrase."""
    return exc.detail != HTTPException(exc.status_code).detail


def _lifespan(site: Site) -> Callable[[Starlette], Any]:
    async def tick() -> None:
        while True:
            site.desk.release()
            await site.live.look()
            await asyncio.sleep(TICK)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(tick())]
        if site.settings.targets:
            tasks.append(asyncio.create_task(site.scraper.run()))
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await site.live.close()
            await site.desk.close()

    return lifespan

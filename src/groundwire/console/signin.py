"""Signing in and out: by OpenID Connect, or by the one-time link of the embedded demo."""

from __future__ import annotations

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from groundwire.console.call import read_form
from groundwire.console.guard import peer
from groundwire.console.orders import State
from groundwire.console.render import page
from groundwire.console.sessions import csrf_holds, place_asked_for
from groundwire.console.site import Site
from groundwire.review.people import Person

logger = structlog.get_logger(__name__)

FAILED = (
    "This code is unknown, was used, or is more than ten minutes old. Start the console again for a new one."
)


class SignIn:
    """The routes that need nobody signed in, and signing out."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def show(self, request: Request) -> Response:
        """The page that offers the ways to sign in."""
        return self._page(request)

    async def link(self, request: Request) -> Response:
        """Redeem the secret of a one-time link; it comes in a form, never in a URL."""
        self._attempt(request)
        form = await read_form(request)
        if not csrf_holds(request.session, str(form.get("csrf", ""))):
            raise HTTPException(403)
        person = self._site.links.redeem(str(form.get("secret", "")).strip())
        if person is None:
            logger.warning("sign_in_refused", error="one_time_link")
            return self._page(request, FAILED, 403)
        return self._let_in(request, person, "one_time_link")

    async def oidc(self, request: Request) -> Response:
        """Go to the issuer."""
        self._attempt(request)
        if self._site.openid is None:
            raise HTTPException(404)
        return await self._site.openid.begin(request)

    async def oidc_callback(self, request: Request) -> Response:
        """Come back from the issuer."""
        self._attempt(request)
        if self._site.openid is None:
            raise HTTPException(404)
        person = await self._site.openid.finish(request)
        return self._let_in(request, person, "oidc")

    async def out(self, request: Request) -> Response:
        """Sign out; the page after it tells what happens with what could still be undone."""
        form = await read_form(request)
        if not csrf_holds(request.session, str(form.get("csrf", ""))):
            raise HTTPException(403)
        person = self._site.sessions.person(request.session)
        held = [entry for entry in self._site.desk.of(person) if entry.state is State.HELD] if person else []
        self._site.sessions.end(request.session)
        if held:
            request.session["held"] = len(held)
        return RedirectResponse("/signin", 303)

    async def healthz(self, request: Request) -> Response:  # noqa: ARG002 - a route's signature
        """Say that the process answers, and nothing else."""
        return PlainTextResponse("ok\n")

    def _let_in(self, request: Request, person: Person, way: str) -> Response:
        """Begin a session, and go to the page that was asked for."""
        place = place_asked_for(request.session)
        self._site.sessions.begin(request.session, person)
        logger.info("signed_in", way=way)
        return RedirectResponse(place, 303)

    def _page(self, request: Request, failed: str | None = None, status: int = 200) -> Response:
        site = self._site
        ways = {
            "oidc": site.openid is not None,
            "link": bool(site.links),
            "proxy": bool(site.settings.proxy_header),
            "tokens": site.has_tokens,
        }
        told = {"failed": failed, "held": request.session.pop("held", 0)}
        return page(site, request, None, "signin.html", {**told, **ways}, status)

    def _attempt(self, request: Request) -> None:
        wait = self._site.attempts.take(peer(request))
        if wait:
            raise HTTPException(429, headers={"retry-after": str(max(1, round(wait)))})

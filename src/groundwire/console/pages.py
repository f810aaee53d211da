"""Every route with its rule (`ROUTES`), pages from templates, sign-in and sign-out, and the list of the API.

Templates escape every value.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import structlog
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from groundwire.console import actions, item, lists, queue, status, words
from groundwire.console.auth import Identity, OpenId, csrf_holds, csrf_token, place_asked_for, remember_place
from groundwire.console.guard import check_rate, peer
from groundwire.console.item import typed_fields
from groundwire.console.lists import EXPORTED, FORMS, export
from groundwire.console.markdown import to_html
from groundwire.console.outbox import OrderState, shown_actions
from groundwire.console.queue import query_back, with_query
from groundwire.console.site import MAX_REPORTED, Call, PageAnswer, PageHandler, Site, read_form, read_json
from groundwire.messages.base import format_time
from groundwire.review.permissions import Person

logger = structlog.get_logger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]


_FOLDER: Final = Path(str(files("groundwire.console") / "static"))
PAGES: Final = (
    ("/", "Queue"),
    ("/responses", "Responses"),
    ("/approved", "Approved"),
    ("/blocked", "Blocked"),
    ("/dead-letters", "Dead letters"),
)
_environment = Environment(
    loader=PackageLoader("groundwire.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


_CONTENT: Final = (path.name.encode() + b"\0" + path.read_bytes() for path in sorted(_FOLDER.iterdir()))
VERSION: Final = hashlib.sha256(b"".join(_CONTENT)).hexdigest()[:12]
"""Part of the address of static files: a script finds the modules that it imports under the same version."""
_environment.globals.update(
    age=words.age,
    assets=f"/static/{VERSION}",
    duration=words.duration,
    label=words.label,
    measured=words.measured,
    moment=words.moment,
    number=words.number,
    waits_for=words.waits_for,
)
_environment.filters["markdown"] = to_html


class Assets(StaticFiles):
    """Static files: under their version browsers cache them for good, otherwise they revalidate."""

    def __init__(self) -> None:
        super().__init__(directory=str(_FOLDER))

    async def get_response(self, path: str, scope: Scope) -> Response:
        version, _, name = path.partition("/")
        kept = version == VERSION
        response = await super().get_response(name if kept else path, scope)
        response.headers["cache-control"] = "public, max-age=31536000, immutable" if kept else "no-cache"
        return response


def page(
    site: Site,
    request: Request,
    identity: Identity | None,
    template: str,
    data: Mapping[str, Any],
    status: int = 200,
) -> HTMLResponse:
    whole = {**data, **_frame(site, request, identity)}
    return HTMLResponse(_environment.get_template(template).render(whole), status)


def _frame(site: Site, request: Request, identity: Identity | None) -> dict[str, Any]:
    csrf = csrf_token(request.session)
    stale, away = (site.stale_since(), site.shared.away_since) if identity else (None, None)
    operates = identity is not None and bool(site.permissions.scope(identity.person).whole)
    token = Markup('<input type="hidden" name="csrf" value="{}">').format(csrf)
    return {
        "person": {"name": identity.person.name} if identity else None,
        "way": identity.way if identity else None,
        "csrf": csrf,
        "token": lambda: token,
        "pages": (*PAGES, *[("/status", "Status")] * operates),
        "tour": site.settings.tour and identity is not None,
        "here": getattr(request.scope.get("route"), "path", ""),
        "stale_since": format_time(stale) if stale else None,
        "unshared_since": format_time(away) if away else None,
        "reading": identity is not None and not site.caught_up(),
        "actions": shown_actions(site.outbox, identity.person, site.clock()) if identity else [],
    }


class SignIn:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def show(self, request: Request) -> Response:
        return self._page(request)

    async def link(self, request: Request) -> Response:
        """Redeem the secret of a one-time link; it comes in a form, never in a URL."""
        check_rate(self._site.attempts, peer(request))
        form = await read_form(request)
        if not csrf_holds(request.session, str(form.get("csrf", ""))):
            raise HTTPException(403)
        person = self._site.links.redeem(str(form.get("secret", "")).strip())
        if person is None:
            logger.warning("sign_in_refused", error="one_time_link")
            failed = "This code is unknown, was used, or is more than ten minutes old."
            return self._page(request, f"{failed} Start the console again for a new one.", 403)
        return self._let_in(request, person, "one_time_link")

    async def oidc(self, request: Request) -> Response:
        return await self._openid(request).begin(request)

    async def oidc_callback(self, request: Request) -> Response:
        person = await self._openid(request).finish(request)
        return self._let_in(request, person, "oidc")

    def _openid(self, request: Request) -> OpenId:
        check_rate(self._site.attempts, peer(request))
        if self._site.openid is None:
            raise HTTPException(404)
        return self._site.openid

    async def out(self, request: Request) -> Response:
        """Sign out; the next page says what happens to actions that could still be undone."""
        form = await read_form(request)
        if not csrf_holds(request.session, str(form.get("csrf", ""))):
            raise HTTPException(403)
        person = self._site.sessions.person(request.session)
        theirs = self._site.outbox.of(person) if person else []
        held = sum(1 for entry in theirs if entry.state is OrderState.HELD)
        self._site.sessions.end(request.session)
        await self._site.sessions.share()
        if self._site.shared.away_since:
            request.session["unshared"] = True
        if held:
            request.session["held"] = held
        return RedirectResponse("/signin", 303)

    def _let_in(self, request: Request, person: Person, way: str) -> Response:
        place = place_asked_for(request.session)
        self._site.sessions.begin(request.session, person)
        logger.info("signed_in", way=way)
        return RedirectResponse(place, 303)

    def _page(self, request: Request, failed: str | None = None, status: int = 200) -> Response:
        site = self._site
        data = {
            "failed": failed,
            "held": request.session.pop("held", 0),
            "unshared": request.session.pop("unshared", False),
            "oidc": site.openid is not None,
            "link": bool(site.links),
            "proxy": bool(site.settings.proxy_header),
            "tokens": site.has_tokens,
        }
        return page(site, request, None, "signin.html", data, status)


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A page and the same address under `/api`, for authenticated people; both call the same handler."""

    method: str
    path: str
    handler: PageHandler
    page: bool = True
    decides: bool = False  # refused to who may only look
    takes: type[BaseModel] | None = None
    asks: bool = False  # has query parameters, which the handler checks; else the API refuses any


ROUTES: Final = (
    PageRoute("GET", "/", queue.show, asks=True),
    PageRoute("GET", "/items/{decision_id:uuid}", item.show, asks=True),
    PageRoute("GET", "/items/{decision_id:uuid}/standing", item.standing, page=False),
    PageRoute("POST", "/items/{decision_id:uuid}/lock", item.lock, page=False, decides=True),
    PageRoute(
        "POST", "/items/{decision_id:uuid}/actions", actions.act, decides=True, takes=actions.ActionFields
    ),
    PageRoute("GET", "/actions", actions.mine, page=False),
    PageRoute("GET", "/actions/{action_id:uuid}", actions.show, page=False),
    PageRoute("POST", "/actions/{action_id:uuid}/undo", actions.undo, decides=True),
    PageRoute("POST", "/actions/{action_id:uuid}/dismiss", actions.dismiss, decides=True),
    PageRoute("POST", "/bulk", actions.act_on_many, decides=True, takes=actions.BulkFields),
    PageRoute("GET", "/responses", lists.responses, asks=True),
    PageRoute("GET", "/approved", lists.approved, asks=True),
    PageRoute("GET", "/blocked", lists.blocked, asks=True),
    PageRoute("GET", "/dead-letters", lists.dead_letters, asks=True),
    PageRoute("GET", "/status", status.show),
)
"""Routes for authenticated people. Handlers look up ids within what their person sees."""


def routes(site: Site) -> list[BaseRoute]:
    signin = SignIn(site)

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    public: list[tuple[str, str, Endpoint]] = [
        ("GET", "/healthz", healthz),
        ("GET", "/signin", signin.show),
        ("POST", "/signin/link", signin.link),
        ("GET", "/signin/oidc", signin.oidc),
        ("GET", "/signin/oidc/callback", signin.oidc_callback),
        ("POST", "/signout", signin.out),
    ]
    signed_in: list[tuple[str, str, Endpoint]] = [
        *((route.method, route.path, page_endpoint(site, route)) for route in ROUTES if route.page),
        *((route.method, _api(route.path), api_endpoint(site, route)) for route in ROUTES),
        ("GET", "/api/", listing(site)),
        *(
            ("GET", f"/api/export/{listed}.{form}", exporting(site, listed, form))
            for listed in EXPORTED
            for form in FORMS
        ),
        ("GET", "/api/live", live(site)),
    ]
    return [
        *(Route(path, to, methods=[method], name="public") for method, path, to in public),
        *(Route(path, to, methods=[method], name="signed-in") for method, path, to in signed_in),
        Mount("/static", Assets(), name="public"),
    ]


def _api(path: str) -> str:
    return "/api/queue" if path == "/" else f"/api{path}"


def page_endpoint(site: Site, route: PageRoute) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        identity = _known(site, request)
        if identity is None and route.method == "GET":
            remember_place(request.session, request.url.path, request.url.query)
            return RedirectResponse("/signin", 303)
        sent = await read_form(request) if route.method == "POST" else {}
        if identity is None:
            return _session_ended(site, request, None, sent)
        _require_right(identity, route)
        token = sent.pop("csrf", "")
        if not _is_own_page(request, identity, token if isinstance(token, str) else ""):
            return _session_ended(site, request, identity, sent)
        answer = await _answer(site, request, identity, route, sent, as_page=True)
        if answer.location is not None:
            return RedirectResponse(answer.location, 303)
        # it may be long; others are answered while it is put together
        data = {**answer.data, **_frame(site, request, identity)}
        template = _environment.get_template(answer.template or "error.html")
        return HTMLResponse(await asyncio.to_thread(template.render, data), answer.status)

    return endpoint


def api_endpoint(site: Site, route: PageRoute) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        identity = _required(site, request)
        _require_right(identity, route)
        if not _is_own_page(request, identity, request.headers.get("x-csrf-token", "")):
            raise HTTPException(403, "The token of the page is missing, or of an earlier session.")
        if not route.asks and request.query_params:
            unknown = [f"{name[:100]}: unknown" for name in request.query_params][:MAX_REPORTED]
            raise HTTPException(400, "; ".join([*unknown, "permitted: none"]))
        sent = await read_json(request) if route.method == "POST" else {}
        answer = await _answer(site, request, identity, route, sent, as_page=False)
        return JSONResponse(dict(answer.data), answer.status)

    return endpoint


async def _answer(
    site: Site, request: Request, identity: Identity, route: PageRoute, sent: dict[str, Any], *, as_page: bool
) -> PageAnswer:
    # a converter has checked the form of ids in the path; handlers take them as text
    request.scope["path_params"] = {name: str(value) for name, value in request.path_params.items()}
    return await route.handler(Call(request, site, identity, sent, as_page))


def listing(site: Site) -> Endpoint:
    listed = {
        "authorization": "Bearer TOKEN, of `groundwire token new`",
        "content_type": "application/json",
        "paths": [
            {
                "method": route.method,
                "path": re.sub(r":\w+(?=\})", "", _api(route.path)),
                "does": (inspect.getdoc(route.handler) or "").partition("\n")[0],
                "body": route.takes.model_json_schema() if route.takes else None,
            }
            for route in ROUTES
        ],
    }

    async def endpoint(request: Request) -> Response:
        _required(site, request)
        return JSONResponse(listed)

    return endpoint


def exporting(site: Site, listed: str, form: str) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await export(Call(request, site, _required(site, request), {}, page=False), listed, form)

    return endpoint


def live(site: Site) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        identity = _required(site, request)
        name = identity.person.name
        if not site.live.enter(name):
            raise HTTPException(429, headers={"retry-after": "30"})

        def holds() -> bool:
            try:
                known = site.authenticator.identify(request)
            except HTTPException:
                return False
            return known is not None and known.person == identity.person

        return StreamingResponse(site.live.events(name, holds), media_type="text/event-stream")

    return endpoint


def _known(site: Site, request: Request) -> Identity | None:
    """Return who asks, if they do not ask too often. Raises: HTTPException 401, 403, 429."""
    identity = site.authenticator.identify(request)
    if identity is not None:
        check_rate(site.identities, identity.person.name)
    return identity


def _required(site: Site, request: Request) -> Identity:
    identity = _known(site, request)
    if identity is None:
        detail = "Sign in and try again; a program sends Authorization: Bearer and a token of `groundwire token new`."
        raise HTTPException(401, detail, headers={"www-authenticate": "Bearer"})
    return identity


def _require_right(identity: Identity, route: PageRoute) -> None:
    """Refuse actions to who may only look; handlers restrict the items to what their person sees."""
    if route.decides and identity.person.read_only:
        raise HTTPException(403, "You have read-only access.")


def _is_own_page(request: Request, identity: Identity, token: str) -> bool:
    return request.method != "POST" or not identity.ambient or csrf_holds(request.session, token)


def _session_ended(
    site: Site, request: Request, identity: Identity | None, sent: Mapping[str, Any]
) -> Response:
    """Return the page for a form of an expired or earlier session.

    Signing in leads back to the page of the form. What was typed is shown again only to the console's own pages, so
    that no other site can put text into it.
    """
    # `Origins` has refused other origins
    own = request.headers.get("sec-fetch-site") == "same-origin" or "origin" in request.headers
    draft, back = typed_fields(sent if own else {}), "/"
    place = request.url.path.removesuffix("/actions")
    if place.startswith("/items/"):
        action, query = typed_fields(sent)["action"], str(sent.get("query", ""))
        opened = f"do={action}" if action in ("edit", "reject", "replace", "retract") else ""
        back = with_query(place, "&".join(part for part in (opened, query_back(query)) if part))
    title, text, status = "Not signed in", "Your session has ended, so nothing was done.", 401
    if identity is None:
        remember_place(request.session, back)
    else:
        title, status = "Refused", 403
        text = "This page belongs to an earlier session, or the request came from another site. Nothing was done."
    data = {"title": title, "text": text, "back": back, "typed": draft}
    return page(site, request, identity, "ended.html", data, status)

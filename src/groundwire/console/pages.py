"""Every route with its rule, signing in and out, and the list of the API for programs.

A new page is a line of `ROUTES`: its address, its handler, and who may use it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import structlog
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from groundwire.console import actions, bulk, item, lists, queue, status
from groundwire.console.auth import Identity, csrf_holds, place_asked_for, remember_place
from groundwire.console.export import EXPORTED, FORMS, export
from groundwire.console.guard import check_rate, peer
from groundwire.console.item import typed_fields
from groundwire.console.outbox import OrderState
from groundwire.console.queue import origin_in, view_from, with_query
from groundwire.console.render import page, page_in_thread
from groundwire.console.site import MAX_REPORTED, Call, PageAnswer, PageHandler, Site, read_form, read_json
from groundwire.review.permissions import Person

logger = structlog.get_logger(__name__)

_LINK_FAILED = (
    "This code is unknown, was used, or is more than ten minutes old. Start the console again for a new one."
)
Endpoint = Callable[[Request], Awaitable[Response]]
_ENDED: Final = {
    401: ("Not signed in", "Your session is over, so nothing was done."),
    403: (
        "Refused",
        "This page is of an earlier session, or the request came from elsewhere: nothing was done.",
    ),
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
            return self._page(request, _LINK_FAILED, 403)
        return self._let_in(request, person, "one_time_link")

    async def oidc(self, request: Request) -> Response:
        check_rate(self._site.attempts, peer(request))
        if self._site.openid is None:
            raise HTTPException(404)
        return await self._site.openid.begin(request)

    async def oidc_callback(self, request: Request) -> Response:
        check_rate(self._site.attempts, peer(request))
        if self._site.openid is None:
            raise HTTPException(404)
        person = await self._site.openid.finish(request)
        return self._let_in(request, person, "oidc")

    async def out(self, request: Request) -> Response:
        """Sign out; the next page says what happens to actions that could still be undone."""
        form = await read_form(request)
        if not csrf_holds(request.session, str(form.get("csrf", ""))):
            raise HTTPException(403)
        person = self._site.sessions.person(request.session)
        held = (
            [entry for entry in self._site.outbox.of(person) if entry.state is OrderState.HELD]
            if person
            else []
        )
        self._site.sessions.end(request.session)
        await self._site.sessions.share()
        if self._site.shared.away_since:
            request.session["unshared"] = True
        if held:
            request.session["held"] = len(held)
        return RedirectResponse("/signin", 303)

    async def healthz(self, request: Request) -> Response:  # noqa: ARG002 - a route's signature
        return PlainTextResponse("ok\n")

    def _let_in(self, request: Request, person: Person, way: str) -> Response:
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
        left = {"held": request.session.pop("held", 0), "unshared": request.session.pop("unshared", False)}
        state = {"failed": failed, **left}
        return page(site, request, None, "signin.html", {**state, **ways}, status)


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A page and the same address under `/api`, for authenticated people; both call the same handler.

    Attributes:
        page: whether there is a page, or only the API.
        decides: whether it is refused to who may only look.
        takes: the fields of its body, where it has any.
        asks: whether it has query parameters, which the handler checks; else the API refuses any.
    """

    method: str
    path: str
    handler: PageHandler
    page: bool = True
    decides: bool = False
    takes: type[BaseModel] | None = None
    asks: bool = False


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
    PageRoute("POST", "/bulk", bulk.act_on_many, decides=True, takes=bulk.BulkFields),
    PageRoute("GET", "/responses", lists.responses, asks=True),
    PageRoute("GET", "/approved", lists.approved, asks=True),
    PageRoute("GET", "/blocked", lists.blocked, asks=True),
    PageRoute("GET", "/dead-letters", lists.dead_letters, asks=True),
    PageRoute("GET", "/status", status.show),
)
"""Routes for authenticated people. Handlers look up ids within what their person sees."""


def routes(site: Site) -> list[Route]:
    signin = SignIn(site)
    public = [
        Route("/healthz", signin.healthz, methods=["GET"], name="public"),
        Route("/signin", signin.show, methods=["GET"], name="public"),
        Route("/signin/link", signin.link, methods=["POST"], name="public"),
        Route("/signin/oidc", signin.oidc, methods=["GET"], name="public"),
        Route("/signin/oidc/callback", signin.oidc_callback, methods=["GET"], name="public"),
        Route("/signout", signin.out, methods=["POST"], name="public"),
    ]
    pages = [
        Route(route.path, _page_endpoint(site, route), methods=[route.method], name="signed-in")
        for route in ROUTES
        if route.page
    ]
    api = [
        Route(_api(route.path), _api_endpoint(site, route), methods=[route.method], name="signed-in")
        for route in ROUTES
    ]
    programs = [
        Route("/api/", _listing(site), methods=["GET"], name="signed-in"),
        *(
            Route(
                f"/api/export/{listed}.{form}", _export(site, listed, form), methods=["GET"], name="signed-in"
            )
            for listed in EXPORTED
            for form in FORMS
        ),
        Route("/api/live", _live(site), methods=["GET"], name="signed-in"),
    ]
    return [*public, *pages, *api, *programs]


def _api(path: str) -> str:
    return "/api/queue" if path == "/" else f"/api{path}"


def _page_endpoint(site: Site, route: PageRoute) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        identity = _known(site, request)
        if identity is None and route.method == "GET":
            remember_place(request.session, request.url.path, request.url.query)
            return RedirectResponse("/signin", 303)
        sent = await read_form(request) if route.method == "POST" else {}
        if identity is None:
            return _session_ended(site, request, None, sent, 401)
        _may(identity, route)
        token = sent.pop("csrf", "")
        if not _is_own_page(request, identity, token if isinstance(token, str) else ""):
            return _session_ended(site, request, identity, sent, 403)
        answer = await route.handler(Call(request, site, identity, _with_text_ids(request, sent), page=True))
        if answer.location is not None:
            return RedirectResponse(answer.location, 303)
        template = answer.template or "error.html"
        return await page_in_thread(site, request, identity, template, answer.data, answer.status)

    return endpoint


def _api_endpoint(site: Site, route: PageRoute) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        identity = _required(site, request)
        _may(identity, route)
        if not _is_own_page(request, identity, request.headers.get("x-csrf-token", "")):
            raise HTTPException(403, "The token of the page is missing, or of an earlier session.")
        if not route.asks and request.query_params:
            unknown = [f"{name[:100]}: unknown" for name in request.query_params][:MAX_REPORTED]
            raise HTTPException(400, "; ".join([*unknown, "permitted: none"]))
        sent = await read_json(request) if route.method == "POST" else {}
        answer: PageAnswer = await route.handler(
            Call(request, site, identity, _with_text_ids(request, sent), page=False)
        )
        return JSONResponse(dict(answer.data), answer.status)

    return endpoint


def _listing(site: Site) -> Endpoint:
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


def _export(site: Site, listed: str, form: str) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        return await export(Call(request, site, _required(site, request), {}, page=False), listed, form)

    return endpoint


def _live(site: Site) -> Endpoint:
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


def _may(identity: Identity, route: PageRoute) -> None:
    """Refuse actions to who may only look; handlers restrict the items to what their person sees."""
    if route.decides and identity.person.read_only:
        raise HTTPException(403, "You may look, and not decide.")


def _is_own_page(request: Request, identity: Identity, token: str) -> bool:
    return request.method != "POST" or not identity.ambient or csrf_holds(request.session, token)


def _with_text_ids(request: Request, sent: dict[str, object]) -> dict[str, object]:
    """Turn ids in the path into text; a converter has checked their form."""
    request.scope["path_params"] = {name: str(value) for name, value in request.path_params.items()}
    return sent


def _session_ended(
    site: Site, request: Request, identity: Identity | None, sent: Mapping[str, Any], status: int
) -> Response:
    """Return the page for a form of an expired or earlier session.

    Signing in leads back to the page of the form. What was typed is shown again only to the console's own pages, so
    that no other site can put text into it.
    """
    # `Origins` has refused other origins
    own = request.headers.get("sec-fetch-site") == "same-origin" or "origin" in request.headers
    draft, back = typed_fields(sent if own else {}), _form_page(request, sent)
    if identity is None:
        remember_place(request.session, back)
    title, text = _ENDED[status]
    data = {"title": title, "text": text, "back": back, "typed": draft}
    return page(site, request, identity, "ended.html", data, status)


def _form_page(request: Request, sent: Mapping[str, Any]) -> str:
    place = request.url.path.removesuffix("/actions")
    if not place.startswith("/items/"):
        return "/"
    action = typed_fields(sent)["action"]
    opened = f"do={action}" if action in ("edit", "reject", "replace", "retract") else ""
    query = str(sent.get("query", ""))
    listed = origin_in(query)
    filters = listed.query if listed else view_from(query).encoded()
    return with_query(place, "&".join(part for part in (opened, filters) if part))

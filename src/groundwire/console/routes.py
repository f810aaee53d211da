"""Every route, and the rule before each: a new one is added to this table, with its rule, or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from groundwire.console import acting, bulk, item, learning, looking, operations, queue
from groundwire.console.call import Answer, Call, Handler, read_form, read_json
from groundwire.console.identity import Identity
from groundwire.console.kept import ended
from groundwire.console.listing import listing
from groundwire.console.render import page
from groundwire.console.searching import SearchFields
from groundwire.console.sessions import csrf_holds, remember_place
from groundwire.console.signin import SignIn
from groundwire.console.site import Site

Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Place:
    """A page and its twin under `/api`: both for people who are signed in, with the same handler.

    Attributes:
        page: whether there is a page, or only the twin.
        decides: whether it is refused to who may only look.
        takes: the fields of what is posted, where there are any.
        asks: the parameters of its query, of which the twin refuses others; None: the handler sees to it.
    """

    method: str
    path: str
    handler: Handler
    page: bool = True
    decides: bool = False
    takes: type[BaseModel] | None = None
    asks: tuple[str, ...] | None = ()


_TOLD: Final = 20
"""Parameters of one request that are told one by one."""

PLACES: Final = (
    Place("GET", "/", queue.show, asks=None),
    Place("POST", "/queue/search", queue.search, takes=SearchFields),
    Place("GET", "/items/{decision_id:uuid}", item.show, asks=None),
    Place("GET", "/items/{decision_id:uuid}/standing", item.standing, page=False),
    Place("POST", "/items/{decision_id:uuid}/lock", item.lock, page=False, decides=True),
    Place("POST", "/items/{decision_id:uuid}/actions", acting.act, decides=True, takes=acting.ActionFields),
    Place("GET", "/actions", acting.mine, page=False),
    Place("GET", "/actions/{action_id:uuid}", acting.show, page=False),
    Place("POST", "/actions/{action_id:uuid}/undo", acting.undo, decides=True),
    Place("POST", "/actions/{action_id:uuid}/dismiss", acting.dismiss, decides=True),
    Place("POST", "/bulk", bulk.act, decides=True, takes=bulk.BulkFields),
    Place("GET", "/responses", looking.responses, asks=None),
    Place("POST", "/responses/search", looking.search_responses, takes=SearchFields),
    Place("GET", "/approved", looking.approved, asks=None),
    Place("POST", "/approved/search", looking.search_approved, takes=SearchFields),
    Place("GET", "/blocked", looking.blocked, asks=None),
    Place("POST", "/blocked/search", looking.search_blocked, takes=SearchFields),
    Place("GET", "/dead-letters", looking.dead_letters, asks=None),
    Place("GET", "/learning", learning.show, asks=("days",)),
    Place("GET", "/sample", learning.sample),
    Place("POST", "/sample/{decision_id:uuid}", learning.judge, decides=True, takes=learning.OpinionFields),
    Place("GET", "/operations", operations.show),
)
"""What needs somebody signed in. Item ids are looked up within what they may see."""


def routes(site: Site) -> list[Route]:
    """Return all routes but the static files."""
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
        Route(place.path, _page(site, place), methods=[place.method], name="signed-in")
        for place in PLACES
        if place.page
    ]
    twins = [
        Route(_api(place.path), _twin(site, place), methods=[place.method], name="signed-in")
        for place in PLACES
    ]
    programs = [
        Route("/api/", _listing(site), methods=["GET"], name="signed-in"),
        Route("/api/live", _live(site), methods=["GET"], name="signed-in"),
    ]
    return [*public, *pages, *twins, *programs]


def _api(path: str) -> str:
    return "/api/queue" if path == "/" else f"/api{path}"


def _page(site: Site, place: Place) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        identity = _known(site, request)
        if identity is None and place.method == "GET":
            remember_place(request.session, request.url.path, request.url.query)
            return RedirectResponse("/signin", 303)
        sent = await read_form(request) if place.method == "POST" else {}
        if identity is None:
            return ended(site, request, None, sent, 401)
        _may(identity, place)
        token = sent.pop("csrf", "")
        if not _is_own_page(request, identity, token if isinstance(token, str) else ""):
            return ended(site, request, identity, sent, 403)
        answer = await place.handler(Call(request, site, identity, _plain(request, sent), page=True))
        if answer.location is not None:
            return RedirectResponse(answer.location, 303)
        return page(site, request, identity, answer.template or "error.html", answer.data, answer.status)

    return endpoint


def _twin(site: Site, place: Place) -> Endpoint:
    async def endpoint(request: Request) -> Response:
        identity = _required(site, request)
        _may(identity, place)
        if not _is_own_page(request, identity, request.headers.get("x-csrf-token", "")):
            raise HTTPException(403, "The token of the page is missing, or of an earlier session.")
        _ask(request, place.asks)
        sent = await read_json(request) if place.method == "POST" else {}
        answer: Answer = await place.handler(Call(request, site, identity, _plain(request, sent), page=False))
        return JSONResponse(dict(answer.data), answer.status)

    return endpoint


def _listing(site: Site) -> Endpoint:
    listed = listing(PLACES, _api)

    async def endpoint(request: Request) -> Response:
        _required(site, request)
        return JSONResponse(listed)

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
        wait = site.identities.take(identity.person.name)
        if wait:
            raise HTTPException(429, headers={"retry-after": str(max(1, round(wait)))})
    return identity


def _required(site: Site, request: Request) -> Identity:
    identity = _known(site, request)
    if identity is None:
        detail = "Sign in and try again; a program sends Authorization: Bearer and a token of `groundwire token new`."
        raise HTTPException(401, detail, headers={"www-authenticate": "Bearer"})
    return identity


def _may(identity: Identity, place: Place) -> None:
    """Refuse deciding to who may only look; which items somebody may decide, the handlers see to."""
    if place.decides and identity.person.read_only:
        raise HTTPException(403, "You may look, and not decide.")


def _ask(request: Request, known: tuple[str, ...] | None) -> None:
    """Refuse a query that asks for what there is not. Raises: HTTPException 400, naming it."""
    unknown = [] if known is None else [name for name in request.query_params if name not in known]
    if unknown:
        told = [f"{name[:100]}: unknown" for name in unknown[:_TOLD]]
        raise HTTPException(400, "; ".join([*told, f"permitted: {', '.join(known or ()) or 'none'}"]))


def _is_own_page(request: Request, identity: Identity, token: str) -> bool:
    """Say whether a write is one that a browser was not made to send by another site's page."""
    return request.method != "POST" or not identity.ambient or csrf_holds(request.session, token)


def _plain(request: Request, sent: dict[str, object]) -> dict[str, object]:
    """Normalise ids in the path to text; a converter has checked their form."""
    request.scope["path_params"] = {name: str(value) for name, value in request.path_params.items()}
    return sent

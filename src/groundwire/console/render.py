"""Pages from templates, which escape whatever is put in; and static files under an address with their version."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from groundwire.console import words
from groundwire.console.auth import Identity, csrf_token
from groundwire.console.outbox import shown_actions
from groundwire.console.site import Site
from groundwire.messages.base import format_time

_FOLDER: Final = Path(str(files("groundwire.console") / "static"))
PAGES: Final = (
    ("/", "Queue"),
    ("/responses", "Responses"),
    ("/approved", "Approved"),
    ("/blocked", "Blocked"),
    ("/dead-letters", "Dead letters"),
)
_STATUS: Final = ("/status", "Status")
"""Only for people who see everything of a tenant."""
_TOKEN: Final = Markup('<input type="hidden" name="csrf" value="{}">')
_environment = Environment(
    loader=PackageLoader("groundwire.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def _version() -> str:
    together = hashlib.sha256()
    for path in sorted(_FOLDER.iterdir()):
        together.update(path.name.encode() + b"\0" + path.read_bytes())
    return together.hexdigest()[:12]


VERSION: Final = _version()
"""Part of the address of static files: a script finds the modules that it imports under the same version."""
_FUNCTIONS: Final = (
    *(words.label, words.number, words.age, words.duration, words.measured, words.waits_for),
    words.moment,
)
_environment.globals.update(
    {function.__name__: function for function in _FUNCTIONS}, assets=f"/static/{VERSION}"
)


class Assets(StaticFiles):
    """Static files: under their version browsers cache them for good, otherwise they revalidate."""

    def __init__(self) -> None:
        super().__init__(directory=str(_FOLDER))

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file. Raises: HTTPException 404, 405."""
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
    """Return a page: the frame for this person, and a handler's data."""
    whole = {**data, **_frame(site, request, identity)}
    return HTMLResponse(_environment.get_template(template).render(whole), status)


async def page_in_thread(
    site: Site, request: Request, identity: Identity, template: str, data: Mapping[str, Any], status: int
) -> HTMLResponse:
    """Return a page that may be long; others are answered while it is put together."""
    frame = _frame(site, request, identity)
    text = await asyncio.to_thread(_environment.get_template(template).render, {**data, **frame})
    return HTMLResponse(text, status)


def _frame(site: Site, request: Request, identity: Identity | None) -> dict[str, Any]:
    csrf = csrf_token(request.session)
    stale, away = (site.stale_since(), site.shared.away_since) if identity else (None, None)
    operates = identity is not None and bool(site.permissions.scope(identity.person).whole)
    return {
        "person": {"name": identity.person.name} if identity else None,
        "way": identity.way if identity else None,
        "csrf": csrf,
        "token": lambda: _TOKEN.format(csrf),
        "pages": (*PAGES, *[_STATUS] * operates),
        "here": getattr(request.scope.get("route"), "path", ""),
        "stale_since": format_time(stale) if stale else None,
        "unshared_since": format_time(away) if away else None,
        "reading": identity is not None and not site.caught_up(),
        "actions": shown_actions(site.outbox, identity.person, site.clock()) if identity else [],
    }

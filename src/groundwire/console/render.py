"""Pages from templates; whatever is put in is escaped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from groundwire.console import lines, words
from groundwire.console.assets import VERSION
from groundwire.console.identity import Identity
from groundwire.console.progress import shown_actions
from groundwire.console.sessions import csrf_token
from groundwire.console.site import Site
from groundwire.messages.base import format_time

PAGES: Final = (
    ("/", "Queue"),
    ("/responses", "Responses"),
    ("/approved", "Approved"),
    ("/blocked", "Blocked"),
    ("/dead-letters", "Dead letters"),
    ("/learning", "Learning"),
)
_OPERATIONS: Final = ("/operations", "Operations")
"""Only for people who see everything of a tenant."""
_TOKEN: Final = Markup('<input type="hidden" name="csrf" value="{}">')

_environment = Environment(
    loader=PackageLoader("groundwire.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.globals.update(
    label=words.label,
    number=words.number,
    age=words.age,
    duration=words.duration,
    share=words.share,
    amount=words.amount,
    waits_for=words.waits_for,
    path=lines.path,
    highest=lines.highest,
    moment=words.moment,
    assets=f"/static/{VERSION}",
)


def page(
    site: Site,
    request: Request,
    identity: Identity | None,
    template: str,
    data: Mapping[str, Any],
    status: int = 200,
) -> HTMLResponse:
    """Return a page: the frame for this person, and a handler's data."""
    csrf = csrf_token(request.session)
    stale = site.stale_since() if identity else None
    operates = identity is not None and bool(site.permissions.scope(identity.person).whole)
    frame = {
        "person": {"name": identity.person.name} if identity else None,
        "way": identity.way if identity else None,
        "csrf": csrf,
        "token": lambda: _TOKEN.format(csrf),
        "pages": (*PAGES, _OPERATIONS) if operates else PAGES,
        "here": getattr(request.scope.get("route"), "path", ""),
        "stale_since": format_time(stale) if stale else None,
        "reading": identity is not None and not site.caught_up(),
        "actions": shown_actions(site, identity.person) if identity else [],
    }
    return HTMLResponse(_environment.get_template(template).render({**data, **frame}), status)

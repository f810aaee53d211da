"""What somebody typed is theirs: it is given back by whatever page says that it could not be taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from groundwire.console.call import Call
from groundwire.console.identity import Identity
from groundwire.console.orders import CAME_TO_NOTHING, State
from groundwire.console.render import page
from groundwire.console.sessions import remember_place
from groundwire.console.site import Site
from groundwire.console.standing import Problem, problem
from groundwire.console.views import origin_in, view_from, with_query
from groundwire.review.model import Item

_TYPED: Final = ("action", "content", "note", "reason")
_ENDED: Final = {
    401: ("Not signed in", "Your session is over, so nothing was done."),
    403: (
        "Refused",
        "This page is of an earlier session, or the request came from elsewhere: nothing was done.",
    ),
}


def typed(sent: Mapping[str, Any]) -> dict[str, str]:
    """Return what a form carried of what a person typed and chose; what is missing is empty."""
    found = {name: sent.get(name) for name in _TYPED}
    return {name: value if isinstance(value, str) else "" for name, value in found.items()}


def unfinished(call: Call, item: Item) -> tuple[dict[str, str] | None, Problem | None]:
    """Return the text of a person's last edit of an item if it came to nothing, and why it did."""
    person = call.identity.person
    entry = call.site.desk.last(person, item.decision["decision_id"])
    if entry is None or entry.state not in CAME_TO_NOTHING or entry.order.record.content is None:
        return None, None
    record = entry.order.record
    draft = typed({"action": "edit", "content": record.content, "note": record.note})
    if entry.state is not State.REFUSED or entry.outcome is None:
        return draft, None
    call.site.desk.dismiss(
        person, entry.order.action_id
    )  # the page says it, and what was typed stands beside it
    return draft, problem("Refused by the gate.", entry.outcome.sentence, code=entry.outcome.code)


def ended(
    site: Site, request: Request, identity: Identity | None, sent: Mapping[str, Any], status: int
) -> Response:
    """Return the page for a form that nobody signed in sent, or that an earlier session's page sent.

    The page asked for after signing in is the one that the form stood on. What was typed is given back to the
    console's own pages only: in nobody else's words does it speak.
    """
    said, back = typed(sent if _is_own(request) else {}), _place(request, sent)
    if identity is None:
        remember_place(request.session, back)
    title, text = _ENDED[status]
    data = {"title": title, "text": text, "back": back, "typed": said}
    return page(site, request, identity, "ended.html", data, status)


def _is_own(request: Request) -> bool:
    """Say whether a browser vouches that a page of the console sent the form; `Origins` has refused other origins."""
    return request.headers.get("sec-fetch-site") == "same-origin" or "origin" in request.headers


def _place(request: Request, sent: Mapping[str, Any]) -> str:
    """Return the page that a form stood on, with the form open."""
    place = request.url.path.removesuffix("/actions")
    if not place.startswith("/items/"):
        return "/"
    action = typed(sent)["action"]
    opened = f"do={action}" if action in ("edit", "reject", "retract") else ""
    query = str(sent.get("query", ""))
    listed = origin_in(query)
    filters = listed.query if listed else view_from(query).encoded()
    return with_query(place, "&".join(part for part in (opened, filters) if part))

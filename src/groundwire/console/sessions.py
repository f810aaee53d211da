"""The session of a browser: who signed in, until when, and the token that its forms carry.

It lives in a cookie that Starlette signs; what it says was said by this console. Signing out forgets the
session here too, so that a copy of the cookie is worth nothing.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from datetime import datetime, timedelta
from typing import Any, Final

from groundwire.review.people import Person

Session = MutableMapping[str, Any]

_MOST: Final = 20_000
"""Ended sessions that are remembered until they would have ended by themselves."""
MAX_SEARCH: Final = 200
"""Characters of a search that a session holds."""

_MAX_PLACE: Final = 500
"""Characters of the page that was asked for; all of a session has to fit into a cookie."""


class Sessions:
    """Begins, reads and ends sessions.

    Attributes:
        lasts: how long a sign-in holds, however much it is used.
    """

    def __init__(self, lasts: timedelta, clock: Callable[[], datetime]) -> None:
        self.lasts = lasts
        self._clock = clock
        self._ended: OrderedDict[str, float] = OrderedDict()

    def begin(self, session: Session, person: Person) -> None:
        """Sign a person in; nothing of what the session held before stays, its token neither."""
        self._forget(session)
        session.clear()
        session.update(
            sid=secrets.token_urlsafe(16),
            csrf=secrets.token_urlsafe(24),
            name=person.name,
            tenants=sorted(person.tenants),
            read_only=person.read_only,
            until=(self._clock() + self.lasts).timestamp(),
        )

    def person(self, session: Session) -> Person | None:
        """Return who is signed in, or None."""
        name, until = session.get("name"), session.get("until", 0.0)
        if not name or self._clock().timestamp() >= until or session.get("sid") in self._ended:
            return None
        return Person(name, frozenset(session["tenants"]), read_only=session["read_only"])

    def end(self, session: Session) -> None:
        """Sign out."""
        self._forget(session)
        session.clear()

    def _forget(self, session: Session) -> None:
        if "sid" not in session:
            return
        now = self._clock().timestamp()
        self._ended[session["sid"]] = session.get("until", now)
        while self._ended and (len(self._ended) > _MOST or next(iter(self._ended.values())) <= now):
            self._ended.popitem(last=False)


def remember_place(session: Session, path: str, query: str = "") -> None:
    """Keep the page that was asked for, to go there after signing in: a path of this console and codes."""
    place = f"{path}?{query}" if query else path
    session["asked"] = place if len(place) <= _MAX_PLACE else path


def place_asked_for(session: Session) -> str:
    """Return where to go after signing in, and forget it; never an address elsewhere."""
    place = str(session.pop("asked", "/"))
    return place if place.startswith("/") and not place.startswith(("//", "/\\")) else "/"


def csrf_token(session: Session) -> str:
    """Return the token of a session, made at its first use."""
    if "csrf" not in session:
        session["csrf"] = secrets.token_urlsafe(24)
    token: str = session["csrf"]
    return token


def csrf_holds(session: Session, given: str) -> bool:
    """Say whether a form or a request carries the token of its session."""
    return bool(given) and hmac.compare_digest(str(session.get("csrf", "")).encode(), given.encode())

"""Who asks: decided from what was authenticated, never from what a caller says of itself.

Three ways: an API token (`Authorization: Bearer`), the header of a trusted proxy, a signed-in session. A way
that is tried and fails is refused; the next one is not tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, Protocol

from pydantic import Field, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request

from groundwire.console.guard import among, peer
from groundwire.console.sessions import Sessions
from groundwire.console.settings import ConsoleSettings, words
from groundwire.messages.base import ShortId, TenantId
from groundwire.review.people import Person

Way = Literal["token", "proxy", "session"]

_NAME: TypeAdapter[str] = TypeAdapter(ShortId)
_TENANTS: TypeAdapter[list[str]] = TypeAdapter(Annotated[list[TenantId], Field(min_length=1)])


class TokenReader(Protocol):
    """What is asked of the API tokens."""

    def person(self, token: str, at: datetime) -> Person | None:
        """Return whose token it is at a time, or None."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A person, and how the console knows."""

    person: Person
    way: Way

    @property
    def ambient(self) -> bool:
        """Whether a browser sends it along unasked, so that another site's page could borrow it."""
        return self.way != "token"


class Authenticator:
    """Finds out who asks."""

    def __init__(
        self,
        settings: ConsoleSettings,
        sessions: Sessions,
        tokens: TokenReader | None,
        clock: Callable[[], datetime],
    ) -> None:
        self._settings = settings
        self._sessions = sessions
        self._tokens = tokens
        self._clock = clock

    def identify(self, request: Request) -> Identity | None:
        """Return who asks, or None where nobody says who they are.

        Raises:
            HTTPException: 401 for a token that is wrong, 403 for the proxy's header from anybody else.
        """
        if self._settings.proxy_header and self._settings.proxy_header in request.headers:
            return self._of_proxy(request, self._settings.proxy_header)
        if "authorization" in request.headers:
            return self._of_token(request)
        person = self._sessions.person(request.session)
        return Identity(person, "session") if person else None

    def _of_token(self, request: Request) -> Identity:
        scheme, _, token = request.headers["authorization"].partition(" ")
        refused = "Token unknown or revoked, or past its end; `groundwire token list` shows those there are."
        if self._tokens is None:
            refused = "No token is taken here: the console was started without GROUNDWIRE_TOKENS_FILE."
        elif scheme.lower() != "bearer":
            refused = "The header Authorization must be Bearer and a token."
        elif len(token) <= 500 and (person := self._tokens.person(token.strip(), self._clock())) is not None:
            return Identity(person, "token")
        raise HTTPException(401, refused, headers={"www-authenticate": "Bearer"})

    def _of_proxy(self, request: Request, header: str) -> Identity:
        if not among(peer(request), self._settings.proxies):
            raise HTTPException(403)
        tenants_header = self._settings.proxy_tenants_header
        names = request.headers.getlist(header)
        lists = request.headers.getlist(tenants_header) if tenants_header else [self._settings.proxy_tenants]
        if len(names) != 1 or len(lists) != 1:
            raise HTTPException(403)
        return Identity(
            to_person(names[0].encode("latin-1").decode("utf-8", "replace"), words(lists[0])), "proxy"
        )


def to_person(name: Any, tenants: Any) -> Person:  # noqa: ANN401 - what an issuer or a proxy said
    """Return the person that an issuer or a proxy described.

    Raises:
        HTTPException: 403, the name is no id, or the tenants are no list of one tenant or more.
    """
    try:
        return Person(_NAME.validate_python(name, strict=True), frozenset(_TENANTS.validate_python(tenants)))
    except ValidationError:
        raise HTTPException(403) from None

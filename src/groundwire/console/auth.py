"""Who asks: sign-in, sessions, and the identity behind a request.

Three ways, tried in this order: the header of a trusted proxy, an API token (`Authorization: Bearer`), a signed-in
session. A way that is present and fails is refused; the next one is not tried. Sign-in by OpenID Connect goes through
authlib: code flow with PKCE, state and nonce in the session. A session lives in a cookie that Starlette signs; signing
out also remembers it as ended, for all consoles and over restarts, so that a copy of the cookie is worthless.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import warnings
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Final, Literal, Protocol

import structlog
from cachetools import TLRUCache
from pydantic import Field, TypeAdapter, ValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from groundwire.console.guard import among, peer
from groundwire.console.live import Shared
from groundwire.console.settings import ConsoleSettings
from groundwire.messages.base import ShortId, TenantId, comma_separated
from groundwire.review.permissions import Person

logger = structlog.get_logger(__name__)

Way = Literal["token", "proxy", "session"]
_NAME: TypeAdapter[str] = TypeAdapter(ShortId)
_TENANTS: TypeAdapter[list[str]] = TypeAdapter(Annotated[list[TenantId], Field(min_length=1)])
SignedSession = MutableMapping[str, Any]
_MAX_REMEMBERED: Final = 20_000  # ended sessions that are remembered until they would have expired
_MAX_PLACE: Final = 500  # characters of the remembered address: the whole session has to fit into a cookie
LINK_LASTS: Final = timedelta(minutes=10)


class TokenReader(Protocol):
    def person(self, token: str, at: datetime) -> Person | None:
        """Return whose token it is at a time, or None."""


@dataclass(frozen=True, slots=True)
class Identity:
    person: Person
    way: Way

    @property
    def ambient(self) -> bool:
        """Whether browsers attach it to every request, so that a form needs a CSRF token."""
        return self.way != "token"


@dataclass(frozen=True, slots=True)
class Authenticator:
    settings: ConsoleSettings
    sessions: Sessions
    tokens: TokenReader | None
    clock: Callable[[], datetime]

    def identify(self, request: Request) -> Identity | None:
        """Return who asks, or None where the request names nobody.

        Raises: HTTPException 401 for a token that is wrong, 403 for the proxy's header from anybody else.
        """
        header = self.settings.proxy_header
        if header and header in request.headers:
            return Identity(self.named_by_proxy(request, header), "proxy")
        if "authorization" in request.headers:
            return Identity(self.token_holder(request), "token")
        person = self.sessions.person(request.session)
        return Identity(person, "session") if person else None

    def token_holder(self, request: Request) -> Person:
        scheme, _, token = request.headers["authorization"].partition(" ")
        refused = "Token unknown or revoked, or past its end; `groundwire token list` shows those there are."
        if self.tokens is None:
            refused = "No token is taken here: the console was started without GROUNDWIRE_TOKENS_FILE."
        elif scheme.lower() != "bearer":
            refused = "The header Authorization must be Bearer and a token."
        elif len(token) <= 500 and (person := self.tokens.person(token.strip(), self.clock())) is not None:
            return person
        raise HTTPException(401, refused, headers={"www-authenticate": "Bearer"})

    def named_by_proxy(self, request: Request, header: str) -> Person:
        if not among(peer(request), self.settings.proxies):
            raise HTTPException(403)
        tenants_header = self.settings.proxy_tenants_header
        names = request.headers.getlist(header)
        lists = request.headers.getlist(tenants_header) if tenants_header else [self.settings.proxy_tenants]
        if len(names) != 1 or len(lists) != 1:
            raise HTTPException(403)
        return to_person(names[0].encode("latin-1").decode("utf-8", "replace"), comma_separated(lists[0]))


def to_person(name: Any, tenants: Any) -> Person:  # noqa: ANN401 - what an issuer or a proxy said
    """Return the person that an issuer or a proxy described.

    Raises: HTTPException 403, the name is no id, or the tenants are no list of one tenant or more.
    """
    try:
        return Person(_NAME.validate_python(name, strict=True), frozenset(_TENANTS.validate_python(tenants)))
    except ValidationError:
        raise HTTPException(403) from None


class OpenId:
    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._callback = f"{settings.origin}/signin/oidc/callback"
        secret = settings.oidc_client_secret
        issuer = (settings.oidc_issuer or "").rstrip("/")
        # imported here, so that consoles without an issuer do without authlib, which is not typed; recorded: it warns
        # that it would rather use another HTTP client than the one there is
        with warnings.catch_warnings(record=True):
            from authlib.integrations.starlette_client import (  # type: ignore[import-untyped]  # noqa: PLC0415
                OAuth,
            )
        self._client: Any = OAuth().register(
            "issuer",
            client_id=settings.oidc_client_id,
            client_secret=secret.get_secret_value() if secret else None,
            server_metadata_url=f"{issuer}/.well-known/openid-configuration",
            client_kwargs={"scope": settings.oidc_scope, "code_challenge_method": "S256"},
        )

    async def begin(self, request: Request) -> Response:
        """Send the browser to the issuer. Raises: HTTPException 502 when the issuer cannot be reached."""
        try:
            answer: Response = await self._client.authorize_redirect(request, self._callback)
        except Exception as exc:  # noqa: BLE001 - of which library the error is depends on authlib's HTTP client
            logger.warning("sign_in_unavailable", error=type(exc).__name__)
            raise HTTPException(502) from None
        return answer

    async def finish(self, request: Request) -> Person:
        """Return whom the issuer authenticated. Raises: HTTPException 403, state, code, token or claims do not hold."""
        try:
            token = await self._client.authorize_access_token(request)
        except Exception as exc:  # noqa: BLE001 - whatever it is, nobody is signed in
            logger.warning("sign_in_refused", error=type(exc).__name__)
            raise HTTPException(403) from None
        return self.person(token.get("userinfo") or {})

    def person(self, claims: Mapping[str, Any]) -> Person:
        """Map the claims of an id token. Raises: HTTPException 403, they name no person or no tenant."""
        name_claim, tenants_claim = self._settings.oidc_name_claim, self._settings.oidc_tenants_claim
        if name_claim == "email" and claims.get("email_verified") is not True:
            logger.warning("sign_in_refused", error="email_not_verified")
            raise HTTPException(403)
        return to_person(
            claims.get(name_claim), claims.get(tenants_claim, comma_separated(self._settings.oidc_tenants))
        )


class Sessions:
    """Begins, reads and ends sessions.

    A session counts where every sign-out since it began is known: sessions that are older than what the store
    remembers do not, nor, until it was read, those that are older than this process. `lasts` is how long a sign-in
    holds, however much it is used.
    """

    def __init__(self, lasts: timedelta, clock: Callable[[], datetime], shared: Shared) -> None:
        self.lasts = lasts
        self._clock = clock
        self._shared = shared
        self._known_since = clock().timestamp()
        self._unshared: dict[str, str] = {}
        self.ended = 0  # grows with each sign-out, here or elsewhere, so that pages hear of it at once
        self._ended: TLRUCache[str, float, float] = TLRUCache(
            _MAX_REMEMBERED, lambda _, until, _now: until, lambda: clock().timestamp()
        )

    def begin(self, session: SignedSession, person: Person) -> None:
        """Sign a person in; nothing of the earlier session stays, its CSRF token neither."""
        self._forget(session)
        session.clear()
        session.update(
            sid=secrets.token_urlsafe(16),
            csrf=secrets.token_urlsafe(24),
            name=person.name,
            tenants=sorted(person.tenants),
            read_only=person.read_only,
            begun=self._clock().timestamp(),
            until=(self._clock() + self.lasts).timestamp(),
        )

    def person(self, session: SignedSession) -> Person | None:
        name, until = session.get("name"), session.get("until", 0.0)
        if not name or self._clock().timestamp() >= until or session.get("sid") in self._ended:
            return None
        if session.get("begun", 0.0) < self._known_since:
            return None
        return Person(name, frozenset(session["tenants"]), read_only=session["read_only"])

    def end(self, session: SignedSession) -> None:
        self._forget(session)
        session.clear()

    async def share(self) -> None:
        """Exchange ended sessions with other consoles; those that the store does not take are sent later."""
        unshared = dict(self._unshared)  # others sign out while this is written
        if unshared and await self._shared.put("ended", unshared, self.lasts):
            self._unshared = {sid: until for sid, until in self._unshared.items() if sid not in unshared}
        found = await self._shared.read("ended")
        since = await self.remembered_since()  # asked last: a store that was emptied before is noticed
        if found is not None and since is not None:
            self._known_since = since
            self._unshared |= {sid: str(until) for sid, until in self._ended.items() if sid not in found}
            self.ended += any(sid not in self._ended for sid in found)
            for sid, until in found.items():
                self._ended[sid] = float(until)

    async def remembered_since(self) -> float | None:
        """Return since when the store remembers sign-outs, from now on where it does not; None: it does not answer."""
        found = await self._shared.read("epoch")
        if found is None or "since" in found:
            return None if found is None else float(found["since"])
        now = self._clock().timestamp()
        return now if await self._shared.put("epoch", {"since": str(now)}, timedelta(days=36_500)) else None

    def _forget(self, session: SignedSession) -> None:
        if "sid" in session:
            until = session.get("until", 0.0)
            self._ended[session["sid"]] = until
            self._unshared[session["sid"]] = str(until)
            self.ended += 1


def remember_place(session: SignedSession, path: str, query: str = "") -> None:
    place = f"{path}?{query}" if query else path
    session["asked"] = place if len(place) <= _MAX_PLACE else path


def place_asked_for(session: SignedSession) -> str:
    """Return where to go after signing in, and forget it; never an address elsewhere."""
    place = str(session.pop("asked", "/"))
    return place if place.startswith("/") and not place.startswith(("//", "/\\")) else "/"


def csrf_token(session: SignedSession) -> str:
    if "csrf" not in session:
        session["csrf"] = secrets.token_urlsafe(24)
    token: str = session["csrf"]
    return token


def csrf_holds(session: SignedSession, given: str) -> bool:
    return bool(given) and hmac.compare_digest(str(session.get("csrf", "")).encode(), given.encode())


class OneTimeLinks:
    """Issues sign-in secrets that work once within ten minutes, and stores their hashes only."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._open: dict[bytes, tuple[Person, datetime]] = {}

    def issue(self, person: Person) -> str:
        secret = secrets.token_urlsafe(24)
        self._open[_hash(secret)] = (person, self._clock() + LINK_LASTS)
        return secret

    def redeem(self, secret: str) -> Person | None:
        given = _hash(secret)
        known = next((key for key in self._open if hmac.compare_digest(key, given)), None)
        if known is None:
            return None
        person, until = self._open.pop(known)
        return person if self._clock() < until else None

    def __bool__(self) -> bool:
        return bool(self._open)


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()

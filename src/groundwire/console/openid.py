"""Sign-in by OpenID Connect, through authlib: code flow with PKCE, state and nonce in the session."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from groundwire.console.identity import to_person
from groundwire.console.settings import ConsoleSettings, words
from groundwire.review.people import Person

logger = structlog.get_logger(__name__)


class OpenId:
    """One issuer, as the settings name it."""

    def __init__(self, settings: ConsoleSettings) -> None:
        self._settings = settings
        self._callback = f"{settings.origin}/signin/oidc/callback"
        secret = settings.oidc_client_secret
        issuer = (settings.oidc_issuer or "").rstrip("/")
        self._client: Any = _oauth().register(
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
        """Return who came back from the issuer.

        Raises:
            HTTPException: 403, state, code or token do not hold, or the claims name nobody.
        """
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
            claims.get(name_claim), claims.get(tenants_claim, words(self._settings.oidc_tenants))
        )


def _oauth() -> Any:  # noqa: ANN401 - authlib is not typed
    """Return authlib's registry; imported here, so that consoles without an issuer do without it."""
    with warnings.catch_warnings(
        record=True
    ):  # that it would rather use another HTTP client than the one there is
        from authlib.integrations.starlette_client import (  # type: ignore[import-untyped]  # noqa: PLC0415 - see above
            OAuth,
        )
    return OAuth()

"""How clients sign in to the brokers: with a password, or with tokens of an OIDC provider or of AWS."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, Final

from aiokafka.abc import AbstractTokenProvider

from groundwire.config import PREFIX, KafkaSecurity, kafka_security
from groundwire.errors import UsageError
from groundwire.messages.base import comma_separated

_SECONDS: Final = 10.0
"""How long a token may take: a connection waits for it."""
_DEFAULT_LIFE: Final = 300.0
"""Seconds that a token lives whose provider does not say."""
_USED_FOR: Final = 0.8
"""Of its life, unless its provider is away: then until it might expire on the way."""

Token = tuple[str, float]
"""A token, and when it expires, in seconds since 1970."""


class Tokens(AbstractTokenProvider):
    """One token for all connections of a process; each new connection gets one that is valid.

    Attributes:
        failure: why the last attempt to get one failed; empty: it did not.
    """

    def __init__(
        self,
        fetch: Callable[[], Awaitable[Token]],
        extensions: dict[str, str] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fetch = fetch
        self._extensions = extensions or {}
        self._clock = clock
        self._token, self._renewed_at, self._expires = "", 0.0, 0.0
        self.failure = ""

    async def token(self) -> str:
        """Return a token. Raises: ConnectionError, as if the broker did not answer: the client tries again."""
        now = self._clock()
        if now >= self._renewed_at:
            try:
                async with asyncio.timeout(_SECONDS):
                    self._token, self._expires = await self._fetch()
            except Exception as exc:  # noqa: BLE001 - whatever a provider fails by, the client tries again
                self.failure = f"no token: {type(exc).__name__}: {exc!s:.200}"
                if now + _SECONDS >= self._expires:
                    raise ConnectionError(self.failure) from None
            else:
                self.failure, self._renewed_at = "", now + _USED_FOR * (self._expires - now)
        return self._token

    def extensions(self) -> dict[str, str]:
        """Return what goes beside a token: how Confluent Cloud is told of the cluster and the identity pool."""
        return self._extensions


@cache
def tokens() -> Tokens | None:
    """Return what gives this process its tokens; None where it signs in otherwise. Raises: UsageError."""
    security = kafka_security()
    if not security.by_token:
        return None
    return _oidc(security) if security.sasl_mechanism == "OAUTHBEARER" else _msk(security)


def client_options() -> dict[str, Any]:
    """Return what aiokafka's clients are told of security. Raises: UsageError."""
    options = kafka_security().options()
    provider = tokens()
    return options if provider is None else {**options, "sasl_oauth_token_provider": provider}


def advice() -> str:
    """Return what else to look at where a broker does not answer."""
    provider = tokens()
    return f" ({provider.failure})" if provider is not None and provider.failure else ""


def _oidc(security: KafkaSecurity) -> Tokens:
    try:
        from authlib.integrations.httpx_client import AsyncOAuth2Client  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise _missing("OAUTHBEARER", "oauth") from None
    verify, secret = security.oauth_context(), security.client_secret()  # read once: both block

    async def fetch() -> Token:
        client = AsyncOAuth2Client(
            security.oauth_client_id, secret, scope=security.oauth_scope, verify=verify, timeout=_SECONDS
        )
        async with client:
            found = await client.fetch_token(security.oauth_token_url, grant_type="client_credentials")
        return found["access_token"], float(found.get("expires_at") or time.time() + _DEFAULT_LIFE)

    return Tokens(fetch, dict(part.split("=", 1) for part in comma_separated(security.oauth_extensions)))


def _msk(security: KafkaSecurity) -> Tokens:
    try:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise _missing("AWS_MSK_IAM", "msk") from None

    async def fetch() -> Token:
        # blocks: it may ask the instance's metadata, or STS
        token, milliseconds = await asyncio.to_thread(
            MSKAuthTokenProvider.generate_auth_token, security.aws_region
        )
        return token, milliseconds / 1000

    return Tokens(fetch)


def _missing(mechanism: str, extra: str) -> UsageError:
    return UsageError(f"{PREFIX}SASL_MECHANISM={mechanism} needs: pip install 'groundwire[{extra}]'")

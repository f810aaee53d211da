"""What both APIs share: one POST, within limits, repeated where that may help.

The address is the operator's, so it may stand on a private network; redirects are not followed, as the key must not
leave it. Neither key, nor prompt, nor answer is ever part of an error, a log line or a representation.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, ClassVar, Final, Self

import httpx
from redis.backoff import AbstractBackoff, FullJitterBackoff

from groundwire.epistemic.model import Answer, Fault, Model, ModelFault, Request, Token
from groundwire.verify.models.secrecy import may_carry_key
from groundwire.verify.models.sending import Failed, ModelLimits, Sender

_OURS: Final = frozenset({"messages", "model", "system", "stream", "n"})
_SHAPES: Final = (TypeError, KeyError, IndexError, ValueError, AttributeError, OverflowError)
"""What reading a document of another shape raises; the last, an integer that no float holds."""
_MOST_TOKENS: Final = 10**9
"""No answer has as many: whoever says so counts nothing, and a decision could not tell it."""


class HttpModel(Model):
    """A language model behind an HTTP API.

    It may be used in several event loops. Inside `async with` connections are kept for the next question of that
    loop; else each question has its own. Limits and breaker hold for each loop.

    Args:
        url: base of the API.
        key: sent to that address alone.
        names: model name of the caller -> that of the service; others are sent as they are.
        options: members of the request's body beside ours, or instead of them; None leaves a member out.
        limits: how hard the service may be asked.
        tls: whom to trust; whom the system does where None.
        backoff: how long to wait before the next attempt, where the service does not say.
        sleep: waits that many seconds.

    Raises:
        ValueError: an argument at fault, which is named; the value never is.
    """

    path: ClassVar[str]

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        names: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        limits: ModelLimits | None = None,
        tls: ssl.SSLContext | None = None,
        backoff: AbstractBackoff | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        address = _address(url)
        if key is not None and not may_carry_key(address):
            raise ValueError(
                "url: must begin with https://, for the key goes there and the host is a public one"
            )
        headers = {
            "user-agent": "groundwire",
            "content-type": "application/json",
            "accept": "application/json",
            "accept-encoding": "identity",
            **self._authority(_checked(key)),
        }
        self._names = dict(names or {})
        self._options = dict(options or {})
        if taken := sorted(_OURS.intersection(self._options)):
            raise ValueError(f"options: {taken[0]} is not yours to set")
        address = address.copy_with(path=address.path.rstrip("/") + self.path)
        self._sender = Sender(address, headers, limits or ModelLimits(), tls)
        self._backoff = backoff or FullJitterBackoff(cap=8, base=0.5)
        self._sleep = sleep
        self._trouble = ""

    def __repr__(self) -> str:
        """Tell the address, never the key."""
        return f"{type(self).__name__}({str(self._sender.url)!r})"

    async def __aenter__(self) -> Self:
        """Keep connections of this loop from now on."""
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""
        await self.close()

    @property
    def limits(self) -> ModelLimits:
        """How hard the service may be asked."""
        return self._sender.limits

    @property
    def trouble(self) -> str:
        """What the last request that failed came to, `HTTP 404` or `ConnectError`, for a person; empty before one."""
        return self._trouble

    async def open(self) -> None:
        """Keep connections of this loop from now on, until they are closed."""
        await self._sender.open()

    async def close(self) -> None:
        """Close the connections that this loop has."""
        await self._sender.close()

    async def answer(self, request: Request) -> Answer:
        """Return the model's answer; a request that may succeed later is repeated within the time limit.

        Raises:
            ModelFault: there is none that counts.
        """
        deadline = time.monotonic() + request.timeout
        content = self._content(request)
        requests = 0
        cause: Failed | None = None
        while True:
            try:
                document = await self._sender.exchange(content, deadline)
            except Failed as failed:
                requests += failed.requests
                # a question whose own requests failed before the pause was met by that, not by the pause
                cause = failed if failed.requests or cause is None else cause
                self._trouble = failed.detail or self._trouble
                wait = self._backoff.compute(requests) if failed.wait is None else failed.wait
                last = not failed.again or requests >= self._sender.limits.attempts
                if last or time.monotonic() + wait >= deadline:
                    used = None if failed.unknown else 0
                    raise ModelFault(cause.code, cause.detail, requests=requests, input_tokens=used) from None
                await self._sleep(wait)
            else:
                return self._finished(document, requests + 1)

    def _finished(self, document: Any, requests: int) -> Answer:  # noqa: ANN401 - any JSON value
        """Return the answer that a document holds. Raises: ModelFault, it holds none that counts."""
        sent, received = self._usage(document)
        try:
            text, end = self._text(document)
        except _SHAPES:
            text, end = "", "malformed"
        if end is not None:
            raise ModelFault(end, requests=requests, input_tokens=sent, output_tokens=received or 0)
        try:
            tokens = self._tokens(document)
        except _SHAPES:  # then the answer counts as stated
            tokens = ()
        return Answer(text, sent, received, tokens, requests)

    def _content(self, request: Request) -> bytes:
        name = self._names.get(request.model, request.model)
        body = {**self._body(request), "model": name, **self._options}
        return json.dumps({key: value for key, value in body.items() if value is not None}).encode()

    @abstractmethod
    def _authority(self, key: str | None) -> dict[str, str]:
        """Return the headers that show the key, and those that the API wants beside."""

    @abstractmethod
    def _body(self, request: Request) -> dict[str, Any]:
        """Return the request's body."""

    @abstractmethod
    def _text(self, document: Any) -> tuple[str, Fault | None]:  # noqa: ANN401 - any JSON value
        """Return the text, and why it does not count. Raises: any error of a wrong shape."""

    @abstractmethod
    def _usage(self, document: Any) -> tuple[int | None, int | None]:  # noqa: ANN401 - any JSON value
        """Return the tokens sent and received, None where they are not told. Never raises."""

    def _tokens(self, document: Any) -> tuple[Token, ...]:  # noqa: ANN401, ARG002 - any JSON value; not every API has them
        return ()


def count(value: object) -> int | None:
    """Return a number of tokens, or None where it is none."""
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        raise ValueError("url: must be an address") from None
    if address.scheme not in {"http", "https"} or not address.host:
        raise ValueError("url: must begin with http:// or https://")
    if address.userinfo or address.query or address.fragment:
        raise ValueError("url: must hold neither name and password, nor query, nor fragment")
    return address


def _checked(key: str | None) -> str | None:
    if key is not None and not (key.isascii() and key.isprintable() and key and " " not in key):
        raise ValueError("key: must be printable ASCII without spaces")
    return key

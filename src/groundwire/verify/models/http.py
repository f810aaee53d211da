"""What both APIs share: one POST, within limits, repeated where that may help.

The address is the operator's, so it may stand on a private network; redirects are not followed, as the key must not
leave it. Neither key, nor prompt, nor answer is ever part of an error, a log line or a representation.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self
from weakref import WeakKeyDictionary

import httpx
from redis.backoff import AbstractBackoff, FullJitterBackoff

from groundwire.epistemic.model import Answer, Fault, Model, ModelFault, Request, Token
from groundwire.verify.models.waiting import asked_wait
from groundwire.verify.pacing import HostPausedError, NotReachedError, Pacer, PacingLimits

_OURS: Final = frozenset({"messages", "model", "system", "stream", "n"})
_KEYLESS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody, for services without TLS; made once: a client would read all certificates."""
_UNWELL: Final = frozenset({401, 403, 408, 429})
"""Answers that say of the whole service that asking on is of no use; 500 and above do too."""
_UNAUTHORIZED: Final = frozenset({401, 403})
_SHAPES: Final = (TypeError, KeyError, IndexError, ValueError, AttributeError)
"""What reading a document of another shape raises."""


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """How hard a service may be asked.

    Attributes:
        concurrency: requests in flight.
        attempts: requests for one question at most.
        failures: failures in a row after which the service is left alone.
        pause: seconds that it is; then a single request finds out.
        most_bytes: of an answer.
    """

    concurrency: int = 4
    attempts: int = 3
    failures: int = 5
    pause: float = 30.0
    most_bytes: int = 1_000_000

    @property
    def pacing(self) -> PacingLimits:
        """The same as the house's pacer takes it."""
        return PacingLimits(
            per_host=self.concurrency,
            total=self.concurrency,
            spacing=0.0,
            failures=self.failures,
            pause=self.pause,
        )


class _Failed(Exception):
    """A request without an answer.

    `wait` is what the service asked for, in seconds; `unknown` where it may have been counted all the same.
    """

    def __init__(
        self,
        code: Fault,
        detail: str = "",
        *,
        again: bool = False,
        wait: float | None = None,
        requests: int = 1,
        unknown: bool = False,
    ) -> None:
        super().__init__(code)
        self.code: Fault = code
        self.detail = detail
        self.again = again
        self.wait = wait
        self.requests = requests
        self.unknown = unknown


@dataclass(slots=True)
class _Lane:
    """What belongs to one event loop."""

    pacer: Pacer
    client: httpx.AsyncClient | None = field(default=None)


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
        self._url = _address(url).copy_with(path=_address(url).path.rstrip("/") + self.path)
        self._headers = {
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
        self.limits = limits or ModelLimits()
        self._tls = tls
        self._backoff = backoff or FullJitterBackoff(cap=8, base=0.5)
        self._sleep = sleep
        self._lanes: MutableMapping[asyncio.AbstractEventLoop, _Lane] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        """Tell the address, never the key."""
        return f"{type(self).__name__}({str(self._url)!r})"

    async def __aenter__(self) -> Self:
        """Keep connections of this loop from now on."""
        self._lane().client = self._client()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close them."""
        await self.close()

    async def close(self) -> None:
        """Close the connections that this loop has."""
        lane = self._lane()
        client, lane.client = lane.client, None
        if client is not None:
            await client.aclose()

    async def answer(self, request: Request) -> Answer:
        """Return the model's answer; a request that may succeed later is repeated within the time limit.

        Raises:
            ModelFault: there is none that counts.
        """
        deadline = time.monotonic() + request.timeout
        content = self._content(request)
        requests = 0
        while True:
            try:
                document = await self._exchange(content, deadline)
            except _Failed as failed:
                requests += failed.requests
                wait = self._backoff.compute(requests) if failed.wait is None else failed.wait
                last = not failed.again or requests >= self.limits.attempts
                if last or time.monotonic() + wait >= deadline:
                    used = None if failed.unknown else 0
                    raise ModelFault(
                        failed.code, failed.detail, requests=requests, input_tokens=used
                    ) from None
                await self._sleep(wait)
            else:
                return self._finished(document, requests + 1)

    async def _exchange(self, content: bytes, deadline: float) -> Any:  # noqa: ANN401 - any JSON value
        """Send the request once, within the limits. Raises: _Failed."""
        lane = self._lane()
        try:
            async with lane.pacer.visit(self._url.host, deadline) as visit:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    status, headers, body = await self._send(lane.client, content)
                visit.ok = status < 500 and status not in _UNWELL
        except HostPausedError:
            raise _Failed("paused", requests=0) from None
        except NotReachedError:
            raise _Failed("busy", requests=0) from None
        except TimeoutError:
            raise _Failed("timeout", unknown=True) from None
        except (httpx.HTTPError, OSError) as error:
            raise _Failed("unreachable", type(error).__name__, again=True) from None
        if status == httpx.codes.OK:
            return _document(body)
        raise self._refusal(status, headers, body)

    async def _send(
        self, client: httpx.AsyncClient | None, content: bytes
    ) -> tuple[int, httpx.Headers, bytes]:
        if client is None:
            async with self._client() as own:
                return await self._send(own, content)
        body = bytearray()
        async with client.stream("POST", self._url, headers=self._headers, content=content) as response:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise _Failed("malformed", "compressed although nobody asked", unknown=True)
            async for part in response.aiter_raw():
                body += part
                if len(body) > self.limits.most_bytes:
                    raise _Failed("malformed", "too long", unknown=True)
        return response.status_code, response.headers, bytes(body)

    def _refusal(self, status: int, headers: httpx.Headers, body: bytes) -> _Failed:
        detail = f"HTTP {status}"
        if status == httpx.codes.TOO_MANY_REQUESTS:
            return _Failed("rate_limited", detail, again=True, wait=asked_wait(headers))
        if status >= 500 or status == httpx.codes.REQUEST_TIMEOUT:
            return _Failed("server_error", detail, again=True, wait=asked_wait(headers))
        if status in _UNAUTHORIZED:
            return _Failed("unauthorized", detail)
        return _Failed("refused" if b'"content_filter"' in body else "rejected", detail)

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

    def _client(self) -> httpx.AsyncClient:
        if self._url.scheme == "https" and self._tls is None:
            self._tls = httpx.create_ssl_context(trust_env=False)
        # `_exchange` keeps the time; two that end at the same moment cancel each other's cleaning up
        return httpx.AsyncClient(
            verify=self._tls or _KEYLESS,
            timeout=None,  # noqa: S113 - see above
            trust_env=False,
        )

    def _lane(self) -> _Lane:
        with self._lock:
            return self._lanes.setdefault(asyncio.get_running_loop(), _Lane(Pacer(self.limits.pacing)))

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
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _document(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise _Failed("malformed", "no JSON", unknown=True) from None


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

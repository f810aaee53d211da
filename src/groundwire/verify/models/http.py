"""Language models over HTTP: the APIs of Anthropic (messages) and of OpenAI (chat completions), which many speak too.

The address is the operator's, so it may be on a private network; redirects are not followed, as the key must not
leave it. Neither key, nor prompt, nor answer is ever part of an error, a log line or a representation.
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import re
import ssl
import threading
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ipaddress import ip_address
from typing import Any, ClassVar, Final, Self
from weakref import WeakKeyDictionary

import httpx

from groundwire.epistemic.model import Fault, LogprobToken, Model, ModelAnswer, ModelFault, ModelRequest
from groundwire.verify.pacing import HostPausedError, NotReachedError, Pacer, PacingLimits

_PRIVATE_SUFFIXES: Final = frozenset({"localhost", "local", "internal", "lan", "svc", "test"})
"""Last parts of names that no public server has: RFC 6761 and 6762, and what clusters and offices use."""
_HEADERS: Final = {
    "user-agent": "groundwire",
    "content-type": "application/json",
    "accept": "application/json",
    "accept-encoding": "identity",
}
_RESERVED: Final = frozenset({"messages", "model", "system", "stream", "n"})
_SHAPES: Final = (TypeError, KeyError, IndexError, ValueError, AttributeError, OverflowError)
"""What reading a document of another shape raises; the last, an integer that no float holds."""
_NO_TRUST: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For services without TLS; made once, as each client would read all certificates."""
_UNAUTHORIZED: Final = frozenset({401, 403})
_VERSION: Final = "2023-06-01"
_GOOD: Final = frozenset({"end_turn", "stop_sequence"})
_ANTHROPIC_ENDS: Final[dict[object, Fault]] = {
    "max_tokens": "truncated",
    "model_context_window_exceeded": "truncated",
    "refusal": "refused",
}
_CACHED: Final = ("cache_creation_input_tokens", "cache_read_input_tokens")
_OPENAI_ENDS: Final[dict[object, Fault]] = {"length": "truncated", "content_filter": "refused"}
_ALTERNATIVES: Final = 10


@dataclass(frozen=True, slots=True)
class ModelLimits:
    """Limits of the requests to a service."""

    concurrency: int = 4  # requests in flight
    attempts: int = 3  # requests for one question at most
    failures: int = 5  # failures in a row that open the breaker
    pause: float = 30.0  # seconds that it stays open; then a single request probes the service
    most_bytes: int = 1_000_000  # of an answer


@dataclass(eq=False, repr=False)
class RequestFailed(Exception):
    """A request without an answer."""

    code: Fault
    detail: str = ""  # the code for a person, such as `HTTP 404`
    _: KW_ONLY
    again: bool = False  # another attempt may succeed
    wait: float | None = None  # seconds that the service asked to wait
    requests: int = 1  # that were made: 0 where the service was not asked
    unknown: bool = False  # the service may have counted tokens all the same


@dataclass(slots=True)
class _LoopState:
    pacer: Pacer
    client: httpx.AsyncClient | None = None


def retry_after(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds of a Retry-After header, a number or a date; None without one that can be read."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}(?:\.[0-9]{1,9})?", value):
        return float(value)
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return None
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    wait = (then - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, wait) if math.isfinite(wait) else None


class HttpModel(Model):
    """A language model behind an HTTP API.

    It may be used in several event loops. Inside `async with` connections are kept for the next question of that
    loop; else each question has its own. Limits and breaker hold for each loop.

    Args:
        url: base of the API.
        key: sent to that address alone.
        names: model name of the caller -> that of the service; others are sent as they are.
        options: members of the request's body beside the standard ones, or instead; None leaves a member out.
        limits: concurrency, attempts, breaker.
        tls: trusted certificates; the system's where None.
        backoff: seconds to wait after so many failures, where the service does not say; full jitter.
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
        backoff: Callable[[int], float] = lambda failures: random.uniform(0, min(8.0, 0.5 * 2**failures)),  # noqa: S311 - jitter is no secret
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        try:
            address = httpx.URL(url)
        except (httpx.InvalidURL, TypeError):
            raise ValueError("url: must be an address") from None
        if address.scheme not in {"http", "https"} or not address.host:
            raise ValueError("url: must begin with http:// or https://")
        if address.userinfo or address.query or address.fragment:
            raise ValueError("url: must hold neither name and password, nor query, nor fragment")
        if key is not None and not may_carry_key(address):
            raise ValueError(
                "url: must begin with https://, for the key goes there and the host is a public one"
            )
        if key is not None and not (key.isascii() and key.isprintable() and key and " " not in key):
            raise ValueError("key: must be printable ASCII without spaces")
        headers = {**_HEADERS, **self._authority(key)}
        self._names = dict(names or {})
        self._options = dict(options or {})
        if taken := sorted(_RESERVED.intersection(self._options)):
            raise ValueError(f"options: {taken[0]} is not yours to set")
        self._url = address.copy_with(path=address.path.rstrip("/") + self.path)
        self._headers = headers
        self._tls = tls
        self._states: MutableMapping[asyncio.AbstractEventLoop, _LoopState] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._backoff = backoff
        self._sleep = sleep
        self.limits = limits or ModelLimits()
        self.trouble = ""  # the last failure, `HTTP 404` or `ConnectError`, for a person

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self._url)!r})"

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        await self.close()
        self._state().client = self._client()

    async def close(self) -> None:
        state = self._state()
        client, state.client = state.client, None
        if client is not None:
            await client.aclose()

    async def answer(self, request: ModelRequest) -> ModelAnswer:
        """Return the model's answer; repeat within the time limit what may succeed later. Raises: ModelFault."""
        deadline = time.monotonic() + request.timeout
        name = self._names.get(request.model, request.model)
        body = {**self._body(request), "model": name, **self._options}
        content = json.dumps({key: value for key, value in body.items() if value is not None}).encode()
        requests = 0
        cause: RequestFailed | None = None
        while True:
            try:
                document = await self._exchange(content, deadline)
            except RequestFailed as failed:
                requests += failed.requests
                # requests that failed before the breaker opened explain more than the breaker does
                cause = failed if failed.requests or cause is None else cause
                self.trouble = failed.detail or self.trouble
                wait = self._backoff(requests) if failed.wait is None else failed.wait
                last = not failed.again or requests >= self.limits.attempts
                if last or time.monotonic() + wait >= deadline:
                    used = None if failed.unknown else 0
                    raise ModelFault(cause.code, cause.detail, requests=requests, input_tokens=used) from None
                await self._sleep(wait)
            else:
                requests += 1
                break
        sent, received = self._usage(document)
        try:
            text, end = self._text(document)
        except _SHAPES:
            text, end = "", "malformed"
        if end is not None:
            raise ModelFault(end, requests=requests, input_tokens=sent, output_tokens=received or 0)
        try:
            tokens = self._tokens(document)
        except _SHAPES:  # then the answer counts without log-probabilities
            tokens = ()
        return ModelAnswer(text, sent, received, tokens, requests)

    async def _exchange(self, content: bytes, deadline: float) -> Any:  # noqa: ANN401 - any JSON value
        """Send a request once, and return the answer's document. Raises: RequestFailed."""
        state = self._state()
        try:
            async with state.pacer.visit(self._url.host, deadline) as visit:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    status, headers, body = await self._send(state.client, content)
                visit.ok = status < 500 and status not in {*_UNAUTHORIZED, 408, 429}
        except HostPausedError:
            raise RequestFailed("paused", requests=0) from None
        except NotReachedError:
            raise RequestFailed("busy", requests=0) from None
        except TimeoutError:
            raise RequestFailed("timeout", unknown=True) from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:  # InvalidURL: of a redirect
            raise RequestFailed("unreachable", type(error).__name__, again=True) from None
        detail = f"HTTP {status}"
        if status == httpx.codes.TOO_MANY_REQUESTS:
            raise RequestFailed("rate_limited", detail, again=True, wait=retry_after(headers))
        if status >= 500 or status == httpx.codes.REQUEST_TIMEOUT:
            raise RequestFailed("server_error", detail, again=True, wait=retry_after(headers))
        if status in _UNAUTHORIZED:
            raise RequestFailed("unauthorized", detail)
        if status != httpx.codes.OK:
            raise RequestFailed("refused" if b'"content_filter"' in body else "rejected", detail)
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise RequestFailed("malformed", "no JSON", unknown=True) from None

    async def _send(
        self, client: httpx.AsyncClient | None, content: bytes
    ) -> tuple[int, httpx.Headers, bytes]:
        if client is None:
            async with self._client() as own:
                return await self._send(own, content)
        body = bytearray()
        async with client.stream("POST", self._url, headers=self._headers, content=content) as response:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise RequestFailed("malformed", "compressed without being asked to", unknown=True)
            async for part in response.aiter_raw():
                body += part
                if len(body) > self.limits.most_bytes:
                    raise RequestFailed("malformed", "too long", unknown=True)
        return response.status_code, response.headers, bytes(body)

    def _client(self) -> httpx.AsyncClient:
        if self._url.scheme == "https" and self._tls is None:
            self._tls = httpx.create_ssl_context(trust_env=False)
        # `_exchange` keeps the time; two timeouts that end together cancel each other's cleaning up
        return httpx.AsyncClient(verify=self._tls or _NO_TRUST, timeout=None, trust_env=False)  # noqa: S113

    def _state(self) -> _LoopState:
        with self._lock:
            limits, most = self.limits, self.limits.concurrency
            paced = PacingLimits(
                per_host=most, total=most, spacing=0.0, failures=limits.failures, pause=limits.pause
            )
            return self._states.setdefault(asyncio.get_running_loop(), _LoopState(Pacer(paced)))

    @abstractmethod
    def _authority(self, key: str | None) -> dict[str, str]:
        """Return the headers that carry the key, and those that the API requires."""

    @abstractmethod
    def _body(self, request: ModelRequest) -> dict[str, Any]:
        """Return the request's body."""

    @abstractmethod
    def _text(self, document: Any) -> tuple[str, Fault | None]:  # noqa: ANN401 - any JSON value
        """Return the text, and why it does not count. Raises: any of `_SHAPES`."""

    @abstractmethod
    def _usage(self, document: Any) -> tuple[int | None, int | None]:  # noqa: ANN401 - any JSON value
        """Return the tokens sent and received, None where the service does not say. Never raises."""

    def _tokens(self, document: Any) -> tuple[LogprobToken, ...]:  # noqa: ANN401, ARG002 - any JSON value; not every API has them
        return ()


class AnthropicModel(HttpModel):
    """A model behind `<url>/v1/messages`. It offers no log-probabilities."""

    path: ClassVar[str] = "/v1/messages"

    def _authority(self, key: str | None) -> dict[str, str]:
        return {"anthropic-version": _VERSION, **({"x-api-key": key} if key else {})}

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        return {
            "system": request.system or None,
            "messages": [{"role": "user", "content": request.prompt}],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
        }

    def _text(self, document: Any) -> tuple[str, Fault | None]:  # noqa: ANN401 - any JSON value
        end = document["stop_reason"]
        if end not in _GOOD:
            return "", _ANTHROPIC_ENDS.get(end, "malformed")
        parts = [block["text"] for block in document["content"] if block["type"] == "text"]
        return ("".join(parts), None) if parts else ("", "malformed")

    def _usage(self, document: Any) -> tuple[int | None, int | None]:  # noqa: ANN401 - any JSON value
        usage = _usage_of(document)
        sent = _count(usage.get("input_tokens"))
        cached = sum(_count(usage.get(name)) or 0 for name in _CACHED)
        return (None if sent is None else sent + cached), _count(usage.get("output_tokens"))


class OpenAIModel(HttpModel):
    """A model behind `<url>/chat/completions`.

    `logprobs=True` asks for log-probabilities, where the service offers them. A model that wants other members in the
    body gets them by `options`, such as `{"max_tokens": None, "temperature": None, "max_completion_tokens": 2000}`.
    """

    path: ClassVar[str] = "/chat/completions"

    def __init__(self, url: str, key: str | None = None, *, logprobs: bool = False, **others: Any) -> None:  # noqa: ANN401 - those of HttpModel
        super().__init__(url, key, **others)
        self._logprobs = logprobs

    def _authority(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        operator = [{"role": "system", "content": request.system}] if request.system else []
        return {
            "messages": [*operator, {"role": "user", "content": request.prompt}],
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            **({"logprobs": True, "top_logprobs": _ALTERNATIVES} if self._logprobs else {}),
        }

    def _text(self, document: Any) -> tuple[str, Fault | None]:  # noqa: ANN401 - any JSON value
        choice = document["choices"][0]
        message, end = choice["message"], choice["finish_reason"]
        if message.get("refusal"):
            return "", "refused"
        if end != "stop":
            return "", _OPENAI_ENDS.get(end, "malformed")
        text = message["content"]
        return (text, None) if isinstance(text, str) else ("", "malformed")

    def _usage(self, document: Any) -> tuple[int | None, int | None]:  # noqa: ANN401 - any JSON value
        usage = _usage_of(document)
        return _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))

    def _tokens(self, document: Any) -> tuple[LogprobToken, ...]:  # noqa: ANN401 - any JSON value
        offered = document["choices"][0].get("logprobs")
        if not isinstance(offered, dict) or not offered.get("content"):
            return ()
        return tuple(
            LogprobToken(
                str(one["token"]),
                float(one["logprob"]),
                {str(other["token"]): float(other["logprob"]) for other in one.get("top_logprobs") or ()},
            )
            for one in offered["content"]
        )


def _usage_of(document: Any) -> Mapping[str, Any]:  # noqa: ANN401 - any JSON value
    usage = document.get("usage") if isinstance(document, dict) else None
    return usage if isinstance(usage, dict) else {}


def _count(value: object) -> int | None:
    """Return a number of tokens, or None where it is none, or so large that it is an error of the service."""
    return value if type(value) is int and 0 <= value <= 10**9 else None


def may_carry_key(address: httpx.URL) -> bool:
    """Return whether a key may be sent: over TLS anywhere, in clear only to this machine or a private network.

    Example:
        >>> [may_carry_key(httpx.URL(url)) for url in ("http://vllm:8000/v1", "http://api.openai.com/v1")]
        [True, False]
    """
    if address.scheme == "https":
        return True
    host = address.host.rstrip(".")
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        parts = host.lower().split(".")
        return len(parts) == 1 or parts[-1] in _PRIVATE_SUFFIXES
    return found.is_private or found.is_link_local

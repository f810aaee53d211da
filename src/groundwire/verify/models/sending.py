"""One request to a service: within limits, bounded in time and size."""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakKeyDictionary

import httpx

from groundwire.epistemic.model import Fault
from groundwire.verify.models.waiting import asked_wait
from groundwire.verify.pacing import HostPausedError, NotReachedError, Pacer, PacingLimits

_KEYLESS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody, for services without TLS; made once: a client would read all certificates."""
_UNWELL: Final = frozenset({401, 403, 408, 429})
"""Answers that say of the whole service that asking on is of no use; 500 and above do too."""
_UNAUTHORIZED: Final = frozenset({401, 403})


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


class Failed(Exception):
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
    client: httpx.AsyncClient | None = None


class Sender:
    """Sends requests to one address; usable in several event loops, each with its own connections and limits.

    Args:
        url: where to.
        headers: of every request; they are sent to that address alone.
        limits: how hard it may be asked.
        tls: whom to trust; whom the system does where None.
    """

    def __init__(
        self, url: httpx.URL, headers: Mapping[str, str], limits: ModelLimits, tls: ssl.SSLContext | None
    ) -> None:
        self.url = url
        self.limits = limits
        self._headers = dict(headers)
        self._tls = tls
        self._lanes: MutableMapping[asyncio.AbstractEventLoop, _Lane] = WeakKeyDictionary()
        self._lock = threading.Lock()

    async def open(self) -> None:
        """Keep connections of this loop from now on."""
        await self.close()
        self._lane().client = self._client()

    async def close(self) -> None:
        """Close the connections that this loop has."""
        lane = self._lane()
        client, lane.client = lane.client, None
        if client is not None:
            await client.aclose()

    async def exchange(self, content: bytes, deadline: float) -> Any:  # noqa: ANN401 - any JSON value
        """Send a request once, and return what was answered. Raises: Failed."""
        lane = self._lane()
        try:
            async with lane.pacer.visit(self.url.host, deadline) as visit:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    status, headers, body = await self._send(lane.client, content)
                visit.ok = status < 500 and status not in _UNWELL
        except HostPausedError:
            raise Failed("paused", requests=0) from None
        except NotReachedError:
            raise Failed("busy", requests=0) from None
        except TimeoutError:
            raise Failed("timeout", unknown=True) from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:  # InvalidURL: of a redirect
            raise Failed("unreachable", type(error).__name__, again=True) from None
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
        async with client.stream("POST", self.url, headers=self._headers, content=content) as response:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise Failed("malformed", "compressed although nobody asked", unknown=True)
            async for part in response.aiter_raw():
                body += part
                if len(body) > self.limits.most_bytes:
                    raise Failed("malformed", "too long", unknown=True)
        return response.status_code, response.headers, bytes(body)

    def _refusal(self, status: int, headers: httpx.Headers, body: bytes) -> Failed:
        detail = f"HTTP {status}"
        if status == httpx.codes.TOO_MANY_REQUESTS:
            return Failed("rate_limited", detail, again=True, wait=asked_wait(headers))
        if status >= 500 or status == httpx.codes.REQUEST_TIMEOUT:
            return Failed("server_error", detail, again=True, wait=asked_wait(headers))
        if status in _UNAUTHORIZED:
            return Failed("unauthorized", detail)
        return Failed("refused" if b'"content_filter"' in body else "rejected", detail)

    def _client(self) -> httpx.AsyncClient:
        if self.url.scheme == "https" and self._tls is None:
            self._tls = httpx.create_ssl_context(trust_env=False)
        # `exchange` keeps the time; two that end at the same moment cancel each other's cleaning up
        return httpx.AsyncClient(
            verify=self._tls or _KEYLESS,
            timeout=None,  # noqa: S113 - see above
            trust_env=False,
        )

    def _lane(self) -> _Lane:
        with self._lock:
            return self._lanes.setdefault(asyncio.get_running_loop(), _Lane(Pacer(self.limits.pacing)))


def _document(body: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise Failed("malformed", "no JSON", unknown=True) from None

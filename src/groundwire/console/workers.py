"""What the workers answer at their metrics ports at this moment; nothing of an earlier moment is kept."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import httpx

from groundwire.console.settings import ScrapeTarget
from groundwire.errors import WAITED_FOR

ROLES: Final = ("claims", "responses", "deferred", "reviews")
TENANT_LIMITS: Final = ("places", "bytes", "requests")
_PATIENCE: Final = 2.0  # seconds for a worker's address, and for its answer: somebody waits for the page
_HOLDS: Final = 5.0  # seconds for which answers hold: however many look, workers are asked once
_MOST_WORKERS: Final = 100
_MOST_BYTES: Final = 500_000  # of an answer; a worker's has some 50,000
_GAUGE: Final = re.compile(
    "^groundwire_(lag_records|commit_age_seconds|partitions|waiting_claims|paused|tenant_most|tenant_limit"
    r'|tenants_at_limit)(?:\{\w+="([^"]*)"\})? (\d{1,15}(?:\.\d{1,20})?(?:e[+-][01]\d)?)$',
    re.MULTILINE,
)
_LABELS: Final = frozenset({"", *ROLES, *WAITED_FOR, *TENANT_LIMITS})
"""Other labels are shown as `other`: no text of an answer comes to a page."""
_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Without certificates, for metrics ports speak plain HTTP; made once: each client would load them all."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker, named by its configured host and port; `gauges` by name and label are empty unless it answers."""

    name: str
    address: str
    state: Literal["answers", "silent", "unreadable", "unresolved"]
    gauges: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @property
    def role(self) -> str | None:
        return next((label for name, label in self.gauges if name == "lag_records" and label in ROLES), None)

    @property
    def paused(self) -> list[str]:
        return sorted(label for (name, label), value in self.gauges.items() if name == "paused" and value)


async def resolve(target: ScrapeTarget) -> Sequence[str]:
    async with asyncio.timeout(_PATIENCE):
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    return sorted({str(one[4][0]) for one in found})


async def fetch(address: str, port: int) -> str:
    """Return what a worker answers, none of an answer that is too long. Raises: httpx.HTTPError, TimeoutError."""
    url = httpx.URL(scheme="http", host=address, port=port, path="/metrics")
    client = httpx.AsyncClient(trust_env=False, timeout=_PATIENCE, verify=_TLS)
    plain = {"accept-encoding": "identity"}
    async with asyncio.timeout(_PATIENCE), client, client.stream("GET", url, headers=plain) as answer:
        body = bytearray()
        async for part in answer.aiter_raw():
            body += part
            if len(body) > _MOST_BYTES:
                return ""
    return body.decode("utf-8", "replace")


class Workers:
    def __init__(
        self,
        targets: Sequence[ScrapeTarget],
        monotonic: Callable[[], float],
        resolve: Callable[[ScrapeTarget], Awaitable[Sequence[str]]] = resolve,
        fetch: Callable[[str, int], Awaitable[str]] = fetch,
    ) -> None:
        self._targets, self._monotonic, self._resolve, self._fetch = targets, monotonic, resolve, fetch
        self._asking = asyncio.Lock()
        self._found: tuple[float, list[WorkerStatus]] | None = None

    async def ask(self) -> list[WorkerStatus]:
        """Return the status of every worker, at most five seconds old."""
        async with self._asking:
            if self._found is None or self._monotonic() - self._found[0] >= _HOLDS:
                groups = await asyncio.gather(*map(self.addresses, self._targets))
                asked = [pair for group in groups for pair in group][:_MOST_WORKERS]
                found = await asyncio.gather(*(self.scrape(*pair) for pair in asked))
                self._found = self._monotonic(), found
            return self._found[1]

    async def addresses(self, target: ScrapeTarget) -> list[tuple[ScrapeTarget, str]]:
        try:
            return [(target, address) for address in await self._resolve(target)]
        except (OSError, UnicodeError):
            return [(target, "")]

    async def scrape(self, target: ScrapeTarget, address: str) -> WorkerStatus:
        if not address:
            return WorkerStatus(str(target), address, "unresolved")
        try:
            answer = await self._fetch(address, target.port)
        except (httpx.HTTPError, OSError):
            return WorkerStatus(str(target), address, "silent")
        found = {
            (name, label if label in _LABELS else "other"): float(value)
            for name, label, value in _GAUGE.findall(answer)
        }
        return WorkerStatus(str(target), address, "answers" if found else "unreadable", found)

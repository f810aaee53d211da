"""Fetches the metrics of every worker, and remembers since when each has answered or not."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import httpx
import structlog

from groundwire.console.series import (
    EVERY,
    MOST_WORKERS,
    Measurement,
    SeriesHistory,
    UnreadableMetrics,
    parse_metrics,
)
from groundwire.console.settings import ScrapeTarget

logger = structlog.get_logger(__name__)

PATIENCE: Final = 4.0
"""Seconds that finding a worker's address, and its answer, may each take."""
MOST_BYTES: Final = 1_000_000
"""Of an answer; a worker's has some 50,000."""
_AT_ONCE: Final = 10
_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Without certificates, for metrics ports speak plain HTTP; made once: each client would load them all."""
Resolve = Callable[[ScrapeTarget], Awaitable[Sequence[str]]]
ScrapeCall = Callable[[str, int], Awaitable[str]]


class WorkerState(StrEnum):
    """The state of a worker at the last scrape."""

    ANSWERS = "answers"
    SILENT = "silent"
    UNREADABLE = "unreadable"
    UNRESOLVED = "unresolved"
    """Its name resolves to no address."""


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """A worker as of the last scrape.

    Attributes:
        name: host and port as they are configured.
        address: one that the name resolves to; empty where there is none.
        state: whether it answered.
        since: since when it has been in this state.
        measurement: its last metrics, of this scrape or an earlier one; None where it never answered.
    """

    name: str
    address: str
    state: WorkerState
    since: datetime
    measurement: Measurement | None = None


async def resolve(target: ScrapeTarget) -> list[str]:
    """Return the addresses of a worker's host. Raises: OSError, TimeoutError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    return sorted({str(one[4][0]) for one in found})[:MOST_WORKERS]


async def fetch_metrics(address: str, port: int) -> str:
    """Return what a worker answers.

    Raises:
        httpx.HTTPError, OSError, TimeoutError: it does not answer in time.
        UnreadableMetrics: the answer is too long, or none that a worker gives.
    """
    host = f"[{address}]" if ":" in address else address
    async with (
        asyncio.timeout(PATIENCE),
        httpx.AsyncClient(trust_env=False, timeout=PATIENCE, verify=_TLS) as client,
        client.stream(
            "GET", f"http://{host}:{port}/metrics", headers={"accept-encoding": "identity"}
        ) as answer,
    ):
        if answer.status_code != httpx.codes.OK:
            raise UnreadableMetrics("status")
        body = bytearray()
        async for part in answer.aiter_raw():
            body += part
            if len(body) > MOST_BYTES:
                raise UnreadableMetrics("too long")
    return body.decode("utf-8", "replace")


class Scraper:
    """Fetches the metrics of all workers every ten seconds.

    Args:
        targets: where they are.
        clock: the wall clock.
        resolve: finds the addresses of a host.
        fetch: gets the metrics of a worker.
    """

    def __init__(
        self,
        targets: Sequence[ScrapeTarget],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        resolve: Resolve = resolve,
        fetch: ScrapeCall = fetch_metrics,
    ) -> None:
        self.history = SeriesHistory()
        self.looked_at: datetime | None = None
        self._targets = targets
        self._clock = clock
        self._resolve = resolve
        self._fetch = fetch
        self._statuses: dict[str, WorkerStatus] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    @property
    def workers(self) -> list[WorkerStatus]:
        """All workers as of the last scrape."""
        return list(self._statuses.values())

    async def run(self) -> None:
        """Scrape every ten seconds until cancelled."""
        while True:
            try:
                await self.scrape(int(time.monotonic() // EVERY))
            except Exception as exc:  # noqa: BLE001 - the page shows when the last scrape was; the next one may succeed
                logger.warning("operations.look_failed", error=type(exc).__name__)
            await asyncio.sleep(EVERY - time.monotonic() % EVERY)

    async def scrape(self, tick: int) -> None:
        """Fetch the metrics of every worker once."""
        groups = await asyncio.gather(*(self._of(target) for target in self._targets))
        found = [status for group in groups for status in group][:MOST_WORKERS]
        now = self._clock()
        self.history.advance(tick)
        seen = {f"{one.name} {one.address}": one for one in found}
        for key, one in seen.items():
            seen[key] = _with_history(self._statuses.get(key), one)
            if one.state is WorkerState.ANSWERS and one.measurement is not None:
                self.history.take(key, one.measurement, _process_age(one.measurement, now))
        for key in self._statuses.keys() - seen.keys():
            self.history.forget(key)
        self._statuses = seen
        self.looked_at = now

    async def _of(self, target: ScrapeTarget) -> list[WorkerStatus]:
        try:
            addresses = await self._resolve(target)
        except (OSError, TimeoutError, UnicodeError):
            addresses = []
        if not addresses:
            return [WorkerStatus(str(target), "", WorkerState.UNRESOLVED, self._clock())]
        return await asyncio.gather(*(self._one(target, address) for address in addresses))

    async def _one(self, target: ScrapeTarget, address: str) -> WorkerStatus:
        state, measurement = WorkerState.ANSWERS, None
        try:
            async with self._slots:
                text = await self._fetch(address, target.port)
            measurement = await asyncio.to_thread(parse_metrics, text)
        except UnreadableMetrics:
            state = WorkerState.UNREADABLE
        except (httpx.HTTPError, OSError, TimeoutError):
            state = WorkerState.SILENT
        return WorkerStatus(str(target), address, state, self._clock(), measurement)


def _with_history(before: WorkerStatus | None, one: WorkerStatus) -> WorkerStatus:
    """Return the status of a worker with what is known from earlier scrapes."""
    if before is None:
        return one
    since = before.since if before.state is one.state else one.since
    return replace(one, since=since, measurement=one.measurement or before.measurement)


def _process_age(measurement: Measurement, now: datetime) -> float | None:
    if measurement.started is None:
        return None
    age = now.timestamp() - measurement.started
    return age if math.isfinite(age) else None

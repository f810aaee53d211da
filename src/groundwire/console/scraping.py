"""Asks every worker for its metrics, and remembers since when each has been answering or not."""

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

from groundwire.console.measures import Reading, Unreadable, read
from groundwire.console.series import EVERY, MOST_WORKERS, History
from groundwire.console.settings import Target

logger = structlog.get_logger(__name__)

PATIENCE: Final = 4.0
"""Seconds that finding a worker's address, and its answer, may each take."""
MOST_BYTES: Final = 1_000_000
"""Of an answer; a worker's has some 50,000."""
_AT_ONCE: Final = 10
_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody, for metrics ports speak plain HTTP; made once: a client would read all certificates."""


class Answering(StrEnum):
    """How a worker was found at the last look."""

    ANSWERS = "answers"
    SILENT = "silent"
    UNREADABLE = "unreadable"
    UNRESOLVED = "unresolved"
    """Its name resolves to no address."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A worker.

    Attributes:
        name: host and port as they are configured.
        address: one that the name resolves to; empty where there is none.
        state: how it was found at the last look.
        since: since when it has been found so.
        reading: what it answered last, now or before; None where it never did.
    """

    name: str
    address: str
    state: Answering
    since: datetime
    reading: Reading | None = None


Resolve = Callable[[Target], Awaitable[Sequence[str]]]
Ask = Callable[[str, int], Awaitable[str]]


async def resolve(target: Target) -> list[str]:
    """Return the addresses of a worker's host. Raises: OSError, TimeoutError."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(PATIENCE):
        found = await loop.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    return sorted({str(one[4][0]) for one in found})[:MOST_WORKERS]


async def ask(address: str, port: int) -> str:
    """Return what a worker answers.

    Raises:
        httpx.HTTPError, OSError, TimeoutError: it does not answer in time.
        Unreadable: the answer is too long, or none that a worker gives.
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
            raise Unreadable("status")
        body = bytearray()
        async for part in answer.aiter_raw():
            body += part
            if len(body) > MOST_BYTES:
                raise Unreadable("too long")
    return body.decode("utf-8", "replace")


class Scraper:
    """Asks workers, again and again.

    Args:
        targets: where they are.
        clock: the wall clock.
        resolve: finds the addresses of a host.
        ask: gets what a worker answers.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        *,
        resolve: Resolve = resolve,
        ask: Ask = ask,
    ) -> None:
        self.history = History()
        self.looked_at: datetime | None = None
        self._targets = targets
        self._clock = clock
        self._resolve = resolve
        self._ask = ask
        self._seen: dict[str, Seen] = {}
        self._slots = asyncio.Semaphore(_AT_ONCE)

    @property
    def workers(self) -> list[Seen]:
        """All workers as they were found at the last look."""
        return list(self._seen.values())

    async def run(self) -> None:
        """Look every ten seconds, until cancelled."""
        while True:
            try:
                await self.look(int(time.monotonic() // EVERY))
            except Exception as exc:  # noqa: BLE001 - the page says when the last look was; the next one may be better
                logger.warning("operations.look_failed", error=type(exc).__name__)
            await asyncio.sleep(EVERY - time.monotonic() % EVERY)

    async def look(self, tick: int) -> None:
        """Ask every worker once."""
        asked = await asyncio.gather(*(self._of(target) for target in self._targets))
        found = [one for group in asked for one in group][:MOST_WORKERS]
        now = self._clock()
        self.history.advance(tick)
        seen = {f"{one.name} {one.address}": one for one in found}
        for key, one in seen.items():
            seen[key] = _after(self._seen.get(key), one)
            if one.state is Answering.ANSWERS and one.reading is not None:
                self.history.take(key, one.reading, _age(one.reading, now))
        for key in self._seen.keys() - seen.keys():
            self.history.forget(key)
        self._seen = seen
        self.looked_at = now

    async def _of(self, target: Target) -> list[Seen]:
        try:
            addresses = await self._resolve(target)
        except (OSError, TimeoutError, UnicodeError):
            addresses = []
        if not addresses:
            return [Seen(str(target), "", Answering.UNRESOLVED, self._clock())]
        return await asyncio.gather(*(self._one(target, address) for address in addresses))

    async def _one(self, target: Target, address: str) -> Seen:
        state, reading = Answering.ANSWERS, None
        try:
            async with self._slots:
                text = await self._ask(address, target.port)
            reading = await asyncio.to_thread(read, text)
        except Unreadable:
            state = Answering.UNREADABLE
        except (httpx.HTTPError, OSError, TimeoutError):
            state = Answering.SILENT
        return Seen(str(target), address, state, self._clock(), reading)


def _after(before: Seen | None, one: Seen) -> Seen:
    """Return how a worker was found, with what is known of it from before."""
    if before is None:
        return one
    since = before.since if before.state is one.state else one.since
    return replace(one, since=since, reading=one.reading or before.reading)


def _age(reading: Reading, now: datetime) -> float | None:
    if reading.started is None:
        return None
    age = now.timestamp() - reading.started
    return age if math.isfinite(age) else None

"""Good manners towards other people's servers.

Few requests at once, some distance between them, and a pause after a row of failures (C-15: a paced citation
is unknown, never verified).
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PacingLimits:
    """How hard hosts may be asked.

    Attributes:
        per_host: Requests in flight to one host.
        total: Requests in flight to all hosts.
        spacing: Seconds between the starts of two requests to one host.
        failures: Failures in a row that open the breaker.
        pause: Seconds that it stays open; after them a single request finds out.
        hosts: Hosts remembered; idle ones are forgotten, longest unused first.
    """

    per_host: int = 4
    total: int = 32
    spacing: float = 0.02
    failures: int = 5
    pause: float = 30.0
    hosts: int = 1024


class NotAskedError(Exception):
    """The host was not asked; the answer says nothing about the citation and is not worth caching."""

    detail = "not asked"


class HostPausedError(NotAskedError):
    """The breaker of the host is open."""

    detail = "host paused after repeated failures"


class NotReachedError(NotAskedError):
    """The deadline came before a place was free."""

    detail = "not reached in time: too many requests to this host"


@dataclass(slots=True)
class Visit:
    """One request to a host; the visitor sets `ok` when the host answered as a healthy host does."""

    ok: bool = False


@dataclass(slots=True)
class _Host:
    slots: asyncio.Semaphore
    next_start: float = 0.0
    failures: int = 0
    open_until: float = 0.0
    probing: bool = False
    users: int = 0


@dataclass(slots=True)
class Pacer:
    """Lets requests through, host by host. Belongs to one event loop.

    Args:
        limits: How hard hosts may be asked.
        clock: Monotonic seconds.
        sleep: Waits that many seconds.
    """

    limits: PacingLimits = field(default_factory=PacingLimits)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    _hosts: OrderedDict[str, _Host] = field(default_factory=OrderedDict, init=False)
    _total: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        """Make the places for all hosts together."""
        self._total = asyncio.Semaphore(self.limits.total)

    @asynccontextmanager
    async def visit(self, name: str, deadline: float | None = None) -> AsyncIterator[Visit]:
        """Wait for a place at host `name` and hold it.

        Args:
            name: The host.
            deadline: On the pacer's clock, when waiting (not the request) ends.

        Raises:
            HostPausedError: At once, if the host has failed too often.
            NotReachedError: If no place was free before the deadline.
        """
        host = self._host(name)
        host.users += 1
        try:
            self._refuse_if_paused(host)  # before waiting
            await self._take_place(host, deadline)
            try:
                self._refuse_if_paused(host)  # it may have failed meanwhile
                async with self._counted(host) as visit:
                    yield visit
            finally:
                self._total.release()
                host.slots.release()
        finally:
            host.users -= 1

    def _host(self, name: str) -> _Host:
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = _Host(asyncio.Semaphore(self.limits.per_host))
        self._hosts.move_to_end(name)
        if len(self._hosts) > self.limits.hosts:
            idle = next((n for n, h in self._hosts.items() if not h.users and n != name), None)
            if idle is not None:
                del self._hosts[idle]
        return host

    def _refuse_if_paused(self, host: _Host) -> None:
        if host.failures >= self.limits.failures and (host.probing or self.clock() < host.open_until):
            raise HostPausedError

    async def _take_place(self, host: _Host, deadline: float | None) -> None:
        patience = None if deadline is None else max(0.0, deadline - self.clock())
        try:
            async with asyncio.timeout(patience):
                await host.slots.acquire()
                try:
                    await self._keep_distance(host)
                    await (
                        self._total.acquire()
                    )  # last: waiting for a slow host must not hold other hosts' places
                except BaseException:
                    host.slots.release()
                    raise
        except TimeoutError:
            raise NotReachedError from None

    async def _keep_distance(self, host: _Host) -> None:
        now = self.clock()
        start = max(now, host.next_start)
        host.next_start = start + self.limits.spacing
        if start > now:
            await self.sleep(start - now)

    @asynccontextmanager
    async def _counted(self, host: _Host) -> AsyncIterator[Visit]:
        probe = host.failures >= self.limits.failures
        host.probing = host.probing or probe
        visit = Visit()
        try:
            yield visit
        except asyncio.CancelledError:  # says nothing about the host
            raise
        except BaseException:
            self._count(host, ok=False)
            raise
        else:
            self._count(host, ok=visit.ok)
        finally:
            if probe:
                host.probing = False

    def _count(self, host: _Host, *, ok: bool) -> None:
        host.failures = 0 if ok else host.failures + 1
        if host.failures >= self.limits.failures:
            host.open_until = self.clock() + self.limits.pause

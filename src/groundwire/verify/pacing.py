"""Rate limiting and circuit breaking for each tenant at each host (C-15: what is held back is unknown, not verified).

Nothing that one tenant cites pauses a host for another, or takes the last place of all.
"""

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal, NoReturn
from weakref import WeakValueDictionary

from cachetools import LRUCache


@dataclass(frozen=True, slots=True)
class PacingLimits:
    """Limits of the requests to hosts."""

    per_host: int = 4  # requests in flight of one tenant to one host
    per_tenant: int = 16  # requests in flight of one tenant
    total: int = 64  # requests in flight to all hosts
    waiting: float = math.inf  # requests of one tenant that wait; one more is refused at once
    spacing: float = 0.02  # seconds between the starts of two requests of one tenant to one host
    failures: int = 5  # failures in a row that open the breaker
    pause: float = 30.0  # seconds that it stays open; then a single request probes the host
    hosts: int = 1024  # idle hosts that are remembered, the most recently used; each for each tenant


class NotAskedError(Exception):
    """The host was not asked: the answer says nothing about the citation and is not cached."""

    detail = "not asked"


class HostPausedError(NotAskedError):
    detail = "host paused after repeated failures"


class NotReachedError(NotAskedError):
    detail = "not reached in time: too many requests"


@dataclass(slots=True)
class Visit:
    """One request to a host; the caller sets `ok` when the host answered as a healthy one does."""

    ok: bool = False


@dataclass(slots=True)
class _Host:
    slots: asyncio.Semaphore
    next_start: float = 0.0
    failures: int = 0
    open_until: float = 0.0
    probing: bool = False
    users: int = 0


_Key = tuple[str, str]  # tenant, host


@dataclass(slots=True)
class Pacer:
    """Lets requests through, for each tenant host by host. Belongs to one event loop."""

    limits: PacingLimits = field(default_factory=PacingLimits)
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    on_refusal: Callable[[Literal["hosts", "requests"]], object] = lambda _limit: None
    in_flight: Counter[str] = field(default_factory=Counter, init=False)
    _waiting: Counter[str] = field(default_factory=Counter, init=False)
    _busy: dict[_Key, _Host] = field(default_factory=dict, init=False)
    _idle: LRUCache[_Key, _Host] = field(init=False)
    _tenants: WeakValueDictionary[str, asyncio.Semaphore] = field(
        default_factory=WeakValueDictionary, init=False
    )
    _total: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._idle = LRUCache(self.limits.hosts)
        self._total = asyncio.Semaphore(self.limits.total)

    @asynccontextmanager
    async def visit(
        self, name: str, deadline: float | None = None, *, tenant: str = ""
    ) -> AsyncIterator[Visit]:
        """Wait for a place at host `name` and hold it. Raises: HostPausedError, NotReachedError."""
        key = (tenant, name)
        host = (
            self._busy.get(key) or self._idle.pop(key, None) or _Host(asyncio.Semaphore(self.limits.per_host))
        )
        self._busy[key] = host
        host.users += 1
        own = self._tenants.setdefault(tenant, asyncio.Semaphore(self.limits.per_tenant))
        try:
            self._refuse_if_paused(host)
            await self._take_place(host, own, tenant, deadline)
            try:
                self._refuse_if_paused(host)  # it may have failed meanwhile
                self.in_flight[tenant] += 1
                async with self._counted(host) as visit:
                    yield visit
            finally:
                self.in_flight -= Counter((tenant,))
                self._total.release()
                own.release()
                host.slots.release()
        finally:
            host.users -= 1
            if not host.users:
                self._idle[key] = self._busy.pop(key)

    @property
    def paused(self) -> int:
        hosts = chain(self._busy.values(), self._idle.values())
        return sum(host.failures >= self.limits.failures and self.clock() < host.open_until for host in hosts)

    def _refuse_if_paused(self, host: _Host) -> None:
        if host.failures >= self.limits.failures and (host.probing or self.clock() < host.open_until):
            self.on_refusal("hosts")
            raise HostPausedError

    async def _take_place(
        self, host: _Host, own: asyncio.Semaphore, tenant: str, deadline: float | None
    ) -> None:
        """Take a place at the host, of the tenant and of all.

        In this order: who waits for a slow host holds no other host's place, who waits for their own no other tenant's.
        """
        patience = None if deadline is None else max(0.0, deadline - self.clock())
        if self._waiting[tenant] >= self.limits.waiting:
            self._refuse()
        async with AsyncExitStack() as taken:
            self._waiting[tenant] += 1
            try:
                async with asyncio.timeout(patience):
                    await taken.enter_async_context(host.slots)
                    now = self.clock()
                    start = max(now, host.next_start)
                    host.next_start = start + self.limits.spacing
                    if start > now:
                        await self.sleep(start - now)
                    await taken.enter_async_context(own)
                    await taken.enter_async_context(self._total)
            except TimeoutError:
                self._refuse()
            finally:
                self._waiting -= Counter((tenant,))
            taken.pop_all()

    def _refuse(self) -> NoReturn:
        self.on_refusal("requests")
        raise NotReachedError from None

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

"""Breaks what the schedule says, when it says so, and mends it again."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deploy.embedded.process import ServiceError
from tests.faults.crew import Crew
from tests.faults.load import TENANTS, USERS, Sender
from tests.faults.people import Reviewers
from tests.faults.proxy import Proxy
from tests.faults.schedule import Fault
from tests.faults.services import Pages, Services

_TRIES = 5


def _insist(start: Callable[[], None]) -> None:
    """Start a server, again where a busy machine let it take too long."""
    for left in reversed(range(_TRIES)):
        try:
            start()
        except ServiceError:
            if not left:
                raise
        else:
            return


@dataclass(frozen=True)
class Struck:
    """A fault that was brought about: from when to when, by `time.monotonic`."""

    fault: Fault
    begin: float
    end: float


class Nemesis:
    """Works a schedule off.

    Attributes:
        struck: what was broken so far, in the order in which it was mended.
        failed: faults that could not be brought about, and why.
    """

    def __init__(
        self,
        services: Services,
        crew: Crew,
        sender: Sender,
        reviewers: Reviewers,
        pages: Pages,
        page_proxy: Proxy,
    ) -> None:
        self.struck: list[Struck] = []
        self.failed: list[str] = []
        self._held: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._services = services
        self._crew = crew
        self._sender = sender
        self._reviewers = reviewers
        self._pages = pages
        self._page_proxy = page_proxy

    async def run(self, faults: Sequence[Fault]) -> None:
        """Bring all faults about, each at its time, and return when all are mended."""
        begun = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for fault in faults:
                await asyncio.sleep(max(0.0, begun + fault.at - time.monotonic()))
                tasks.create_task(self._strike(fault))

    async def _strike(self, fault: Fault) -> None:
        async with self._held[fault.holds]:  # on a busy machine a node comes back later than was planned
            begin = time.monotonic()
            try:
                await self._do(fault)
            except Exception as error:  # noqa: BLE001 - one that fails is told, and the others go on
                self.failed.append(f"{fault.number} {fault.kind}: {type(error).__name__}: {error}"[:500])
                return
            self.struck.append(Struck(fault, begin, time.monotonic()))

    async def _do(self, fault: Fault) -> None:
        what, _, whom = fault.kind.partition("_")
        if whom == "worker":
            await self._worker(what, fault)
        elif whom == "queue":
            await self._fill(fault)
        elif whom == "leaders":
            await self._node("stop", "start", fault)
        elif what in {"cut", "close", "freeze", "delay", "throttle"} or (what, whom) == ("hang", "pages"):
            await self._link(what, self._proxy(whom, fault), fault)
        elif whom == "broker":
            await self._node(*(("kill", "start") if what == "kill" else ("pause", "resume")), fault)
        elif whom == "pages":
            self._pages.broken = True
            try:
                await asyncio.sleep(fault.seconds)
            finally:
                self._pages.broken = False
        else:
            await self._redis(what, fault)

    async def _worker(self, what: str, fault: Fault) -> None:
        crew = self._crew
        if what == "skew":
            await crew.skew(fault.target, fault.seconds, fault.amount)
            return
        do = {"kill": crew.kill, "stop": crew.freeze, "remove": crew.remove, "add": crew.add}[what]
        await do(fault.target, fault.seconds)

    def _proxy(self, whom: str, fault: Fault) -> Proxy:
        if whom == "broker":
            return self._services.broker.proxies[int(fault.target)]
        return self._services.redis_proxy if whom == "redis" else self._page_proxy

    async def _link(self, what: str, proxy: Proxy, fault: Fault) -> None:
        if what == "cut":
            await asyncio.to_thread(proxy.cut)
            return
        weather: dict[str, float | bool] = {
            "close": {"closed": True},
            "freeze": {"frozen": True},
            "hang": {"frozen": True},
            "delay": {"delay": fault.amount},
            "throttle": {"rate": int(fault.amount)},
        }[what]  # type: ignore[assignment]
        await asyncio.to_thread(lambda: proxy.set(**weather))
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            proxy.set()

    async def _node(self, away: str, back: str, fault: Fault) -> None:
        nodes, node = self._services.broker.nodes, int(fault.target)
        await asyncio.to_thread(getattr(nodes, away), node)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            await asyncio.to_thread(getattr(nodes, back), node)

    async def _redis(self, what: str, fault: Fault) -> None:
        redis = self._services.redis
        if what == "pause":
            redis.pause()
        else:
            await asyncio.to_thread(redis.kill)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            if what == "pause":
                redis.resume()
            else:
                await asyncio.to_thread(_insist, lambda: redis.start(keep_data=what != "lose"))

    async def _fill(self, fault: Fault) -> None:
        rng = random.Random(fault.number)
        self._reviewers.idle = True
        self._sender.crowd = rng.choice(TENANTS), f"u{rng.randrange(USERS)}"
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            self._sender.crowd = None
            self._reviewers.idle = False

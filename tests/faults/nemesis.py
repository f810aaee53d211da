"""What breaks when, which follows from a seed and nothing else, and whoever breaks it."""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from deploy.embedded.process import ServiceError
from tests.faults.load import TENANTS, USERS, Reviewers, Sender
from tests.faults.services import OneRedis, Pages, Proxy, Services
from tests.faults.shards import SHARDS, Shards
from tests.faults.workers import ROLES, SLOTS, Crew
from tests.services.redis_cluster import LocalCluster


@dataclass(frozen=True)
class Kind:
    """A kind of fault.

    Attributes:
        holds: what cannot have another fault at the same time: worker, broker, redis, shards, pages, queue.
        weight: how often it comes, beside the others.
        seconds: shortest and longest duration, in session timeouts.
        needs: nodes that the broker must have.
        on: what state must be on; none: anything.
    """

    holds: str
    weight: int
    seconds: tuple[float, float]
    needs: int = 1
    on: Collection[str] = ()


_ONE: Final = ("one",)
_CLUSTER: Final = ("cluster", "replicated")


KINDS: Final[Mapping[str, Kind]] = {
    "kill_worker": Kind("worker", 14, (0.1, 0.8)),
    "stop_worker": Kind("worker", 8, (0.2, 2.5)),
    "remove_worker": Kind("worker", 5, (0.1, 0.8)),
    "add_worker": Kind("extra", 6, (1.5, 4.0)),
    "skew_worker": Kind("worker", 4, (1.5, 4.0)),
    "kill_broker": Kind("broker", 4, (0.1, 1.0)),
    "pause_broker": Kind("broker", 4, (0.2, 1.5)),
    "move_leaders": Kind("broker", 4, (0.1, 0.5), needs=3),
    "cut_broker": Kind("broker", 5, (0.0, 0.0)),
    "close_broker": Kind("broker", 4, (0.1, 1.0)),
    "freeze_broker": Kind("broker", 4, (0.2, 1.5)),
    "delay_broker": Kind("broker", 3, (0.5, 2.0)),
    "throttle_broker": Kind("broker", 3, (0.5, 2.0)),
    "kill_redis": Kind("redis", 5, (0.1, 1.5), on=_ONE),
    "pause_redis": Kind("redis", 4, (0.2, 1.5), on=_ONE),
    "cut_redis": Kind("redis", 5, (0.0, 0.0), on=_ONE),
    "close_redis": Kind("redis", 4, (0.1, 1.5), on=_ONE),
    "freeze_redis": Kind("redis", 4, (0.2, 1.5), on=_ONE),
    "delay_redis": Kind("redis", 3, (0.5, 2.0), on=_ONE),
    "throttle_redis": Kind("redis", 2, (0.5, 2.0), on=_ONE),
    "lose_redis": Kind("redis", 2, (0.1, 0.5), on=_ONE),
    "kill_shard": Kind("shards", 10, (0.1, 1.5), on=_CLUSTER),
    "pause_shard": Kind("shards", 4, (0.2, 1.5), on=("cluster",)),
    "lose_shard": Kind("shards", 2, (0.1, 0.5), on=("cluster",)),
    "move_slots": Kind("shards", 8, (0.3, 1.5), on=_CLUSTER),
    "outdate_worker": Kind("shards", 8, (0.5, 2.0), on=_CLUSTER),
    "hang_pages": Kind("pages", 3, (0.5, 2.0)),
    "break_pages": Kind("pages", 3, (0.5, 2.0)),
    "close_pages": Kind("pages", 2, (0.5, 2.0)),
    "fill_queue": Kind("queue", 3, (1.0, 3.0)),
}


@dataclass(frozen=True)
class Fault:
    """One fault: `seconds` from `at`, both counted from the run's start.

    Attributes:
        target: the worker's slot or role, the broker's node, or the number of a shard.
        amount: how much of it: seconds of delay or skew, bytes a second.
    """

    number: int
    at: float
    kind: str
    target: str
    seconds: float
    amount: float

    @property
    def holds(self) -> str:
        """What it breaks: nothing else may break that at the same time, however long it takes to mend."""
        holds = KINDS[self.kind].holds
        return f"worker {self.target}" if holds == "worker" else holds

    @property
    def roles(self) -> frozenset[str]:
        """The roles whose records may have to wait for it."""
        match KINDS[self.kind].holds:
            case "worker" | "extra":
                return frozenset({self.target.partition("-")[0]})
            case "pages":
                return frozenset({"deferred"})
            case "queue":
                return frozenset({"claims"})
        return frozenset(ROLES)

    def __str__(self) -> str:
        when, how_long = f"{self.at:7.1f} s", f"{self.seconds:5.1f} s"
        return f"{self.number:4} {when}  {self.kind:16} {self.target:12} {how_long} {self.amount:g}"


@dataclass(frozen=True)
class Plan:
    """What a schedule is made for.

    Attributes:
        seconds: how long faults may begin.
        every: seconds from one fault to the next, on average.
        session: the session timeout, in seconds.
        nodes: of the broker.
        redis: what state is on, one of `tests.faults.services.REDIS`.
        apart: seconds around `lose_redis` and `lose_shard` in which nothing else is broken. Lost state is rebuilt once
            nothing can be in flight (`GROUNDWIRE_REBUILD_WAIT`); where that is set shorter than what can be, runs keep
            other faults away from it.
        only: kinds that are wanted; none: all.
    """

    seconds: float
    every: float
    session: float
    nodes: int = 1
    redis: str = "one"
    apart: float = 0.0
    only: Collection[str] = ()


def schedule(seed: int, plan: Plan) -> list[Fault]:
    rng = random.Random(f"nemesis {seed}")
    kinds = {
        name: kind
        for name, kind in KINDS.items()
        if kind.needs <= plan.nodes
        and (not kind.on or plan.redis in kind.on)
        and (not plan.only or name in plan.only)
    }
    faults: list[Fault] = []
    busy: dict[str, float] = {}
    at = 0.0
    while True:
        at += plan.every * rng.uniform(0.3, 1.7)
        if at >= plan.seconds:
            return faults
        (name,) = rng.choices(list(kinds), [kind.weight for kind in kinds.values()])
        kind = kinds[name]
        fault = Fault(
            len(faults) + 1,
            round(at, 1),
            name,
            _target(rng, name, kind, plan),
            round(plan.session * rng.uniform(*kind.seconds), 1),
            _amount(rng, name),
        )
        loses = name in {"lose_redis", "lose_shard"}
        if loses and plan.apart:
            at = max([at, *(end + plan.apart / 2 for end in busy.values())])
            fault = replace(fault, at=round(at, 1))
        if at >= plan.seconds or busy.get(fault.holds, 0.0) > at:
            continue  # what it would break is broken already
        faults.append(fault)
        busy[fault.holds] = at + fault.seconds + 1.0
        if loses:
            at += fault.seconds + plan.apart


def _target(rng: random.Random, name: str, kind: Kind, plan: Plan) -> str:
    if kind.holds == "worker" or name == "outdate_worker":
        return rng.choice(SLOTS)
    if kind.holds == "extra":
        return rng.choice(list(ROLES))
    if kind.holds == "shards":
        return str(rng.randrange(SHARDS))
    return str(rng.randrange(plan.nodes)) if kind.holds == "broker" else name.rpartition("_")[2]


def _amount(rng: random.Random, name: str) -> float:
    what = name.split("_", maxsplit=1)[0]
    if what == "delay":
        return round(rng.uniform(0.02, 0.4), 2)
    if what == "throttle":
        return float(rng.choice((2_000, 10_000, 50_000)))
    if what == "skew":
        return float(rng.choice((-3600, -120, -20, 20, 120, 3600)))
    return 0.0


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
            await self._node(what, fault)
        elif what in {"cut", "close", "freeze", "delay", "throttle"} or (what, whom) == ("hang", "pages"):
            await self._link(what, self._proxy(whom, fault), fault)
        elif whom == "broker":
            await self._node(what, fault)
        elif whom in {"shard", "slots"}:
            await self._shard(what, int(fault.target), fault)
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
        if what == "outdate":
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(crew.freeze(fault.target, fault.seconds))
                tasks.create_task(self._shards().move(fault.number % SHARDS, fault.seconds / 2))
            return
        do = {"kill": crew.kill, "stop": crew.freeze, "remove": crew.remove, "add": crew.add}[what]
        await do(fault.target, fault.seconds)

    def _proxy(self, whom: str, fault: Fault) -> Proxy:
        if whom == "broker":
            return self._services.broker.proxies[int(fault.target)]
        return self._one_redis().proxy if whom == "redis" else self._page_proxy

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

    async def _node(self, what: str, fault: Fault) -> None:
        """Kill, pause or stop a node: a stop is in good order, so that with several nodes its leaders move."""
        nodes, number = self._services.broker.nodes, int(fault.target) + 1
        if what == "pause":
            away, back = nodes.pause_node, nodes.resume_node
        else:
            away, back = partial(nodes.stop_node, hard=what == "kill"), nodes.start_node
        await asyncio.to_thread(away, number)
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            await asyncio.to_thread(back, number)

    async def _redis(self, what: str, fault: Fault) -> None:
        redis = self._one_redis().server
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

    async def _shard(self, what: str, shard: int, fault: Fault) -> None:
        shards = self._shards()
        if what == "move":
            await shards.move(shard, fault.seconds)
        elif what == "pause":
            await shards.pause(shard, fault.seconds)
        else:
            await shards.kill(shard, fault.seconds, keep_data=what != "lose")

    def _one_redis(self) -> OneRedis:
        redis = self._services.redis
        assert isinstance(redis, OneRedis)
        return redis

    def _shards(self) -> Shards:
        redis = self._services.redis
        assert isinstance(redis, LocalCluster)
        return Shards(redis)

    async def _fill(self, fault: Fault) -> None:
        rng = random.Random(fault.number)
        self._reviewers.idle = True
        self._sender.crowd = rng.choice(TENANTS), f"u{rng.randrange(USERS)}"
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            self._sender.crowd = None
            self._reviewers.idle = False

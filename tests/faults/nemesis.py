"""The schedule of faults, which follows from a seed and nothing else, and what causes them."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from redis.crc import REDIS_CLUSTER_HASH_SLOTS

from deploy.embedded.process import ServiceError
from groundwire.messages.topics import partition_of
from groundwire.state.partitions import slots
from tests.faults.clients import ForeignSender
from tests.faults.deployment import ROLES, SESSION, SLOTS, Crew, OneRedis, Pages, Proxy, Services
from tests.faults.load import TENANTS, USERS, Reviewers, Sender
from tests.services.redis_servers import LocalCluster


@dataclass(frozen=True)
class Kind:
    """A kind of fault: what cannot have another at the same time, how often it comes, and its duration.

    `seconds`: shortest and longest, in session timeouts. `needs`: nodes that the broker must have. `on`: what state
    must be on; none: anything.
    """

    holds: str
    weight: int
    seconds: tuple[float, float]
    needs: int = 1
    on: Collection[str] = ()


SHARDS: Final = 3
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
    """One fault, `at` seconds after the run's start.

    `target`: the worker's slot or role, the broker's node, or a shard's number. `amount`: seconds of delay or skew, or
    bytes a second.
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

    def __str__(self) -> str:
        when, how_long = f"{self.at:7.1f} s", f"{self.seconds:5.1f} s"
        return f"{self.number:4} {when}  {self.kind:16} {self.target:12} {how_long} {self.amount:g}"


_EVERY = 4.0  # seconds between faults, on average
_APART = 20.0
"""Seconds around the loss of Redis' data without other faults.

Lost state is rebuilt once nothing can be in flight (`GROUNDWIRE_REBUILD_WAIT`), which runs set shorter than it can be.
"""


def schedule(seed: int, seconds: float, *, nodes: int = 1, redis: str = "one") -> list[Fault]:
    """Return faults that begin within so many seconds, for a broker of so many nodes and servers of state."""
    rng = random.Random(f"nemesis {seed}")
    kinds = {
        name: kind
        for name, kind in KINDS.items()
        if kind.needs <= nodes and (not kind.on or redis in kind.on)
    }
    faults: list[Fault] = []
    busy: dict[str, float] = {}
    at = 0.0
    while True:
        at += _EVERY * rng.uniform(0.3, 1.7)
        if at >= seconds:
            return faults
        (name,) = rng.choices(list(kinds), [kind.weight for kind in kinds.values()])
        kind = kinds[name]
        if kind.holds == "worker" or name == "outdate_worker":
            target = rng.choice(SLOTS)
        elif kind.holds == "extra":
            target = rng.choice(list(ROLES))
        elif kind.holds in {"shards", "broker"}:
            target = str(rng.randrange(SHARDS if kind.holds == "shards" else nodes))
        else:
            target = name.rpartition("_")[2]
        duration = round(SESSION * rng.uniform(*kind.seconds), 1)
        amount = 0.0
        match name.split("_")[0]:
            case "delay":
                amount = round(rng.uniform(0.02, 0.4), 2)
            case "throttle":
                amount = float(rng.choice((2_000, 10_000, 50_000)))
            case "skew":
                amount = float(rng.choice((-3600, -120, -20, 20, 120, 3600)))
        loses = name in {"lose_redis", "lose_shard"}
        if loses:
            at = max([at, *(end + _APART / 2 for end in busy.values())])
        fault = Fault(len(faults) + 1, round(at, 1), name, target, duration, amount)
        if at >= seconds or busy.get(fault.holds, 0.0) > at:
            continue  # what it would break is broken already
        faults.append(fault)
        busy[fault.holds] = at + fault.seconds + 1.0
        if loses:
            at += fault.seconds + _APART


def _insist(start: Callable[[], None]) -> None:
    """Start a server, again where a busy machine let it take too long."""
    for left in reversed(range(5)):
        try:
            start()
        except ServiceError:
            if not left:
                raise
        else:
            return


@dataclass
class Nemesis:
    """Causes the faults of a schedule; `struck`: counts by kind, `failed`: what it could not cause, and why."""

    services: Services
    crew: Crew
    sender: Sender | ForeignSender
    reviewers: Reviewers
    pages: Pages
    page_proxy: Proxy
    struck: Counter[str] = field(default_factory=Counter)
    failed: list[str] = field(default_factory=list)
    _held: defaultdict[str, asyncio.Lock] = field(default_factory=lambda: defaultdict(asyncio.Lock))

    async def run(self, faults: Sequence[Fault]) -> None:
        begun = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for fault in faults:
                await asyncio.sleep(max(0.0, begun + fault.at - time.monotonic()))
                tasks.create_task(self._strike(fault))

    async def _strike(self, fault: Fault) -> None:
        async with self._held[fault.holds]:  # on a busy machine a node comes back later than was planned
            try:
                await self._do(fault)
            except Exception as error:  # noqa: BLE001 - one that fails is reported, and the others go on
                self.failed.append(f"{fault.number} {fault.kind}: {type(error).__name__}: {error}"[:500])
            else:
                self.struck[fault.kind] += 1

    async def _do(self, fault: Fault) -> None:
        what, _, whom = fault.kind.partition("_")
        crew, slot, seconds = self.crew, fault.target, fault.seconds
        match what, whom:
            case "skew", _:
                await crew.skew(slot, seconds, fault.amount)
            case "add", _:
                await crew.add(slot, seconds)
            case "kill" | "remove", "worker":
                await crew.replace(slot, seconds, hard=what == "kill")
            case "stop" | "outdate", "worker":
                stop, go_on = (partial(crew.signal, slot, one) for one in (signal.SIGSTOP, signal.SIGCONT))
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(_for(seconds, stop, go_on))
                    if what == "outdate":
                        tasks.create_task(self._shard("move", fault.number % SHARDS, seconds / 2))
            case _, "shard" | "slots":
                await self._shard(what, int(fault.target), seconds)
            case "cut", _:
                await asyncio.to_thread(self._proxy(whom, fault).cut)
            case (("close" | "freeze" | "delay" | "throttle" | "hang"), _):
                disturbance = {
                    "close": {"closed": True},
                    "delay": {"delay": fault.amount},
                    "throttle": {"rate": int(fault.amount)},
                }.get(what, {"frozen": True})
                proxy = self._proxy(whom, fault)
                await _for(seconds, partial(proxy.set, **disturbance), proxy.set)
            case _, "broker" | "leaders":
                # a stop is in good order, so that with several nodes the leaders move
                nodes, number = self.services.broker.nodes, int(fault.target) + 1
                away, back = partial(nodes.stop_node, hard=what == "kill"), nodes.start_node
                if what == "pause":
                    away, back = nodes.pause_node, nodes.resume_node
                await _for(seconds, partial(away, number), partial(back, number))
            case "break", "pages":
                self.pages.broken = True
                try:
                    await asyncio.sleep(seconds)
                finally:
                    self.pages.broken = False
            case _, "queue":
                rng = random.Random(fault.number)
                self.sender.crowd = rng.choice(TENANTS), f"u{rng.randrange(USERS)}"
                self.reviewers.idle = True
                try:
                    await asyncio.sleep(seconds)
                finally:
                    self.sender.crowd, self.reviewers.idle = None, False
            case _, "redis":
                redis = self._one_redis().server
                away, back = redis.kill, partial(_insist, partial(redis.start, keep_data=what != "lose"))
                if what == "pause":
                    away, back = redis.pause, redis.resume
                await _for(seconds, away, back)

    def _proxy(self, whom: str, fault: Fault) -> Proxy:
        if whom == "broker":
            return self.services.broker.proxies[int(fault.target)]
        return self._one_redis().proxy if whom == "redis" else self.page_proxy

    async def _shard(self, what: str, shard: int, seconds: float) -> None:
        """Break a cluster's shard: whoever has the slot in the middle of that share, which is never moved."""
        cluster = self.services.redis
        assert isinstance(cluster, LocalCluster)

        def middle(shard: int) -> int:
            return round((shard + 0.5) * REDIS_CLUSTER_HASH_SLOTS / SHARDS)

        node = await asyncio.to_thread(cluster.primary_of, middle(shard))
        if what == "pause":
            await _for(seconds, node.pause, node.resume)
            await asyncio.to_thread(cluster.wait_until, cluster.is_whole)
        elif what == "move":  # its slots of the load to the next shard; each is half moved for a while
            target = await asyncio.to_thread(cluster.primary_of, middle((shard + 1) % SHARDS))
            people = [(tenant, user) for tenant in TENANTS for user in ("", *(f"u{n}" for n in range(USERS)))]
            count = self.crew.partitions
            of_load = sorted({slots(count)[partition_of(*one, count)] for one in people})
            moved = [slot for slot in of_load if await asyncio.to_thread(cluster.primary_of, slot) is node]
            half_moved = partial(time.sleep, seconds / max(len(moved), 1))
            for slot in moved:
                await asyncio.to_thread(cluster.move, slot, node, target, pause=half_moved)
        else:

            def kill() -> None:
                node.kill()
                if cluster.replicas:
                    cluster.wait_until(lambda: cluster.primary_of(middle(shard)) is not node)

            await _for(seconds, kill, partial(cluster.restart, node, keep_data=what != "lose"))

    def _one_redis(self) -> OneRedis:
        redis = self.services.redis
        assert isinstance(redis, OneRedis)
        return redis


async def _for(seconds: float, begin: Callable[[], object], end: Callable[[], object]) -> None:
    try:
        await asyncio.to_thread(begin)
        await asyncio.sleep(seconds)
    finally:
        await asyncio.to_thread(end)

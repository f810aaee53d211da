"""Work for each claim by how many workers and Redis shards share it.

On few cores more processes make nothing quicker, so work is counted and not timed: what a claim takes of all workers
and of all shards, and how many calls, bytes and records go over the network for it. Where these stay the same, twice as
many processes on twice as many cores decide twice as much. Every turn decides the same claims on as many partitions.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from statistics import median
from typing import Final

from redis import Redis

from bench.claims import claims
from bench.measure import MICROSECONDS, Figure, Options, Part, Target
from bench.processes import DECISIONS, declare, environment, fill, processor_seconds, running, watching
from bench.services import open_broker, open_redis
from groundwire.messages.topics import TopicName
from tests.services.redis_servers import LocalCluster

_WORKERS: Final = (1, 2, 4, 8)
_SHARDS: Final = (3, 6)
_PARTITIONS: Final = 24
_SETTINGS: Final = {"GROUNDWIRE_PARTITIONS": str(_PARTITIONS), "GROUNDWIRE_DEDUP_METHOD": "partition"}
_USERS: Final = 5_000
_CONSTANT: Final = 1.25
"""How much more a claim may take with most processes than with fewest, for work to be called constant."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a claim took, all processes of a kind together.

    Attributes:
        worker: microseconds of a processor.
        server: the same of Redis.
        calls: scripts that Redis ran.
        sent: bytes between workers and Redis, both ways.
        published: records on output topics.
    """

    worker: float
    server: float
    calls: float
    sent: float
    published: float


UNITS: Final = {
    "worker": ("processor time of workers a claim", "µs"),
    "server": ("processor time of Redis a claim", "µs"),
    "calls": ("script calls of Redis a claim", "calls"),
    "sent": ("bytes between workers and Redis a claim", "bytes"),
    "published": ("records published a claim", "records"),
}


async def run(options: Options) -> AsyncIterator[Figure]:
    numbers, number = count(1), options.of(48_000, 96_000)
    with ExitStack() as stack:
        broker = stack.enter_context(open_broker(options.broker))
        servers = {1: [stack.enter_context(open_redis(options.redis))]}
        urls = {1: servers[1][0].url}
        for shards in _SHARDS:
            cluster = stack.enter_context(LocalCluster(shards, kind=type(servers[1][0])))
            servers[shards], urls[shards] = list(cluster.primaries), cluster.url

        async def work(workers: int, shards: int) -> Work:
            given = environment(broker.bootstrap, urls[shards], f"scale{next(numbers)}.", _SETTINGS)
            return await _work(given, [server.url for server in servers[shards]], workers, number)

        by_workers: dict[int, list[Work]] = {workers: [] for workers in _WORKERS}
        by_shards: dict[int, list[Work]] = {shards: [] for shards in _SHARDS}
        for _ in range(options.rounds):
            for workers, works in by_workers.items():
                works.append(await work(workers, 1))
            for shards, works in by_shards.items():
                works.append(await work(1, shards))
    named = {f"{workers} workers" if workers > 1 else "1 worker": it for workers, it in by_workers.items()}
    clusters = {f"a cluster of {shards}": works for shards, works in by_shards.items()}
    for figure in (*_figures(named), *_figures({"one Redis": by_workers[1], **clusters})):
        yield figure


async def _work(given: Mapping[str, str], shards: Sequence[str], workers: int, number: int) -> Work:
    """Decide claims, and return what each took once all workers were at it."""
    prefix = given["GROUNDWIRE_TOPIC_PREFIX"]
    await declare(given, [])
    await fill(given["GROUNDWIRE_BROKERS"], f"{prefix}claims", claims(number, users=_USERS))
    published = [prefix + name for name in (*DECISIONS, TopicName.AUDIT)]
    decided = [prefix + name for name in DECISIONS]
    bootstrap = given["GROUNDWIRE_BROKERS"]
    async with (
        watching(bootstrap, decided, _PARTITIONS) as watch,
        watching(bootstrap, published, _PARTITIONS) as outputs,
        running([["agents", "claims"]] * workers, given) as pids,
    ):
        _, first = await watch.reach(number // 10)
        before = processor_seconds(pids), _of_servers(shards), await outputs.count()
        _, last = await watch.reach(number)
        after = processor_seconds(pids), _of_servers(shards), await outputs.count()
    decided_here = last - first
    server, calls, sent = (b - a for a, b in zip(before[1], after[1], strict=True))
    return Work(
        (after[0] - before[0]) * MICROSECONDS / decided_here,
        server * MICROSECONDS / decided_here,
        calls / decided_here,
        sent / decided_here,
        (after[2] - before[2]) / decided_here,
    )


def _of_servers(shards: Sequence[str]) -> tuple[float, float, float]:
    """Return seconds of processor time, script calls, and bytes both ways, of all shards so far."""
    with ExitStack() as stack:
        clients = [stack.enter_context(Redis.from_url(url)) for url in shards]
        cpu = [client.info("cpu") for client in clients]
        stats = [client.info("stats") for client in clients]
        scripts = [client.info("commandstats").get("cmdstat_evalsha", {}) for client in clients]
    return (
        sum(one["used_cpu_sys"] + one["used_cpu_user"] for one in cpu),
        sum(one.get("calls", 0) for one in scripts),
        sum(one["total_net_input_bytes"] + one["total_net_output_bytes"] for one in stats),
    )


def _figures(found: Mapping[str, Sequence[Work]]) -> Iterator[Figure]:
    for name, (title, unit) in UNITS.items():
        values = {who: [getattr(one, name) for one in works] for who, works in found.items()}
        for who, each in values.items():
            yield Figure(f"{title}, {who}", unit, each, (), None, f"scale.{name}.{who.replace(' ', '')}")
        *_, most = values
        fewest = next(iter(values))
        grown = median(values[most]) / median(values[fewest])
        yield Figure(f"{title}: {most} to {fewest}", "times", [grown], (), Target("<=", _CONSTANT))


PART = Part("scale", "work for each claim, by how many workers and shards share it", run, "broker, Redis")

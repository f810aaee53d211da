"""From produce to decision, alone and at half of what a worker can; from a worker's start to its first decision.

The time of a decision is when a consumer has it in hand; that of a claim is its record's timestamp, in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from bench.claims import claims
from bench.measure import Figure, Options, Part, Target
from bench.processes import DECISIONS, declare, environment, fill, processor_seconds, running, watching
from bench.services import open_broker, open_redis
from groundwire.messages.base import parse_time

_WARM = 1_000
_TICK = 0.01
_LONE_RATE = 10.0
_LONE_P50, _LONE_P99 = 2.9, 8
"""Milliseconds: a third of what a lone claim took when that was first measured, and for one claim in a hundred."""
_SEEDS = {"full": 7, "lone": 8, "half": 9}
"""Each its own texts: those of an earlier one would be decided as duplicates of it, which is another path."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """What one worker showed.

    Attributes:
        lone: milliseconds from produce to decision, of claims that came while nothing else was under way.
        half: the same at half load.
        rate: claims a second of that half: of what this worker reached with a backlog.
        busy: processor time of the worker at half load, as a share of the time.
        starved: share of the time that its event loop could have run and had no processor (Linux; 0 elsewhere).
    """

    lone: Sequence[float]
    half: Sequence[float]
    rate: float
    busy: float
    starved: float


async def run(options: Options) -> AsyncIterator[Figure]:
    """Start a worker so many times; find its rate; then measure single claims, and half of that rate."""
    with open_broker(options.broker) as broker, open_redis(options.redis) as server:
        starts = [
            await _start(broker.bootstrap, server.url, f"start{turn}.") for turn in range(options.rounds)
        ]
        waited, busy = zip(*starts, strict=True)
        yield Figure("from start to first decision", "s", waited, (), Target("<=", 3), "latency.start")
        yield Figure("of that, processor time of the worker", "s", busy)
        few, lone = options.of(4_000, 20_000), options.of(50, 200)
        turns = [
            await _turn(broker.bootstrap, server.url, f"half{turn}.", few, lone)
            for turn in range(options.rounds)
        ]
    for percent, most in ((50, _LONE_P50), (99, _LONE_P99)):
        name = f"produce to decision of a claim that comes alone, p{percent}"
        yield Figure(name, "ms", [_cut(t.lone, percent) for t in turns], (), Target("<=", most))
    yield Figure("half load", "claims/s", [t.rate for t in turns])
    yield Figure("processor time of the worker at half load", "%", [100 * t.busy for t in turns])
    yield Figure("time at half load that it waited for a processor", "%", [100 * t.starved for t in turns])
    p50, p99 = ([_cut(t.half, percent) for t in turns] for percent in (50, 99))
    yield Figure("produce to decision at half load, p50", "ms", p50, (), None, "latency.p50")
    yield Figure("produce to decision at half load, p99", "ms", p99, (), Target("<=", 50), "latency.p99")


def _cut(taken: Sequence[float], percent: int) -> float:
    return quantiles(taken, n=100, method="inclusive")[percent - 1]


async def _start(bootstrap: str, redis_url: str, prefix: str) -> tuple[float, float]:
    """Return seconds from a process's start until its first decision stands on a topic, and those of its processor."""
    given = environment(bootstrap, redis_url, prefix, {})
    await declare(given, [])
    await fill(bootstrap, f"{prefix}claims", claims(100))
    async with watching(bootstrap, [prefix + name for name in DECISIONS]) as watch:
        began = time.perf_counter()
        async with running([["agents", "claims"]], given) as pids:
            ended, _ = await watch.reach(1, every=_TICK)
            return ended - began, processor_seconds(pids)


async def _turn(bootstrap: str, redis_url: str, prefix: str, number: int, lone: int) -> _Turn:
    """Give a worker a backlog, single claims, and half of what it did of the backlog, one after the other."""
    given = environment(bootstrap, redis_url, prefix, {})
    await declare(given, [])
    topic, topics = f"{prefix}claims", [prefix + name for name in DECISIONS]
    await fill(bootstrap, topic, claims(number, name="full", seed=_SEEDS["full"]))
    async with running([["agents", "claims"]], given) as pids:
        async with watching(bootstrap, topics) as watch:
            rate = (await watch.speed(number, pids)).rate / 2
        async with AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap) as consumer:
            await consumer.getmany(timeout_ms=500)
            await consumer.seek_to_end()
            alone = await _taken(bootstrap, topic, consumer, "lone", lone, _LONE_RATE)
            count = max(2 * _WARM, min(number, int(rate * 10)))
            began, used, starved = time.perf_counter(), processor_seconds(pids), _starved_seconds(pids)
            half = await _taken(bootstrap, topic, consumer, "half", count, rate)
            took = time.perf_counter() - began
            busy = (processor_seconds(pids) - used) / took
            return _Turn(alone, half[_WARM:], rate, busy, (_starved_seconds(pids) - starved) / took)


def _starved_seconds(pids: Sequence[int]) -> float:
    """Return how long the main threads of processes have waited for a processor so far (Linux; 0 elsewhere)."""
    try:
        return sum(int(Path(f"/proc/{pid}/schedstat").read_text("ascii").split()[1]) for pid in pids) / 1e9
    except OSError:
        return 0.0


async def _taken(
    bootstrap: str, topic: str, consumer: AIOKafkaConsumer, name: str, count: int, rate: float
) -> list[float]:
    """Send claims at a rate, and return how long each took, in milliseconds."""
    records = list(claims(count, name=name, seed=_SEEDS[name]))
    sending = asyncio.create_task(_send(bootstrap, topic, records, rate))
    taken = await _listen(consumer, count)
    await sending
    return taken


async def _send(bootstrap: str, topic: str, records: Iterable[tuple[bytes, bytes]], rate: float) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        began = time.perf_counter()
        for number, (key, value) in enumerate(records):
            ahead = number / rate - (time.perf_counter() - began)
            if ahead > 0:
                await asyncio.sleep(ahead)
            await producer.send(topic, key=key, value=value)


async def _listen(consumer: AIOKafkaConsumer, count: int) -> list[float]:
    """Return how long each of so many decisions took, in milliseconds, in the order of their claims."""
    came: list[tuple[float, bytes]] = []
    async with asyncio.timeout(300):
        while len(came) < count:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                now = time.time() * 1000
                came += [(now, record.value or b"") for record in records]
    found = []
    for now, value in came:
        decision = json.loads(value)
        sent = parse_time(decision["origin"]["timestamp"]).timestamp() * 1000
        found.append((sent, now - sent))
    return [taken for _, taken in sorted(found)]


PART = Part(
    "latency",
    "from produce to decision, alone and at half load; start to first decision",
    run,
    "broker, Redis",
)

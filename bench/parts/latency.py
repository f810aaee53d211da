"""From produce to decision at half of what a worker can, and from a worker's start to its first decision.

The time of a decision is when a consumer has it in hand; that of a claim is its record's timestamp, in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from statistics import quantiles

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from bench.claims import claims
from bench.measure import Figure, Options, Part, Target
from bench.processes import DECISIONS, declare, environment, fill, processor_seconds, running, watching
from bench.services import open_broker, open_redis
from groundwire.messages.base import parse_time

_WARM = 1_000
_TICK = 0.01


async def run(options: Options) -> AsyncIterator[Figure]:
    """Start a worker so many times; find its rate; then send at half of it and listen."""
    with open_broker(options.broker) as broker, open_redis(options.redis) as server:
        starts = [
            await _start(broker.bootstrap, server.url, f"start{turn}.") for turn in range(options.rounds)
        ]
        waited, busy = zip(*starts, strict=True)
        yield Figure("from start to first decision", "s", waited, (), Target("<=", 3), "latency.start")
        yield Figure("of that, processor time of the worker", "s", busy)
        few = options.of(4_000, 20_000)
        p50, p99, rates = [], [], []
        for turn in range(options.rounds):
            taken, rate = await _at_half(broker.bootstrap, server.url, f"half{turn}.", few)
            cuts = quantiles(taken, n=100)
            p50.append(cuts[49])
            p99.append(cuts[98])
            rates.append(rate)
        yield Figure("half load", "claims/s", rates)
        yield Figure("produce to decision at half load, p50", "ms", p50, (), None, "latency.p50")
        yield Figure("produce to decision at half load, p99", "ms", p99, (), Target("<=", 50), "latency.p99")


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


async def _at_half(bootstrap: str, redis_url: str, prefix: str, number: int) -> tuple[list[float], float]:
    """Return milliseconds from produce to decision of so many claims, and how many were sent a second."""
    given = environment(bootstrap, redis_url, prefix, {})
    await declare(given, [])
    topics = [prefix + name for name in DECISIONS]
    await fill(bootstrap, f"{prefix}claims", claims(number, name="full"))
    async with running([["agents", "claims"]], given) as pids:
        async with watching(bootstrap, topics) as watch:
            rate = (await watch.speed(number, pids)).rate / 2
        async with AIOKafkaConsumer(*topics, bootstrap_servers=bootstrap) as consumer:
            await consumer.getmany(timeout_ms=500)
            await consumer.seek_to_end()
            count = max(2 * _WARM, min(number, int(rate * 10)))
            sending = asyncio.create_task(_send(bootstrap, f"{prefix}claims", count, rate))
            taken = await _listen(consumer, count)
            await sending
    return taken[_WARM:], rate


async def _send(bootstrap: str, topic: str, count: int, rate: float) -> None:
    """Send claims evenly."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        began = time.perf_counter()
        for number, (key, value) in enumerate(claims(count, name="half")):
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


PART = Part("latency", "from produce to decision at half load; start to first decision", run, "broker, Redis")

"""How long a fault silences the gate, and how many log lines its workers write meanwhile.

    python -m tests.faults.silence            # on the embedded broker
    GROUNDWIRE_TEST_BROKER=kafka python -m tests.faults.silence

prints a table after some two minutes. Claims come at 60 a second all the time; the clock
of a fault begins when it does.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import count, pairwise
from pathlib import Path

from redis.asyncio import Redis

from tests.services.brokers import start_broker
from tests.services.redis_servers import start_redis
from tests.stream.harness import Deployment, Worker, good, until

RATE, AWAY, WATCHED = 60, 10.0, 30.0

Fault = Callable[[Deployment, list[Worker]], Awaitable[None]]


async def broker_away(deployment: Deployment, _workers: list[Worker]) -> None:
    await asyncio.to_thread(deployment.broker.stop)
    await asyncio.sleep(AWAY)
    await asyncio.to_thread(deployment.broker.start)


async def redis_away(deployment: Deployment, _workers: list[Worker]) -> None:
    deployment.redis.kill()
    await asyncio.sleep(AWAY)
    deployment.redis.start()


async def state_lost(deployment: Deployment, _workers: list[Worker]) -> None:
    async with Redis.from_url(deployment.redis.url) as redis:
        await redis.delete(*[key async for key in redis.scan_iter(f"{deployment.prefix}*")])


async def worker_restarted(deployment: Deployment, workers: list[Worker], *, hard: bool) -> None:
    await (workers[0].kill() if hard else workers[0].stop())
    await asyncio.sleep(1 if hard else 0)
    workers[0] = deployment.start_worker("claims", GROUNDWIRE_INSTANCE_ID="one")


async def garbage(deployment: Deployment, _workers: list[Worker]) -> None:
    await deployment.produce([b"{" for _ in range(150)], key=b"bad")


FAULTS: dict[str, Fault] = {
    "nothing": lambda _deployment, _workers: asyncio.sleep(0),
    f"the broker is away for {AWAY:.0f} s": broker_away,
    f"Redis is away for {AWAY:.0f} s": redis_away,
    "state is lost, and rebuilt": state_lost,
    "the worker is killed, and started again with its `GROUNDWIRE_INSTANCE_ID`": partial(
        worker_restarted, hard=True
    ),
    "the worker gets SIGTERM, and is started again": partial(worker_restarted, hard=False),
    "150 records of one key are no JSON": garbage,
}


async def measure(name: str, fault: Fault, deployment: Deployment, numbers: count[int]) -> None:
    """Let one fault happen while claims come, and print its row."""
    workers = [await deployment.start_worker("claims", GROUNDWIRE_INSTANCE_ID="one").ready()]
    times: list[float] = [time.monotonic()]
    sent: list[asyncio.Future[object]] = []

    async def feed() -> None:
        while True:
            sent.append(await deployment.send(good(next(numbers))))
            await asyncio.sleep(1 / RATE)

    async def watch() -> None:
        seen = len(deployment.decisions)
        while True:
            if len(deployment.decisions) > seen:
                seen, _ = len(deployment.decisions), times.append(time.monotonic())
            await asyncio.sleep(0.02)

    tasks = [asyncio.create_task(feed()), asyncio.create_task(watch())]
    await until(lambda: len(times) > 20, lambda: "decisions come")
    del times[:-1]
    before = sum(worker.text.count("\n") for worker in deployment.workers)
    await asyncio.gather(fault(deployment, workers), asyncio.sleep(WATCHED))
    await until(lambda: time.monotonic() - times[-1] < 1, lambda: f"decisions come again after: {name}")
    written = sum(worker.text.count("\n") for worker in deployment.workers) - before
    silence = max(later - earlier for earlier, later in pairwise(times))
    sys.stdout.write(f"| {name} | {silence:.1f} | {written} |\n")
    sys.stdout.flush()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.gather(*sent)
    await workers[0].stop()


async def main() -> None:
    broker, redis = start_broker(os.environ.get("GROUNDWIRE_TEST_BROKER")), start_redis()
    sys.stdout.write("| fault | seconds without a decision | lines in the log |\n|---|---|---|\n")
    try:
        with tempfile.TemporaryDirectory(prefix="silence-") as folder:
            for name, fault in FAULTS.items():
                async with Deployment(broker, redis, Path(folder)) as deployment:
                    await measure(name, fault, deployment, count())
    finally:
        redis.close()
        broker.close()


if __name__ == "__main__":
    asyncio.run(main())

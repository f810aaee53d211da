"""Print how long one tenant's responses take beside another's flood: `python -m bench.neighbours`.

One worker, one partition. A tenant sends responses evenly: alone, beside a tenant whose large responses never cease,
and alone again. What counts is the ratio of its own times, which tells of the rule and not of the machine; the worker
needs a processor of its own.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from statistics import quantiles
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from bench.processes import DECISIONS, declare, environment, running
from bench.services import open_broker, open_redis
from groundwire.messages.base import parse_time

GOOD: Final = 150
RATE: Final = 10.0
SMALL, LARGE = 1_500, 400_000
"""Characters of an answer, and of what it rests on."""
IN_WORK: Final = 2
"""Large responses that are not decided at any time."""
_DRAINED: Final = 5.0
"""Seconds after which the last large ones are decided."""
_WORDS: Final = [
    f"{part}{end}" for part in ("gate", "cach", "queu", "index", "retri") for end in ("s", "ed", "ing", "er")
]


async def main() -> None:
    """Measure, and exit with 1 where the flood more than doubles the good tenant's 99th percentile."""
    prefix = "neighbours."
    with open_broker("auto") as broker, open_redis("auto") as redis:
        given = environment(broker.bootstrap, redis.url, prefix, {"GROUNDWIRE_PARTITIONS": "1"})
        await declare(given, [])
        topics = [prefix + name for name in DECISIONS]
        async with (
            running([["agents", "responses"]], given),
            AIOKafkaConsumer(
                *topics, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
            ) as consumer,
            AIOKafkaProducer(bootstrap_servers=broker.bootstrap) as producer,
        ):
            bench = _Bench(producer, consumer, prefix + "llm-responses")
            await bench.p99("warm")
            before = await bench.p99("before")
            async with bench.flood():
                beside = await bench.p99("beside")
            after = await bench.p99("after")
    alone = (before + after) / 2
    print(f"alone: p99 {before:.0f} ms before, {after:.0f} ms afterwards")
    print(f"beside {bench.decided} large ones: p99 {beside:.0f} ms, {beside / alone:.2f} times")
    sys.exit(beside > 2 * alone)


class _Bench:
    """Sends responses, and takes the time until their decisions are there."""

    def __init__(self, producer: AIOKafkaProducer, consumer: AIOKafkaConsumer, topic: str) -> None:
        self._producer, self._consumer, self._topic = producer, consumer, topic
        self._rng = random.Random(7)
        self._large = asyncio.Semaphore(IN_WORK)
        self.decided = 0

    async def p99(self, name: str) -> float:
        """Return the 99th percentile of the milliseconds from produce to decision of the good tenant's responses."""
        records = list(_responses(self._rng, "good", name, SMALL, GOOD))
        sending = asyncio.create_task(self._send(records))
        taken: list[float] = []
        async with asyncio.timeout(300):
            while len(taken) < GOOD:
                for found in (await self._consumer.getmany(timeout_ms=20)).values():
                    taken += [
                        took for record in found if (took := self._took(record.value or b"")) is not None
                    ]
        await sending
        return quantiles(taken, n=100, method="inclusive")[98]

    @asynccontextmanager
    async def flood(self) -> AsyncIterator[None]:
        """Keep large responses of another tenant in work."""
        flooding = asyncio.create_task(self._flood())
        try:
            yield
        finally:
            flooding.cancel()
            await asyncio.sleep(_DRAINED)

    async def _flood(self) -> None:
        records = list(_responses(self._rng, "hostile", "large", LARGE, 10))
        for number in range(10_000):
            await self._large.acquire()
            value = records[number % 10].replace(b'"large-', b'"large-%d-' % number, 1)
            await self._producer.send(self._topic, value, key=b"hostile:u")

    async def _send(self, records: list[bytes]) -> None:
        began = time.perf_counter()
        for number, value in enumerate(records):
            await asyncio.sleep(max(0.0, number / RATE - (time.perf_counter() - began)))
            await self._producer.send(self._topic, value, key=b"good:u")

    def _took(self, value: bytes) -> float | None:
        decision = json.loads(value)
        if decision["tenant_id"] == "hostile":
            self.decided += 1
            self._large.release()
            return None
        return time.time() * 1000 - parse_time(decision["origin"]["timestamp"]).timestamp() * 1000


def _responses(rng: random.Random, tenant: str, name: str, size: int, count: int) -> Iterator[bytes]:
    for number in range(count):
        chunk = {"chunk_id": "c", "file": "f", "content": _prose(rng, size), "start_line": 1, "end_line": 1}
        record = {
            "response_id": f"{name}-{number}",
            "tenant_id": tenant,
            "user_id": "u",
            "answer": _prose(rng, size),
            "chunks": [chunk],
        }
        yield json.dumps(record).encode()


def _prose(rng: random.Random, size: int) -> str:
    sentences: list[str] = []
    while size > 0:
        sentences.append(" ".join(rng.choices(_WORDS, k=10)).capitalize() + ".")
        size -= len(sentences[-1]) + 1
    return " ".join(sentences)


if __name__ == "__main__":
    asyncio.run(main())

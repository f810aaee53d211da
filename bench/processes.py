"""Processes that copy or decide, and how fast they do, as the broker sees it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from groundwire.messages.topics import TopicName

ROOT: Final = Path(__file__).resolve().parent.parent
PARTITIONS: Final = 4
DECISIONS: Final = (TopicName.APPROVED, TopicName.REVIEW, TopicName.BLOCKED)
"""Topics that together hold one record for each claim."""

_LOOK = 0.05
_PATIENCE = 300.0
_FROM, _TO = 0.1, 1.0
"""The span of records over which rates are measured: the start of a process is another figure."""


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast records went through.

    Attributes:
        rate: records a second.
        processor: seconds of processor time a record, of all processes together; 0 where the system does not tell.
    """

    rate: float
    processor: float


def environment(bootstrap: str, redis_url: str, prefix: str, more: Mapping[str, str]) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
        "GROUNDWIRE_BROKERS": bootstrap,
        "GROUNDWIRE_REDIS_URL": redis_url,
        "GROUNDWIRE_TOPIC_PREFIX": prefix,
        "GROUNDWIRE_GROUP_PREFIX": prefix,
        "GROUNDWIRE_PARTITIONS": str(PARTITIONS),
        "GROUNDWIRE_LOG_LEVEL": "error",
        "GROUNDWIRE_NO_NETWORK": "1",
        **more,
    }


async def declare(given: Mapping[str, str], more: Iterable[str]) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "topics", "declare"), env=given, cwd=ROOT, stdout=asyncio.subprocess.DEVNULL
    )
    if await process.wait():
        raise SystemExit("the topics could not be declared")
    admin = AIOKafkaAdminClient(bootstrap_servers=given["GROUNDWIRE_BROKERS"])
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in more])
    finally:
        await admin.close()


async def fill(bootstrap: str, topic: str, records: Iterable[tuple[bytes, bytes]]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
        for key, value in records:
            await producer.send(topic, key=key, value=value)
        await producer.flush()


@asynccontextmanager
async def running(commands: Sequence[Sequence[str]], given: Mapping[str, str]) -> AsyncIterator[list[int]]:
    """Run Python programs and give their process ids; they get SIGTERM afterwards, and are waited for."""
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *command), env=given, cwd=ROOT, stdout=asyncio.subprocess.DEVNULL
        )
        for command in commands
    ]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                async with asyncio.timeout(30):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


@asynccontextmanager
async def watching(
    bootstrap: str, topics: Iterable[str], partitions: int = PARTITIONS
) -> AsyncIterator[Watch]:
    async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
        watched = [TopicPartition(name, number) for name in topics for number in range(partitions)]
        consumer.assign(watched)
        yield Watch(consumer, watched)


@dataclass(frozen=True, slots=True)
class Watch:
    """Asks the broker how many records topics hold."""

    consumer: AIOKafkaConsumer
    partitions: Sequence[TopicPartition]

    async def reach(self, count: int, *, every: float = _LOOK) -> tuple[float, int]:
        """Wait for so many records; return when they were seen (seconds, monotonic), and how many there were.

        Raises:
            TimeoutError: they do not come.
        """
        async with asyncio.timeout(_PATIENCE):
            while (found := await self.count()) < count:  # noqa: ASYNC110 - the broker sends no notice
                await asyncio.sleep(every)
        return time.perf_counter(), found

    async def count(self) -> int:
        return sum((await self.consumer.end_offsets(list(self.partitions))).values())

    async def speed(self, records: int, pids: Sequence[int]) -> Speed:
        """Return how fast processes bring `records` onto the topics."""
        began, first = await self.reach(int(records * _FROM))
        before = processor_seconds(pids)
        ended, last = await self.reach(int(records * _TO))
        used = processor_seconds(pids) - before
        return Speed((last - first) / (ended - began), used / (last - first))


def processor_seconds(pids: Sequence[int]) -> float:
    """Return what processes have used of the processor so far (Linux; 0 elsewhere)."""
    ticks = 0
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
        except OSError:
            return 0.0
        ticks += int(fields[11]) + int(fields[12])  # utime and stime
    return ticks / os.sysconf("SC_CLK_TCK")

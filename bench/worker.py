"""A claims worker beside a bare aiokafka consume-and-produce loop, in turn, in the same run.

    .venv/bin/python bench/worker.py --records 20000 --rounds 3 --broker kafka

Both read the same 400-byte claims from the same broker and write one record each with acks=all and an
idempotent producer; the worker also decides. Prints records a second, the ratio round by round, and how many
round trips to Redis a record cost: batches cost them, not records.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from claims import claims
from redis import Redis

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from deploy.embedded import EmbeddedBroker, EmbeddedRedis, RealRedis  # noqa: E402 - needs the path above
from deploy.kafka.cluster import KafkaCluster  # noqa: E402

PARTITIONS = 4
OUTPUTS = ("approved", "review", "blocked", "dead-letter", "deferred")


def main() -> None:
    """Run the rounds and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--broker", choices=["embedded", "kafka"], default="kafka")
    parser.add_argument("--redis", choices=["embedded", "real"], default="embedded")
    options = parser.parse_args()
    broker: Any = KafkaCluster(nodes=1) if options.broker == "kafka" else EmbeddedBroker()
    redis: Any = RealRedis() if options.redis == "real" else EmbeddedRedis()
    broker.start()
    redis.start()
    try:
        asyncio.run(_rounds(broker.bootstrap, redis.url, options.records, options.rounds))
    finally:
        redis.close()
        broker.stop()


async def _rounds(bootstrap: str, redis_url: str, records: int, rounds: int) -> None:
    ratios = []
    for number in range(1, rounds + 1):
        prefix = f"bench{number}."
        environment = {
            **os.environ,
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "GROUNDWIRE_BROKERS": bootstrap,
            "GROUNDWIRE_REDIS_URL": redis_url,
            "GROUNDWIRE_TOPIC_PREFIX": prefix,
            "GROUNDWIRE_GROUP_PREFIX": prefix,
            "GROUNDWIRE_PARTITIONS": str(PARTITIONS),
            "GROUNDWIRE_LOG_LEVEL": "error",
        }
        command = [sys.executable, "-m", "topics", "declare"]
        subprocess.run(command, env=environment, cwd=ROOT, check=True, capture_output=True)  # noqa: ASYNC221, S603
        await _fill(bootstrap, f"{prefix}claims", records)
        bare = await _bare(bootstrap, prefix, records)
        redis = Redis.from_url(redis_url)
        redis.config_resetstat()
        worker = await _worker(bootstrap, prefix, records, environment)
        trips = redis.info("stats")["total_reads_processed"]
        ratios.append(worker / bare)
        print(
            f"round {number}: bare {bare:,.0f}/s, worker {worker:,.0f}/s, ratio {ratios[-1]:.3f},"
            f" Redis round trips a record {trips / records:.3f}",
            flush=True,
        )
    print(f"ratio: median {statistics.median(ratios):.3f}, from {min(ratios):.3f} to {max(ratios):.3f}")


async def _fill(bootstrap: str, topic: str, records: int) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5) as producer:
        for key, value in claims(records):
            await producer.send(topic, key=key, value=value)
        await producer.flush()


async def _bare(bootstrap: str, prefix: str, records: int) -> float:
    """Copy the claims to a topic of their own as fast as aiokafka does; return records a second."""
    consumer = AIOKafkaConsumer(
        f"{prefix}claims",
        bootstrap_servers=bootstrap,
        group_id=f"{prefix}bare",
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=500,
    )
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, acks="all")
    async with consumer, producer:
        done, began = 0, 0.0
        while done < records:
            futures = []
            for batch in (await consumer.getmany(timeout_ms=1000)).values():
                began = began or time.perf_counter()
                for record in batch:
                    sent = await producer.send(f"{prefix}regenerate", key=record.key, value=record.value)
                    futures.append(sent)
            await asyncio.gather(*futures)
            await consumer.commit()
            done += len(futures)
        return records / (time.perf_counter() - began)


async def _worker(bootstrap: str, prefix: str, records: int, environment: dict[str, str]) -> float:
    """Let a worker decide the claims; return records a second, from the first tenth to the last record."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agents", "claims", env=environment, cwd=ROOT
    )
    try:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            partitions = [TopicPartition(prefix + name, n) for name in OUTPUTS for n in range(PARTITIONS)]
            consumer.assign(partitions)

            async def reach(count: int) -> tuple[float, int]:
                while (found := sum((await consumer.end_offsets(partitions)).values())) < count:  # noqa: ASYNC110 - the broker sends no event
                    await asyncio.sleep(0.05)
                return time.perf_counter(), found

            began, first = await reach(records // 10)
            ended, last = await reach(records)
        return (last - first) / (ended - began)
    finally:
        process.send_signal(signal.SIGTERM)
        await process.wait()


if __name__ == "__main__":
    main()

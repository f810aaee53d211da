"""What a team would have without a gate, each in a process of its own: `python -m bench.loops bare|faust`.

`bare` is aiokafka on uvloop: fetch, send everything, wait for all acknowledgements, commit once a second, as a worker
does. `faust` is an agent as Faust's own documentation writes it, with the same library that workers use. Both send for
each record as many bytes as the gate publishes for it, and neither looks at what it reads.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import dataclass
from typing import Any

import faust
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

_COMMIT = 1.0
_FETCH = 500
_BATCH_BYTES = 131_072  # as workers have it


@dataclass(frozen=True, slots=True)
class Order:
    """What to copy.

    Attributes:
        bootstrap: of the broker.
        source: topic to read.
        target: topic to write.
        size: bytes of each record written.
    """

    bootstrap: str
    source: str
    target: str
    size: int

    @classmethod
    def from_environment(cls) -> Order:
        """Read what `as_environment` wrote."""
        found = os.environ
        return cls(
            found["BENCH_BOOTSTRAP"], found["BENCH_SOURCE"], found["BENCH_TARGET"], int(found["BENCH_SIZE"])
        )

    def as_environment(self) -> dict[str, str]:
        """Write it for a process of its own."""
        return {
            "BENCH_BOOTSTRAP": self.bootstrap,
            "BENCH_SOURCE": self.source,
            "BENCH_TARGET": self.target,
            "BENCH_SIZE": str(self.size),
        }


async def bare(order: Order) -> None:
    """Copy until the process is ended."""
    consumer = AIOKafkaConsumer(
        order.source,
        bootstrap_servers=order.bootstrap,
        group_id=order.target,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=_FETCH,
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=order.bootstrap,
        enable_idempotence=True,
        acks="all",
        max_batch_size=_BATCH_BYTES,
    )
    value, committed = bytes(order.size), time.monotonic()
    async with consumer, producer:
        while True:
            futures: list[Any] = []
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    futures.append(await producer.send(order.target, key=record.key, value=value))  # noqa: PERF401 - in order
            await asyncio.gather(*futures)
            if time.monotonic() - committed > _COMMIT:
                await consumer.commit()
                committed = time.monotonic()


def stock_faust(order: Order) -> None:
    """Copy with a plain agent until the process is ended."""
    app = faust.App(
        order.target,
        broker=f"kafka://{order.bootstrap}",
        store="memory://",
        web_enabled=False,
        topic_disable_leader=True,
    )
    source = app.topic(order.source, value_serializer="raw", key_serializer="raw")
    target = app.topic(order.target, value_serializer="raw", key_serializer="raw")
    value = bytes(order.size)

    @app.agent(source)
    async def copy(stream: Any) -> None:  # noqa: ANN401 - a Faust stream
        async for event in stream.events():
            await target.send(key=event.key, value=value)

    faust.Worker(app, loglevel="error").execute_from_commandline()


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        uvloop.run(bare(Order.from_environment()))
    else:
        uvloop.install()
        stock_faust(Order.from_environment())

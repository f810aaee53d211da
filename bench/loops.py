"""What a team would have without a gate, each in a process of its own.

    python -m bench.loops bare|faust BOOTSTRAP SOURCE TARGET SIZE

`bare` is aiokafka on uvloop: fetch, send everything, wait for all acknowledgements, commit once a second, as a worker
does. `faust` is an agent as Faust's own documentation writes it, with the same library that workers use. Both send for
each record as many bytes as the gate publishes for it, and neither looks at what it reads.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import faust
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

_COMMIT = 1.0
_FETCH = 500
_BATCH_BYTES = 131_072  # as workers have it


async def bare(bootstrap: str, source: str, target: str, size: int) -> None:
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=target,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_poll_records=_FETCH,
    )
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap, enable_idempotence=True, acks="all", max_batch_size=_BATCH_BYTES
    )
    value, committed = bytes(size), time.monotonic()
    async with consumer, producer:
        while True:
            futures: list[Any] = []
            for records in (await consumer.getmany(timeout_ms=200)).values():
                for record in records:
                    futures.append(await producer.send(target, key=record.key, value=value))  # noqa: PERF401 - in order
            await asyncio.gather(*futures)
            if time.monotonic() - committed > _COMMIT:
                await consumer.commit()
                committed = time.monotonic()


def stock_faust(bootstrap: str, source_name: str, target_name: str, size: int) -> None:
    app = faust.App(
        target_name,
        broker=f"kafka://{bootstrap}",
        store="memory://",
        web_enabled=False,
        topic_disable_leader=True,
    )
    source = app.topic(source_name, value_serializer="raw", key_serializer="raw")
    target = app.topic(target_name, value_serializer="raw", key_serializer="raw")
    value = bytes(size)

    @app.agent(source)
    async def copy(stream: Any) -> None:  # noqa: ANN401 - a Faust stream
        async for event in stream.events():
            await target.send(key=event.key, value=value)

    faust.Worker(app, loglevel="error").execute_from_commandline()


if __name__ == "__main__":
    kind, *names, size = sys.argv[1:]
    if kind == "bare":
        uvloop.run(bare(*names, int(size)))
    else:
        uvloop.install()
        sys.argv[1:] = []  # Faust reads them
        stock_faust(*names, int(size))

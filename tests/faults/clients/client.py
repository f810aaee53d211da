"""librdkafka by its Python client, or aiokafka; see clients/__init__.py for the lines."""

from __future__ import annotations

import asyncio
import base64
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer


def tell(number: str, *answer: object) -> None:
    sys.stdout.write("\t".join([number, *map(str, answer)]).replace("\n", " ") + "\n")
    sys.stdout.flush()


def read(line: str) -> tuple[list[str], dict[str, Any]]:
    said = line.rstrip("\n").split("\t")
    record: dict[str, Any] = {
        "value": None if said[5] == "-" else base64.b64decode(said[5]),
        "key": said[4].encode(),
        "headers": [("traceparent", said[6].encode())],
    }
    return said, record


def librdkafka(brokers: str, identity: str) -> None:
    @functools.cache
    def producer(codec: str, *, transaction: bool) -> Producer:
        settings: dict[str, Any] = {
            "bootstrap.servers": brokers,
            "compression.type": codec,
            "partitioner": "murmur2_random",
            "message.max.bytes": 2_000_000,
            "linger.ms": 20,
        }
        if transaction:
            settings["transactional.id"] = f"{identity}-{codec}"
        made = Producer(settings)
        if transaction:
            made.init_transactions()
        else:
            threading.Thread(target=poll, args=(made,), daemon=True).start()
        plain.extend([] if transaction else [made])
        return made

    def poll(made: Producer) -> None:
        while True:
            made.poll(0.1)

    def ended(number: str) -> Callable[[Any, Any], None]:
        return lambda error, at: tell(number, *(("-", error) if error else (at.partition(), at.offset())))

    plain: list[Producer] = []
    for line in sys.stdin:
        said, record = read(line)
        made = producer(said[1], transaction=bool(said[2]))
        if not said[2]:
            made.produce(said[3], on_delivery=ended(said[0]), **record)
            continue
        made.begin_transaction()
        made.produce(said[3], on_delivery=ended(said[0]), **record)
        made.flush()
        (made.commit_transaction if said[2] == "commit" else made.abort_transaction)()
    for made in plain:
        made.flush()


async def aiokafka(brokers: str, identity: str) -> None:
    producers: dict[tuple[str, bool], AIOKafkaProducer] = {}
    pending: set[asyncio.Task[None]] = set()

    async def producer(codec: str, *, transaction: bool) -> AIOKafkaProducer:
        if (codec, transaction) not in producers:
            made = AIOKafkaProducer(
                bootstrap_servers=brokers,
                compression_type=None if codec == "none" else codec,
                transactional_id=f"{identity}-{codec}" if transaction else None,
                max_request_size=2_000_000,
                linger_ms=20,
            )
            await made.start()
            producers[codec, transaction] = made
        return producers[codec, transaction]

    async def ended(number: str, sent: asyncio.Future[Any]) -> None:
        try:
            at = await sent
        except Exception as error:  # noqa: BLE001 - the sender is told
            tell(number, "-", repr(error))
        else:
            tell(number, at.partition, at.offset)

    while line := await asyncio.to_thread(sys.stdin.readline):
        said, record = read(line)
        made = await producer(said[1], transaction=bool(said[2]))
        if said[2]:
            await made.begin_transaction()
        waiting = asyncio.create_task(ended(said[0], await made.send(said[3], **record)))
        pending.add(waiting)
        waiting.add_done_callback(pending.discard)
        if said[2]:
            await waiting
            await (made.commit_transaction if said[2] == "commit" else made.abort_transaction)()
    for made in producers.values():
        await made.stop()
    await asyncio.gather(*pending)


if __name__ == "__main__":
    kind, *arguments = sys.argv[1:]
    if kind == "librdkafka":
        librdkafka(*arguments)
    else:
        asyncio.run(aiokafka(*arguments))

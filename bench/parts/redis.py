"""What a claim costs Redis: round trips of a batch, the server's time, and bytes that stay."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from faust.types import TP
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from agents.hooks import Batch
from agents.loop import PartitionLoop
from agents.wiring import Worker
from bench.claims import claims
from bench.inside import BATCH, batches, decide_all, fresh_state, new_gate
from bench.measure import MICROSECONDS, Figure, Options, Part, Target
from bench.services import open_redis
from groundwire.config import load_settings
from groundwire.messages.headers import InboundRecord
from groundwire.policy import Policy

METHODS: Final = ("minhash", "partition")
_FEW, _MANY = 40, 400
"""Claims of a scope: up to sixty, the keys of `minhash` stand in one string, beyond that in a hash."""
_CITED: Final = " See https://example.com/a and #12."


async def run(options: Options) -> AsyncIterator[Figure]:
    number = options.of(5_000, 30_000)
    with open_redis(options.redis) as server, Redis.from_url(server.url) as client:
        for cited, most in (("", 2), (_CITED, 3)):
            trips, sent = await _trips(server.url, f"trips{len(cited)}.", cited)
            name = f"awaited round trips of a batch ({', '.join(sorted(sent))})"
            name += ", claims that cite URLs and issues" if cited else ""
            yield Figure(name, "round trips", [trips], (), Target("<=", most), f"redis.trips{most - 1}")
        for method in METHODS:
            times, busy, sizes = [], [], []
            for turn in range(options.rounds):
                client.flushall()
                before = _used(client)
                client.config_resetstat()
                used = processor_time(client)
                await _decide(server.url, f"cost{turn}.", number, method)
                times.append(_server_time(client) / number)
                busy.append((processor_time(client) - used) / number)
                sizes.append((_used(client) - before) / number)
            target = Target("<=", 25)
            yield Figure(f"server time a claim, {method}", "µs", times, (), target, f"redis.time.{method}")
            yield Figure(
                f"processor time of the server a claim, {method}", "µs", busy, (), None, f"redis.cpu.{method}"
            )
            yield Figure(
                f"memory a decided claim, {method}", "bytes", sizes, (), None, f"redis.bytes.{method}"
            )
        yield Figure(
            "processor time of the server a claim that comes alone, partition",
            "µs",
            [await _cost_alone(server.url, client, number // 10) for _ in range(options.rounds)],
            (),
            None,
            "redis.cpu.alone",
        )
        for method in METHODS:
            for figure in _kept(method, await _remembered(server.url, client, number, method, _FEW)):
                yield figure
            in_all = (await _remembered(server.url, client, number, method, _MANY))["in all"]
            name = f"memory an approved claim, {method}: in all, in a scope of {_MANY}"
            yield Figure(name, "bytes", [in_all], (), None, f"redis.kept.{method}.many")
        client.flushall()


async def _decide(url: str, prefix: str, number: int, method: str, size: int = BATCH) -> None:
    policy = Policy.model_validate({"dedup_method": method})
    async with fresh_state(url, prefix, policy) as state:
        await decide_all(new_gate(policy, state), batches(claims(number), size))


async def _cost_alone(url: str, client: Redis, number: int) -> float:
    """Return the processor time a claim where each comes in a batch of its own."""
    client.flushall()
    before = processor_time(client)
    await _decide(url, "alone.", number, "partition", 1)
    return (processor_time(client) - before) / number


def _used(client: Redis) -> int:
    return int(client.info("memory")["used_memory"])


def _server_time(client: Redis) -> float:
    """Return the microseconds of all that clients sent; what a script calls is within its own time."""
    found = client.info("commandstats")
    return float(sum(found.get(f"cmdstat_{name}", {}).get("usec", 0) for name in ("evalsha", "eval")))


def processor_time(client: Redis) -> float:
    """Return the microseconds of processor time that the server has used, writing its file and answering included."""
    found = client.info("cpu")
    return float(found["used_cpu_sys"] + found["used_cpu_user"]) * MICROSECONDS


async def _remembered(url: str, client: Redis, number: int, method: str, scope: int) -> dict[str, float]:
    """Return bytes a claim of 20 words of which every one is approved, by what they are for.

    Args:
        url: of the server.
        client: of the same.
        number: of claims.
        method: which keys they get.
        scope: claims of a scope.
    """
    client.flushall()
    before = _used(client)
    policy = Policy.model_validate({"dedup_method": method})
    given = claims(number, words=(20, 20), users=number // scope)
    values = ((key, value.replace(b'"ai_synthesis"', b'"user"')) for key, value in given)
    plain = ((key, value.replace(b" This may take a while.", b"")) for key, value in values)
    async with fresh_state(url, "kept.", policy) as state:
        await decide_all(new_gate(policy, state), batches(plain))
    found = {"in all": (_used(client) - before) / number}
    kinds: Counter[str] = Counter()
    for key in client.scan_iter("kept.*", count=1000):
        kind = key.split(b".", 1)[1].split(b":", 1)[0].decode()
        if kind in {"s", "k", "m"}:
            kinds[kind] += client.memory_usage(key, samples=0) or 0
    return found | {kind: kinds[kind] / number for kind in ("s", "m", "k")}


def _kept(method: str, found: dict[str, float]) -> Iterator[Figure]:
    names = {"s": "its outcome", "m": "what others are compared with", "k": "its keys", "in all": "in all"}
    for kind, name in names.items():
        target = Target("<=", 600) if kind == "in all" else None
        yield Figure(
            f"memory an approved claim, {method}: {name}",
            "bytes",
            [found[kind]],
            (),
            target,
            f"redis.kept.{method}.{kind}",
        )


async def _trips(url: str, prefix: str, cited: str) -> tuple[float, set[str]]:
    """Let a worker's own loop process batches; return how many commands it waits for, a batch, and which."""
    given = [_citing(batch, cited) for batch in batches(claims(6 * BATCH))]
    worker = _worker(url, prefix)
    if await worker.state.open() is None:
        await _first_epoch(worker)
    tp = TP(given[0][0].topic or "", given[0][0].partition)
    # it has no broker here
    services = replace(worker.services, publisher=_Nowhere(), partitions_of=lambda _topic: 0)  # type: ignore[arg-type]
    loop = PartitionLoop(tp, worker.partitions.new_book(), services)

    async def process(batch: Sequence[InboundRecord]) -> None:
        loop.book.add(batch, batch[-1].offset + 1)
        await loop.process(Batch(loop, loop.book.take(large=False), services.decider))

    await process(given[0])  # a first batch asks for more: the server, what was in flight
    with counted() as sent:
        for batch in given[1:]:
            await process(batch)
    await worker.state.close()
    return sum(sent.values()) / len(given[1:]), set(sent)


async def _first_epoch(worker: Worker) -> None:
    async with worker.state.rebuilding() as rebuild:
        if rebuild is not None:
            await rebuild.start_epoch("bench")
    await worker.state.adopt_epoch()


def _citing(batch: Sequence[InboundRecord], cited: str) -> list[InboundRecord]:
    return [
        InboundRecord(
            r.topic,
            r.partition,
            r.offset,
            r.timestamp,
            r.key,
            (r.value or b"").replace(b'."', f'.{cited}"'.encode()),
        )
        for r in batch
    ]


def _worker(url: str, prefix: str) -> Worker:
    os.environ |= {"GROUNDWIRE_REDIS_URL": url, "GROUNDWIRE_TOPIC_PREFIX": prefix}
    return Worker("claims", load_settings())


class _Nowhere:
    async def publish(self, _outputs: Sequence[Any]) -> list[Any]:
        return []


@contextmanager
def counted() -> Iterator[Counter[str]]:
    """Count the commands that any client of this process sends and waits for.

    The mark of what is in flight is not counted: it goes over a `SharedConnection`, and its answer is not waited for.
    """
    sent: Counter[str] = Counter()
    original = AsyncRedis.execute_command

    async def execute(self: AsyncRedis, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - redis-py's own
        sent[str(arguments[0])] += 1
        return await original(self, *arguments, **options)  # type: ignore[no-untyped-call]

    AsyncRedis.execute_command = execute  # type: ignore[method-assign]
    try:
        yield sent
    finally:
        AsyncRedis.execute_command = original  # type: ignore[method-assign]


PART = Part("redis", "round trips, server time and memory of a claim", run, "Redis")

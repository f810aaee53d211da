"""The gate in this process, from bytes to bytes with state in Redis, beside the naive build on the same server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from itertools import count

from redis import Redis

from agents.outputs import Output
from bench.claims import claims
from bench.inside import batches, decide_all, fresh_state, new_gate
from bench.measure import Figure, Options, Part, Race, Target
from bench.naive import NaiveGate
from bench.services import open_redis, redis_kind
from groundwire.policy import Policy

VERDICTS = frozenset({"approved", "review", "blocked"})


async def run(options: Options) -> AsyncIterator[Figure]:
    few, many = options.of(60, 500), options.of(1_000, 10_000)
    rounds = count(1)
    with open_redis(options.redis) as server:

        def naive() -> float:
            rate, _ = _naive(server.url, f"naive{next(rounds)}.", few)
            return rate

        race = Race("claims/s")
        race.add(f"naive build, {redis_kind(server)}", naive, key="naive")
        for method in ("minhash", "partition"):

            async def gate(method: str = method) -> float:
                rate, _ = await _gate(server.url, f"gate{next(rounds)}.", many, method)
                return rate

            race.add(f"gate, {method}", gate, Target(">=", 40, "ratio"), f"process.{method}")
        await insist_on_equal_verdicts(server.url, few)
        for figure in await race.figures(options.rounds):
            yield figure
            with Redis.from_url(server.url) as client:
                client.flushall()


async def insist_on_equal_verdicts(url: str, number: int) -> None:
    """Compare what both decide of the same records.

    Raises:
        SystemExit: they differ, so that their times would compare nothing.
    """
    _, plain = _naive(url, "naive0.", number)
    for method in ("minhash", "partition"):
        _, made = await _gate(url, f"gate0{method}.", number, method)
        verdicts = [output.topic.value for output in made if output.topic.value in VERDICTS]
        if verdicts != plain:
            differ = sum(a != b for a, b in zip(verdicts, plain, strict=True))
            raise SystemExit(f"the naive build decides {differ} of {number} claims otherwise than {method}")


def _naive(url: str, prefix: str, number: int) -> tuple[float, list[str]]:
    gate = NaiveGate(url, prefix)
    values = [value for _, value in claims(number)]
    began = time.perf_counter()
    verdicts = [gate.decide(value)[0] for value in values]
    elapsed = time.perf_counter() - began
    gate.close()
    return number / elapsed, verdicts


async def _gate(url: str, prefix: str, number: int, method: str) -> tuple[float, list[Output]]:
    policy = Policy.model_validate({"dedup_method": method})
    async with fresh_state(url, prefix, policy) as state:
        gate = new_gate(policy, state)
        given = list(batches(claims(number)))
        began = time.perf_counter()
        made = await decide_all(gate, given)
        return number / (time.perf_counter() - began), made


PART = Part("process", "in-process gate with Redis, beside the naive build", run, "Redis")

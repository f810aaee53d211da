"""How long single checks and a claim alone take, beside one PING to the same Redis (S0-56, S0-95, S0-111, S0-112).

Single checks are timed in processor time: they wait for nothing.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from itertools import pairwise

from bench.claims import claims
from bench.inside import batches, fresh_state, new_gate
from bench.measure import Figure, Options, Part, Target
from bench.services import open_redis
from groundwire.checks.citations import CitationDetector
from groundwire.checks.dedup.signature import jaccard_similarity
from groundwire.checks.hedges import HedgeDetector
from groundwire.gate.gate import Gate
from groundwire.messages.decode import decode_claim
from groundwire.messages.headers import InboundRecord
from groundwire.policy import Policy
from groundwire.state.server import connect

_CHARACTERS = 2_000


async def run(options: Options) -> AsyncIterator[Figure]:
    values = list(claims(options.of(500, 2_000)))
    texts = [decode_claim(value).content for _, value in values]
    long = [(text * 20)[:_CHARACTERS] for text in texts]
    hedges, citations = HedgeDetector(), CitationDetector()
    for figure in _cuts("hedges of 2 kB", [_time(hedges.analyze, text) for text in long], 1):
        yield figure
    for figure in _cuts("citations of 2 kB", [_time(citations.detect, text) for text in long], 1):
        yield figure
    near = [_time(lambda pair: jaccard_similarity(*pair), pair) for pair in pairwise(texts)]
    for figure in _cuts("Jaccard of two claims", near, 1):
        yield figure
    policy = Policy()
    for figure in _cuts("a claim alone, state in memory", await _alone(new_gate(policy), values)):
        yield figure
    with open_redis(options.redis) as server:
        client = connect(server.url)
        for figure in _cuts("PING", [await _wait(client.ping) for _ in values]):
            yield figure
        await client.aclose()
        async with fresh_state(server.url, "checks.", policy) as state:
            for figure in _cuts(
                "a claim alone, state in Redis", await _alone(new_gate(policy, state), values), 50
            ):
                yield figure


async def _alone(gate: Gate, values: Sequence[tuple[bytes, bytes]]) -> list[float]:
    timings = []
    for batch in batches(values, 1):

        async def decide(batch: list[InboundRecord] = batch) -> None:
            await gate.apply_step(await gate.prepare(batch))

        timings.append(await _wait(decide))
    return timings


def _time(work: Callable[..., object], argument: object) -> float:
    began = time.process_time_ns()
    work(argument)
    return (time.process_time_ns() - began) / 1e6


async def _wait(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


def _cuts(name: str, timings: Sequence[float], most: float | None = None) -> Iterator[Figure]:
    cuts = statistics.quantiles(timings[len(timings) // 10 :], n=100)  # the first tenth warms up
    yield Figure(f"{name}, p50", "ms", [cuts[49]])
    yield Figure(f"{name}, p99", "ms", [cuts[98]], (), None if most is None else Target("<=", most))


PART = Part("checks", "single checks, and a claim alone, beside a PING", run, "Redis")

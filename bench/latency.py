"""Latency of single checks and of a whole validation, as the seed's performance table has them.

    .venv/bin/python bench/latency.py --claims 2000

Prints p50 and p99 in milliseconds: hedges and citations of claims of up to 2 kB, Jaccard of two texts, near-
duplicate lookup in memory, and one claim through the gate alone (a batch of one) with state in Redis. The
baseline of the same run is one PING to that Redis.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from claims import claims

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from deploy.embedded import EmbeddedRedis  # noqa: E402 - needs the path above
from groundwire.attestation import Keys  # noqa: E402
from groundwire.checks.citations import CitationDetector  # noqa: E402
from groundwire.checks.hedges import HedgeDetector  # noqa: E402
from groundwire.checks.similarity import jaccard_similarity  # noqa: E402
from groundwire.gate.dedup import dedup_scheme  # noqa: E402
from groundwire.gate.gate import Gate  # noqa: E402
from groundwire.messages.decode import decode_claim  # noqa: E402
from groundwire.messages.inbound import InboundRecord  # noqa: E402
from groundwire.policies import PolicyStore  # noqa: E402
from groundwire.policy import Policy  # noqa: E402
from groundwire.state.memory import MemoryState  # noqa: E402
from groundwire.state.model import State  # noqa: E402
from groundwire.state.redis import RedisState  # noqa: E402
from groundwire.state.server import connect  # noqa: E402
from groundwire.verify import CitationVerifier  # noqa: E402

POLICY = Policy()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--claims", type=int, default=2000)
    options = parser.parse_args()
    values = [value for _, value in claims(options.claims)]
    texts = [decode_claim(value).content for value in values]
    long = [(text * 20)[:2000] for text in texts]
    hedges, citations = HedgeDetector(), CitationDetector()
    print(f"{'what':44}{'p50 ms':>9}{'p99 ms':>9}")
    _report("hedges, 2 kB", [_time(hedges.analyze, text) for text in long])
    _report("citations, 2 kB", [_time(citations.detect, text) for text in long])
    pairs = pairwise(texts)
    _report("Jaccard of two texts", [_time(lambda pair: jaccard_similarity(*pair), pair) for pair in pairs])
    asyncio.run(_through_gate(values))


async def _through_gate(values: list[bytes]) -> None:
    await _gate("one claim through the gate, state in memory", MemoryState(), values)
    redis = EmbeddedRedis()
    redis.start()
    try:
        client = connect(redis.url)
        _report("PING to Redis", [await _time_async(client.ping) for _ in values])
        await client.aclose()
        state = RedisState(connect(redis.url), "bench.", scheme=dedup_scheme(POLICY))
        await state.open()
        async with state.rebuilding() as rebuild:
            if rebuild is not None:
                await rebuild.start_epoch("bench")
        await _gate("one claim through the gate, state in Redis", state, values)
        await state.close()
    finally:
        redis.close()


async def _gate(name: str, state: State, values: list[bytes]) -> None:
    verifier = CitationVerifier({}, network=False)
    gate = Gate(
        POLICY, PolicyStore(None, None), state, verifier, keys=Keys.empty(), now=lambda: datetime.now(UTC)
    )
    timings = []
    for offset, value in enumerate(values):
        record = InboundRecord("claims", 0, offset, 1_700_000_000_000, None, value)

        async def decide(record: InboundRecord = record) -> None:
            await gate.settle(await gate.prepare([record]))

        timings.append(await _time_async(decide))
    _report(name, timings)


def _time(work: Callable[..., object], argument: object) -> float:
    began = time.perf_counter()
    work(argument)
    return (time.perf_counter() - began) * 1000


async def _time_async(work: Callable[[], Awaitable[object]]) -> float:
    began = time.perf_counter()
    await work()
    return (time.perf_counter() - began) * 1000


def _report(name: str, timings: list[float]) -> None:
    cuts = statistics.quantiles(timings[len(timings) // 10 :], n=100)  # the first tenth warms up
    print(f"{name:44}{cuts[49]:9.3f}{cuts[98]:9.3f}", flush=True)


if __name__ == "__main__":
    main()

"""How long a batch takes in each stage, in this process, with state in memory.

    .venv/bin/python bench/stages.py --batches 20

Prints microseconds a claim, and each stage as a share of the whole. The baseline of the same run is JSON alone:
parsing each value and serialising it again.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from claims import claims

from groundwire.attestation import Keys
from groundwire.checks.citations import CitationDetector
from groundwire.checks.hedges import HedgeDetector
from groundwire.checks.tokens import tokenize
from groundwire.decide.reading import read
from groundwire.gate.dedup import dedup_query
from groundwire.gate.gate import Gate
from groundwire.gate.results import Decided
from groundwire.messages.decode import decode_claim
from groundwire.messages.identity import fingerprint
from groundwire.messages.inbound import InboundRecord
from groundwire.policies import PolicyStore
from groundwire.policy import Policy
from groundwire.state.memory import MemoryState
from groundwire.verify import CitationVerifier

BATCH = 500


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", type=int, default=20, help="batches of 500 claims")
    parser.add_argument("--dedup-method", choices=["minhash", "partition"], default="minhash")
    options = parser.parse_args()
    policy = Policy(dedup_method=options.dedup_method)
    values = [value for _, value in claims(options.batches * BATCH)]
    batches = [values[first : first + BATCH] for first in range(0, len(values), BATCH)]
    timings = asyncio.run(_measure(batches, policy))
    _print(timings)


async def _measure(batches: Sequence[Sequence[bytes]], policy: Policy) -> dict[str, list[float]]:
    gate = Gate(
        policy,
        PolicyStore(None, None),
        MemoryState(),
        CitationVerifier({}, network=False),
        keys=Keys.empty(),
        now=lambda: datetime.now(UTC),
    )
    hedges, citations = HedgeDetector(), CitationDetector()
    timings: dict[str, list[float]] = {}

    async def timed(name: str, work: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401 - whatever the stage gives
        began = time.perf_counter()
        result = await work()
        timings.setdefault(name, []).append((time.perf_counter() - began) / BATCH * 1e6)
        return result

    async def each(function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        return [function(item) for item in items]

    offset = 0
    for values in batches:
        parsed = await timed(
            "json: parse and dump", lambda v=values: each(lambda x: json.dumps(json.loads(x)), v)
        )
        assert parsed  # noqa: S101 - the baseline did its work
        found = await timed("  decode", lambda v=values: each(decode_claim, v))
        await timed("  fingerprint", lambda c=found: each(fingerprint, c))
        await timed("  hedges", lambda c=found: each(lambda x: hedges.analyze(x.content), c))
        await timed("  citations", lambda c=found: each(lambda x: citations.detect(x.content), c))
        await timed("  tokens", lambda c=found: each(lambda x: tokenize(x.content), c))
        await timed("  read, all", lambda c=found: each(lambda x: read(x.content, policy), c))
        await timed("  dedup query", lambda c=found: each(lambda x: dedup_query(x, policy), c))
        records = [
            InboundRecord("claims", 0, offset + n, 1_700_000_000_000, None, value)
            for n, value in enumerate(values)
        ]
        offset += len(values)
        prepared = await timed("prepare", lambda r=records: gate.prepare(r))
        settled = await timed("settle (state in memory, derive)", lambda p=prepared: gate.settle(p))
        decided = [result.decision for result in settled if isinstance(result, Decided)]
        await timed("serialise", lambda d=decided: each(lambda x: x.to_bytes(), d))
    return timings


def _print(timings: dict[str, list[float]]) -> None:
    medians = {name: statistics.median(values[1:] or values) for name, values in timings.items()}
    base = medians["json: parse and dump"]
    print(f"{'stage':36}{'µs a claim':>12}{'÷ json':>9}")
    for name, median in medians.items():
        print(f"{name:36}{median:12.1f}{median / base:9.1f}")
    whole = sum(medians[name] for name in medians if name.split()[0] in {"prepare", "settle", "serialise"})
    print(f"{'prepare + settle + serialise':36}{whole:12.1f}{whole / base:9.1f}")


if __name__ == "__main__":
    main()

"""Whole responses through the gate: how many a second one core decides, and how long one takes.

    .venv/bin/python bench/responses.py --responses 400

A typical response has an answer of 1.5 kB with source tags, fields and values, five chunks of 2 kB, three sources,
ten quotes against a transcript of 20 kB, thirty entities and twenty relations; a large one fills 900 kB. State is in
memory. Rates are per second of processor time, so of one core. The baseline of the same run decodes the same
records and does nothing else. The last lines say how late the
event loop was while large responses were checked, since it has others to serve.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from groundwire.attestation import Keys
from groundwire.gate.gate import Gate, decode_record
from groundwire.messages.inbound import InboundRecord
from groundwire.policies import PolicyStore
from groundwire.policy import Policy
from groundwire.state.memory import MemoryState
from groundwire.verify import CitationVerifier

WORDS = (
    "cache",
    "index",
    "worker",
    "broker",
    "offset",
    "lag",
    "replica",
    "query",
    "schema",
    "token",
    "session",
)
TICK = 0.005


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--responses", type=int, default=400)
    parser.add_argument("--large", type=int, default=5, help="responses of 900 kB")
    options = parser.parse_args()
    rng = random.Random(7)
    typical = _records([_response(rng, n) for n in range(options.responses)])
    print(f"{options.responses} responses of {len(typical[0].value or b'')} bytes")
    decoded = _time_decoding(typical)
    timings, elapsed, _ = asyncio.run(_decide(typical))
    print(f"decode only {len(typical) / decoded:10.0f}/s")
    print(f"gate        {len(typical) / elapsed:10.0f}/s   ratio {decoded / elapsed:.3f}")
    cuts = statistics.quantiles(timings, n=100)
    print(f"one response alone: p50 {cuts[49]:.2f} ms   p95 {cuts[94]:.2f} ms   p99 {cuts[98]:.2f} ms")
    large = _records([_response(rng, n, paragraphs=130) for n in range(options.large)])
    timings, _, late = asyncio.run(_decide(large))
    print(f"a large one ({len(large[0].value or b'')} bytes): median {statistics.median(timings):.0f} ms")
    print(f"event loop late meanwhile: p99 {late[0] * 1000:.0f} ms, at most {late[1] * 1000:.0f} ms")


def _sentence(rng: random.Random) -> str:
    words = " ".join(rng.choices(WORDS, k=9))
    return f"The {words} takes {rng.randrange(2, 900)} ms."


def _response(rng: random.Random, number: int, paragraphs: int = 5) -> dict[str, Any]:
    chunks = []
    for index in range(paragraphs):
        lines = [_sentence(rng) for _ in range(28)]
        chunks.append(
            {
                "chunk_id": f"c{index}",
                "file": f"src/module_{index}.py",
                "content": "\n".join(lines),
                "start_line": 1,
                "end_line": len(lines),
            }
        )
    said = [rng.choice(chunk["content"].split("\n")) for chunk in chunks for _ in range(3)][:15]
    answer = " ".join(f"{text[:-1]} [source:{index % paragraphs + 1}]." for index, text in enumerate(said))
    transcript = " ".join(_sentence(rng) for _ in range(20 * paragraphs // 5 * 14))
    return {
        "response_id": f"r{number}",
        "user_id": f"user-{number % 50}",
        "query": "How long does it take?",
        "answer": f"{answer} Set `timeout` and `retry` with .connect().",
        "chunks": chunks,
        "sources": [
            {
                "file": chunk["file"],
                "snippet": chunk["content"].split("\n")[3],
                "start_line": 2,
                "end_line": 9,
            }
            for chunk in chunks[:3]
        ],
        "transcript": transcript,
        "evidence": {"speed": [transcript[start : start + 60] for start in range(100, 1100, 100)]},
        "entities": [{"id": f"e{n}"} for n in range(30)],
        "corpus_index": {f"e{n}": {"confidence": 0.9} for n in range(30)},
        "claims": [{"subject": f"s{n}", "relation": "uses", "object": f"o{n}"} for n in range(20)],
        "relations": [{"subject": f"s{n}", "relation": "uses", "object": f"o{n}"} for n in range(20)],
    }


def _records(responses: Sequence[dict[str, Any]]) -> list[InboundRecord]:
    values = [json.dumps(response).encode() for response in responses]
    return [
        InboundRecord("llm-responses", 0, offset, 1_700_000_000_000, None, value)
        for offset, value in enumerate(values)
    ]


def _time_decoding(records: Sequence[InboundRecord]) -> float:
    began = time.process_time()
    for record in records:
        decode_record(record)
    return time.process_time() - began


async def _decide(records: Sequence[InboundRecord]) -> tuple[list[float], float, tuple[float, float]]:
    """Return milliseconds of each, processor seconds of all, and how late the event loop was: p99 and most."""
    gate = Gate(
        Policy(),
        PolicyStore(None, None),
        MemoryState(),
        CitationVerifier({}, network=False),
        keys=Keys.empty(),
        now=lambda: datetime.now(UTC),
    )
    timings: list[float] = []
    lateness: list[float] = []
    ticking = asyncio.create_task(_tick(lateness))
    began = time.process_time()
    for record in records:
        begin = time.perf_counter()
        await gate.settle(await gate.prepare([record]))
        timings.append((time.perf_counter() - begin) * 1000)
    elapsed = time.process_time() - began
    ticking.cancel()
    late = sorted(lateness) or [0.0]
    return timings, elapsed, (late[int(len(late) * 0.99)], late[-1])


async def _tick(lateness: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(TICK)
        lateness.append(max(0.0, time.perf_counter() - began - TICK))


if __name__ == "__main__":
    main()

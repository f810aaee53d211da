"""Whole responses through the gate, a second and core, and how late the event loop is while large ones are checked.

Rates are per second of processor time, so of one core; state is in memory. The baseline decodes the same records and
does nothing else. A full response has source tags, fields and values, three sources, ten quotes against a transcript of
20 kB, thirty entities and twenty relations; a large one fills 900 kB.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, Final

from agents.app import tune_gc
from bench.inside import new_gate
from bench.measure import Figure, Options, Part, Race, Target
from groundwire.gate.gate import decode_record
from groundwire.messages.headers import InboundRecord
from groundwire.policy import Policy

_WORDS: Final = (
    *("cache", "index", "worker", "broker", "offset", "lag"),
    *("replica", "query", "schema", "token", "session"),
)
_TICK: Final = 0.005


async def run(options: Options) -> AsyncIterator[Figure]:
    """Race each kind of response against only decoding it, then look at large ones; with the collector of workers."""
    tune_gc()
    number = options.of(60, 300)
    rng = random.Random(7)
    kinds = {
        "2 kB in all": ([short(rng, n, 650, 6) for n in range(number)], Target(">=", 500)),
        "answer of 2 kB, five chunks of 1 kB": (
            [short(rng, n, 2_000, 24) for n in range(number)],
            Target(">=", 150),
        ),
        "answer of 1.5 kB, five chunks of 2 kB, quotes, entities, relations": (
            [full(rng, n) for n in range(number // 2)],
            None,
        ),
    }
    for name, (made, target) in kinds.items():
        records = as_records(made)
        size = len(records[0].value or b"")
        race = Race("responses/s")
        race.add(f"decode only: {name} ({size:,} bytes)", partial(_decoding, records))
        race.add(f"gate: {name}", partial(_rate, records), target, f"responses.{size}")
        for figure in await race.figures(options.rounds):
            yield figure
    large = as_records([full(rng, n, paragraphs=130) for n in range(options.of(2, 5))])
    _, idle = await _watched([])
    yield Figure("event loop late while nothing is done, at most", "ms", [idle])
    timings, late = await _watched(large)
    yield Figure(f"a large one ({len(large[0].value or b''):,} bytes)", "ms", timings)
    yield Figure("event loop late meanwhile, at most", "ms", [late], (), Target("<=", 25))


def short(rng: random.Random, number: int, answer: int, lines: int) -> dict[str, Any]:
    """Return a response with an answer of so many characters and five chunks of so many lines."""
    chunks = _chunks(rng, 5, max(1, lines * 45 // 50 if lines > 10 else lines // 2 - 1))
    said = [chunk["content"].split("\n")[0] for chunk in chunks] * 20
    text = " ".join(f"{line[:-1]} [source:{index % 5 + 1}]." for index, line in enumerate(said))
    return {
        "response_id": f"r{number}",
        "user_id": f"user-{number % 50}",
        "query": "How long does it take?",
        "answer": text[: text.rfind(". ", 0, answer) + 1],
        "chunks": chunks,
    }


def full(rng: random.Random, number: int, paragraphs: int = 5) -> dict[str, Any]:
    chunks = _chunks(rng, paragraphs, 28)
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


def as_records(responses: Sequence[dict[str, Any]]) -> list[InboundRecord]:
    values = [json.dumps(response).encode() for response in responses]
    return [
        InboundRecord("llm-responses", 0, offset, 1_700_000_000_000, None, value)
        for offset, value in enumerate(values)
    ]


def _chunks(rng: random.Random, count: int, lines: int) -> list[dict[str, Any]]:
    found = []
    for index in range(count):
        said = [_sentence(rng) for _ in range(lines)]
        found.append(
            {
                "chunk_id": f"c{index}",
                "file": f"src/module_{index}.py",
                "content": "\n".join(said),
                "start_line": 1,
                "end_line": len(said),
            }
        )
    return found


def _sentence(rng: random.Random) -> str:
    words = " ".join(rng.choices(_WORDS, k=9))
    return f"The {words} takes {rng.randrange(2, 900)} ms."


def _decoding(records: Sequence[InboundRecord]) -> float:
    began = time.process_time()
    for record in records:
        decode_record(record)
    return len(records) / (time.process_time() - began)


async def _rate(records: Sequence[InboundRecord]) -> float:
    gate = new_gate(Policy())
    began = time.process_time()
    await gate.apply_step(await gate.prepare(records))
    return len(records) / (time.process_time() - began)


async def _watched(records: Sequence[InboundRecord]) -> tuple[list[float], float]:
    """Return milliseconds of each, and how late the event loop was at most."""
    gate = new_gate(Policy())
    timings: list[float] = []
    lateness: list[float] = [0.0]
    ticking = asyncio.create_task(_tick(lateness))
    for record in records:
        begin = time.perf_counter()
        await gate.apply_step(await gate.prepare([record]))
        timings.append((time.perf_counter() - begin) * 1000)
    if not records:
        await asyncio.sleep(1)
    ticking.cancel()
    return timings, max(lateness) * 1000


async def _tick(lateness: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(_TICK)
        lateness.append(max(0.0, time.perf_counter() - began - _TICK))


PART = Part("responses", "responses of language models a second and core, beside only decoding them", run)

"""Print how long small responses take beside a hostile tenant's large ones: `python -m bench.neighbours`.

In one process, without servers: a batch holds small responses of many users and one of 800 kB of another user, and is
decided part by part as the worker does it, and as it came.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator, Sequence

from agents.app import ROLES
from agents.partitions import parts_of, small_first
from bench.inside import decide, new_gate
from groundwire.messages.headers import InboundRecord
from groundwire.policy import Policy

SMALL, LARGE, ROUNDS = 20, 1, 4
_WORDS = [
    f"{part}{end}" for part in ("gate", "cach", "queu", "index", "retri") for end in ("s", "ed", "ing", "er")
]


def main() -> None:
    """Measure both orders, and small responses alone."""
    alone = asyncio.run(_p99(0, parted=True))
    print(f"small ones alone: p99 {alone:.0f} ms")
    for name, parted in (("small ones first", True), ("as they came", False)):
        found = asyncio.run(_p99(LARGE, parted=parted))
        print(f"{name}, beside {LARGE} of 800 kB: p99 {found:.0f} ms, {found / alone:.2f} times")


async def _p99(large: int, *, parted: bool) -> float:
    """Return the 99th percentile of the milliseconds until a small response is decided."""
    rng, gate, taken = random.Random(7), new_gate(Policy()), list[float]()
    for number in range(ROUNDS):
        batch = list(_batch(rng, number, large))
        began = time.perf_counter()
        parts: Sequence[Sequence[InboundRecord]] = _parts(batch) if parted else [batch]
        for part in parts:
            await decide(gate, part)
            taken += [time.perf_counter() - began for record in part if record.key != b"t:hostile"]
    return 1_000 * sorted(taken)[int(0.99 * len(taken))]


def _parts(batch: Sequence[InboundRecord]) -> list[list[InboundRecord]]:
    together = ROLES["responses"].together
    first, behind = small_first(batch, together)
    return [first, *parts_of(behind, together)]


def _batch(rng: random.Random, number: int, large: int) -> Iterator[InboundRecord]:
    sizes = [400_000] * large + [700] * SMALL
    for place, size in enumerate(sizes):
        user = "hostile" if place < large else f"user-{place}"
        record = {
            "response_id": f"{number}-{place}",
            "tenant_id": "t",
            "user_id": user,
            "answer": _prose(rng, size),
            "chunks": [
                {"chunk_id": "c", "file": "f", "content": _prose(rng, size), "start_line": 1, "end_line": 1}
            ],
        }
        key, offset = f"t:{user}".encode(), number * len(sizes) + place
        value = json.dumps(record).encode()
        yield InboundRecord("llm-responses", 0, offset, 1_700_000_000_000 + offset, key, value, ())


def _prose(rng: random.Random, size: int) -> str:
    sentences: list[str] = []
    while size > 0:
        sentences.append(" ".join(rng.choices(_WORDS, k=10)).capitalize() + ".")
        size -= len(sentences[-1]) + 1
    return " ".join(sentences)


if __name__ == "__main__":
    main()

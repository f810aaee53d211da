"""The parts of `python -m bench`, in the order in which they run."""

from __future__ import annotations

from typing import Final

from bench.measure import Part
from bench.parts import (
    board,
    checks,
    dedup,
    gate,
    growth,
    latency,
    process,
    quotes,
    rebuild,
    redis,
    replay,
    responses,
    scale,
    stages,
)

_PARTS: Final = (
    *(gate.PART, gate.SEALING, scale.PART, latency.PART, process.PART, stages.PART, redis.PART, growth.PART),
    *(dedup.PART, quotes.PART, responses.PART, checks.PART, replay.PART, rebuild.PART, board.PART),
)
PARTS: Final[dict[str, Part]] = {part.name: part for part in _PARTS}

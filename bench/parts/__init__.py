"""The parts of `python -m bench`, in the order in which they run."""

from __future__ import annotations

from typing import Final

from bench.measure import Part
from bench.parts import (
    checks,
    dedup,
    gate,
    growth,
    latency,
    peers,
    process,
    quotes,
    redis,
    replay,
    responses,
    scale,
    sealing,
    stages,
)

_MODULES: Final = (
    *(
        gate,
        sealing,
        scale,
        latency,
        process,
        stages,
        redis,
        growth,
        dedup,
        quotes,
        responses,
        checks,
        replay,
        peers,
    ),
)
PARTS: Final[dict[str, Part]] = {module.PART.name: module.PART for module in _MODULES}

"""What a claim costs each part of a deployment, from the results of the benchmark, and what a part can take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bench.report import figures_of

HALF: Final = 0.5
"""Planned utilisation: the other half is for peaks, for catching up and for servers that fail."""
MEMORY: Final = 256e9
"""Bytes of one Redis server."""
BROKER: Final = 50e6
"""Bytes a second that one broker takes from producers: an assumption, not a measurement."""
COPIES: Final = 3


@dataclass(frozen=True, slots=True)
class Constants:
    """What was measured.

    Attributes:
        processor: seconds of processor time of a worker a claim.
        server: seconds of Redis's one thread a claim, in full batches.
        call: the same for a call of its script, whatever it holds.
        approved: bytes of Redis that an approved claim keeps for good.
        decided: bytes of Redis a decided claim, of all kinds as in the benchmark.
        published: bytes that are published for a claim.
    """

    processor: float
    server: float
    call: float
    approved: float
    decided: float
    published: float

    @classmethod
    def of(cls, results: Mapping[str, Any], method: str) -> Constants:
        """Read the constants of a key function.

        Raises:
            SystemExit: a part was not measured.
        """
        found = {
            figure.key: figure.median
            for result in results.values()
            for figure in figures_of(result)
            if figure.key
        }
        try:
            return cls(
                found[f"gate.processor.{method}1"] / 1e6,
                found[f"redis.cpu.{method}"] / 1e6,
                max(0.0, found["redis.cpu.alone"] - found["redis.cpu.partition"]) / 1e6,
                found[f"redis.kept.{method}.many"],
                found[f"redis.bytes.{method}"],
                found["gate.bytes"],
            )
        except KeyError as missing:
            raise SystemExit(f"{missing} was not measured: run the parts gate and redis first") from None

    @property
    def worker(self) -> float:
        """Claims a second of one worker on a core of its own, half busy."""
        return HALF / self.processor

    @property
    def redis(self) -> float:
        """Claims a second of one Redis, half busy."""
        return HALF / self.server


def brokers_for(published: float) -> int:
    """Return how many brokers take so many bytes a second half busy, with all copies."""
    return max(COPIES, math.ceil(published * COPIES / (BROKER * HALF)))

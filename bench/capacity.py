"""Partitions, workers, Redis and brokers by claims a second, from measured constants.

    python -m bench.capacity bench/results.json --page docs/capacity.md

Reads the results of the parts `gate` and `redis`, and writes the two tables of the page.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.machine import sentence
from bench.report import figures_of, number, write_page

LOADS: Final = (1_000, 3_000, 10_000, 30_000, 100_000, 1_000_000)
DAY: Final = 86_400
HALF: Final = 0.5
"""Planned utilisation: the other half is for peaks, for catching up and for servers that fail."""
MEMORY: Final = 256e9
KEPT: Final = 31
"""Bytes of one Redis server, and the days for which every outcome is kept; what was approved stays for good."""
BROKER: Final = 50e6
"""Bytes a second that one broker takes from producers: an assumption, not a measurement."""
COPIES: Final = 3
_METHODS: Final = ("partition", "minhash")


@dataclass(frozen=True, slots=True)
class Constants:
    """What was measured.

    Attributes:
        processor: seconds of processor time of a worker a claim.
        server: seconds of Redis's one thread a claim.
        approved: bytes of Redis that an approved claim keeps for good.
        decided: bytes of Redis a decided claim, of all kinds as in the benchmark.
        published: bytes that are published for a claim.
    """

    processor: float
    server: float
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
                found["redis.kept.in all"],
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


def constants_table(found: Mapping[str, Constants]) -> Iterator[str]:
    """Yield the lines of the table of constants."""
    yield f"| constant | {' | '.join(found)} |"
    yield f"|---|{'---:|' * len(found)}"
    rows = {
        "processor time of a worker a claim, µs": [one.processor * 1e6 for one in found.values()],
        "→ claims a second of a worker, half busy": [one.worker for one in found.values()],
        "processor time of Redis a claim, µs": [one.server * 1e6 for one in found.values()],
        "→ claims a second of one Redis, half busy": [one.redis for one in found.values()],
        "bytes in Redis, approved claim, for good": [one.approved for one in found.values()],
        "bytes in Redis, any decided claim": [one.decided for one in found.values()],
        "bytes published a claim": [one.published for one in found.values()],
    }
    for name, values in rows.items():
        yield f"| {name} | {' | '.join(map(number, values))} |"


def plan_table(one: Constants) -> Iterator[str]:
    """Yield the lines of the table of what each load needs."""
    yield (
        "| claims a second | workers (cores) | partitions | Redis servers, by time | GB a day in Redis | "
        f"Redis servers of {MEMORY / 1e9:.0f} GB, by memory for {KEPT} days |"
    )
    yield "|---:|---:|---:|---:|---:|---:|"
    rows = list(map(one_row, LOADS, [one] * len(LOADS)))
    for row in rows:
        yield f"| {' | '.join(row[:6])} |"
    yield ""
    yield "| claims a second | published, MB a second | with three copies, MB a second | brokers |"
    yield "|---:|---:|---:|---:|"
    for row in rows:
        yield f"| {row[0]} | {' | '.join(row[6:])} |"


def one_row(load: int, one: Constants) -> list[str]:
    """Return what a load needs."""
    workers = math.ceil(load / one.worker)
    published = load * one.published
    return [
        f"{load:,}",
        f"{workers:,}",
        f"{partitions(workers):,}",
        f"{math.ceil(load / one.redis):,}",
        number(load * DAY * one.decided / 1e9),
        f"{math.ceil(load * DAY * KEPT * one.decided / (MEMORY * HALF)):,}",
        number(published / 1e6),
        number(published * COPIES / 1e6),
        f"{max(COPIES, math.ceil(published * COPIES / BROKER)):,}",
    ]


def partitions(workers: int) -> int:
    """Return how many partitions so many workers need: two for each, so that one more worker has something to take."""
    return max(8, 1 << (2 * workers - 1).bit_length())


def main() -> None:
    """Print the tables, or write them into a page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--page", type=Path)
    args = parser.parse_args()
    results = json.loads(args.results.read_text("utf-8"))
    found = {method: Constants.of(results, method) for method in _METHODS}
    measured = f"Measured with `python -m bench gate redis`; {sentence(results['redis']['machine'])}."
    tables = {
        "constants": [*constants_table(found), "", measured],
        "plan": list(plan_table(found["partition"])),
    }
    if args.page:
        for name in write_page(args.page, tables):
            raise SystemExit(f"{args.page}: has no place for the table {name}")
        return
    for lines in tables.values():
        print("\n".join(lines), end="\n\n")


if __name__ == "__main__":
    main()

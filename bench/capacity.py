"""Partitions, workers, Redis and brokers by claims a second, from measured constants.

    python -m bench.capacity bench/results.json --page docs/run/capacity.md

Reads the results of the parts `gate` and `redis`, and writes the tables of the page.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from bench import saturation
from bench.constants import COPIES, HALF, MEMORY, Constants, brokers_for
from bench.machine import sentence
from bench.report import number, write_page

LOADS: Final = (1_000, 3_000, 10_000, 20_000, 50_000, 100_000, 1_000_000)
DAY: Final = 86_400
KEPT: Final = 31
"""Days for which every outcome is kept; what was approved stays for good."""
_METHODS: Final = ("partition", "minhash")


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
    yield (
        "| claims a second | published, MB a second | with three copies, MB a second | brokers | "
        "TB a day on their disks |"
    )
    yield "|---:|---:|---:|---:|---:|"
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
        f"{brokers_for(published):,}",
        number(published * COPIES * DAY / 1e12),
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
        "saturation": list(saturation.table(found["partition"])),
    }
    if args.page:
        for name in write_page(args.page, tables):
            raise SystemExit(f"{args.page}: has no place for the table {name}")
        return
    for lines in tables.values():
        print("\n".join(lines), end="\n\n")


if __name__ == "__main__":
    main()

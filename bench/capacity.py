"""Partitions, workers, Redis and brokers by claims a second, from measured constants.

    python -m bench.capacity bench/results.json --page docs/run/capacity.md

Reads the results of the parts `gate` and `redis`, and writes the tables of the page. Single costs are measured; a
deployment is not. For the table of what is full first, users are drawn: a user's claims and state are on one
partition, so the busiest worker and the fullest shard decide, not the mean.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.machine import sentence
from bench.report import figures_of, number, write_page

LOADS: Final = (1_000, 3_000, 10_000, 20_000, 50_000, 100_000, 1_000_000)
DAY: Final = 86_400
KEPT: Final = 31  # days for which every outcome is kept; what was approved stays for good
HALF: Final = 0.5  # planned utilisation: the rest is for peaks, catching up and failed servers
MEMORY: Final = 256e9  # bytes of one Redis server
BROKER: Final = 50e6  # bytes a second that one broker takes from producers: assumed, not measured
COPIES: Final = 3

RATE: Final = 100_000
REMEMBERED: Final = 1_000_000_000
USERS: Final = 1_000_000
SKEW: Final = 0.8
"""The user of rank n is as busy as n to the power of minus this: the busiest of a million then sends 1.3 per cent."""
SHARDS: Final = (1, 3, 6, 12, 24, 48)
PARTITIONS: Final = 256
BATCH: Final = 100  # a worker that is half busy fetches before five hundred claims have come


@dataclass(frozen=True, slots=True)
class Constants:
    """What a claim costs each part of a deployment.

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
        """Read the constants of a key function. Raises: SystemExit where a part was not measured."""
        figures = (figure for result in results.values() for figure in figures_of(result))
        found = {figure.key: figure.median for figure in figures if figure.key}
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


def constants_table(found: Mapping[str, Constants]) -> Iterator[str]:
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
    yield (
        "| claims a second | workers (cores) | partitions | Redis servers, by time | GB a day in Redis | "
        f"Redis servers of {MEMORY / 1e9:.0f} GB, by memory for {KEPT} days |"
    )
    yield "|---:|---:|---:|---:|---:|---:|"
    rows = [one_row(load, one) for load in LOADS]
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
    """Return the partitions for so many workers: two for each, so that one more worker gets some."""
    return max(8, 1 << (2 * workers - 1).bit_length())


def brokers_for(published: float) -> int:
    """Return how many brokers take so many bytes a second half busy, with all copies."""
    return max(COPIES, math.ceil(published * COPIES / (BROKER * HALF)))


@dataclass(frozen=True, slots=True)
class Fleet:
    """The utilisation of each part of a deployment; above 1 is too much.

    Attributes:
        worker: the busiest worker.
        time: the one thread of the busiest shard.
        memory: the fullest shard, of half its bytes.
        brokers: what they take from producers.
    """

    worker: float
    time: float
    memory: float
    brokers: float

    @property
    def first(self) -> str:
        """The part that is full first where the load grows: rate and what is remembered alike."""
        names = ("a worker", "Redis, time", "Redis, memory", "brokers")
        found = dict(zip(names, (self.worker, self.time, self.memory, self.brokers), strict=True))
        return max(found, key=lambda name: found[name])


def busiest(parts: int, of: np.ndarray) -> float:
    """Return the share of the busiest of so many parts that take partitions one after the other."""
    return max(float(one.sum()) for one in np.array_split(of, parts))


@cache
def shares_of_partitions(seed: int = 1) -> np.ndarray:
    """Draw users, and return the share of the load that each partition has, from 0 to 1."""
    rng = np.random.default_rng(seed)
    busy = np.arange(1, USERS + 1, dtype=float) ** -SKEW
    found = np.bincount(rng.integers(0, PARTITIONS, USERS), weights=busy / busy.sum(), minlength=PARTITIONS)
    return np.asarray(found)


def fleet(one: Constants, shares: np.ndarray, *, shards: int, workers: int, brokers: int) -> Fleet:
    """Return the utilisation of a fleet at `RATE` claims a second, with `REMEMBERED` approved claims.

    Args:
        one: what a claim costs.
        shares: of each partition; memory is divided alike.
        shards: primaries of Redis.
        workers: each with a core of its own.
        brokers: of Kafka.
    """
    hottest = busiest(shards, shares)
    return Fleet(
        worker=RATE * one.processor * busiest(workers, shares),
        time=RATE * one.server * hottest + RATE / BATCH * one.call / shards,
        memory=REMEMBERED * one.approved * hottest / (MEMORY * HALF),
        brokers=RATE * one.published * COPIES / (BROKER * brokers),
    )


def saturation_table(one: Constants) -> Iterator[str]:
    """Yield the lines of the table: fleets whose workers and brokers are half busy, with more and more shards."""
    shares = shares_of_partitions()
    busy = (n for n in range(1, PARTITIONS) if RATE * one.processor * busiest(n, shares) <= HALF)
    workers = next(busy, PARTITIONS)
    brokers = brokers_for(RATE * one.published)
    yield "| shards | busiest worker | busiest shard, time | fullest shard, memory | brokers | first full |"
    yield "|---:|---:|---:|---:|---:|---|"
    for shards in SHARDS:
        found = fleet(one, shares, shards=shards, workers=workers, brokers=brokers)
        cells = (found.worker, found.time, found.memory, found.brokers)
        yield f"| {shards} | {' | '.join(f'{cell:.0%}' for cell in cells)} | {found.first} |"
    yield ""
    top = 1 / (np.arange(1, USERS + 1, dtype=float) ** -SKEW).sum()
    yield (
        f"{RATE:,} claims a second, {REMEMBERED:,} approved claims remembered, {workers} workers, {brokers} brokers, "
        f"{PARTITIONS} partitions, batches of {BATCH}; {USERS:,} users, the busiest with {number(100 * top)} % of all."
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    parser.add_argument("--page", type=Path)
    args = parser.parse_args()
    results = json.loads(args.results.read_text("utf-8"))
    found = {method: Constants.of(results, method) for method in ("partition", "minhash")}
    measured = f"Measured with `python -m bench gate redis`; {sentence(results['redis']['machine'])}."
    tables = {
        "constants": [*constants_table(found), "", measured],
        "plan": list(plan_table(found["partition"])),
        "saturation": list(saturation_table(found["partition"])),
    }
    if args.page:
        for name in write_page(args.page, tables):
            raise SystemExit(f"{args.page}: has no place for the table {name}")
        return
    for lines in tables.values():
        print("\n".join(lines), end="\n\n")


if __name__ == "__main__":
    main()

"""What is full first: a deployment of measured parts under a load of many users, some much busier than others.

Nothing here is measured as a whole: single costs are (`bench.constants.Constants`), and users are drawn. A user's
claims are on one partition and in one bucket of state, so what a fleet can take is decided by its busiest worker and
its fullest shard, not by the mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from bench.constants import BROKER, COPIES, HALF, MEMORY, Constants, brokers_for
from bench.report import number
from groundwire.state.buckets import BUCKETS

RATE: Final = 100_000
REMEMBERED: Final = 1_000_000_000
USERS: Final = 1_000_000
SKEW: Final = 0.8
"""The user of rank n is as busy as n to the power of minus this: the busiest of a million then sends 1.3 per cent."""
SHARDS: Final = (1, 3, 6, 12, 24, 48)
PARTITIONS: Final = 256
BATCH: Final = 100
"""Claims of a batch: a worker that is half busy fetches before five hundred have come."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """How full the parts of a deployment are, as shares of what they can take; above 1 is too much.

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
        found = {
            "a worker": self.worker,
            "Redis, time": self.time,
            "Redis, memory": self.memory,
            "brokers": self.brokers,
        }
        return max(found, key=lambda name: found[name])


def busiest(parts: int, of: np.ndarray) -> float:
    """Return the share of the busiest of so many parts that take buckets (or partitions) one after the other."""
    return max(float(one.sum()) for one in np.array_split(of, parts))


@cache
def shares_of_buckets(seed: int = 1) -> np.ndarray:
    """Draw users, and return the share of the load that each bucket has, from 0 to 1."""
    rng = np.random.default_rng(seed)
    busy = np.arange(1, USERS + 1, dtype=float) ** -SKEW
    found = np.bincount(rng.integers(0, BUCKETS, USERS), weights=busy / busy.sum(), minlength=BUCKETS)
    return np.asarray(found)


def fleet(one: Constants, shares: np.ndarray, *, shards: int, workers: int, brokers: int) -> Fleet:
    """Return how full the parts of a fleet are at `RATE` claims a second, with `REMEMBERED` approved claims.

    Args:
        one: what a claim costs.
        shares: of each bucket; the memory is taken to be shared alike.
        shards: primaries of Redis.
        workers: each with a core of its own.
        brokers: of Kafka.
    """
    hottest = busiest(shards, shares)
    calls = RATE / BATCH * BUCKETS / PARTITIONS  # a batch of a partition concerns that many buckets
    return Fleet(
        worker=RATE * one.processor * busiest(workers, shares),
        time=RATE * one.server * hottest + calls * one.call / shards,
        memory=REMEMBERED * one.approved * hottest / (MEMORY * HALF),
        brokers=RATE * one.published * COPIES / (BROKER * brokers),
    )


def table(one: Constants) -> Iterator[str]:
    """Yield the lines of the table: fleets whose workers and brokers are half busy, with more and more shards."""
    shares = shares_of_buckets()
    busy = (n for n in range(1, BUCKETS) if RATE * one.processor * busiest(n, shares) <= HALF)
    workers = next(busy, BUCKETS)
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

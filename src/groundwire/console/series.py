"""One hour of what workers answered, in memory: rings of a fixed size, and rates that survive restarts.

No clock and no network: whoever asks the workers says when. A time at which something was not measured is None, never
0; a count that went on unseen is spread evenly over the time in which nobody looked.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from groundwire.console.measures import WORST, Key, Reading

EVERY: Final = 10
"""Seconds between two readings: a tick."""
SIZE: Final = 360
"""Ticks that are kept: an hour."""
POINT: Final = 6
"""Ticks of one point of a line: a minute."""
MOST_WORKERS: Final = 100
_NONE: Final = math.nan


@dataclass(slots=True)
class _Last:
    """What is known of a worker: the tick of its last reading, and the reading."""

    tick: int
    reading: Reading


class History:
    """What all workers together did.

    Args:
        tick: the present one; ticks are counted up from anywhere.
    """

    def __init__(self, tick: int = 0) -> None:
        self._tick = tick
        self._rings: dict[Key, array[float]] = {}
        self._last: dict[str, _Last] = {}

    @property
    def tick(self) -> int:
        """The present tick."""
        return self._tick

    def __len__(self) -> int:
        """Return how many numbers are kept."""
        return sum(len(ring) for ring in self._rings.values())

    def advance(self, tick: int) -> None:
        """Begin a tick; what is older than an hour is forgotten. One that is not later changes nothing."""
        for gone in range(max(self._tick + 1, tick - SIZE + 1), tick + 1):
            for ring in self._rings.values():
                ring[gone % SIZE] = _NONE
        self._tick = max(self._tick, tick)

    def take(self, worker: str, reading: Reading, age: float | None = None) -> None:
        """Take in what a worker answered in the present tick; a second answer in the same tick is left out.

        Args:
            worker: its name, the same each time.
            reading: what it answered.
            age: seconds since its process was started; None where it does not say so.
        """
        last = self._last.get(worker)
        if (last is not None and last.tick >= self._tick) or (
            last is None and len(self._last) >= MOST_WORKERS
        ):
            return
        self._last[worker] = _Last(self._tick, reading)
        for key, value in reading.gauges.items():
            self._gauge(key, value)
        began = self._tick - SIZE if age is None else self._tick - max(1, math.ceil(age / EVERY))
        if last is None:
            if began <= self._tick - SIZE:
                return  # what it counted before, and when, nobody can tell
            before: dict[Key, float] = {}
            since = began
        else:
            again = _restarted(last.reading, reading)
            before = {} if again else dict(last.reading.counts)
            since = max(last.tick, began) if again and age is not None else last.tick
        for key, value in reading.counts.items():
            self._count(key, value - before.get(key, 0.0), since)

    def forget(self, worker: str) -> None:
        """Forget a worker that is gone for good; what it did stays."""
        self._last.pop(worker, None)

    def total(self, key: Key) -> float | None:
        """Return what was counted in the hour; None where nothing was measured."""
        known = [value for value in self._rings.get(key, ()) if not math.isnan(value)]
        return sum(known) if known else None

    def rate(self, key: Key) -> float | None:
        """Return how much was counted a second, in the last minute; None where nothing was measured."""
        return _mean(self._values(key)[-POINT:], EVERY)

    def latest(self, key: Key) -> float | None:
        """Return the present value of a gauge; None where it was not measured in this tick."""
        return _mean(self._values(key)[-1:])

    def rates(self, key: Key) -> list[float | None]:
        """Return how much was counted a second in each minute of the hour, oldest first."""
        return [_mean(minute, EVERY) for minute in self._minutes(key)]

    def levels(self, key: Key) -> list[float | None]:
        """Return the greatest value of a gauge in each minute of the hour, oldest first."""
        known = ([value for value in minute if not math.isnan(value)] for minute in self._minutes(key))
        return [max(values, default=None) for values in known]

    def _minutes(self, key: Key) -> Iterator[list[float]]:
        values = self._values(key)
        for start in range(0, SIZE, POINT):
            yield values[start : start + POINT]

    def _values(self, key: Key) -> list[float]:
        ring = self._rings.get(key)
        if ring is None:
            return [_NONE] * SIZE
        first = (self._tick + 1) % SIZE
        return [*ring[first:], *ring[:first]]

    def _ring(self, key: Key) -> array[float]:
        return self._rings.setdefault(key, array("d", [_NONE]) * SIZE)

    def _gauge(self, key: Key, value: float) -> None:
        ring, place = self._ring(key), self._tick % SIZE
        known = ring[place]
        if math.isnan(known):
            ring[place] = value
        else:
            ring[place] = max(known, value) if key[0] in WORST else known + value

    def _count(self, key: Key, increase: float, since: int) -> None:
        """Spread an increase over the ticks after `since`."""
        ring, ticks = self._ring(key), self._tick - since
        for tick in range(max(since, self._tick - SIZE) + 1, self._tick + 1):
            known = ring[tick % SIZE]
            ring[tick % SIZE] = increase / ticks + (0.0 if math.isnan(known) else known)


def _restarted(before: Reading, after: Reading) -> bool:
    """Say whether a worker is another process than before: its start is another one, or something fell."""
    if before.started is not None and after.started is not None and abs(after.started - before.started) > 1:
        return True
    return any(after.counts.get(key, 0.0) < value for key, value in before.counts.items())


def _mean(values: list[float], divisor: int = 1) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) / divisor if known else None

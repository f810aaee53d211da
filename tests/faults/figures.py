"""How long nothing was decided, after each fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles
from typing import Any

from tests.faults.history import CLAIMS, RESPONSES, History, Place, place_of
from tests.faults.nemesis import Struck

_PLACE = ("topic", "partition", "offset")
_JUST_AFTER = 2.0
"""Seconds after a fault in which a stall may begin and still be its work."""


@dataclass(frozen=True)
class Stall:
    """A time in which records of a partition waited and none was answered."""

    lane: tuple[str, int]
    begin: float
    end: float


@dataclass(frozen=True)
class Recovery:
    """What a fault cost.

    Attributes:
        stall: the longest time without decisions of one partition, in seconds; 0: nobody noticed.
        after: how much of it was after the fault had been mended.
        alone: whether nothing else was broken meanwhile, so that it is this fault's.
    """

    number: int
    kind: str
    target: str
    at: float
    seconds: float
    stall: float
    after: float
    alone: bool


def answers(history: History) -> dict[Place, float]:
    """When each input was first answered, by the time at which it was read: a decision, a dead letter, a wait."""
    found: dict[Place, float] = {}

    def note(place: Place, at: float | None) -> None:
        if at is not None:
            found[place] = min(found.get(place, at), at)

    for seen in history.decisions:
        note(history.origin(seen.json), history.seen_at.get(place_of(seen)))
    for place, letters in history.letters.items():
        for seen in letters:
            note(place, history.seen_at.get(place_of(seen)))
    for seen in history.of("deferred"):
        topic, partition, offset = (seen.header(f"gw-origin-{part}") for part in _PLACE)
        if topic and partition and offset:
            place = history.short(topic), int(partition), int(offset)
            note(place, history.seen_at.get(place_of(seen)))
    return found


def stalls(history: History, clock: float) -> list[Stall]:
    """Return when records waited without an answer.

    Args:
        clock: what is added to `time.monotonic` to come to the time of day, in seconds.
    """
    answered = answers(history)
    lanes: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for topic in (CLAIMS, RESPONSES):
        for seen in history.of(topic):
            at = answered.get(place_of(seen))
            if at is not None:
                lanes.setdefault((topic, seen.partition), []).append((at, seen.timestamp / 1000 - clock))
    return [stall for lane, pairs in lanes.items() for stall in _of_lane(lane, sorted(pairs))]


def _of_lane(lane: tuple[str, int], pairs: Sequence[tuple[float, float]]) -> Iterable[Stall]:
    """From when each record was answered, and when it was sent, to the times between answers."""
    oldest = [0.0] * len(pairs)
    least = float("inf")
    for index in range(len(pairs) - 1, -1, -1):
        least = min(least, pairs[index][1])
        oldest[index] = least
    before = 0.0
    for (at, _), sent in zip(pairs, oldest, strict=True):
        begin = max(before, sent)
        if at > begin:
            yield Stall(lane, begin, at)
        before = at


def recoveries(struck: Sequence[Struck], waits: Sequence[Stall], begun: float) -> list[Recovery]:
    """Say of each fault how long nothing was decided."""
    found = []
    for one in struck:
        until = max(one.end, one.begin + _JUST_AFTER)
        mine = [wait for wait in waits if wait.end > one.begin and wait.begin < until]
        worst = max(mine, key=lambda wait: wait.end - max(wait.begin, one.begin), default=None)
        end = worst.end if worst else one.begin
        begin = max(worst.begin, one.begin) if worst else one.begin
        alone = not any(
            other is not one and other.begin < max(end, one.end) and other.end > one.begin - _JUST_AFTER
            for other in struck
        )
        fault = one.fault
        found.append(
            Recovery(
                fault.number,
                fault.kind,
                fault.target,
                round(one.begin - begun, 1),
                round(one.end - one.begin, 1),
                round(end - begin, 2),
                round(max(0.0, end - max(one.end, begin)), 2),
                alone,
            )
        )
    return found


def distribution(values: Sequence[float]) -> dict[str, float]:
    """Return count, median, 90th and 99th percentile and maximum."""
    if not values:
        return {"count": 0}
    cuts = quantiles(values, n=100, method="inclusive") if len(values) > 1 else [values[0]] * 99
    points = {"p50": cuts[49], "p90": cuts[89], "p99": cuts[98], "max": max(values)}
    return {"count": len(values), **{name: round(value, 2) for name, value in points.items()}}


def by_kind(found: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Sum recoveries of runs up by kind; `session` of each is its run's session timeout."""
    kinds: dict[str, list[Mapping[str, Any]]] = {}
    for one in found:
        kinds.setdefault(one["kind"], []).append(one)
    return {
        kind: {
            "faults": len(those),
            "stall": distribution([one["stall"] for one in those if one["alone"]]),
            "after": distribution([one["after"] for one in those if one["alone"]]),
            "stall_by_session": distribution(
                [one["stall"] / one["session"] for one in those if one["alone"]]
            ),
        }
        for kind, those in sorted(kinds.items())
    }

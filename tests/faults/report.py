"""How long nothing was decided after each fault, and what all runs come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf
from statistics import quantiles
from typing import Any, Final

from groundwire.errors import RecordError
from groundwire.messages.decode import decode_review_decision
from tests.faults.history import CLAIMS, RESPONSES, REVIEWS, History, Place, place_of
from tests.faults.nemesis import Struck
from tests.stream.harness import Seen

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

    `stall`: the longest time without decisions of one partition, in seconds; `after`: how much of it came after the
    fault had been mended; `alone`: whether nothing else was broken meanwhile that the same workers need.
    """

    number: int
    kind: str
    target: str
    at: float
    seconds: float
    stall: float
    after: float
    alone: bool


_OF_ROLE: Final = {CLAIMS: "claims", RESPONSES: "responses", "deferred": "deferred", REVIEWS: "reviews"}
"""Who reads which topic."""


def answers(history: History) -> dict[Place, float]:
    """When each record was first answered, by the time at which that was read.

    An answer is a decision, a dead letter, a place on `deferred`; of what is there, what takes it further; of what
    people do, the event that tells what came of it.
    """
    first: dict[Place, float] = {}
    last: dict[Place, float] = {}

    def note(place: Place, seen: Seen, *answered: dict[Place, float]) -> None:
        at = history.seen_at.get(place_of(seen))
        if at is not None:
            for times in answered:
                times[place] = min(times.get(place, inf), at)

    for seen in history.decisions:
        note(history.origin(seen.json), seen, first, *([last] if seen.json["revision"] else []))
    for place, letters in history.letters.items():
        for letter in letters:
            note(place, letter, first, last)
    actions: dict[str, list[Place]] = {}
    for seen in history.of(REVIEWS):
        with suppress(RecordError):
            actions.setdefault(decode_review_decision(seen.value).action_id, []).append(place_of(seen))
    for seen in history.of("audit"):
        for place in actions.get(seen.json["detail"].get("action_id"), ()):
            note(place, seen, first)
    deferred = {place: there for place, there in history.deferred.items() if there in history.seen_at}
    waits = {place: min(history.seen_at[there], first.get(place, inf)) for place, there in deferred.items()}
    return first | waits | {there: last[place] for place, there in deferred.items() if place in last}


def stalls(history: History, clock: float) -> list[Stall]:
    """Return when records waited without an answer; `clock` and `time.monotonic` add up to the time of day."""
    answered = answers(history)
    lanes: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for topic in _OF_ROLE:
        for seen in history.of(topic):
            at = answered.get(place_of(seen))
            sent = seen.timestamp / 1000 - clock  # what workers send has the clock of a worker
            sent = sent if topic != "deferred" else history.seen_at.get(place_of(seen), sent)
            if at is not None and at >= sent:
                lanes.setdefault((topic, seen.partition), []).append((at, sent))
    return [stall for lane, pairs in lanes.items() for stall in _of_lane(lane, sorted(pairs))]


def _of_lane(lane: tuple[str, int], pairs: Sequence[tuple[float, float]]) -> Iterable[Stall]:
    """From when each record was answered, and when it was sent, to the times between answers."""
    oldest = [0.0] * len(pairs)
    least = inf
    for index in reversed(range(len(pairs))):
        oldest[index] = least = min(least, pairs[index][1])
    before = 0.0
    for (at, _), sent in zip(pairs, oldest, strict=True):
        begin = max(before, sent)
        if at > begin:
            yield Stall(lane, begin, at)
        before = at


def recoveries(struck: Sequence[Struck], waits: Sequence[Stall], begun: float) -> list[Recovery]:
    def recovery(one: Struck) -> Recovery:
        fault, until = one.fault, max(one.end, one.begin + _JUST_AFTER)
        mine = [
            wait
            for wait in waits
            if _OF_ROLE[wait.lane[0]] in fault.roles and wait.end > one.begin and wait.begin < until
        ]
        spans = [(max(wait.begin, one.begin), wait.end) for wait in mine]
        begin, end = max(spans, key=lambda span: span[1] - span[0], default=(one.begin, one.begin))
        alone = not any(
            other is not one
            and not fault.roles.isdisjoint(other.fault.roles)
            and other.begin < max(end, one.end)
            and other.end > one.begin - _JUST_AFTER
            for other in struck
        )
        at, seconds = round(one.begin - begun, 1), round(one.end - one.begin, 1)
        stall, after = round(end - begin, 2), round(max(0.0, end - max(one.end, begin)), 2)
        return Recovery(fault.number, fault.kind, fault.target, at, seconds, stall, after, alone)

    return [recovery(one) for one in struck]


def distribution(values: Sequence[float]) -> dict[str, float]:
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
    figures = {}
    for kind, those in sorted(kinds.items()):
        alone = [one for one in those if one["alone"]]
        figures[kind] = {
            "faults": len(those),
            "stall": distribution([one["stall"] for one in alone]),
            "after": distribution([one["after"] for one in alone]),
            "stall_by_session": distribution([one["stall"] / one["session"] for one in alone]),
        }
    return figures


Result = dict[str, Any]


def failed(results: Sequence[Result]) -> bool:
    """Whether a promise was broken, or a fault or part of the suite itself did not do what it should."""
    return any(
        any(result["violations"].values())
        or result["failed_faults"]
        or result["workers"]["tasks_broken"]
        or set(result["workers"]["stopped"]) - {"0"}
        for result in results
    )


def summed(results: Sequence[Result]) -> dict[str, Any]:
    promises: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        for promise, broken in result["violations"].items():
            promises.setdefault(promise, []).extend({"seed": result["seed"], **one} for one in broken)
    count, reasons, letters = Counter[str](), Counter[str](), Counter[str]()
    for result in results:
        count.update({name: told for name, told in result["told"].items() if isinstance(told, int)})
        reasons.update(result["told"]["reasons"])
        letters.update(result["told"]["dead_letters"])
    names = ("seed", "broker", "minutes", "session", "took")
    return {
        "runs": [{name: result[name] for name in names} for result in results],
        "minutes": round(sum(result["minutes"] for result in results), 1),
        "faults": sum(len(result["faults"]) for result in results),
        "failed_faults": [why for result in results for why in result["failed_faults"]],
        "counts": dict(count),
        "reasons": dict(reasons.most_common()),
        "dead_letters": dict(letters.most_common()),
        "violations": promises,
        "recovery": by_kind(one for result in results for one in result["faults"]),
    }


def table(results: Sequence[Result]) -> str:
    total, head = summed(results), "{:18} {:>5} {:>5}" + " {:>6}" * 7
    seeds = ", ".join(f"{run['broker']} {run['seed']}" for run in total["runs"])
    lines = [
        f"{len(results)} runs, {total['minutes']:g} minutes, {total['faults']} faults (seeds: {seeds})",
        ", ".join(f"{count} {name}" for name, count in total["counts"].items()),
        "",
        head.format("fault", "count", "alone", "p50", "p90", "p99", "max", "after", "ratio", "p99"),
    ]
    for kind, figures in total["recovery"].items():
        stall, after, ratio = (figures[name] for name in ("stall", "after", "stall_by_session"))
        lines.append(
            f"{kind:18} {figures['faults']:5} {stall['count']:5} {_cells(stall, 'p50', 'p90', 'p99', 'max')}"
            f" {_cells(after, 'p99')} {_cells(ratio, 'p50', 'p99')}"
        )
    lines += [
        "p50 to max: seconds without decisions of a partition whose records waited, for faults that struck alone;",
        "after: p99 of the part after the fault was mended; ratio: p50 and p99 of the whole in session timeouts.",
        "",
    ]
    for promise, broken in total["violations"].items():
        lines.append(f"{'BROKEN' if broken else 'held':7} {promise}")
        lines += [f"        seed {v['seed']}: {v['record']}: {v['detail']}" for v in broken[:20]]
        lines += [f"        and {len(broken) - 20} more"] if len(broken) > 20 else []
    lines += [f"not brought about: {why}" for why in total["failed_faults"]]
    return "\n".join(lines)


def _cells(figures: dict[str, float], *names: str) -> str:
    return " ".join(f"{figures[name]:6.1f}" if name in figures else f"{'-':>6}" for name in names)

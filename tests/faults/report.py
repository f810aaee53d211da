"""How long nothing was decided after each fault, and what all runs come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, groupby
from math import inf
from statistics import quantiles
from typing import Any, Final

from groundwire.errors import RecordError
from groundwire.messages.decode import decode_review_decision
from tests.faults.history import CLAIMS, RESPONSES, REVIEWS, History, Place, place_of
from tests.faults.nemesis import Struck
from tests.stream.harness import Seen

_JUST_AFTER = 2.0
"""Seconds after a fault in which a stall may begin and still be caused by it."""
_OF_ROLE: Final = {CLAIMS: "claims", RESPONSES: "responses", "deferred": "deferred", REVIEWS: "reviews"}
Stall = tuple[str, float, float]
"""Topic, begin and end of a time in which records of one of its partitions waited and none was answered."""
Result = dict[str, Any]


def answers(history: History) -> dict[Place, float]:
    """When each record was first answered, by the time at which the answer was read.

    Answers are decisions, dead letters and records on `deferred`; for records on `deferred`, the final decision or
    dead letter; for review actions, the audit event with their outcome.
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
    found = []
    for (topic, _), pairs in lanes.items():
        pairs.sort()
        oldest = [*accumulate((sent for _, sent in reversed(pairs)), min)][::-1]
        before = 0.0
        for (at, _), sent in zip(pairs, oldest, strict=True):
            begin = max(before, sent)
            if at > begin:
                found.append((topic, begin, at))
            before = at
    return found


def recoveries(struck: Sequence[Struck], waits: Sequence[Stall], begun: float) -> list[Result]:
    """Return what each fault cost.

    `stall`: the longest time without decisions of one partition, in seconds; `after`: the part of it after the fault
    was mended; `alone`: whether nothing else was broken meanwhile that the same workers need.
    """
    found = []
    for one in struck:
        fault, until = one.fault, max(one.end, one.begin + _JUST_AFTER)
        spans = [
            (max(begin, one.begin), end)
            for topic, begin, end in waits
            if _OF_ROLE[topic] in fault.roles and end > one.begin and begin < until
        ]
        begin, end = max(spans, key=lambda span: span[1] - span[0], default=(one.begin, one.begin))
        alone = not any(
            other is not one
            and not fault.roles.isdisjoint(other.fault.roles)
            and other.begin < max(end, one.end)
            and other.end > one.begin - _JUST_AFTER
            for other in struck
        )
        times = {"at": round(one.begin - begun, 1), "seconds": round(one.end - one.begin, 1)}
        cost = {"stall": round(end - begin, 2), "after": round(max(0.0, end - max(one.end, begin)), 2)}
        which = {"number": fault.number, "kind": fault.kind, "target": fault.target}
        found.append({**which, **times, **cost, "alone": alone})
    return found


def failed(results: Sequence[Result]) -> bool:
    """Whether a promise was broken, or a fault or part of the suite itself did not do what it should."""
    return any(
        any(result["violations"].values())
        or result["failed_faults"]
        or result["workers"]["tasks_broken"]
        or set(result["workers"]["stopped"]) - {"0"}
        for result in results
    )


def table(results: Sequence[Result]) -> str:
    faults = sorted((one for result in results for one in result["faults"]), key=lambda one: str(one["kind"]))
    counts: Counter[str] = Counter()
    promises: dict[str, list[str]] = {}
    for result in results:
        counts.update({name: count for name, count in result["told"].items() if isinstance(count, int)})
        for promise, broken in result["violations"].items():
            told = [f"        seed {result['seed']}: {one['record']}: {one['detail']}" for one in broken]
            promises.setdefault(promise, []).extend(told)
    minutes = sum(result["minutes"] for result in results)
    seeds = ", ".join(f"{result['broker']} {result['seed']}" for result in results)
    head = "{:18} {:>5} {:>5}" + " {:>6}" * 5
    lines = [
        f"{len(results)} runs, {minutes:.1f} minutes, {len(faults)} faults (seeds: {seeds})",
        ", ".join(f"{count} {name}" for name, count in counts.items()),
        "",
        head.format("fault", "count", "alone", "p50", "p90", "p99", "max", "after"),
    ]
    for kind, group in groupby(faults, key=lambda one: str(one["kind"])):
        those = list(group)
        alone = [one for one in those if one["alone"]]
        stall, after = ([one[name] for one in alone] for name in ("stall", "after"))
        cells = f"{_percentiles(stall, 50, 90, 99, 100)} {_percentiles(after, 99)}"
        lines.append(f"{kind:18} {len(those):5} {len(alone):5} {cells}")
    lines += [
        "p50 to max: seconds without decisions of a partition whose records waited, for faults that struck alone;",
        "after: p99 of the part after the fault was mended.",
        "",
    ]
    for promise, told in promises.items():
        lines += [f"{'BROKEN' if told else 'held':7} {promise}", *told[:20]]
        lines += [f"        and {len(told) - 20} more"] if len(told) > 20 else []
    lines += [f"not brought about: {why}" for result in results for why in result["failed_faults"]]
    return "\n".join(lines)


def _percentiles(values: Sequence[float], *percents: int) -> str:
    if not values:
        return " ".join(f"{'-':>6}" for _ in percents)
    cuts = [*(quantiles(values, n=100, method="inclusive") if len(values) > 1 else []), max(values)]
    return " ".join(f"{cuts[min(percent, len(cuts)) - 1]:6.1f}" for percent in percents)

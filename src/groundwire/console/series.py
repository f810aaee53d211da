"""One hour of the workers' metrics, in memory: parsing of their answers, rings of a fixed size, rates over restarts.

No clock and no network. Only the metrics of `MEASURES` are read. A time at which something was not measured is None,
never 0; an increase that nobody watched is spread evenly over the time since the last measurement.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, get_args

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from groundwire.checks.citations import CitationType
from groundwire.errors import WAITED_FOR, ErrorCode
from groundwire.messages.decisions import CitationState, IngestionTier, ReasonCode
from groundwire.messages.topics import TopicName

MetricKey = tuple[str, ...]
"""Name of a measure and the values of its labels."""
OTHER: Final = "other"
"""Stands for a label value that is not on its list: of a worker of another version, or of another program."""
ROLES: Final = ("claims", "responses", "deferred", "reviews")
TENANT_LIMITS: Final = ("places", "bytes", "requests")
TENANT_REFUSALS: Final = ("review", "requests", "hosts")
MOST_LINES: Final = 2_000
"""Lines of an answer that are parsed; a worker has at most some 500 of these."""
_MAX_VALUE: Final = 1e15
"""No count of a worker is greater; a sum of such numbers is still a number."""
_INPUTS: Final = {role: role for role in ROLES} | {
    str(TopicName.LLM_RESPONSES): "responses",
    str(TopicName.REVIEW_DECISIONS): "reviews",
}
_INPUT: Final = {"input": _INPUTS}
_STARTED: Final = "process_start_time_seconds"
EVERY: Final = 10
"""Seconds between two readings: a tick."""
SIZE: Final = 360
"""Ticks that are kept: an hour."""
POINT: Final = 6
"""Ticks of one point of a line: a minute."""
MOST_WORKERS: Final = 100
_UNMEASURED: Final = math.nan


def _same(values: Iterable[str]) -> dict[str, str]:
    return {str(value): str(value) for value in values}


@dataclass(frozen=True, slots=True)
class Measure:
    """One metric that is read.

    Attributes:
        name: first part of its keys.
        sample: as it stands in what a worker answers.
        labels: those that are kept, each with its values; samples that differ in others are added up.
        counter: whether it only grows, until its worker is started again.
        worst: whether the deployment's number is the worst of its workers' and not their sum.
    """

    name: str
    sample: str
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    counter: bool = True
    worst: bool = False

    def every_key(self) -> list[MetricKey]:
        """Return every key that it can have."""
        found: list[MetricKey] = [(self.name,)]
        for values in self.labels.values():
            known = [*dict.fromkeys(values.values()), OTHER]
            found = [(*key, value) for key in found for value in known]
        return found

    def key(self, labels: Mapping[str, str]) -> MetricKey:
        """Return the key of a sample."""
        return (self.name, *(known.get(labels.get(name, ""), OTHER) for name, known in self.labels.items()))


MEASURES: Final = (
    Measure("records", "groundwire_batch_records_sum", _INPUT),
    Measure("tiers", "groundwire_decisions_total", {"tier": _same(IngestionTier)}),
    Measure("reasons", "groundwire_decisions_total", {"reason_code": _same(ReasonCode)}),
    Measure("repeats", "groundwire_repeats_total"),
    Measure("provisional", "groundwire_provisional_total"),
    Measure("deferred", "groundwire_deferred_total"),
    Measure("dead_letters", "groundwire_dead_letters_total", {"code": _same(ErrorCode)}),
    Measure(
        "citations",
        "groundwire_verifications_total",
        {"type": _same(get_args(CitationType)), "state": _same(CitationState)},
    ),
    Measure("lag", "groundwire_lag_records", _INPUT, counter=False),
    Measure("commit_age", "groundwire_commit_age_seconds", _INPUT, counter=False, worst=True),
    Measure("waiting", "groundwire_waiting_claims", counter=False, worst=True),
    Measure("partitions", "groundwire_partitions", counter=False),
    Measure(
        "tenant_most", "groundwire_tenant_most", {"limit": _same(TENANT_LIMITS)}, counter=False, worst=True
    ),
    Measure(
        "tenant_limit", "groundwire_tenant_limit", {"limit": _same(TENANT_LIMITS)}, counter=False, worst=True
    ),
    Measure(
        "tenants_at_limit",
        "groundwire_tenants_at_limit",
        {"limit": _same(TENANT_LIMITS)},
        counter=False,
        worst=True,
    ),
    Measure("tenant_refusals", "groundwire_tenant_refusals_total", {"limit": _same(TENANT_REFUSALS)}),
    Measure("paused_hosts", "groundwire_paused_hosts", counter=False),
    Measure("paused", "groundwire_paused", {"dependency": _same(WAITED_FOR)}, counter=False),
)
WORST: Final = frozenset(measure.name for measure in MEASURES if measure.worst)
_BY_SAMPLE: Final = {
    sample: [measure for measure in MEASURES if measure.sample == sample]
    for sample in {measure.sample for measure in MEASURES}
}
_BEGINNINGS: Final = (*_BY_SAMPLE, _STARTED)
_COUNTS: Final = [
    key for one in MEASURES if one.counter and "input" not in one.labels for key in one.every_key()
]


class UnreadableMetrics(ValueError):
    """An answer is not that of a worker."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """The metrics of a worker at one time.

    Attributes:
        role: its role; None where it does not say so yet.
        started: when its process was started, in seconds since 1970; None where it does not say so.
        counts: every count that a worker of its role has; one that it has not begun is 0.
        gauges: those that it has.
    """

    role: str | None
    started: float | None
    counts: Mapping[MetricKey, float]
    gauges: Mapping[MetricKey, float]

    @property
    def paused(self) -> list[str]:
        """What it waits for."""
        return sorted(key[1] for key, value in self.gauges.items() if key[0] == "paused" and value)


def parse_metrics(text: str) -> Measurement:
    """Parse the metrics of a worker.

    Raises:
        UnreadableMetrics: it cannot be read, is more than a worker has, or holds no measure of a worker at all.
    """
    counts: dict[MetricKey, float] = dict.fromkeys(_COUNTS, 0.0)
    gauges: dict[MetricKey, float] = {}
    started, seen = None, False
    for sample in _samples(text):
        if not (math.isfinite(sample.value) and 0 <= sample.value <= _MAX_VALUE):
            raise UnreadableMetrics(sample.name)
        if sample.name == _STARTED:
            started = sample.value
        for measure in _BY_SAMPLE.get(sample.name, ()):
            seen = True
            found = counts if measure.counter else gauges
            key = measure.key(sample.labels)
            found[key] = found.get(key, 0.0) + sample.value
    if not seen:
        raise UnreadableMetrics("no worker")
    role = next((key[1] for key in gauges if key[0] == "lag" and key[1] in ROLES), None)
    if role is not None:
        counts.setdefault(("records", role), 0.0)
    return Measurement(role, started, counts, gauges)


def _samples(text: str) -> Iterator[Sample]:
    lines = [line for line in text.split("\n") if line.startswith(_BEGINNINGS)]
    if len(lines) > MOST_LINES:
        raise UnreadableMetrics("too many lines")
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            yield from family.samples
    except Exception as exc:  # noqa: BLE001 - what the parser raises depends on what is wrong with the text
        raise UnreadableMetrics(type(exc).__name__) from None


@dataclass(slots=True)
class _LastMeasurement:
    """What is known of a worker: the tick of its last measurement, and the measurement."""

    tick: int
    measurement: Measurement


class SeriesHistory:
    """The metrics of all workers together.

    Args:
        tick: the present one; ticks are counted up from anywhere.
    """

    def __init__(self, tick: int = 0) -> None:
        self._tick = tick
        self._rings: dict[MetricKey, array[float]] = {}
        self._last: dict[str, _LastMeasurement] = {}

    @property
    def tick(self) -> int:
        """The present tick."""
        return self._tick

    def __len__(self) -> int:
        """Return how many numbers are kept."""
        return sum(len(ring) for ring in self._rings.values())

    def advance(self, tick: int) -> None:
        """Begin a tick, and drop what is older than an hour; a tick that is not later changes nothing."""
        for gone in range(max(self._tick + 1, tick - SIZE + 1), tick + 1):
            for ring in self._rings.values():
                ring[gone % SIZE] = _UNMEASURED
        self._tick = max(self._tick, tick)

    def take(self, worker: str, measurement: Measurement, age: float | None = None) -> None:
        """Take in what a worker answered in the present tick; a second answer in the same tick is left out.

        Args:
            worker: its name, the same each time.
            measurement: what it answered.
            age: seconds since its process was started; None where it does not say so.
        """
        last = self._last.get(worker)
        if (last is not None and last.tick >= self._tick) or (
            last is None and len(self._last) >= MOST_WORKERS
        ):
            return
        self._last[worker] = _LastMeasurement(self._tick, measurement)
        for key, value in measurement.gauges.items():
            self._gauge(key, value)
        began = self._tick - SIZE if age is None else self._tick - max(1, math.ceil(age / EVERY))
        if last is None:
            if began <= self._tick - SIZE:
                return  # when it counted what it has is unknown
            before: dict[MetricKey, float] = {}
            since = began
        else:
            again = _restarted(last.measurement, measurement)
            before = {} if again else dict(last.measurement.counts)
            since = max(last.tick, began) if again and age is not None else last.tick
        for key, value in measurement.counts.items():
            self._count(key, value - before.get(key, 0.0), since)

    def forget(self, worker: str) -> None:
        """Forget a worker that is gone; what it counted stays."""
        self._last.pop(worker, None)

    def total(self, key: MetricKey) -> float | None:
        """Return what was counted in the hour; None where nothing was measured."""
        known = [value for value in self._rings.get(key, ()) if not math.isnan(value)]
        return sum(known) if known else None

    def rate(self, key: MetricKey) -> float | None:
        """Return how much was counted a second, in the last minute; None where nothing was measured."""
        return _mean(self._values(key)[-POINT:], EVERY)

    def latest(self, key: MetricKey) -> float | None:
        """Return the present value of a gauge; None where it was not measured in this tick."""
        return _mean(self._values(key)[-1:])

    def rates(self, key: MetricKey) -> list[float | None]:
        """Return how much was counted a second in each minute of the hour, oldest first."""
        return [_mean(minute, EVERY) for minute in self._minutes(key)]

    def levels(self, key: MetricKey) -> list[float | None]:
        """Return the greatest value of a gauge in each minute of the hour, oldest first."""
        known = ([value for value in minute if not math.isnan(value)] for minute in self._minutes(key))
        return [max(values, default=None) for values in known]

    def _minutes(self, key: MetricKey) -> Iterator[list[float]]:
        values = self._values(key)
        for start in range(0, SIZE, POINT):
            yield values[start : start + POINT]

    def _values(self, key: MetricKey) -> list[float]:
        ring = self._rings.get(key)
        if ring is None:
            return [_UNMEASURED] * SIZE
        first = (self._tick + 1) % SIZE
        return [*ring[first:], *ring[:first]]

    def _ring(self, key: MetricKey) -> array[float]:
        return self._rings.setdefault(key, array("d", [_UNMEASURED]) * SIZE)

    def _gauge(self, key: MetricKey, value: float) -> None:
        ring, place = self._ring(key), self._tick % SIZE
        known = ring[place]
        if math.isnan(known):
            ring[place] = value
        else:
            ring[place] = max(known, value) if key[0] in WORST else known + value

    def _count(self, key: MetricKey, increase: float, since: int) -> None:
        """Spread an increase over the ticks after `since`."""
        ring, ticks = self._ring(key), self._tick - since
        for tick in range(max(since, self._tick - SIZE) + 1, self._tick + 1):
            known = ring[tick % SIZE]
            ring[tick % SIZE] = increase / ticks + (0.0 if math.isnan(known) else known)


def _restarted(before: Measurement, after: Measurement) -> bool:
    """Say whether a worker is another process than before: its start is another one, or something fell."""
    if before.started is not None and after.started is not None and abs(after.started - before.started) > 1:
        return True
    return any(after.counts.get(key, 0.0) < value for key, value in before.counts.items())


def _mean(values: list[float], divisor: int = 1) -> float | None:
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) / divisor if known else None

"""What the page for operators reads of a worker's metrics: a closed list, whatever else a worker answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, get_args

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from groundwire.checks.citations import CitationType
from groundwire.errors import ErrorCode
from groundwire.messages.decisions import CitationState, ReasonCode
from groundwire.messages.tiers import IngestionTier
from groundwire.messages.topics import TopicName

Key = tuple[str, ...]
"""Name of a measure and the values of its labels."""

OTHER: Final = "other"
"""A label's value that is not on its list: of another version's worker, or of whoever answers in its place."""
ROLES: Final = ("claims", "responses", "deferred", "reviews")
WAITED_FOR: Final = ("state", "state_lost", "broker", "dead_letters", "internal")
MOST_LINES: Final = 2_000
"""Lines of an answer that are read; a worker has some 500 of these, were every label to occur."""
_MOST: Final = 1e15
"""No count of a worker is greater; a sum of such numbers is still a number."""

_INPUTS: Final = {role: role for role in ROLES} | {
    str(TopicName.LLM_RESPONSES): "responses",
    str(TopicName.REVIEW_DECISIONS): "reviews",
}


def _same(values: Iterable[str]) -> dict[str, str]:
    return {str(value): str(value) for value in values}


@dataclass(frozen=True, slots=True)
class Measure:
    """One thing that is read.

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

    def every_key(self) -> list[Key]:
        """Return every key that it can have."""
        found: list[Key] = [(self.name,)]
        for values in self.labels.values():
            known = [*dict.fromkeys(values.values()), OTHER]
            found = [(*key, value) for key in found for value in known]
        return found

    def key(self, labels: Mapping[str, str]) -> Key:
        """Return the key of a sample."""
        return (self.name, *(known.get(labels.get(name, ""), OTHER) for name, known in self.labels.items()))


_INPUT: Final = {"input": _INPUTS}
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
    Measure("paused", "groundwire_paused", {"dependency": _same(WAITED_FOR)}, counter=False),
)
WORST: Final = frozenset(measure.name for measure in MEASURES if measure.worst)
_STARTED: Final = "process_start_time_seconds"
_BY_SAMPLE: Final = {
    sample: [measure for measure in MEASURES if measure.sample == sample]
    for sample in {measure.sample for measure in MEASURES}
}
_BEGINNINGS: Final = (*_BY_SAMPLE, _STARTED)
_COUNTS: Final = [
    key for one in MEASURES if one.counter and "input" not in one.labels for key in one.every_key()
]


class Unreadable(ValueError):
    """What was answered is not what a worker answers."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a worker answered at one time.

    Attributes:
        role: its role; None where it does not say so yet.
        started: when its process was started, in seconds since 1970; None where it does not say so.
        counts: every count that a worker of its role has; one that it has not begun is 0.
        gauges: those that it has.
    """

    role: str | None
    started: float | None
    counts: Mapping[Key, float]
    gauges: Mapping[Key, float]

    @property
    def paused(self) -> list[str]:
        """What it waits for."""
        return sorted(key[1] for key, value in self.gauges.items() if key[0] == "paused" and value)


def read(text: str) -> Reading:
    """Read what a worker answers.

    Raises:
        Unreadable: it cannot be read, is more than a worker has, or holds no measure of a worker at all.
    """
    counts: dict[Key, float] = dict.fromkeys(_COUNTS, 0.0)
    gauges: dict[Key, float] = {}
    started, seen = None, False
    for sample in _samples(text):
        if not (math.isfinite(sample.value) and 0 <= sample.value <= _MOST):
            raise Unreadable(sample.name)
        if sample.name == _STARTED:
            started = sample.value
        for measure in _BY_SAMPLE.get(sample.name, ()):
            seen = True
            found = counts if measure.counter else gauges
            key = measure.key(sample.labels)
            found[key] = found.get(key, 0.0) + sample.value
    if not seen:
        raise Unreadable("no worker")
    role = next((key[1] for key in gauges if key[0] == "lag" and key[1] in ROLES), None)
    if role is not None:
        counts.setdefault(("records", role), 0.0)
    return Reading(role, started, counts, gauges)


def _samples(text: str) -> Iterator[Sample]:
    lines = [line for line in text.split("\n") if line.startswith(_BEGINNINGS)]
    if len(lines) > MOST_LINES:
        raise Unreadable("too many lines")
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            yield from family.samples
    except Exception as exc:  # noqa: BLE001 - what the parser raises depends on what is wrong with the text
        raise Unreadable(type(exc).__name__) from None

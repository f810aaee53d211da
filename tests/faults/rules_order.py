"""What the records of a partition bring to `approved` comes in their order.

A worker reads a partition from front to back, decides and publishes in that order, and commits behind it; who reads
it again begins at what was committed. So of two records of one key in one partition the first is told of first, by
however many workers. Nothing is promised between two topics or partitions: what was put on `deferred`, because
something had to be asked or state was out of reach, is overtaken by what was not, and a repeat of a claim may tell
what people decided of it before their own record does.

Which record a decision was published for is told by its `traceparent`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

from tests.faults.history import History, Place, Violation, name, place_of, subject_of
from tests.stream.harness import Seen

Lane = tuple[bytes | None, str, int]
"""Key, and the topic and partition that a worker reads."""


def order(history: History) -> Iterator[Violation]:
    """Of two records of a key in one partition, the first is told of first on `approved`."""
    tellings = _Tellings(history)
    latest: dict[Lane, tuple[int, Seen]] = {}
    for seen in sorted(history.of("approved"), key=place_of):
        cause = history.cause(seen)
        if cause is None:
            yield Violation("order", name(seen), "its traceparent is that of no record of its subject")
            continue
        topic, partition, offset = history.deferred.get(cause, cause)
        lane = (seen.key, topic, partition)
        before = latest.get(lane)
        if before and offset < before[0] and tellings.in_its_turn(cause, seen):
            places = f"{topic}/{partition}@{offset} and @{before[0]}"
            detail = f"comes after {name(before[1])}, whose record came later: {places}"
            yield Violation("order", name(seen), detail)
        if (before is None or offset > before[0]) and tellings.of_its_lane(cause, seen):
            latest[lane] = offset, seen


class _Tellings:
    """Decisions, by the record for which they were published; provisional ones tell nothing."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._of: dict[Place | None, list[Seen]] = {}
        for seen in history.decisions:
            if seen.json["revision"] > 0:
                self._of.setdefault(history.cause(seen), []).append(seen)

    @cached_property
    def _waited(self) -> set[object]:
        history = self._history
        return {subject for (_, subject), place in history.causes.items() if place in history.deferred}

    def in_its_turn(self, cause: Place, seen: Seen) -> bool:
        """Whether a record was answered this when it was read for the first time.

        One that is read again is told what became of its subject meanwhile. A repeat of what waits is told nothing
        until then.
        """
        tellings = self._of[cause]
        again = self._history.origin(seen.json) != cause and cause not in self._history.deferred
        if again and subject_of(seen.json) in self._waited:
            return False
        first = min(tellings, key=lambda each: each.json["revision"])
        return first.json["revision"] == seen.json["revision"] and _first(tellings) is seen

    def of_its_lane(self, cause: Place, seen: Seen) -> bool:
        """Whether the worker that reads the record's partition published this, and not one before it.

        Records on `deferred` may be read on their input topic once more, and be told of from there too. From
        `deferred` they are told of in any case: the last time at the latest, or elsewhere by a later revision.
        """
        if cause not in self._history.deferred:
            return True
        tellings = self._of[cause]
        return all(each.topic == "approved" for each in tellings) and max(tellings, key=place_of) is seen


def _first(tellings: list[Seen]) -> Seen:
    return min((each for each in tellings if each.topic == "approved"), key=place_of)

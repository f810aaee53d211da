"""Whether a worker lives and is ready: what it waits for, and when it last made progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import structlog

from agents.hooks import Batch, Hook
from groundwire import metrics

log = structlog.get_logger()

STALL_SECONDS: Final = 120.0
"""Seconds without progress after which a busy worker counts as dead."""

SILENT_SECONDS: Final = {"broker": 6.0, "state": 7.0}
"""Seconds without an answer after which a worker is not ready; it asks every one or two, also without traffic.

State: more than a tick and the five seconds for which an answer is late because one primary of several gives none.
"""

REMIND_SECONDS: Final = 60.0
"""Seconds between two log lines about the same pause."""


class Health(Hook):
    """What the worker waits for, and when it last made progress. Logged once per change, and once a minute.

    Broker and state are watched from the first `tick` on.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[tuple[str, object], float] = {}  # since when, by dependency and waiter
        self._progressed = self.loop_ticked = clock()
        self.partitions: int | None = None
        self.under_way = 0
        self._answered: dict[str, float] = {}  # when broker and state did
        self._logged: dict[str, float] = {}  # when the pause was, by dependency

    async def before_batch(self, batch: Batch) -> None:  # noqa: ARG002 - as all hooks
        if not self.under_way:
            self.progress()
        self.under_way += 1

    async def after_batch(self, batch: Batch) -> None:
        self.under_way -= 1
        self.progress()
        for dependency, waiter in list(self._waiting):
            if waiter is batch:
                self.end(dependency, batch)

    @property
    def current(self) -> frozenset[str]:
        """The dependencies that are waited for."""
        return frozenset(dependency for dependency, _ in list(self._waiting))  # other threads ask too

    def begin(self, dependency: str, waiter: object = None) -> float:
        """Note that someone waits; return since when, in seconds of the clock."""
        now = self._clock()
        if dependency not in self.current:
            metrics.PAUSED.labels(dependency).set(1)
            metrics.PAUSES.labels(dependency).inc()
            log.warning("paused", dependency=dependency)
            self._logged[dependency] = now
        return self._waiting.setdefault((dependency, waiter), now)

    def end(self, dependency: str, waiter: object = None) -> None:
        waited = self._waiting.pop((dependency, waiter), None) is not None
        if waited and dependency not in self.current:
            metrics.PAUSED.labels(dependency).set(0)
            log.info("resumed", dependency=dependency)

    def note_topics(self, missing: Sequence[str]) -> None:
        """Note which topics are missing; named once."""
        if missing and "topics" not in self.current:
            log.error("topics.missing", topics=missing, hint="`groundwire topics declare` makes them")
        (self.begin if missing else self.end)("topics")

    def waiters(self, dependency: str) -> list[Any]:
        """Return who waits, besides the watch of broker and state."""
        return [
            waiter for waited_for, waiter in self._waiting if waited_for == dependency and waiter is not self
        ]

    @property
    def waits_for(self) -> frozenset[str]:
        """The dependencies waited for, broker and state included if they were silent for too long."""
        return self.current | self._silent()

    def _silent(self) -> set[str]:
        now = self._clock()
        return {name for name, at in list(self._answered.items()) if now - at > SILENT_SECONDS[name]}

    def answered(self, dependency: str) -> None:
        """Note an answer of `broker` or `state`."""
        self._answered[dependency] = self._clock()

    def tick(self) -> None:
        """Note that the event loop runs, and what is silent; log again what is waited for."""
        now = self.loop_ticked = self._clock()
        for dependency in SILENT_SECONDS:
            self._answered.setdefault(dependency, now)
        silent = self._silent()
        for dependency in SILENT_SECONDS:
            (self.begin if dependency in silent else self.end)(dependency, self)
        for dependency in self.current:
            if now - self._logged[dependency] >= REMIND_SECONDS:
                since = min(at for (name, _), at in self._waiting.items() if name == dependency)
                log.warning("paused", dependency=dependency, seconds=round(now - since))
                self._logged[dependency] = now

    def progress(self) -> None:
        self._progressed = self._clock()

    def alive(self) -> bool:
        """Return whether the event loop ran of late, and work progressed or waits for a dependency."""
        now = self._clock()
        if now - self.loop_ticked > STALL_SECONDS:
            return False
        return not self.under_way or bool(self.current) or now - self._progressed < STALL_SECONDS

    def stalled(self) -> str:
        """Return why the worker counts as dead; empty: it lives."""
        return "" if self.alive() else "no progress"

    def unready(self) -> str:
        """Return why the worker is not ready: it has not joined its group, or waits for something; empty: it is."""
        if self.waits_for:
            return "paused: " + ", ".join(sorted(self.waits_for))
        return "starting" if self.partitions is None else ""

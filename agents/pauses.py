"""What the worker waits for, visibly, and when it last got on: the ground of liveness and readiness."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from agents.tenure import Tenure
from groundwire import metrics

log = structlog.get_logger()

_LOOK_AGAIN = 5.0


class Pauses:
    """Dependencies that are waited for, each shown as a gauge and logged once when it begins and ends."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._current: set[str] = set()
        self._progressed = clock()
        self.loop_ticked = clock()
        self.partitions: int | None = None
        self.under_way = 0

    @property
    def current(self) -> frozenset[str]:
        """What is waited for right now."""
        return frozenset(self._current)

    def begin(self, dependency: str) -> None:
        """Say that the worker waits for something."""
        if dependency not in self._current:
            self._current.add(dependency)
            metrics.PAUSED.labels(dependency).set(1)
            log.warning("paused", dependency=dependency)

    def end(self, dependency: str) -> None:
        """Say that it waits no longer."""
        if dependency in self._current:
            self._current.remove(dependency)
            metrics.PAUSED.labels(dependency).set(0)
            log.info("resumed", dependency=dependency)

    async def wait_if(self, dependency: str, wrong: Callable[[], bool], tenure: Tenure) -> None:
        """Pause for as long as something is wrong. Raises: Released."""
        while wrong():
            if dependency not in self._current:
                log.error(
                    "worker.paused",
                    why=dependency,
                    hint="100 records in a row could not be decided: check policy, keys and producers, then restart",
                )
            self.begin(dependency)
            await tenure.pause(_LOOK_AGAIN)
        self.end(dependency)

    def tick(self) -> None:
        """Note that the event loop runs."""
        self.loop_ticked = self._clock()

    def starts(self) -> None:
        """Note that a batch is under way; where nothing was, its time begins now."""
        if not self.under_way:
            self.progress()
        self.under_way += 1

    def progress(self) -> None:
        """Note that something was settled."""
        self._progressed = self._clock()

    def alive(self, patience: float) -> bool:
        """Say whether the event loop runs and work that is under way gets on, or waits for a known dependency."""
        now = self._clock()
        if now - self.loop_ticked > patience:
            return False
        return not self.under_way or bool(self._current) or now - self._progressed < patience

    def ready(self) -> bool:
        """Say whether the worker has joined its group and waits for nothing."""
        return self.partitions is not None and not self._current

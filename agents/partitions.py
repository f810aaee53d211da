"""The assigned partitions of a worker, each with its loop; Faust's consumer and agent call this."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

import structlog
from faust.types import TP

from agents.app import tune_gc
from agents.book import PartitionBook
from agents.hooks import Commits
from agents.loop import PartitionLoop, Services
from groundwire import metrics
from groundwire.logs import report_fault
from groundwire.messages.headers import InboundRecord

log = structlog.get_logger()

COPY_AGE: Final = 20.0
"""Seconds for which a record on `deferred` that is not due stays there before it is copied to the end of the topic.

An outage so copies each claim at most three times a minute, besides its look-ups, and delays what follows by this much.
"""


class Partitions:
    """Begins the loops of assigned partitions, and ends them at a rebalance; `note`: queues an audit event."""

    def __init__(self, services: Services, note: Callable[..., None] = lambda *_, **__: None) -> None:
        self._services = services
        self._note = note
        metrics.RECORDS_LOST.labels(services.role.name)  # from 0, so that the first loss is an increase
        self._loops: dict[TP, PartitionLoop] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._before: dict[TP, set[asyncio.Task[None]]] = {}
        self._stopped = False

    def new_book(self) -> PartitionBook:
        """Return the empty book of a partition."""
        role, clock = self._services.role, self._services.clock
        return PartitionBook(role.max_bytes, role.max_records, large=role.large, due=self._due, clock=clock)

    def _due(self, record: InboundRecord) -> float:
        """Return when a record of `deferred` is processed: at its next look-up, or copied once it is `COPY_AGE` old.

        In seconds of the loop's clock: the wall clock may be set back.
        """
        role, clock = self._services.role, self._services.clock
        retry = role.original(record).retry if role.deferred else None
        if retry is None:
            return 0.0
        now = time.time()
        return clock() + min(retry.due / 1000, min(record.timestamp / 1000, now) + COPY_AGE) - now

    def submit(self, event: Any) -> None:  # noqa: ANN401 - Faust's event
        """Wake the loop of the partition of which records were fetched."""
        tp, consumer = event.message.tp, event.app.consumer
        book = consumer.books.get(tp)
        if book is None or self._stopped:  # an earlier assignment's
            return
        loop = self._loops.get(tp)
        if loop is None:
            earlier, room = self._before.pop(tp, set()), partial(consumer.note_room, tp)
            loop = PartitionLoop(tp, book, self._services, earlier=earlier, room=room)
            self._loops[tp] = loop
            task = asyncio.create_task(self._run(loop, event.app))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        loop.wake()

    def note_lost(self, tp: TP, first: int, end: int) -> None:
        """Report records that retention deleted before they were read; after a crash they are reported again."""
        lost = {"topic": tp.topic, "partition": tp.partition, "first": first, "end": end}
        log.error(
            "records.lost", **lost, records=end - first, hint="retention deleted them before they were read"
        )
        metrics.RECORDS_LOST.labels(self._services.role.name).inc(end - first)
        self._note("records_lost", lost)

    def before_assignment(self) -> None:
        """Begin new leases after a rebalance; everything read before is forgotten."""
        for tp, loop in self._loops.items():
            loop.end()
            self._before.setdefault(tp, set()).update(loop.running)
        self._loops = {}
        for hook in self._services.hooks:
            hook.before_assignment()

    def after_assignment(self, tps: set[TP]) -> None:
        """Report that the partitions can be read."""
        self._services.health.partitions = len(tps)
        metrics.PARTITIONS.set(len(tps))
        tune_gc()
        log.info("ready", role=self._services.role.name, partitions=sorted(tp.partition for tp in tps))

    async def before_commit(self, commits: Commits) -> Commits:
        """Return what may be committed."""
        for hook in self._services.hooks:
            commits = await hook.before_commit(commits)
        return commits

    def release(self) -> None:
        """End all leases: what waits is left to the next holder, what runs is finished."""
        for loop in self._loops.values():
            loop.end()

    async def finish(self) -> None:
        """End all leases, and wait for what runs."""
        self.release()
        for loop in list(self._loops.values()):
            await loop.finish()

    def stop(self) -> None:
        self._stopped = True
        self.release()

    def state_answered(self, unusable: Collection[int] = ()) -> None:
        """End the outages of partitions of which nothing runs that would find out itself.

        `unusable`: partitions whose primary does not answer, or refuses writes.
        """
        for loop in self._services.health.waiters("state"):
            if loop.lease.over or not (loop.running or loop.tp.partition in unusable):
                self._services.health.end("state", loop)

    async def _run(self, loop: PartitionLoop, app: Any) -> None:  # noqa: ANN401 - Faust's app
        try:
            await loop.run()
        except Exception as exc:  # noqa: BLE001 - the next owner reads the records again
            report_fault("partition.failed", exc, topic=loop.tp.topic, partition=loop.tp.partition)
            await app.crash(exc)

"""The mark of the records that a worker has started: who finds one knows what a dead worker was at.

A record in flight at two crashes runs alone; at a third it is a dead letter.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from faust.types import TP

from agents.book import ALONE
from agents.hooks import Batch, Hook
from agents.loop import PartitionLoop
from groundwire.errors import ErrorCode, RecordError, StateError
from groundwire.gate.types import DeadLetter
from groundwire.state.model import InFlightMark
from groundwire.state.redis import RedisState

log = structlog.get_logger()

GIVEN_UP: Final = 3
"""Crashes at which a record becomes a dead letter."""

_SECONDS: Final = 0.25
"""How long a mark is waited for; a lost one costs one more crash."""


class CrashMarks(Hook):
    """Writes the marks of partitions, reads those that dead workers left, and gives up records."""

    def __init__(self, state: RedisState) -> None:
        self._state = state
        self._sending: set[asyncio.Task[None]] = set()

    async def before_loop(self, loop: PartitionLoop) -> None:
        """Isolate what the last worker left, with this crash counted; unreachable state counts as no mark."""
        tp, found = loop.tp, None
        try:
            left = await self._state.marks(tp.topic, tp.partition)
        except StateError:
            left = None
        if left is not None:
            found = InFlightMark(left.first, left.last, left.crashes + 1)
            where = {"topic": tp.topic, "partition": tp.partition, "first": found.first, "last": found.last}
            log.warning("crash.found", **where, crashes=found.crashes)
        loop.book.isolate(found)

    async def before_prepare(self, batch: Batch) -> None:
        """Mark records as started: waiting crashes no worker."""
        if not batch.entries[0].started:
            for entry in batch.entries:
                entry.started = True
            answered = any(entry.crashes for entry in batch.entries)
            await self._write(batch.loop.tp, batch.loop.book.mark, answered=answered)
        if batch.entries[0].crashes >= GIVEN_UP:
            await self._give_up(batch)

    async def after_batch(self, batch: Batch) -> None:
        """Mark what still runs; a worker that exits cleanly leaves no mark."""
        loop = batch.loop
        if loop.lease.over:
            await self._write(loop.tp, loop.book.mark, answered=True)
        else:
            self._send(loop.tp, loop.book.mark, answered=False)

    async def _give_up(self, batch: Batch) -> None:
        (record,), crashes, is_dead = batch.originals, batch.entries[0].crashes, True
        error = RecordError(ErrorCode.WORKER_CRASH, f"a worker died {crashes} times over this record")
        # once its identity is read without a crash, state is asked again after each further crash
        alone = InFlightMark(batch.first_offset, batch.first_offset, ALONE)
        try:
            if crashes == GIVEN_UP:  # at the next crash even its identity is not read again
                is_dead = await batch.by.handler.abandon(record, self._state.give_up)
        except RecordError as unreadable:
            error = unreadable
        except StateError:
            await self._write(batch.loop.tp, alone, answered=True)
            raise
        await self._write(batch.loop.tp, alone, answered=True)
        if is_dead:
            batch.prepared = [DeadLetter(record, error)]

    async def _write(self, tp: TP, mark: InFlightMark | None, *, answered: bool) -> None:
        """Write a mark before its records are processed.

        It survives this process once the operating system has it, so its answer is waited for only if asked to be.
        """
        await asyncio.wait([self._send(tp, mark, answered=answered)], timeout=_SECONDS)

    def _send(self, tp: TP, mark: InFlightMark | None, *, answered: bool) -> asyncio.Task[None]:
        async def send() -> None:
            try:
                await self._state.mark(tp.topic, tp.partition, mark, answered=answered)
            except StateError:
                log.debug("crash.mark_not_kept", topic=tp.topic, partition=tp.partition)

        sending = asyncio.create_task(send())
        self._sending.add(sending)  # the event loop holds no reference to it
        sending.add_done_callback(self._sending.discard)
        return sending

"""Records that bring a worker down: at two crashes they run alone, at a third they are dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from groundwire.errors import StateError
from groundwire.messages.inbound import InboundRecord
from groundwire.state.model import Mark
from groundwire.state.redis import RedisState

log = structlog.get_logger()

ALONE: Final = 2
GIVEN_UP: Final = 3

_PATIENCE: Final = 0.25
"""Seconds that a note is waited for: one that is not sent, or that state does not take, costs one more crash."""

Portion = tuple[Sequence[InboundRecord], int]
"""Records that run together, and how many crashes they have survived."""


class CrashGuard:
    """Notes what is in flight of a partition, and knows what was when its last worker died.

    It belongs to one tenure: a fetch may bring less than what was in flight, so that several batches go by
    until the guard has seen the last of it.
    """

    def __init__(self, state: RedisState, topic: str, partition: int) -> None:
        self._state = state
        self._topic = topic
        self._partition = partition
        self._left: Mark | None = None
        self._sending: set[asyncio.Task[None]] = set()

    async def read(self) -> None:
        """Read what the partition's last worker left in flight; state out of reach counts as nothing."""
        try:
            left = await self._state.marks(self._topic, self._partition)
        except StateError:
            left = None
        if left is not None:
            self._left = Mark(left.first, left.last, left.crashes + 1)
            log.warning(
                "crash.found",
                topic=self._topic,
                partition=self._partition,
                first=left.first,
                last=left.last,
                crashes=self._left.crashes,
            )

    def portions(self, records: Sequence[InboundRecord]) -> list[Portion]:
        """Cut a batch into portions, in its order; suspects run alone from their second crash on."""
        left = self._left
        if left is None or records[0].offset > left.last:
            self._left = None
            return [(records, 0)]
        if left.crashes < ALONE:
            return [(records, left.crashes)]
        portions: list[tuple[list[InboundRecord], int]] = []
        together = False
        for record in records:
            suspect = left.first <= record.offset <= left.last
            if together and not suspect:
                portions[-1][0].append(record)
            else:
                portions.append(([record], left.crashes if suspect else 0))
            together = not suspect
        return list(portions)

    async def enter(self, records: Sequence[InboundRecord], crashes: int) -> None:
        """Note that records are in flight, before anything is done with them.

        The note is on its way once the operating system has it: whatever kills the process then, state gets it. So
        nothing waits for the answer but records over which a worker died before.
        """
        written = asyncio.get_running_loop().create_future()
        noting = self._send(Mark(records[0].offset, records[-1].offset, crashes), written)
        await asyncio.wait([noting if crashes else written], timeout=_PATIENCE)

    def leave(self) -> None:
        """Take the note away: the batch is settled."""
        self._send(None)

    async def let_go(self) -> None:
        """Take the note away, and see to it before the next holder looks: the worker gives the batch up alive."""
        await asyncio.wait([self._send(None)], timeout=_PATIENCE)

    def _send(self, mark: Mark | None, written: asyncio.Future[None] | None = None) -> asyncio.Task[None]:
        noting = asyncio.create_task(self._note(mark, written))
        self._sending.add(noting)  # the event loop keeps no hold of it
        noting.add_done_callback(self._sending.discard)
        return noting

    async def _note(self, mark: Mark | None, written: asyncio.Future[None] | None) -> None:
        def sent() -> None:
            if written is not None and not written.done():
                written.set_result(None)

        try:
            if mark is None:
                await self._state.unmark(self._topic, self._partition)
            else:
                await self._state.mark(self._topic, self._partition, mark, written=sent)
        except StateError:
            log.debug("crash.mark_not_kept", topic=self._topic, partition=self._partition)
        finally:
            sent()

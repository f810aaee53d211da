"""Records that bring a worker down: at two crashes they run alone, at a third they are dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

import structlog

from groundwire.errors import StateError
from groundwire.messages.inbound import InboundRecord
from groundwire.state.model import Mark
from groundwire.state.redis import RedisState

log = structlog.get_logger()

ALONE: Final = 2
GIVEN_UP: Final = 3


class CrashGuard:
    """Notes what is in flight of a partition, and reads after a crash what was.

    Notes are sent without waiting for an answer: a mark that state did not take costs one more crash, no record.
    """

    def __init__(self, state: RedisState, topic: str, partition: int) -> None:
        self._state = state
        self._topic = topic
        self._partition = partition
        self._left: Mark | None = None
        self._sending: asyncio.Task[None] | None = None

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

    def portions(self, records: Sequence[InboundRecord]) -> Iterator[tuple[Sequence[InboundRecord], int]]:
        """Cut a batch into portions that run together, each with the crashes that it has survived.

        A portion is marked as in flight when the next one is asked for, and unmarked after the last.
        """
        left = self._left
        if left is None or records[0].offset > left.last:
            self._left = None
            portions: list[tuple[Sequence[InboundRecord], int]] = [(records, 0)]
        elif left.crashes < ALONE:
            portions = [(records, left.crashes)]
        else:
            portions = list(self._alone(records, left))
        for portion, crashes in portions:
            self._send(Mark(portion[0].offset, portion[-1].offset, crashes))
            yield portion, crashes
        self._send(None)

    def clear(self) -> None:
        """Take the mark away: the worker lets the batch go alive."""
        self._send(None)

    def _alone(
        self, records: Sequence[InboundRecord], left: Mark
    ) -> Iterator[tuple[Sequence[InboundRecord], int]]:
        together: list[InboundRecord] = []
        for record in records:
            if left.first <= record.offset <= left.last:
                yield [record], left.crashes
            else:
                together.append(record)
        if together:
            yield together, 0

    def _send(self, mark: Mark | None) -> None:
        self._sending = asyncio.create_task(self._note(self._sending, mark))

    async def _note(self, before: asyncio.Task[None] | None, mark: Mark | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            if mark is None:
                await self._state.unmark(self._topic, self._partition)
            else:
                await self._state.mark(self._topic, self._partition, mark)
        except StateError:
            log.debug("crash.mark_not_kept", topic=self._topic, partition=self._partition)

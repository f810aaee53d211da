"""What lists show of responses: the beginning of the answer, read back as their pages do; kept in memory alone.

A list waits a moment for what is not known yet, and shows the reason where an answer cannot be had in that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cachetools import LRUCache

from groundwire.messages.decisions import Kind
from groundwire.review.model import Row
from groundwire.review.originals import OriginalState, RecordReader, read_original
from groundwire.review.records import in_one_line

_KEPT: Final = 5_000
_AT_ONCE: Final = 5
"""Records that are read at the same time: each over a connection of its own."""
_AT_MOST: Final = 25
"""Records that one list asks for; the next look at it asks for more."""
_PATIENCE: Final = 1.0
"""Seconds that a list waits for them."""


class Excerpts:
    """The beginnings of answers by decision id, None: it cannot be read back."""

    def __init__(self, read: RecordReader | None) -> None:
        self._read = read
        self._known: LRUCache[str, str | None] = LRUCache(_KEPT)
        self._room = asyncio.Semaphore(_AT_ONCE)

    def missing(self, rows: Sequence[Row]) -> list[Row]:
        asked = (row for row in rows if row.kind == Kind.RESPONSE and row.decision_id not in self._known)
        return list(asked)[:_AT_MOST] if self._read else []

    async def fetch(self, decisions: Sequence[Mapping[str, Any]]) -> None:
        """Read the answers of decisions back, as far as that goes in a moment."""
        tasks = [asyncio.create_task(self._one(decision)) for decision in decisions]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_PATIENCE)
            for task in late:
                task.cancel()

    def of(self, row: Row) -> str:
        return self._known.get(row.decision_id) or row.excerpt

    async def _one(self, decision: Mapping[str, Any]) -> None:
        if self._read is None:
            return
        async with self._room:
            original = await read_original(self._read, decision)
        if original.state is not OriginalState.AWAY:
            answer = original.response.answer if original.response else None
            self._known[decision["decision_id"]] = in_one_line(answer) if answer else None

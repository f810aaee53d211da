"""Work on large records is done in a thread: the event loop has others to serve."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

from groundwire.gate.prepared import Prepared

LARGE: Final = 4_000
"""Bytes of a record from which on its checks run in a thread."""

_T = TypeVar("_T")


async def aside(entry: Prepared, work: Callable[[], _T]) -> _T:
    """Do the work of a large record in a thread, which leaves the event loop its turns."""
    if len(entry.record.value or b"") < LARGE:
        return work()
    return await asyncio.to_thread(work)

"""Reading lines from a file or a pipe without holding more than one read and one line in memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import threading
from collections.abc import AsyncIterator
from typing import BinaryIO, Final, NamedTuple

MAX_LINE_BYTES: Final = 1_048_000
"""Longest line that can be sent: more than the gate reads, so that its limit can be tried out."""

_READ_BYTES: Final = 262_144


class Line(NamedTuple):
    """A line without its line feed; `value` is None where it is longer than `MAX_LINE_BYTES`."""

    number: int
    value: bytes | None


async def windows(stream: BinaryIO) -> AsyncIterator[list[Line]]:
    """Yield the lines that each read of the stream completed; lines count from 1 and end at LF only."""
    number, rest, overlong = 0, b"", False
    while chunk := await _read(stream):
        *complete, rest = (rest + chunk).split(b"\n")
        window = []
        for value in complete:
            number += 1
            window.append(Line(number, None if overlong or len(value) > MAX_LINE_BYTES else value))
            overlong = False
        if len(rest) > MAX_LINE_BYTES:
            rest, overlong = b"", True
        yield window
    if rest or overlong:
        yield [Line(number + 1, None if overlong else rest)]


async def _read(stream: BinaryIO) -> bytes:
    try:
        descriptor = stream.fileno()
    except OSError:  # a stream in memory has no descriptor
        return stream.read(_READ_BYTES)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return stream.read(_READ_BYTES)
    return await _read_pipe(descriptor)


async def _read_pipe(descriptor: int) -> bytes:
    """Read what a pipe or terminal has; what was sent before goes out while nothing comes.

    Each read has a daemon thread of its own: one that still waits for input does not hold up the exit, which
    the threads of an executor would.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[bytes] = loop.create_future()

    def settle(data: bytes | OSError) -> None:
        if result.cancelled():
            return
        if isinstance(data, OSError):
            result.set_exception(data)
        else:
            result.set_result(data)

    def read() -> None:
        try:
            data: bytes | OSError = os.read(descriptor, _READ_BYTES)
        except OSError as exc:
            data = exc
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, data)

    threading.Thread(target=read, daemon=True).start()
    return await result

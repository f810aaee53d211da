"""How far a command has come with a file: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn


class FileProgress:
    """Shows how many records of a file are done, and how much of it is read.

    Args:
        console: where to; on anything but a terminal nothing is shown.
        done: what is counted, `sent` or `loaded`.
        file: what is read; its end is known only if it is a regular file.
    """

    def __init__(self, console: Console, done: str, file: BinaryIO) -> None:
        self._file = file
        self._size = _size(file)
        self._progress = Progress(
            TextColumn(f"{done} {{task.fields[count]}}"),
            BarColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._bar = self._progress.add_task(done, total=self._size, count=0)

    def __enter__(self) -> Self:
        """Begin to show."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        self.stop()

    def show(self, count: int) -> None:
        """Say how many records are done by now."""
        completed = self._file.tell() if self._size is not None else None
        self._progress.update(self._bar, completed=completed, count=count)

    def stop(self) -> None:
        """Take the bar away."""
        self._progress.stop()


def _size(file: BinaryIO) -> int | None:
    """Return the size of a regular file in bytes, None where the end is not known."""
    try:
        status = os.fstat(file.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None

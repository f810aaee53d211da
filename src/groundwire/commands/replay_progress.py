"""How far a replay has come: a bar on a terminal, a line now and then elsewhere; both on standard error."""

from __future__ import annotations

import time
from typing import Final, Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

_SECONDS: Final = 5.0


class Progress:
    """Shows what is done, how much of it, and of how much."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        self._terminal = console.is_terminal
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._bar = self._bars.add_task("read", total=None)
        self._told = time.monotonic()

    def __enter__(self) -> Self:
        """Begin to show."""
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        self.stop()

    def show(self, what: str, done: int, total: int) -> None:
        """Say how far it has come."""
        self._bars.update(self._bar, description=what, completed=done, total=total)
        if not self._terminal and time.monotonic() - self._told > _SECONDS:
            self._told = time.monotonic()
            click.echo(f"{what} {done} of {total}", err=True)

    def stop(self) -> None:
        """Take the bar away."""
        self._bars.stop()

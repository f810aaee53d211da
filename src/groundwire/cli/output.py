"""What commands print: text that cannot act on a terminal, tables, JSON lines and progress."""

from __future__ import annotations

import base64
import json
import os
import stat
import sys
import time
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import BinaryIO, Final, Self

import click
from pydantic import BaseModel
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from groundwire.errors import RecordError
from groundwire.messages.base import format_time
from groundwire.text.normalise import escape_controls

NOTHING: Final = "-"
"""Stands in a table where there is nothing."""

ONE_A_LINE: Final = "hint: one JSON object a line; `jq -c . FILE` writes records so"

TEXT_CELLS: Final = 200
"""Width of the last column of a table, where no terminal sets the limit."""

_LINE_SECONDS: Final = 5.0
"""Between two lines of progress where there is no terminal."""


def escape_lines(text: str) -> str:
    """Escape the controls of a text, but for line breaks: the lines after the first are indented."""
    return "\n  ".join(escape_controls(line) for line in text.split("\n"))


def escape_json(text: str) -> str:
    """Escape controls inside the strings of one-line JSON, by JSON's own escapes: it still means the same."""
    return escape_controls(
        text, lambda char: f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else json.dumps(char)[1:-1]
    )


def cut(text: str, width: int) -> str:
    text = escape_controls(text[: 4 * width])  # a cell holds a letter; combining marks come on top
    return text if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def fit(cells: Sequence[str], widths: Sequence[int]) -> str:
    *first, last = [cut(cell, width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join([*map(set_cell_size, first, widths), last])


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    safe = [[escape_controls(cell) for cell in row] for row in rows]
    widths = [max(cell_len(row[index]) for row in safe) for index in range(len(safe[0]))] if safe else []
    return ["  ".join(map(set_cell_size, row, widths)).rstrip() for row in safe]


def print_line(console: Console, text: Text) -> None:
    """Print one line: on a terminal what has no room is left out, elsewhere all of it is printed."""
    if console.is_terminal:
        console.print(text, no_wrap=True, overflow="ellipsis", crop=True)
    else:
        console.print(text, soft_wrap=True)


def compact_json(value: object) -> str:
    """Return a value as one line of JSON without spaces; times as records write them."""

    def plain(other: object) -> str:
        return format_time(other) if isinstance(other, datetime) else str(other)

    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=plain)


def echo_json(line: str) -> None:
    """Print a line of JSON; on a terminal, what acts on one (C1 controls, direction marks) is escaped."""
    click.echo((escape_json(line) if sys.stdout.isatty() else line).encode())


def bytes_json(name: str, data: bytes | None) -> dict[str, str | None]:
    """Return bytes as a member of a JSON object: as text, or as base64 under `<name>_base64`."""
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}


def print_refused(console: Console, number: int, error: RecordError) -> None:
    text = escape_controls(f"line {number}: {error.code}: {error.message}")
    console.print(text, markup=False, emoji=False, soft_wrap=True)


def print_listing(
    layout: str,
    kind: str,
    entries: Iterable[tuple[str, BaseModel]],
    fields: Sequence[str],
    *,
    secret: str | None = None,
) -> None:
    """Print what a file holds, with these fields in a table; `secret`: a field that is never printed."""
    if layout == "json":
        for entry_id, entry in entries:
            public = entry.model_dump(mode="json", exclude={secret} if secret else None)
            click.echo(json.dumps({f"{kind}_id": entry_id, **public}, ensure_ascii=False))
        return

    def cell(value: object) -> str:
        match value:
            case str():
                return value
            case datetime():
                return format_time(value)
            case Sequence():
                return ", ".join(map(str, value)) or NOTHING
            case _:
                return NOTHING

    rows = [[entry_id, *(cell(getattr(entry, name)) for name in fields)] for entry_id, entry in entries]
    for line in columns([[kind, *(name.replace("_", " ") for name in fields)], *rows]):
        click.echo(line)


class ProgressBar:
    """Progress on a terminal, taken away at the end; nothing elsewhere."""

    def __init__(self, console: Console, *shown: ProgressColumn, **task: object) -> None:
        self._bars = Progress(
            *shown,
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,  # what is printed may go to a file
            redirect_stderr=False,
            disable=not console.is_terminal,
        )
        self._task = self._bars.add_task("read", **{"total": None, **task})  # type: ignore[arg-type]

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._bars.stop()


class FileProgress(ProgressBar):
    """How many records of a file are `done`, such as sent, and how much of it is read.

    The file's end is known only if it is a regular one.
    """

    def __init__(self, console: Console, done: str, file: BinaryIO) -> None:
        self._file = file
        try:
            status = os.fstat(file.fileno())
            self._size = status.st_size if stat.S_ISREG(status.st_mode) else None
        except OSError:
            self._size = None
        super().__init__(
            console, TextColumn(f"{done} {{task.fields[count]}}"), BarColumn(), total=self._size, count=0
        )

    def show(self, count: int) -> None:
        completed = self._file.tell() if self._size is not None else None
        self._bars.update(self._task, completed=completed, count=count)


class ReadProgress(ProgressBar):
    """How many records are read, until results are printed on the same terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        super().__init__(console, TextColumn("{task.completed} records read"))

    def advance(self) -> None:
        self._bars.advance(self._task)

    def printing(self) -> None:
        if sys.stdout.isatty():
            self.stop()


class StepProgress(ProgressBar):
    """What is done, how much of it, and of how much; a line every five seconds where there is no terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        super().__init__(console, TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._terminal = console.is_terminal
        self._shown_at = time.monotonic()

    def show(self, what: str, done: int, total: int) -> None:
        self._bars.update(self._task, description=what, completed=done, total=total)
        if not self._terminal and time.monotonic() - self._shown_at > _LINE_SECONDS:
            self._shown_at = time.monotonic()
            click.echo(f"{what} {done} of {total}", err=True)

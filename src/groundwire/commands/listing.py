"""The files that hold keys and tokens: which one is meant, and what is in it without its secrets."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final, TypeVar

import click
from pydantic import BaseModel

from groundwire.client.text import columns
from groundwire.commands.options import Failure
from groundwire.messages.base import format_time

Entry = TypeVar("Entry", bound=BaseModel)

NOTHING: Final = "-"
"""Stands in a table where there is nothing."""


def required_file(path: Path | None, command: str, *, there: bool = False) -> Path:
    """Return the file that a command works on.

    Args:
        path: what was given, or None.
        command: `keys` or `token`.
        there: whether it has to be there already.

    Raises:
        Failure: no file was given, or it is not there; says what to give or run.
    """
    what = f"{command.removesuffix('s')}s"
    if path is None:
        raise Failure(f"no {what} file: give --file or set GROUNDWIRE_{what.upper()}_FILE")
    if there and not path.exists():
        raise Failure(f"{what} file {path}: there is none yet; `groundwire {command} new` makes it")
    return path


def print_listing(
    layout: str,
    kind: str,
    found: Iterable[tuple[str, Entry]],
    cells: Mapping[str, Callable[[Entry], object]],
    *,
    secret: str,
) -> None:
    """Print what a file holds, its secrets left out.

    Args:
        layout: `table`, or `json`: one line an entry.
        kind: `key` or `token`.
        found: (id, entry) in the order of the file.
        cells: what a table shows of an entry, by heading.
        secret: the field that is never printed.
    """
    if layout == "json":
        for entry_id, entry in found:
            public = entry.model_dump(mode="json", exclude={secret})
            click.echo(json.dumps({f"{kind}_id": entry_id, **public}, ensure_ascii=False))
        return
    rows = [[entry_id, *(_cell(of(entry)) for of in cells.values())] for entry_id, entry in found]
    for line in columns([[kind, *cells], *rows]):
        click.echo(line)


def _cell(value: object) -> str:
    match value:
        case str():
            return value
        case datetime():
            return format_time(value)
        case Sequence():
            return ", ".join(map(str, value)) or NOTHING
        case _:
            return NOTHING

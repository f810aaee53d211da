"""Dead letters as a person or a program reads them."""

from __future__ import annotations

import base64
import json
import sys
from collections import Counter
from typing import Any, Final, Self

import click
from rich.cells import set_cell_size
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from groundwire.client.text import columns, cut, visible, visible_json
from groundwire.dead_letters.ledger import Redriven
from groundwire.dead_letters.letters import Letter
from groundwire.dead_letters.rules import Outcome, Step
from groundwire.messages.base import format_time, from_milliseconds

_COLUMNS: Final = (
    *(("letter", 10), ("error", 19), ("attempts", 8), ("state", 36)),
    *(("came from", 32), ("time", 24), ("key", 22), ("message", 200)),
)
"""Headings and widths in cells: what matters most fits a narrow terminal."""

_WORDS: Final = {
    Outcome.REDRIVE: "would be redriven",
    Outcome.REDRIVEN: "redriven",
    Outcome.SKIPPED: "skipped",
    Outcome.REFUSED: "refused",
}


class LetterPrinter:
    """Prints letters as they come, as a table or as one JSON object a line; nothing in them acts on a terminal."""

    def __init__(self, layout: str) -> None:
        self._json = layout == "json"
        self._console = Console(highlight=False)
        self._terminal = sys.stdout.isatty()
        self._headed = False

    def letter(self, letter: Letter, redriven: Redriven | None) -> None:
        """Print a letter and whether it was sent back."""
        if self._json:
            self.object(letter_json(letter, redriven))
        else:
            self._row(letter, f"redriven {redriven.stands}" if redriven else "open")

    def step(self, step: Step) -> None:
        """Print what becomes of a letter."""
        if self._json:
            outcome = {"outcome": str(step.outcome), "why": str(step.why) if step.why else None}
            self.object({**letter_json(step.letter, step.redriven), **outcome})
        else:
            more = step.why or (step.redriven.stands if step.redriven else "")
            self._row(step.letter, f"{step.outcome} {more}".rstrip())

    def object(self, value: dict[str, Any]) -> None:
        """Print one line of JSON."""
        line = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        click.echo((visible_json(line) if self._terminal else line).encode())

    def _row(self, letter: Letter, state: str) -> None:
        if not self._headed:
            self._line([heading for heading, _ in _COLUMNS], "bold")
            self._headed = True
        fields = _fields(letter)
        names = ("letter", "error", "attempts", "came from", "at", "key", "message")
        cells = [fields[name] for name in names]
        self._line([*cells[:3], state, *cells[3:]], "")

    def _line(self, cells: list[str], style: str) -> None:
        fitted = [
            set_cell_size(cut(cell, width), width) for cell, (_, width) in zip(cells, _COLUMNS, strict=True)
        ]
        line = Text("  ".join(fitted).rstrip(), style=style)
        if self._console.is_terminal:
            self._console.print(line, no_wrap=True, overflow="ellipsis", crop=True)
        else:
            self._console.print(line, soft_wrap=True)


def _fields(letter: Letter) -> dict[str, str]:
    failed, record = letter.failed, letter.record
    return {
        "letter": str(letter.place),
        "at": format_time(from_milliseconds(record.timestamp)),
        "error": failed.code,
        "message": failed.message,
        "attempts": "?" if letter.attempts is None else str(letter.attempts),
        "came from": f"{failed.topic}[{failed.partition}]@{failed.offset}",
        "key": _text(record.key),
    }


class Reading:
    """Says on a terminal how many records are read, until letters are printed there."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        self._progress = Progress(
            TextColumn("{task.completed} records read"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            redirect_stdout=False,  # what is printed may go to a file
            redirect_stderr=False,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("read", total=None)

    def __enter__(self) -> Self:
        """Begin to show."""
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take it away."""
        self._progress.stop()

    def advance(self) -> None:
        """Count a record that was read."""
        self._progress.advance(self._task)

    def printing(self) -> None:
        """Make room: what is printed shows by itself how far things are."""
        if sys.stdout.isatty():
            self._progress.stop()


def letter_json(letter: Letter, redriven: Redriven | None) -> dict[str, Any]:
    """Return a letter without headers and value."""
    failed, record = letter.failed, letter.record
    return {
        "letter": str(letter.place),
        "at": format_time(from_milliseconds(record.timestamp)),
        "error": failed.code,
        "message": failed.message,
        "attempts": letter.attempts,
        "topic": failed.topic,
        "partition": failed.partition,
        "offset": failed.offset,
        **_bytes_json("key", record.key),
        "tenant_id": failed.tenant_id,
        "user_id": failed.user_id,
        "size": None if record.value is None else len(record.value),
        "state": "redriven" if redriven else "open",
        "redriven": None
        if redriven is None
        else {"at": format_time(redriven.at), "actor": redriven.actor, **redriven.stands._asdict()},
    }


def content_json(letter: Letter, *, value: bool) -> dict[str, Any]:
    """Return the headers of a record as it came in and, where asked for, its value."""
    headers = [{"name": name, **_bytes_json("value", data)} for name, data in letter.headers]
    return {"headers": headers, **(_bytes_json("value", letter.record.value) if value else {})}


def content_lines(letter: Letter, redriven: Redriven | None, *, value: bool) -> list[str]:
    """Return everything about a letter as lines for a person; the value only where asked for."""
    failed, record = letter.failed, letter.record
    rows = [
        *_fields(letter).items(),
        ("owner", "not certain" if failed.tenant_id is None else f"{failed.tenant_id}:{failed.user_id}"),
        ("size", "no value" if record.value is None else f"{len(record.value)} bytes"),
        ("redriven", _redriven(redriven)),
        *((f"header {visible(name)}", _text(data)) for name, data in letter.headers),
    ]
    lines = columns(rows)
    if value and record.value is not None:
        lines += ["", visible(_text(record.value))]
    return lines


def summary(counts: Counter[tuple[Outcome, str | None]]) -> str:
    """Return how many letters came to what, in one line."""
    parts = []
    for outcome, words in _WORDS.items():
        whys = {why: count for (one, why), count in counts.items() if one == outcome}
        if whys:
            named = ", ".join(f"{why} {count}" for why, count in sorted(whys.items()) if why)
            parts.append(f"{sum(whys.values())} {words}" + (f" ({named})" if named else ""))
    return ", ".join(parts) or "no letter is meant"


def _redriven(redriven: Redriven | None) -> str:
    if redriven is None:
        return "not yet"
    return f"{format_time(redriven.at)} by {redriven.actor}, to {redriven.stands}"


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode("utf-8", "backslashreplace")


def _bytes_json(name: str, data: bytes | None) -> dict[str, str | None]:
    try:
        return {name: None if data is None else data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data or b"").decode()}

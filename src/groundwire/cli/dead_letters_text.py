"""Dead letters as a person or a program reads them."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from groundwire.cli.output import bytes_json, columns, compact_json, echo_json, fit, print_line
from groundwire.dead_letters.letters import Letter, Redriven
from groundwire.dead_letters.redrive import RedriveOutcome, RedriveStep
from groundwire.messages.base import format_time, from_milliseconds
from groundwire.text.normalise import escape_controls

_COLUMNS: Final = (
    *(("letter", 10), ("error", 19), ("attempts", 8), ("state", 36)),
    *(("came from", 32), ("time", 24), ("key", 22), ("message", 200)),
)
"""Headings and widths in cells: what matters most fits a narrow terminal."""

_WORDS: Final = {
    RedriveOutcome.REDRIVE: "would be redriven",
    RedriveOutcome.REDRIVEN: "redriven",
    RedriveOutcome.SKIPPED: "skipped",
    RedriveOutcome.REFUSED: "refused",
}


class LetterPrinter:
    """Prints letters as they come, as a table or as one JSON object a line; nothing in them acts on a terminal."""

    def __init__(self, layout: str) -> None:
        self._json = layout == "json"
        self._console = Console(highlight=False)
        self._headed = False

    def letter(self, letter: Letter, redriven: Redriven | None) -> None:
        """Print a letter and whether it was sent back."""
        if self._json:
            self.object(letter_json(letter, redriven))
        else:
            self._row(letter, f"redriven {redriven.stands}" if redriven else "open")

    def step(self, step: RedriveStep) -> None:
        """Print what becomes of a letter."""
        if self._json:
            outcome = {"outcome": str(step.outcome), "why": str(step.why) if step.why else None}
            self.object({**letter_json(step.letter, step.redriven), **outcome})
        else:
            more = step.why or (step.redriven.stands if step.redriven else "")
            self._row(step.letter, f"{step.outcome} {more}".rstrip())

    def object(self, value: dict[str, Any]) -> None:
        """Print one line of JSON."""
        echo_json(compact_json(value))

    def _row(self, letter: Letter, state: str) -> None:
        if not self._headed:
            self._line([heading for heading, _ in _COLUMNS], "bold")
            self._headed = True
        fields = _fields(letter)
        names = ("letter", "error", "attempts", "came from", "at", "key", "message")
        cells = [fields[name] for name in names]
        self._line([*cells[:3], state, *cells[3:]], "")

    def _line(self, cells: list[str], style: str) -> None:
        line = fit(cells, [width for _, width in _COLUMNS]).rstrip()
        print_line(self._console, Text(line, style=style))


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
        **bytes_json("key", record.key),
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
    headers = [{"name": name, **bytes_json("value", data)} for name, data in letter.headers]
    return {"headers": headers, **(bytes_json("value", letter.record.value) if value else {})}


def content_lines(letter: Letter, redriven: Redriven | None, *, value: bool) -> list[str]:
    """Return everything about a letter as lines for a person; the value only where asked for."""
    failed, record = letter.failed, letter.record
    rows = [
        *_fields(letter).items(),
        ("owner", "not certain" if failed.tenant_id is None else f"{failed.tenant_id}:{failed.user_id}"),
        ("size", "no value" if record.value is None else f"{len(record.value)} bytes"),
        ("redriven", _redriven(redriven)),
        *((f"header {escape_controls(name)}", _text(data)) for name, data in letter.headers),
    ]
    lines = columns(rows)
    if value and record.value is not None:
        lines += ["", escape_controls(_text(record.value))]
    return lines


def summary(counts: Counter[tuple[RedriveOutcome, str | None]]) -> str:
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

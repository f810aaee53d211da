"""Dead letters as a person or a program reads them; nothing in them acts on a terminal."""

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

_COLUMNS: Final = {
    "letter": 10,
    "error": 19,
    "attempts": 8,
    "state": 36,
    "came from": 32,
    "at": 24,
    "key": 22,
}
_COLUMNS["message"] = 200


class LetterPrinter:
    """Prints letters as they come, as a table or as one JSON object a line."""

    def __init__(self, layout: str) -> None:
        self._json = layout == "json"
        self._console = Console(highlight=False)
        self._headed = False

    def letter(self, letter: Letter, redriven: Redriven | None) -> None:
        self._print(letter, redriven, f"redriven {redriven.stands}" if redriven else "open")

    def step(self, step: RedriveStep) -> None:
        more = step.why or (step.redriven.stands if step.redriven else "")
        outcome = {"outcome": str(step.outcome), "why": str(step.why) if step.why else None}
        self._print(step.letter, step.redriven, f"{step.outcome} {more}".rstrip(), outcome)

    def _print(
        self, letter: Letter, redriven: Redriven | None, state: str, more: dict[str, Any] | None = None
    ) -> None:
        if self._json:
            echo_json(compact_json(letter_json(letter, redriven) | (more or {})))
            return
        rows = [] if self._headed else [(list(_COLUMNS), "bold")]
        shown = {**_shown(letter, redriven), "state": state}
        for cells, style in (*rows, ([shown[name] for name in _COLUMNS], "")):
            print_line(self._console, Text(fit(cells, list(_COLUMNS.values())).rstrip(), style=style))
        self._headed = True


def letter_json(letter: Letter, redriven: Redriven | None) -> dict[str, Any]:
    """Return a letter without headers and value."""
    failed, record = letter.failed, letter.record
    sent = redriven and {"at": format_time(redriven.at), "actor": redriven.actor, **redriven.stands._asdict()}
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
        "redriven": sent,
    }


def content_json(letter: Letter, *, value: bool) -> dict[str, Any]:
    """Return the headers of a record as it came in and, where asked for, its value."""
    headers = [{"name": name, **bytes_json("value", data)} for name, data in letter.headers]
    return {"headers": headers, **(bytes_json("value", letter.record.value) if value else {})}


def _shown(letter: Letter, redriven: Redriven | None) -> dict[str, str]:
    fields, failed = letter_json(letter, None), letter.failed
    fields |= {
        "key": _text(letter.record.key),
        "came from": f"{failed.topic}[{failed.partition}]@{failed.offset}",
        "redriven": redriven and f"{format_time(redriven.at)} by {redriven.actor}, to {redriven.stands}",
    }
    return {name: "-" if value is None else str(value) for name, value in fields.items()}


def content_lines(letter: Letter, redriven: Redriven | None, *, value: bool) -> list[str]:
    """Return everything about a letter as lines for a person; the value only where asked for."""
    shown = _shown(letter, redriven)
    names = (
        "letter",
        "at",
        "error",
        "message",
        "attempts",
        "came from",
        "key",
        "tenant_id",
        "size",
        "redriven",
    )
    headers = [(f"header {escape_controls(name)}", _text(data)) for name, data in letter.headers]
    lines = columns([*((name, shown[name]) for name in names), *headers])
    return [*lines, "", escape_controls(_text(letter.record.value))] if value else lines


def summary(counts: Counter[tuple[RedriveOutcome, str | None]]) -> str:
    parts = []
    for outcome in RedriveOutcome:
        whys = {why: count for (one, why), count in counts.items() if one == outcome}
        if whys:
            words = "would be redriven" if outcome == RedriveOutcome.REDRIVE else outcome
            named = ", ".join(f"{why} {count}" for why, count in sorted(whys.items()) if why)
            parts.append(f"{sum(whys.values())} {words}" + (f" ({named})" if named else ""))
    return ", ".join(parts) or "no letter selected"


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode("utf-8", "backslashreplace")

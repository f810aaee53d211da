"""A response as it came in, for a terminal: its question, its marked answer, and what to hold against the sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from groundwire.cli.output import escape_lines
from groundwire.cli.review_text import difference, print_section
from groundwire.console.answer import View
from groundwire.console.words import label
from groundwire.text.normalise import escape_controls

_STYLES: Final = {
    "value": "bold white on red",
    "hard": "red",
    "soft": "yellow",
    "uncovered": "underline",
    "name": "red underline",
}
"""How each mark is shown; of several on a word the first of these."""


def print_original(console: Console, original: View | None) -> None:
    """Print what was read back of a response; nothing of a claim, whose decision has its text."""
    if original is None:
        return
    if original["note"]:
        print_section(console, "answer", [Text(escape_controls(original["note"]), style="dim")])
    if original["state"] != "read":
        return
    if original["question"]:
        print_section(console, "question", [Text(escape_lines(original["question"]))])
    print_section(console, "answer", [_answer(original["answer"])] if original["answer"] else [])
    print_section(console, "wrong or doubtful", list(_faults(original)))
    print_section(console, "quotes not in the transcript", list(_quotes(original)))
    print_section(console, "entities", [_entity(row) for row in original["entities"]])
    print_section(console, "relations", [_relation(row) for row in original["relations"]])


def _answer(runs: Sequence[Mapping[str, Any]]) -> Text:
    """Return the answer; what is wrong with it is listed below it, too."""
    shown = Text()
    for segment in (segment for run in runs for segment in run["segments"]):
        style = next((_STYLES[kind] for kind in _STYLES if kind in segment["kinds"]), "")
        shown.append(escape_lines(segment["text"]), style=style)
    return shown


def _faults(original: View) -> Iterator[Text]:
    for fault in original["faults"]:
        sign = Text("wrong     ", style="red") if fault["hard"] else Text("doubtful  ", style="yellow")
        yield sign.append(f"{label(fault['why'])}: {escape_controls(fault['text'])}", style="default")
        if fault["says"]:
            instead = f"{', '.join(fault['instead'])}: " if fault["instead"] else ""
            yield Text(escape_controls(f"          {fault['source']}: {instead}{fault['says']}"), style="dim")
    if original["faults_left"]:
        yield Text(f"and {original['faults_left']} more")


def _quotes(original: View) -> Iterator[Text]:
    for quote in original["quotes"]:
        yield Text(escape_controls(f"{quote['domain']}: {label(quote['why'])}: {quote['quote']}"))
        if quote["nearest"]:
            yield Text("  ").append_text(difference(quote["nearest"], quote["quote"]))


def _entity(row: Mapping[str, Any]) -> Text:
    why = f"{label(row['why'])}; " if row["why"] else ""
    named = " ".join(str(part) for part in (row["id"], row["name"]) if part)
    return Text(escape_controls(f"{named}: {why}the corpus holds {row['holds'] or 'nothing of it'}"))


def _relation(row: Mapping[str, Any]) -> Text:
    why = "".join(f"{label(reason)}; " for reason in row["why"])
    return Text(
        escape_controls(
            f"{row['says']}: {why}the corpus holds {'; '.join(row['holds']) or 'nothing of the two'}"
        )
    )

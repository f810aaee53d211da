"""`groundwire dead-letters`: list and show records that could not be decided, and send them again."""

from __future__ import annotations

import asyncio
import getpass
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from functools import wraps
from typing import Any, Final, TypeVar

import click
from rich.console import Console
from rich.text import Text

from groundwire.cli.options import (
    Deployment,
    FiniteRange,
    StartParam,
    deployment_options,
    format_option,
    with_options,
)
from groundwire.cli.output import (
    ReadProgress,
    bytes_json,
    columns,
    compact_json,
    echo_json,
    fit,
    print_line,
)
from groundwire.dead_letters.letters import KafkaLog, Letter, LetterPlace, Redriven, Selection, kafka_log
from groundwire.dead_letters.redrive import (
    Redrive,
    RedriveOutcome,
    RedriveStep,
    Rules,
    history_of,
    selected,
)
from groundwire.errors import ErrorCode
from groundwire.kafka.produce import INPUT_TOPICS
from groundwire.messages.base import format_time, from_milliseconds
from groundwire.messages.topics import TopicName
from groundwire.text.normalise import escape_controls

Result = TypeVar("Result")


class PlaceParam(click.ParamType):
    """A letter as `list` names it: partition@offset."""

    name = "letter"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> LetterPlace:
        numbers = str(value).split("@")
        if len(numbers) != 2 or not all(n.isascii() and n.isdigit() and len(n) < 19 for n in numbers):
            self.fail(f"{value!r} is not PARTITION@OFFSET, such as 2@17", param, ctx)
        return LetterPlace(int(numbers[0]), int(numbers[1]))


_SELECTION: Final = (
    click.option(
        "--code", "codes", multiple=True, type=click.Choice(list(map(str, ErrorCode))), help="Repeatable."
    ),
    click.option(
        "--topic",
        type=click.Choice([str(topic) for topic in (*INPUT_TOPICS, TopicName.DEFERRED)]),
        help="Where the record came in, without the prefix.",
    ),
    click.option("--tenant", help="The owner, where key and value agree on it."),
    click.option("--key", help="The record's key, TENANT:USER."),
    click.option(
        *("--from", "start"),
        type=StartParam("earliest", "latest"),
        default="earliest",
        metavar="earliest|OFFSET|TIME",
        help="Letters from this offset or time on.",
    ),
    click.option(
        "--to", "end", type=StartParam(), metavar="OFFSET|TIME", help="Letters before this offset or time."
    ),
    click.option("--partition", type=click.IntRange(min=0), help="Only this one of the dead-letter topic."),
)


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def run(
        *,
        deployment: Deployment,
        topic: str | None,
        key: str | None,
        codes: tuple[str, ...],
        places: tuple[LetterPlace, ...] = (),
        **others: Any,  # noqa: ANN401 - the other filters, and the command's own options
    ) -> None:
        selection = Selection(
            **{name: others.pop(name) for name in ("start", "end", "partition", "tenant")},
            codes=frozenset(codes),
            topic=None if topic is None else f"{deployment.prefix}{topic}",
            key=None if key is None else key.encode("utf-8", "surrogateescape"),
            places=frozenset(places),
        ).narrowed()
        command(deployment=deployment, selection=selection, **others)

    return deployment_options(format_option(with_options(_SELECTION, run)))


@click.group(name="dead-letters")
def dead_letters() -> None:
    """List records that could not be decided, and send them again once the cause is fixed.

    A letter is named by where it stands on the dead-letter topic: PARTITION@OFFSET.

    Example: groundwire dead-letters list --code worker_crash --from 2026-01-31T12:00:00Z
    """


@dead_letters.command(name="list")
@click.option("--open", "only_open", is_flag=True, help="Only letters that were not sent back.")
@selecting
def list_letters(deployment: Deployment, selection: Selection, layout: str, *, only_open: bool) -> None:
    """List dead letters, and whether they were sent back; never their values.

    Example: groundwire dead-letters list --code worker_crash --tenant acme --open --format json
    """
    printer = LetterPrinter(layout)

    async def read(log: KafkaLog, reading: ReadProgress) -> None:
        history = await history_of(log, selection, deployment.prefix)
        async with aclosing(selected(log, selection)) as letters:
            async for letter in letters:
                redriven = history.redriven_of(letter)
                if not (only_open and redriven):
                    reading.printing()
                    printer.letter(letter, redriven)

    _run(deployment, read)
    if not printer.printed:
        click.echo("no dead letter matches", err=True)


@dead_letters.command(name="show")
@click.argument("place", metavar="LETTER", type=PlaceParam())
@click.option("--value", is_flag=True, help="Show the record's value too.")
@deployment_options
@format_option
def show(deployment: Deployment, place: LetterPlace, layout: str, *, value: bool) -> None:
    """Show the dead letter at PARTITION@OFFSET: why it failed, its key and headers, what became of it.

    Exit status: 0, or 1 where there is no such letter, 2 for usage and a broker out of reach.

    Example: groundwire dead-letters show 2@17 --value
    """
    selection = Selection(places=frozenset([place])).narrowed()

    async def read(log: KafkaLog, _reading: ReadProgress) -> tuple[Letter, Redriven | None] | None:
        async with aclosing(selected(log, selection)) as letters:
            async for letter in letters:
                history = await history_of(log, selection, deployment.prefix)
                return letter, history.redriven_of(letter)
        return None

    found = _run(deployment, read)
    if found is None:
        click.echo(f"there is no dead letter at {place}", err=True)
        raise SystemExit(1)
    if layout == "json":
        echo_json(compact_json(letter_json(*found) | content_json(found[0], value=value)))
    else:
        for line in content_lines(*found, value=value):
            click.echo(line)


def _number(name: str, kind: click.ParamType, default: float, text: str) -> Callable[[Any], Any]:
    return click.option(name, type=kind, default=default, show_default=True, metavar="N", help=text)


@dead_letters.command(name="redrive")
@click.argument("places", metavar="[LETTER]...", nargs=-1, type=PlaceParam())
@click.option("--yes", is_flag=True, help="Do it; without this nothing is sent, only said.")
@_number("--max-attempts", click.IntRange(min=1), 3, "Refuse records that have failed N times.")
@_number("--rate", FiniteRange(min=0, min_open=True), 50.0, "At most N records a second.")
@_number("--stop-after", click.IntRange(min=1), 20, "Stop once N records have failed again.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option("--actor", metavar="NAME", help="Who does it, for the audit.  [default: your login name]")
@selecting
def redrive(
    deployment: Deployment,
    selection: Selection,
    layout: str,
    *,
    yes: bool,
    actor: str | None,
    **rules: Any,  # noqa: ANN401 - the numbers of the Rules
) -> None:
    """Send dead letters back to the topic they came from: the bytes, key and headers that came in, and the count
    of failures. Without LETTERs, all that the filters mean.

    What the audit topic says was sent is not sent again, so that a run may be broken off and begun anew. A
    record that fails again is a new dead letter, with one failure more, and refused once it has too many.

    Exit status: 0 when every letter was sent, now or before, 1 when some were refused or are not there, or the run
    stopped, 2 for usage and a broker out of reach, 130 when broken off.

    Example: groundwire dead-letters redrive --code worker_crash --rate 10 --yes
    """  # noqa: D205 - the summary takes two lines
    try:
        actor = actor or getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        actor = "unknown"
    given = Rules(prefix=deployment.prefix, actor=actor, **rules)
    printer = LetterPrinter(layout)
    missing = set(selection.places)

    async def send(log: KafkaLog, reading: ReadProgress) -> bool:
        run = Redrive(log, selection, given)
        async with aclosing(run.run() if yes else run.plan()) as steps:
            async for step in steps:
                reading.printing()
                missing.discard(step.letter.place)
                printer.step(step)
        return run.stopped

    try:
        stopped = _run(deployment, send, sends=yes)
    finally:
        would = printer.outcomes[RedriveOutcome.REDRIVE]
        click.echo(printer.summary() + ("; --yes does it" if would else ""), err=layout == "json")
    if stopped or given.limit:
        missing.clear()  # it was not looked for to the end
    for place in sorted(missing):
        click.echo(f"there is no dead letter at {place} that matches", err=True)
    if stopped:
        click.echo(f"stopped: {given.stop_after} records failed again: their cause is not fixed", err=True)
    if missing or stopped or printer.outcomes[RedriveOutcome.REFUSED]:
        raise SystemExit(1)


def _run(
    deployment: Deployment,
    use: Callable[[KafkaLog, ReadProgress], Coroutine[Any, Any, Result]],
    *,
    sends: bool = False,
) -> Result:
    async def main(reading: ReadProgress) -> Result:
        where = deployment.brokers, deployment.prefix, deployment.seconds
        async with kafka_log(*where, sends=sends, on_read=reading.advance) as log:
            return await use(log, reading)

    with ReadProgress() as reading:
        return asyncio.run(main(reading))


_COLUMNS: Final = {
    "letter": 10,
    "error": 19,
    "attempts": 8,
    "state": 36,
    "came from": 32,
    "at": 24,
    "key": 22,
    "message": 200,
}


class LetterPrinter:
    """Prints letters as they come, as a table or as one JSON object a line; nothing in them acts on a terminal."""

    def __init__(self, layout: str) -> None:
        self._json = layout == "json"
        self._console = Console(highlight=False)
        self.printed = 0
        self.outcomes: Counter[RedriveOutcome] = Counter()
        self._whys: Counter[tuple[RedriveOutcome, str]] = Counter()

    def letter(self, letter: Letter, redriven: Redriven | None) -> None:
        self._print(letter, redriven, f"redriven {_where(redriven)}" if redriven else "open", {})

    def step(self, step: RedriveStep) -> None:
        self.outcomes[step.outcome] += 1
        if step.why:
            self._whys[step.outcome, step.why] += 1
        more = step.why or (_where(step.redriven) if step.redriven else "")
        outcome = {"outcome": str(step.outcome), "why": str(step.why) if step.why else None}
        self._print(step.letter, step.redriven, f"{step.outcome} {more}".rstrip(), outcome)

    def _print(self, letter: Letter, redriven: Redriven | None, state: str, more: dict[str, Any]) -> None:
        self.printed += 1
        if self._json:
            echo_json(compact_json(letter_json(letter, redriven) | more))
            return
        if self.printed == 1:
            self._line(list(_COLUMNS), "bold")
        shown = {**_shown(letter, redriven), "state": state}
        self._line([shown[name] for name in _COLUMNS], "")

    def _line(self, cells: list[str], style: str) -> None:
        print_line(self._console, Text(fit(cells, list(_COLUMNS.values())).rstrip(), style=style))

    def summary(self) -> str:
        parts = []
        for outcome in RedriveOutcome:
            if self.outcomes[outcome]:
                words = "would be redriven" if outcome == RedriveOutcome.REDRIVE else outcome
                whys = sorted((why, count) for (one, why), count in self._whys.items() if one == outcome)
                named = ", ".join(f"{why} {count}" for why, count in whys)
                parts.append(f"{self.outcomes[outcome]} {words}" + (f" ({named})" if named else ""))
        return ", ".join(parts) or "no letter selected"


def _where(redriven: Redriven) -> str:
    topic, partition, offset = redriven.place
    return f"{topic}[{partition}]@{offset}"


def letter_json(letter: Letter, redriven: Redriven | None) -> dict[str, Any]:
    failed, record = letter.failed, letter.record
    sent = redriven and {"at": format_time(redriven.at), "actor": redriven.actor, **redriven.place._asdict()}
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
        "redriven": redriven and f"{format_time(redriven.at)} by {redriven.actor}, to {_where(redriven)}",
    }
    return {name: "-" if value is None else str(value) for name, value in fields.items()}


def content_lines(letter: Letter, redriven: Redriven | None, *, value: bool) -> list[str]:
    """Return everything about a letter as lines for a person; the value only where asked for."""
    shown = _shown(letter, redriven)
    names = (
        *("letter", "at", "error", "message", "attempts"),
        *("came from", "key", "tenant_id", "size", "redriven"),
    )
    headers = [(f"header {escape_controls(name)}", _text(data)) for name, data in letter.headers]
    lines = columns([*((name, shown[name]) for name in names), *headers])
    return [*lines, "", escape_controls(_text(letter.record.value))] if value else lines


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode("utf-8", "backslashreplace")

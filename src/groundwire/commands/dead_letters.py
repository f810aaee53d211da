"""`groundwire dead-letters`: what could not be decided, and sending it again."""

from __future__ import annotations

import asyncio
import getpass
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

import click

from groundwire.commands import dead_letters_text as render
from groundwire.commands.dead_letters_options import PlaceParam, Where, letters_argument, located, selecting
from groundwire.commands.dead_letters_text import Reading
from groundwire.commands.options import FiniteRange
from groundwire.dead_letters.kafka import KafkaLog, kafka_log
from groundwire.dead_letters.ledger import Redriven
from groundwire.dead_letters.letters import Letter, Place, Selection
from groundwire.dead_letters.redrive import Redrive, history_of, selected
from groundwire.dead_letters.rules import Outcome, Rules

Result = TypeVar("Result")


@click.group(name="dead-letters")
def dead_letters() -> None:
    """See the records that could not be decided, and send them again once the cause is mended.

    A letter is named by where it stands on the dead-letter topic: PARTITION@OFFSET.

    Example: groundwire dead-letters list --code worker_crash --from 2026-01-31T12:00:00Z
    """


@dead_letters.command(name="list")
@click.option("--open", "only_open", is_flag=True, help="Only letters that were not sent back.")
@selecting
def list_letters(where: Where, selection: Selection, *, only_open: bool) -> None:
    """List dead letters, and whether they were sent back; never their values.

    Example: groundwire dead-letters list --code worker_crash --tenant acme --open --format json
    """
    printer = render.LetterPrinter(where.layout)
    listed = 0

    async def read(log: KafkaLog, reading: Reading) -> None:
        nonlocal listed
        history = await history_of(log, selection, where.prefix)
        async with aclosing(selected(log, selection)) as letters:
            async for letter in letters:
                redriven = history.redriven_of(letter)
                if not (only_open and redriven):
                    reading.printing()
                    printer.letter(letter, redriven)
                    listed += 1

    _run(where, read)
    if not listed:
        click.echo("there is no dead letter that the filters mean", err=True)


@dead_letters.command(name="show")
@click.argument("place", metavar="LETTER", type=PlaceParam())
@click.option("--value", is_flag=True, help="Show the record's value too.")
@located
def show(where: Where, place: Place, *, value: bool) -> None:
    """Show the dead letter at PARTITION@OFFSET: why it failed, its key and headers, what became of it.

    Exit status: 0, or 1 where there is no such letter, 2 for usage and a broker out of reach.

    Example: groundwire dead-letters show 2@17 --value
    """
    selection = Selection(places=frozenset([place])).narrowed()

    async def read(log: KafkaLog, _reading: Reading) -> tuple[Letter, Redriven | None] | None:
        async with aclosing(selected(log, selection)) as letters:
            async for letter in letters:
                history = await history_of(log, selection, where.prefix)
                return letter, history.redriven_of(letter)
        return None

    found = _run(where, read)
    if found is None:
        click.echo(f"there is no dead letter at {place}", err=True)
        raise SystemExit(1)
    if where.layout == "json":
        content = render.content_json(found[0], value=value)
        render.LetterPrinter("json").object({**render.letter_json(*found), **content})
    else:
        for line in render.content_lines(*found, value=value):
            click.echo(line)


@dead_letters.command(name="redrive")
@letters_argument
@click.option("--yes", is_flag=True, help="Do it; without this nothing is sent, only said.")
@click.option(
    "--max-attempts",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="Refuse records that have failed N times.",
)
@click.option(
    "--rate",
    type=FiniteRange(min=0, min_open=True),
    default=50.0,
    show_default=True,
    metavar="N",
    help="At most N records a second.",
)
@click.option(
    "--stop-after",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Stop once N records have failed again.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option("--actor", metavar="NAME", help="Who does it, for the audit.  [default: your login name]")
@selecting
def redrive(
    where: Where,
    selection: Selection,
    *,
    yes: bool,
    max_attempts: int,
    rate: float,
    stop_after: int,
    limit: int | None,
    actor: str | None,
) -> None:
    """Send dead letters back to the topic they came from: the bytes, key and headers that came in, and the count
    of failures. Without LETTERs, all that the filters mean.

    What the audit topic says was sent is not sent again, so that a run may be broken off and begun anew. A
    record that fails again is a new dead letter, with one failure more, and refused once it has too many.

    Exit status: 0 when every letter was sent, now or before, 1 when some were refused or are not there, or the run
    stopped, 2 for usage and a broker out of reach, 130 when broken off.

    Example: groundwire dead-letters redrive --code worker_crash --rate 10 --yes
    """  # noqa: D205 - the summary takes two lines
    rules = Rules(where.prefix, actor or _login(), max_attempts, limit, rate, stop_after)
    printer = render.LetterPrinter(where.layout)
    counts: Counter[tuple[Outcome, str | None]] = Counter()
    missing = set(selection.places)

    async def send(log: KafkaLog, reading: Reading) -> bool:
        run = Redrive(log, selection, rules)
        async with aclosing(run.run() if yes else run.plan()) as steps:
            async for step in steps:
                reading.printing()
                counts[step.outcome, step.why] += 1
                missing.discard(step.letter.place)
                printer.step(step)
        return run.stopped

    try:
        stopped = _run(where, send, sends=yes)
    finally:
        would = any(outcome == Outcome.REDRIVE for outcome, _ in counts)
        text = render.summary(counts) + ("; --yes does it" if would else "")
        click.echo(text, err=where.layout == "json")
    if stopped or limit:
        missing.clear()  # it was not looked for to the end
    for place in sorted(missing):
        click.echo(f"there is no dead letter at {place} that the filters mean", err=True)
    if stopped:
        click.echo(f"stopped: {stop_after} records failed again, their cause is not mended", err=True)
    if missing or stopped or any(outcome == Outcome.REFUSED for outcome, _ in counts):
        raise SystemExit(1)


def _run(
    where: Where, use: Callable[[KafkaLog, Reading], Coroutine[Any, Any, Result]], *, sends: bool = False
) -> Result:
    async def main(reading: Reading) -> Result:
        async with kafka_log(
            where.brokers, where.prefix, where.seconds, sends=sends, on_read=reading.advance
        ) as log:
            return await use(log, reading)

    with Reading() as reading:
        return asyncio.run(main(reading))


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "unknown"

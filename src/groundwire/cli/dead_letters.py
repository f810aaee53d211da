"""`groundwire dead-letters`: list and show records that could not be decided, and send them again."""

from __future__ import annotations

import asyncio
import getpass
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from datetime import datetime
from functools import wraps
from typing import Any, Final, TypeVar

import click

from groundwire.cli import dead_letters_text as render
from groundwire.cli.options import (
    Deployment,
    FiniteRange,
    StartParam,
    deployment_options,
    format_option,
)
from groundwire.cli.output import ReadProgress, compact_json, echo_json
from groundwire.dead_letters.letters import KafkaLog, Letter, LetterPlace, Redriven, Selection, kafka_log
from groundwire.dead_letters.redrive import Redrive, RedriveOutcome, Rules, history_of, selected
from groundwire.errors import ErrorCode
from groundwire.kafka.produce import INPUT_TOPICS
from groundwire.kafka.reader import Start
from groundwire.messages.topics import TopicName

_TOPICS: Final = [str(topic) for topic in (*INPUT_TOPICS, TopicName.DEFERRED)]
_DIGITS: Final = 18  # of an offset


class PlaceParam(click.ParamType):
    """A letter as `list` names it: partition@offset."""

    name = "letter"

    def convert(
        self, value: str | LetterPlace, param: click.Parameter | None, ctx: click.Context | None
    ) -> LetterPlace:
        if isinstance(value, LetterPlace):
            return value
        numbers = value.split("@")
        if len(numbers) != 2 or not all(n.isascii() and n.isdigit() and len(n) <= _DIGITS for n in numbers):
            self.fail(f"{value!r} is not PARTITION@OFFSET, such as 2@17", param, ctx)
        return LetterPlace(int(numbers[0]), int(numbers[1]))


class EndParam(StartParam):
    name = "end"

    def convert(
        self, value: str | int | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> Start:
        if value in {"earliest", "latest"}:
            self.fail(f"{value!r} is not an offset or an RFC 3339 time", param, ctx)
        return super().convert(value, param, ctx)


_SELECTION: Final = (
    click.option(
        "--code", "codes", multiple=True, type=click.Choice(list(map(str, ErrorCode))), help="Repeatable."
    ),
    click.option("--topic", type=click.Choice(_TOPICS), help="Where the record came in, without the prefix."),
    click.option("--tenant", help="The owner, where key and value agree on it."),
    click.option("--key", help="The record's key, TENANT:USER."),
    click.option(
        *("--from", "start"),
        type=StartParam(),
        default="earliest",
        metavar="earliest|OFFSET|TIME",
        help="Letters from this offset or time on.",
    ),
    click.option(
        "--to", "end", type=EndParam(), metavar="OFFSET|TIME", help="Letters before this offset or time."
    ),
    click.option("--partition", type=click.IntRange(min=0), help="Only this one of the dead-letter topic."),
)


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the filters as options, and pass them as one Selection."""

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
        filters = {name: others.pop(name) for name in ("start", "end", "partition", "tenant")}
        selection = Selection(
            **filters,
            codes=frozenset(codes),
            topic=None if topic is None else f"{deployment.prefix}{topic}",
            key=None if key is None else key.encode("utf-8", "surrogateescape"),
            places=frozenset(places),
        ).narrowed()
        command(deployment=deployment, selection=selection, **others)

    for option in reversed(_SELECTION):
        run = option(run)
    return deployment_options(format_option(run))


Result = TypeVar("Result")


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
    printer = render.LetterPrinter(layout)
    listed = 0

    async def read(log: KafkaLog, reading: ReadProgress) -> None:
        nonlocal listed
        history = await history_of(log, selection, deployment.prefix)
        async with aclosing(selected(log, selection)) as letters:
            async for letter in letters:
                redriven = history.redriven_of(letter)
                if not (only_open and redriven):
                    reading.printing()
                    printer.letter(letter, redriven)
                    listed += 1

    _run(deployment, read)
    if not listed:
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
        content = render.content_json(found[0], value=value)
        echo_json(compact_json({**render.letter_json(*found), **content}))
    else:
        for line in render.content_lines(*found, value=value):
            click.echo(line)


def _number(
    name: str, kind: click.ParamType, default: float, help_text: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    return click.option(name, type=kind, default=default, show_default=True, metavar="N", help=help_text)


@dead_letters.command(name="redrive")
@click.argument("places", metavar="[LETTER]...", nargs=-1, type=PlaceParam())
@click.option("--yes", is_flag=True, help="Do it; without this nothing is sent, only said.")
@_number("--max-attempts", click.IntRange(min=1), 3, "Refuse records that have failed N times.")
@_number("--rate", FiniteRange(min=0, min_open=True), 50.0, "At most N records a second.")
@_number("--stop-after", click.IntRange(min=1), 20, "Stop once N records have failed again.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option("--actor", metavar="NAME", help="Who does it, for the audit.  [default: your login name]")
@selecting
def redrive(  # noqa: PLR0913 - click hands over every option as an argument
    deployment: Deployment,
    selection: Selection,
    layout: str,
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
    rules = Rules(deployment.prefix, actor or _login(), max_attempts, limit, rate, stop_after)
    printer = render.LetterPrinter(layout)
    counts: Counter[tuple[RedriveOutcome, str | None]] = Counter()
    missing = set(selection.places)

    async def send(log: KafkaLog, reading: ReadProgress) -> bool:
        run = Redrive(log, selection, rules)
        async with aclosing(run.run() if yes else run.plan()) as steps:
            async for step in steps:
                reading.printing()
                counts[step.outcome, step.why] += 1
                missing.discard(step.letter.place)
                printer.step(step)
        return run.stopped

    try:
        stopped = _run(deployment, send, sends=yes)
    finally:
        would = any(outcome == RedriveOutcome.REDRIVE for outcome, _ in counts)
        text = render.summary(counts) + ("; --yes does it" if would else "")
        click.echo(text, err=layout == "json")
    if stopped or limit:
        missing.clear()  # it was not looked for to the end
    for place in sorted(missing):
        click.echo(f"there is no dead letter at {place} that matches", err=True)
    if stopped:
        click.echo(f"stopped: {stop_after} records failed again: their cause is not fixed", err=True)
    if missing or stopped or any(outcome == RedriveOutcome.REFUSED for outcome, _ in counts):
        raise SystemExit(1)


def _run(
    deployment: Deployment,
    use: Callable[[KafkaLog, ReadProgress], Coroutine[Any, Any, Result]],
    *,
    sends: bool = False,
) -> Result:
    async def main(reading: ReadProgress) -> Result:
        async with kafka_log(
            deployment.brokers, deployment.prefix, deployment.seconds, sends=sends, on_read=reading.advance
        ) as log:
            return await use(log, reading)

    with ReadProgress() as reading:
        try:
            return asyncio.run(main(reading))
        except KeyboardInterrupt:
            raise SystemExit(130) from None


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "unknown"

"""`groundwire dead-letters`: what could not be decided, and sending it again."""

from __future__ import annotations

import asyncio
import getpass
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, Final, Self, TypeVar

import click
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from groundwire.client.produce import INPUT_TOPICS
from groundwire.client.tail import Start
from groundwire.commands import dead_letters_text as render
from groundwire.commands.options import brokers_option, prefix_option, quiet_kafka, reporting, timeout_option
from groundwire.commands.tail import StartParam
from groundwire.dead_letters.kafka import KafkaLog, kafka_log
from groundwire.dead_letters.ledger import Redriven
from groundwire.dead_letters.letters import Letter, Place, Selection
from groundwire.dead_letters.redrive import Redrive, history_of, selected
from groundwire.dead_letters.rules import Outcome, Rules
from groundwire.errors import ErrorCode
from groundwire.messages.topics import TopicName

_TOPICS: Final = [str(topic) for topic in (*INPUT_TOPICS, TopicName.DEFERRED)]
_DIGITS: Final = 18  # of an offset

Result = TypeVar("Result")


class PlaceParam(click.ParamType):
    """A letter as `list` names it: partition@offset."""

    name = "letter"

    def convert(self, value: str | Place, param: click.Parameter | None, ctx: click.Context | None) -> Place:
        """Read the argument's text."""
        if isinstance(value, Place):
            return value
        numbers = value.split("@")
        if len(numbers) != 2 or not all(n.isascii() and n.isdigit() and len(n) <= _DIGITS for n in numbers):
            self.fail(f"{value!r} is not PARTITION@OFFSET, such as 2@17", param, ctx)
        return Place(int(numbers[0]), int(numbers[1]))


class EndParam(StartParam):
    """An offset or an RFC 3339 time."""

    name = "end"

    def convert(
        self, value: str | int | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> Start:
        """Read the option's text."""
        if value in {"earliest", "latest"}:
            self.fail(f"{value!r} is not an offset or an RFC 3339 time", param, ctx)
        return super().convert(value, param, ctx)


@dataclass(frozen=True, slots=True)
class _Where:
    """Which deployment, and how patiently."""

    brokers: str
    prefix: str
    seconds: float
    layout: str


_WHERE: Final = (
    click.option(
        "--format",
        "layout",
        type=click.Choice(["table", "json"]),
        default="table",
        show_default=True,
        help="Output.",
    ),
    brokers_option,
    prefix_option,
    timeout_option,
)
_SELECTION: Final = (
    click.option(
        "--code",
        "codes",
        multiple=True,
        type=click.Choice([str(code) for code in ErrorCode]),
        help="Error code; repeatable.",
    ),
    click.option("--topic", type=click.Choice(_TOPICS), help="Where the record came in, without the prefix."),
    click.option("--tenant", help="Whose it is, where key and value agree on that."),
    click.option("--key", help="The record's key, TENANT:USER."),
    click.option(
        "--from",
        "start",
        type=StartParam(),
        default="earliest",
        metavar="earliest|OFFSET|TIME",
        help="Letters from this offset, or written from this time on.",
    ),
    click.option(
        "--to", "end", type=EndParam(), metavar="OFFSET|TIME", help="Letters before this offset or time."
    ),
    click.option("--partition", type=click.IntRange(min=0), help="Of the dead-letter topic: this one alone."),
)
_letters: Final = click.argument("places", metavar="[LETTER]...", nargs=-1, type=PlaceParam())


@contextmanager
def _interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def _located(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say where, and hand them over as one."""

    @wraps(command)
    def run(*, brokers: str, prefix: str, seconds: float, layout: str, **others: Any) -> None:  # noqa: ANN401 - the command's own
        quiet_kafka()
        with reporting(), _interrupted():
            command(where=_Where(brokers, prefix, seconds, layout), **others)

    for option in reversed(_WHERE):
        run = option(run)
    return run


def _selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the filters, and hand them over as one Selection."""

    @wraps(command)
    def run(  # noqa: PLR0913 - click hands over every option as an argument
        *,
        where: _Where,
        codes: tuple[str, ...],
        topic: str | None,
        tenant: str | None,
        key: str | None,
        start: Start,
        end: int | datetime | None,
        partition: int | None,
        places: tuple[Place, ...] = (),
        **others: Any,  # noqa: ANN401 - the command's own
    ) -> None:
        selection = Selection(
            start=start,
            end=end,
            partition=partition,
            codes=frozenset(codes),
            topic=None if topic is None else f"{where.prefix}{topic}",
            tenant=tenant,
            key=None if key is None else key.encode("utf-8", "surrogateescape"),
            places=frozenset(places),
        )
        command(where=where, selection=selection, **others)

    for option in reversed(_SELECTION):
        run = option(run)
    return _located(run)


@click.group(name="dead-letters")
def dead_letters() -> None:
    """See the records that could not be decided, and send them again once the cause is mended.

    A letter is named by where it stands on the dead-letter topic: PARTITION@OFFSET.

    Example: groundwire dead-letters list --code worker_crash --from 2026-01-31T12:00:00Z
    """


@dead_letters.command(name="list")
@click.option("--open", "only_open", is_flag=True, help="Only letters that were not sent back.")
@_selecting
def list_letters(where: _Where, selection: Selection, *, only_open: bool) -> None:
    """List dead letters, and whether they were sent back; never their values.

    Example: groundwire dead-letters list --code worker_crash --tenant acme --open --format json
    """
    printer = render.LetterPrinter(where.layout)

    async def read(log: KafkaLog, reading: _Reading) -> None:
        history = await history_of(log, selection, where.prefix)
        async with aclosing(selected(log, selection)) as letters:
            async for letter in letters:
                redriven = history.redriven.get(letter.id)
                if not (only_open and redriven):
                    reading.printing()
                    printer.letter(letter, redriven)

    _run(where, read)


@dead_letters.command(name="show")
@click.argument("place", metavar="LETTER", type=PlaceParam())
@click.option("--value", is_flag=True, help="Show the record's value too.")
@_located
def show(where: _Where, place: Place, *, value: bool) -> None:
    """Show the dead letter at PARTITION@OFFSET: why it failed, its key and headers, what became of it.

    Exit status: 0, or 1 where there is no such letter, 2 for usage and a broker out of reach.

    Example: groundwire dead-letters show 2@17 --value
    """
    selection = Selection(start=place.offset, partition=place.partition, places={place}, end=place.offset + 1)

    async def read(log: KafkaLog, _reading: _Reading) -> tuple[Letter, Redriven | None] | None:
        async with aclosing(selected(log, selection)) as letters:
            async for letter in letters:
                history = await history_of(log, selection, where.prefix)
                return letter, history.redriven.get(letter.id)
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
@_letters
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
    type=click.FloatRange(min=0, min_open=True),
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
@_selecting
def redrive(
    where: _Where,
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

    Exit status: 0 when every letter was sent, now or before, 1 when some were refused or the run stopped, 2 for
    usage and a broker out of reach, 130 when broken off.

    Example: groundwire dead-letters redrive --code worker_crash --rate 10 --yes
    """  # noqa: D205 - the summary takes two lines
    rules = Rules(where.prefix, actor or _login(), max_attempts, limit, rate, stop_after)
    printer = render.LetterPrinter(where.layout)
    counts: Counter[tuple[Outcome, str | None]] = Counter()

    async def send(log: KafkaLog, reading: _Reading) -> bool:
        run = Redrive(log, selection, rules)
        async with aclosing(run.run() if yes else run.plan()) as steps:
            async for step in steps:
                reading.printing()
                counts[step.outcome, step.why] += 1
                printer.step(step)
        return run.stopped

    try:
        stopped = _run(where, send, sends=yes)
    finally:
        text = render.summary(counts) + ("" if yes else "; --yes does it")
        click.echo(text, err=where.layout == "json")
    if stopped:
        click.echo(f"stopped: {stop_after} records failed again, their cause is not mended", err=True)
    if stopped or any(outcome == Outcome.REFUSED for outcome, _ in counts):
        raise SystemExit(1)


class _Reading:
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
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def advance(self) -> None:
        """Count a record that was read."""
        self._progress.advance(self._task)

    def printing(self) -> None:
        """Make room: what is printed shows by itself how far things are."""
        if sys.stdout.isatty():
            self._progress.stop()


def _run(
    where: _Where, use: Callable[[KafkaLog, _Reading], Coroutine[Any, Any, Result]], *, sends: bool = False
) -> Result:
    async def main(reading: _Reading) -> Result:
        async with kafka_log(
            where.brokers, where.prefix, where.seconds, sends=sends, on_read=reading.advance
        ) as log:
            return await use(log, reading)

    with _Reading() as reading:
        return asyncio.run(main(reading))


def _login() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        return "unknown"

"""`groundwire dead-letters`: list and show records that could not be decided, and send them again."""

from __future__ import annotations

import asyncio
import getpass
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial, wraps
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from groundwire.cli import options
from groundwire.cli.output import ReadProgress, bytes_json, columns, compact_json, echo_json, fit, print_line
from groundwire.errors import ErrorCode
from groundwire.kafka.connection import producer
from groundwire.kafka.produce import INPUT_TOPICS
from groundwire.messages.base import from_milliseconds
from groundwire.messages.topics import TopicName
from groundwire.review.dead_letters import Letter, Log, Selection, redrive_letters, selected


class NameParam(click.ParamType):
    """A letter as `list` names it: partition@offset."""

    name = "letter"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        numbers = str(value).split("@")
        if len(numbers) != 2 or not all(n.isascii() and n.isdigit() and len(n) < 19 for n in numbers):
            self.fail(f"{value!r} is not PARTITION@OFFSET, such as 2@17", param, ctx)
        return f"{int(numbers[0])}@{int(numbers[1])}"


_TOPICS: Final = click.Choice([str(topic) for topic in (*INPUT_TOPICS, TopicName.DEFERRED)])
_CODES: Final = click.Choice(list(map(str, ErrorCode)))
_START, _END = options.StartParam("earliest", "latest"), options.StartParam()
_TOLD: Final = 10  # tenants and codes, counted below a list
_NUMBER, _RATE = click.IntRange(min=1), options.FiniteRange(min=0, min_open=True)
_FROM: Final = "Letters from this offset or time on; a letter has the time of its record."
_SELECTION: Final = (
    click.option("--code", "codes", multiple=True, type=_CODES, help="Repeatable."),
    click.option("--topic", type=_TOPICS, help="Where the record came in, without the prefix."),
    click.option("--tenant", help="The owner, where key and value agree on it."),
    click.option("--key", help="The record's key, TENANT:USER."),
    click.option(
        "--from", "start", type=_START, default="earliest", metavar="earliest|OFFSET|TIME", help=_FROM
    ),
    click.option("--to", "end", type=_END, metavar="OFFSET|TIME", help="Letters before this offset or time."),
    click.option("--partition", type=click.IntRange(min=0), help="Only this one of the dead-letter topic."),
)


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def run(*, deployment: options.Deployment, names: tuple[str, ...] = (), **others: Any) -> None:  # noqa: ANN401
        chosen = {name: others.pop(name) for name in ("start", "end", "partition", "tenant", "topic", "key")}
        if chosen["topic"] is not None:
            chosen["topic"] = f"{deployment.prefix}{chosen['topic']}"
        if chosen["key"] is not None:
            chosen["key"] = chosen["key"].encode("utf-8", "surrogateescape")
        chosen |= {"codes": frozenset(others.pop("codes")), "names": frozenset(names)}
        command(deployment=deployment, selection=Selection(**chosen), **others)

    return options.deployment_options(options.format_option(options.with_options(_SELECTION, run)))


@click.group(name="dead-letters")
def dead_letters() -> None:
    """List records that could not be decided, and send them again once the cause is fixed.

    A letter is named by where it stands on the dead-letter topic: PARTITION@OFFSET.

    Example: groundwire dead-letters list --code worker_crash --from 2026-01-31T12:00:00Z
    """


@dead_letters.command(name="list")
@click.option("--open", "only_open", is_flag=True, help="Only letters that were not sent back.")
@selecting
def list_letters(only_open: bool, **given: Any) -> None:  # noqa: ANN401, FBT001
    """List dead letters, and whether they were sent back; never their values.

    Example: groundwire dead-letters list --code worker_crash --tenant acme --open --format json
    """
    counts: Counter[tuple[str, str]] = Counter()

    def shown(letter: Letter) -> bool:
        listed = not (only_open and letter.redriven)
        counts[letter.failed.code, letter.failed.tenant_id or "no tenant"] += listed
        return listed

    if not _print(selected, **given, shown=shown):
        click.echo("no dead letter matches", err=True)
    for (code, tenant), count in (+counts).most_common(_TOLD):
        click.echo(f"{count} {code} of {tenant}", err=True)


@dead_letters.command(name="show")
@click.argument("name", metavar="LETTER", type=NameParam())
@click.option("--value", is_flag=True, help="Show the record's value too.")
@options.deployment_options
@options.format_option
def show(name: str, **given: Any) -> None:  # noqa: ANN401
    """Show the dead letter at PARTITION@OFFSET: why it failed, its key and headers, what became of it.

    Exit status: 0, or 1 where there is no such letter, 2 for usage and a broker out of reach.

    Example: groundwire dead-letters show 2@17 --value
    """
    partition, offset = map(int, name.split("@"))
    one = Selection(offset, offset + 1, partition, names={name})
    if not _print(selected, **given, selection=one, whole=True):
        click.echo(f"there is no dead letter at {name}", err=True)
        raise SystemExit(1)


@dead_letters.command(name="redrive")
@click.argument("names", metavar="[LETTER]...", nargs=-1, type=NameParam())
@click.option("--yes", is_flag=True, help="Do it; without this nothing is sent, only said.")
@click.option(
    "--max-attempts", "most", type=_NUMBER, default=3, show_default=True, help="Refuse after N failures."
)
@click.option("--rate", type=_RATE, default=50.0, show_default=True, help="At most N records a second.")
@click.option("--limit", type=_NUMBER, metavar="N", help="Stop after N records.")
@click.option("--actor", metavar="NAME", help="Who does it, for the audit.  [default: your login name]")
@selecting
def redrive(
    *,
    selection: Selection,
    layout: str,
    yes: bool,
    actor: str | None,
    most: int,
    rate: float,
    limit: int | None,
    **given: Any,  # noqa: ANN401
) -> None:
    """Send records back to their topic, partition and time: bytes, key, headers, and the count of failures.

    Without LETTERs, all that the filters mean. What the audit notes as sent is not sent again; a run that was broken
    off may have the next one repeat records, which changes no decision. What fails again is a new dead letter.

    Exit status: 0 when every letter was sent, now or before, 1 when some were refused or are not there, 2 for usage
    and a broker out of reach, 130 when broken off.

    Example: groundwire dead-letters redrive --code worker_crash --limit 20 --yes
    """
    try:
        actor = actor or getpass.getuser()
    except (OSError, KeyError):  # a container's user without a name
        actor = "unknown"
    counts, missing = Counter[str](), set() if limit else set(selection.names)

    def note(letter: Letter) -> bool:
        missing.discard(letter.name)
        counts[f"{letter.outcome} ({letter.why})" if letter.why else letter.outcome] += 1
        return True

    read = partial(redrive_letters, actor=actor if yes else None, most=most, rate=rate, limit=limit)
    try:
        _print(read, selection=selection, layout=layout, shown=note, sends=yes, **given)
    finally:
        said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items()) or "no letter selected"
        click.echo(said + ("; --yes sends them" if "redrive" in counts else ""), err=layout == "json")
    for name in sorted(missing):
        click.echo(f"there is no dead letter at {name} that matches", err=True)
    if missing or any(outcome.startswith("refused") for outcome in counts):
        raise SystemExit(1)


_COLUMNS: Final = {
    "letter": 10,
    "error": 19,
    "attempts": 8,
    "state": 36,
    "came from": 32,
    "at": 24,
    "key": 22,
}


def letter_json(letter: Letter) -> dict[str, Any]:
    """Return what a letter says, without the record's value."""
    failed, record = letter.failed, letter.record
    return {
        "letter": letter.name,
        "at": from_milliseconds(record.timestamp),
        "error": failed.code,
        "message": failed.message,
        "attempts": letter.failure.attempts,
        **letter.origin,
        **bytes_json("key", record.key),
        "tenant_id": failed.tenant_id,
        "user_id": failed.user_id,
        "size": None if record.value is None else len(record.value),
        **({"value_omitted": letter.omitted} if letter.omitted else {}),
        "state": "redriven" if letter.redriven else "open",
        "redriven": letter.redriven,
        **({"outcome": letter.outcome, "why": letter.why or None} if letter.outcome else {}),
    }


def _print(
    read: Callable[[Log, Selection], AsyncGenerator[Letter, None]],
    *,
    deployment: options.Deployment,
    selection: Selection,
    layout: str,
    shown: Callable[[Letter], bool] = lambda _letter: True,
    sends: bool = False,
    whole: bool = False,
    value: bool = False,
) -> int:
    """Print letters as they come: as JSON, `whole` or as a line of a table; return how many."""
    console, count = Console(highlight=False), 0

    def line(cells: Sequence[str], style: str = "") -> None:
        print_line(console, Text(fit(cells, [*_COLUMNS.values(), 200]).rstrip(), style=style))

    def print_one(letter: Letter) -> None:
        fields = letter_json(letter)
        if whole:
            fields["headers"] = [{"name": name, **bytes_json("value", data)} for name, data in letter.headers]
            fields |= bytes_json("value", letter.record.value) if value else {}
        if layout == "json":
            echo_json(compact_json(fields))
            return
        place, sent = "{topic}[{partition}]@{offset}".format_map, letter.redriven
        state = f"{letter.outcome or fields['state']} {letter.why or (place(sent) if sent else '')}".rstrip()
        key = (letter.record.key or b"").decode("utf-8", "backslashreplace")
        fields |= {"state": state, "came from": place(fields), "key": key}
        cells = {
            name: "-" if of is None else of if isinstance(of, str) else compact_json(of)
            for name, of in fields.items()
        }
        if whole:
            click.echo("\n".join(columns(list(cells.items()))))
            return
        if count == 1:
            line([*_COLUMNS, "message"], "bold")
        line([cells[name] for name in (*_COLUMNS, "message")])

    async def main(reading: ReadProgress) -> None:
        nonlocal count
        async with AsyncExitStack() as stack:
            opened = producer(deployment.brokers, deployment.seconds, idempotent=False)
            sender = await stack.enter_async_context(opened) if sends else None
            log = Log(deployment.brokers, deployment.prefix, deployment.seconds, sender, reading.advance)
            async for letter in await stack.enter_async_context(aclosing(read(log, selection))):
                if shown(letter):
                    reading.printing()
                    count += 1
                    print_one(letter)

    with ReadProgress() as reading:
        asyncio.run(main(reading))
    return count

"""`groundwire tail`: what comes out of the gate, and any other topic."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from datetime import datetime
from typing import Any, Final, Literal, cast

import click
from rich.console import Console

from groundwire.client.render import as_json, heading, row
from groundwire.client.tail import Span, Start, follow
from groundwire.client.text import visible_json
from groundwire.commands.options import brokers_option, prefix_option, quiet_kafka, reporting, timeout_option
from groundwire.messages.base import parse_time
from groundwire.messages.inbound import InboundRecord
from groundwire.messages.topics import TopicName

_ENDS: Final[dict[str, Literal["earliest", "latest"]]] = {"earliest": "earliest", "latest": "latest"}


class StartParam(click.ParamType):
    """`earliest`, `latest`, an offset, or an RFC 3339 time."""

    name = "start"

    def convert(
        self, value: str | int | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> Start:
        """Read the option's text."""
        if not isinstance(value, str):
            return value
        if value in _ENDS:
            return _ENDS[value]
        if value.isascii() and value.isdigit() and len(value) < 19:  # an offset has 63 bits
            return int(value)
        try:
            return parse_time(value)
        except ValueError:
            self.fail(f"{value!r} is not earliest, latest, an offset or an RFC 3339 time", param, ctx)


@click.command(name="tail")
@click.argument("topic", type=click.Choice([str(topic) for topic in TopicName]), metavar="TOPIC")
@click.option(
    "--from",
    "start",
    type=StartParam(),
    metavar="earliest|latest|OFFSET|TIME",
    help="Where to begin.  [default: latest; earliest with --until-end]",
)
@click.option("--partition", type=click.IntRange(min=0), help="Read this partition alone.")
@click.option("--until-end", is_flag=True, help="Stop where the topic ends now, instead of following it.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Stop after N records.")
@click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "json"]),
    help="Output.  [default: table on a terminal, else json]",
)
@brokers_option
@prefix_option
@timeout_option
def tail(  # noqa: PLR0913 - click hands over every option as an argument
    topic: str,
    *,
    start: Start | None,
    partition: int | None,
    until_end: bool,
    limit: int | None,
    layout: str | None,
    brokers: str,
    prefix: str,
    seconds: float,
) -> None:
    """Print the records of TOPIC as they come: approved, review, blocked, dead-letter or any other.

    JSON is one line a record: the record as it came, a dead letter with its error, place and content. Ctrl-C
    ends it: exit status 0, or 130 where an end was asked for and not reached.

    Example: groundwire tail dead-letter --from 2026-01-31T12:00:00Z --until-end --format json
    """
    quiet_kafka()
    begin: Start = start if start is not None else "earliest" if until_end else "latest"
    span = Span(begin, partition, until_end, limit)
    layout = layout or ("table" if sys.stdout.isatty() else "json")
    try:
        with reporting():
            asyncio.run(_print(brokers, prefix, TopicName(topic), span, layout, seconds))
    except KeyboardInterrupt:
        raise SystemExit(130 if until_end or limit else 0) from None


async def _print(
    brokers: str, prefix: str, topic: TopicName, span: Span, layout: str, seconds: float
) -> None:
    records = cast("AsyncGenerator[InboundRecord, Any]", follow(brokers, f"{prefix}{topic}", span, seconds))
    printer = _TablePrinter(topic) if layout == "table" else _JsonPrinter(topic)
    async with contextlib.aclosing(records):
        async for record in records:
            printer.print(record)


class _JsonPrinter:
    def __init__(self, topic: TopicName) -> None:
        self._topic = topic
        self._terminal = sys.stdout.isatty()

    def print(self, record: InboundRecord) -> None:
        line = as_json(record, self._topic)
        # on a terminal, what JSON lets stand raw (C1 controls, direction marks) is escaped
        click.echo((visible_json(line) if self._terminal else line).encode())


class _TablePrinter:
    def __init__(self, topic: TopicName) -> None:
        self._topic = topic
        self._console = Console(highlight=False)
        self._headed = False

    def print(self, record: InboundRecord) -> None:
        if not self._headed:
            self._line(heading(self._topic))
            self._headed = True
        self._line(row(record, self._topic))

    def _line(self, text: Any) -> None:  # noqa: ANN401
        if self._console.is_terminal:
            self._console.print(text, no_wrap=True, overflow="ellipsis", crop=True)
        else:
            self._console.print(text, soft_wrap=True)

"""Options of `groundwire dead-letters`: which deployment, and which letters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import wraps
from typing import Any, Final

import click

from groundwire.client.produce import INPUT_TOPICS
from groundwire.client.tail import Start
from groundwire.commands.options import (
    brokers_option,
    format_option,
    prefix_option,
    quiet_kafka,
    reporting,
    timeout_option,
)
from groundwire.commands.tail import StartParam
from groundwire.dead_letters.letters import Place, Selection
from groundwire.errors import ErrorCode
from groundwire.messages.topics import TopicName

_TOPICS: Final = [str(topic) for topic in (*INPUT_TOPICS, TopicName.DEFERRED)]
_DIGITS: Final = 18  # of an offset


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
class Where:
    """Which deployment, and how patiently."""

    brokers: str
    prefix: str
    seconds: float
    layout: str


_WHERE: Final = (
    format_option,
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
letters_argument: Final = click.argument("places", metavar="[LETTER]...", nargs=-1, type=PlaceParam())


@contextmanager
def _interrupted() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def located(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say where, and hand them over as one."""

    @wraps(command)
    def run(*, brokers: str, prefix: str, seconds: float, layout: str, **others: Any) -> None:  # noqa: ANN401 - the command's own
        quiet_kafka()
        with reporting(), _interrupted():
            command(where=Where(brokers, prefix, seconds, layout), **others)

    for option in reversed(_WHERE):
        run = option(run)
    return run


def selecting(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the filters, and hand them over as one Selection."""

    @wraps(command)
    def run(  # noqa: PLR0913 - click hands over every option as an argument
        *,
        where: Where,
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
        ).narrowed()
        command(where=where, selection=selection, **others)

    for option in reversed(_SELECTION):
        run = option(run)
    return located(run)

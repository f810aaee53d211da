"""Options and error reports that commands share."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from groundwire.client.text import visible
from groundwire.errors import BrokerUnavailable, UsageError
from groundwire.messages.base import parse_time

Command = TypeVar("Command", bound=Callable[..., Any])

DAY: Final = 86_400
"""Seconds: the longest that a person can ask a command to wait."""


class Failure(click.ClickException):
    """A wrong setting or a broker out of reach: exit status 2, and a message without control characters."""

    exit_code = 2

    def format_message(self) -> str:
        """Return the message as it is printed."""
        return visible(self.message)


class TimeParam(click.ParamType):
    """An RFC 3339 time with an offset."""

    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        """Read the option's text."""
        try:
            return parse_time(value)
        except ValueError as exc:
            self.fail(f"{value!r} {exc}", param, ctx)


class FiniteRange(click.FloatRange):
    """A number of a range; `nan` and `inf`, which compare as within one, are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401 - click's signature
        """Read the option's text."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


@contextlib.contextmanager
def reporting() -> Iterator[None]:
    """Turn the errors that a person can do something about into a message and exit status 2."""
    try:
        yield
    except (UsageError, BrokerUnavailable) as exc:
        raise Failure(str(exc)) from exc


def quiet_kafka() -> None:
    """Keep aiokafka's log off the terminal: what matters in it ends in an error of the command."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL + 1)


brokers_option = click.option(
    "--brokers",
    envvar="GROUNDWIRE_BROKERS",
    default="127.0.0.1:9092",
    show_default=True,
    show_envvar=True,
    metavar="HOST:PORT,...",
    help="Kafka bootstrap servers.",
)
prefix_option = click.option(
    "--prefix",
    envvar="GROUNDWIRE_TOPIC_PREFIX",
    default="groundwire.",
    show_default=True,
    show_envvar=True,
    help="Before every topic's name.",
)
timeout_option = click.option(
    "--timeout",
    "seconds",
    type=FiniteRange(min=0.1, max=DAY),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the broker may take to answer.",
)
format_option = click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output.",
)


def keys_file_option(name: str) -> Callable[[Command], Command]:
    """Return the option for the keys file under the given name."""
    return click.option(
        name,
        "keys_file",
        envvar="GROUNDWIRE_KEYS_FILE",
        show_envvar=True,
        type=click.Path(dir_okay=False, path_type=Path),
        help="TOML file with the keys.",
    )

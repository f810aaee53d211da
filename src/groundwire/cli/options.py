"""Options, parameter types and error reports that commands share."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from groundwire.config import Settings, load_settings
from groundwire.errors import BrokerUnavailable, StateUnavailable, UsageError
from groundwire.messages.base import parse_time
from groundwire.state.policies import PoliciesInState, PolicyStore
from groundwire.text.normalise import escape_controls

if TYPE_CHECKING:  # commands that need no Kafka do not load its client
    from groundwire.kafka.reader import Start


Command = TypeVar("Command", bound=Callable[..., Any])

DAY: Final = 86_400
"""Seconds: the longest that a person can ask a command to wait."""


class CommandError(click.ClickException):
    """A wrong setting or a broker out of reach: exit status 2, and a message without control characters."""

    exit_code = 2

    def format_message(self) -> str:
        return escape_controls(self.message)


class TimeParam(click.ParamType):
    name = "time"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            return parse_time(value)
        except ValueError as exc:
            self.fail(f"{value!r} {exc}", param, ctx)


class StartParam(click.ParamType):
    """An offset or an RFC 3339 time, or one of the words `earliest` and `latest` that are allowed."""

    name = "start"

    def __init__(self, *words: str) -> None:
        self._words = words

    def convert(
        self, value: str | int | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> Start:
        if not isinstance(value, str):
            return value
        try:
            if value in self._words or value not in {"earliest", "latest"}:
                return start_of(value)
        except ValueError:
            pass
        known = ", ".join((*self._words, "an offset"))
        raise click.BadParameter(f"{value!r} is not {known} or an RFC 3339 time", ctx, param)


def start_of(text: str) -> Start:
    """Read a place in a topic: an offset, a time, `earliest` or `latest`. Raises: ValueError."""
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if text.isascii() and text.isdigit() and len(text) < 19:  # an offset has 63 bits
        return int(text)
    return parse_time(text)


_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_LONGEST: Final = timedelta(days=10_000)


class AgeParam(click.ParamType):
    """A whole number and a unit: 90s, 30m, 12h, 7d."""

    name = "age"

    def convert(
        self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        if isinstance(value, timedelta):
            return value
        number, unit = value[:-1], value[-1:]
        if unit not in _UNITS or not (number.isascii() and number.isdigit() and len(number) < 10):
            self.fail(f"{value!r} is not a number and a unit, such as 90s, 30m, 12h or 7d", param, ctx)
        return min(timedelta(seconds=int(number) * _UNITS[unit]), _LONGEST)


class FiniteRange(click.FloatRange):
    """A number of a range; `nan` and `inf`, which compare as within one, are none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401 - click's signature
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


@contextlib.contextmanager
def reporting() -> Iterator[None]:
    """Turn the errors that a person can do something about into a message and exit status 2, and Ctrl-C into 130."""
    try:
        yield
    except (UsageError, BrokerUnavailable) as exc:
        raise CommandError(str(exc)) from exc
    except StateUnavailable as exc:
        raise CommandError(f"GROUNDWIRE_REDIS_URL: {exc}") from exc
    except KeyboardInterrupt:
        raise SystemExit(130) from None


def with_options(
    options: Sequence[Callable[[Any], Any]], command: Callable[..., None]
) -> Callable[..., None]:
    """Return a command that has the options, in this order in its help."""
    for option in reversed(options):
        command = option(command)
    return command


def quiet_kafka() -> None:
    """Keep aiokafka's log off the terminal: what matters in it ends in an error of the command."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL + 1)


@dataclass(frozen=True, slots=True)
class Deployment:
    """Which brokers and topics a command works on; `seconds`: how long the broker may take to answer."""

    brokers: str
    prefix: str
    seconds: float


_DEPLOYMENT: Final = (
    click.option(
        "--brokers",
        envvar="GROUNDWIRE_BROKERS",
        default="127.0.0.1:9092",
        show_default=True,
        show_envvar=True,
        metavar="HOST:PORT,...",
        help="Kafka bootstrap servers.",
    ),
    click.option(
        "--prefix",
        envvar="GROUNDWIRE_TOPIC_PREFIX",
        default="groundwire.",
        show_default=True,
        show_envvar=True,
        help="Before every topic's name.",
    ),
    click.option(
        "--timeout",
        "seconds",
        type=FiniteRange(min=0.1, max=DAY),
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="How long the broker may take to answer.",
    ),
)


def deployment_options(command: Callable[..., None]) -> Callable[..., None]:
    """Pass the options of a deployment as one `deployment`, and report errors of the broker."""

    @wraps(command)
    def run(*, brokers: str, prefix: str, seconds: float, **others: Any) -> None:  # noqa: ANN401 - the command's own
        quiet_kafka()
        with reporting():
            command(deployment=Deployment(brokers, prefix, seconds), **others)

    return with_options(_DEPLOYMENT, run)


format_option = click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output.",
)


file_argument = click.argument("file", type=click.File("rb"), default="-")
policy_option = click.option(
    "--policy", "policy_file", type=click.Path(path_type=Path), help="Policy file, TOML or effective JSON."
)
policies_option = click.option(
    "--policies",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="GROUNDWIRE_POLICIES_DIR",
    show_envvar=True,
    help="Folder of effective policies, `<sha256>.json`; those that workers keep in Redis are found without it.",
)


@asynccontextmanager
async def stored_policies(settings: Settings, folder: Path | None) -> AsyncIterator[PolicyStore]:
    """Open the policies of a folder, and those that workers keep in Redis, where a client for it is installed."""
    try:
        from groundwire.state.redis import RedisState  # noqa: PLC0415 - not in every extra
        from groundwire.state.server import connect  # noqa: PLC0415
    except ModuleNotFoundError:
        yield PolicyStore(folder, None)
        return
    partitions = settings.partitions
    state = RedisState(
        connect(settings.redis_url, patience=1.0), settings.topic_prefix, scheme="", partitions=partitions
    )
    try:
        yield PolicyStore(folder, PoliciesInState(state))
    finally:
        await state.close()


def keys_file_option(name: str) -> Callable[[Command], Command]:
    return click.option(
        name,
        "keys_file",
        envvar="GROUNDWIRE_KEYS_FILE",
        show_envvar=True,
        type=click.Path(dir_okay=False, path_type=Path),
        help="TOML file with the keys.",
    )


def wait_option(text: str, *, least: float) -> Callable[[Command], Command]:
    seconds = FiniteRange(min=least, max=DAY)
    return click.option("--wait", type=seconds, default=30.0, show_default=True, metavar="SECONDS", help=text)


seal_keys_option = click.option(
    "--seal-keys",
    type=click.Path(dir_okay=False, path_type=Path),
    envvar="GROUNDWIRE_SEAL_KEYS",
    show_envvar=True,
    help="TOML file with the public keys of workers (`groundwire keys public`).",
)


def settings_with_seals(seal_keys: Path | None) -> Settings:
    """Return the settings of the environment, with the file of `--seal-keys` where one was given."""
    settings = load_settings()
    return settings.model_copy(update={"seal_keys": seal_keys or settings.seal_keys})

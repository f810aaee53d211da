"""Who looks and decides at a terminal, and where: the options that every `groundwire review` command has."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from groundwire.attestation import Keys
from groundwire.client.text import visible, visible_json
from groundwire.commands.options import (
    FiniteRange,
    brokers_option,
    format_option,
    keys_file_option,
    prefix_option,
    quiet_kafka,
    reporting,
    timeout_option,
)
from groundwire.review.terminal import Desk, Look, look

_DESK: Final = (
    click.option(
        "--reviewer",
        envvar="GROUNDWIRE_REVIEWER",
        show_envvar=True,
        required=True,
        metavar="NAME",
        help="Who looks and decides, as user ids are written.",
    ),
    click.option(
        "--key",
        "key_id",
        envvar="GROUNDWIRE_REVIEWER_KEY",
        show_envvar=True,
        metavar="KEY_ID",
        help="Key of the keys file, role reviewer, that signs.",
    ),
    click.option("--tenant", help="Only this tenant.  [default: those of the key]"),
    click.option("--user", help="Only this user; with a claim id, whose claim it is."),
    click.option(
        "--days",
        type=FiniteRange(min=0, max=3_650),
        default=7,
        show_default=True,
        help="How far back decided items are read.",
    ),
    format_option,
    keys_file_option("--keys-file"),
    brokers_option,
    prefix_option,
    timeout_option,
)


def desk_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say who looks, and hand them over as one Desk."""

    @wraps(command)
    def run(  # noqa: PLR0913 - click hands over every option as an argument
        *,
        reviewer: str,
        key_id: str | None,
        tenant: str | None,
        user: str | None,
        days: float,
        keys_file: Path | None,
        brokers: str,
        prefix: str,
        seconds: float,
        **others: Any,  # noqa: ANN401 - the command's own
    ) -> None:
        quiet_kafka()
        with reporting():
            keys = Keys.load(keys_file) if keys_file else None
            where = (brokers, prefix, timedelta(days=days), seconds)
            command(desk=Desk(reviewer, tenant, user, keys, key_id, *where), **others)

    for option in reversed(_DESK):
        run = option(run)
    return run


def look_around(desk: Desk) -> Look:
    """Fill a board, with a sign of life on a terminal; what may be wrong with it goes to standard error."""
    progress = Console(stderr=True, highlight=False)
    if not progress.is_terminal:
        found = asyncio.run(look(desk))
    else:
        with progress.status("reading the topics"):
            found = asyncio.run(look(desk))
    for warning in found.warnings:
        click.echo(visible(f"warning: {warning}"), err=True)
    return found


def screen() -> Console:
    """Return what tables are printed on."""
    return Console(highlight=False)


def echo_json(line: str) -> None:
    """Print a line of JSON; on a terminal, what acts on one is escaped."""
    click.echo((visible_json(line) if sys.stdout.isatty() else line).encode())

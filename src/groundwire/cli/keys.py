"""`groundwire keys`: the keys that records are signed with."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Final, get_args

import click

from groundwire.cli.options import TimeParam, format_option, keys_file_option, reporting, required_file
from groundwire.cli.output import print_listing
from groundwire.keys.attestation import Key, Keys, Role
from groundwire.keys.file import new_key
from groundwire.text.normalise import escape_controls

_CELLS: Final[dict[str, Callable[[Key], object]]] = {
    "tenants": lambda key: key.tenants,
    "sources": lambda key: key.sources,
    "roles": lambda key: key.roles,
    "not after": lambda key: key.not_after,
}


@click.group(name="keys")
def keys() -> None:
    """Make and list the keys that sign records (header gw-attestation).

    Secrets stand in the keys file alone and are never printed.

    Example: groundwire keys new console --tenant acme --role reviewer --file keys.toml
    """


@keys.command(name="new")
@click.argument("key_id", metavar="ID")
@click.option("--tenant", "tenants", multiple=True, required=True, help="For whom it may speak; repeatable.")
@click.option("--source", "sources", multiple=True, help="A source that it may name; repeatable.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(get_args(Role)),
    help="What else it may sign; repeatable.",
)
@click.option("--not-after", type=TimeParam(), metavar="TIME", help="Until when it holds (RFC 3339).")
@keys_file_option("--file")
def new(
    key_id: str,
    tenants: tuple[str, ...],
    sources: tuple[str, ...],
    roles: tuple[str, ...],
    not_after: datetime | None,
    keys_file: Path | None,
) -> None:
    """Add a key with a random secret to the keys file.

    Example: groundwire keys new docs-sync --tenant acme --source documentation --file keys.toml
    """
    if not sources and not roles:
        raise click.UsageError("a key needs a --source or a --role: without one it may sign nothing")
    path = required_file(keys_file, "keys")
    with reporting():
        new_key(path, key_id, tenants=tenants, sources=sources, roles=roles, not_after=not_after)
    click.echo(escape_controls(f"key {key_id} added; its secret stands in {path}"))


@keys.command(name="list")
@format_option
@keys_file_option("--file")
def list_keys(layout: str, keys_file: Path | None) -> None:
    """List the keys of the keys file, without their secrets.

    Example: groundwire keys list --file keys.toml --format json
    """
    with reporting():
        found = Keys.load(required_file(keys_file, "keys", there=True))
    print_listing(layout, "key", found, _CELLS, secret="secret")  # noqa: S106 - the name of a field

"""`groundwire keys`: the keys that records are signed with."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import click

from groundwire.attestation import Key, Keys
from groundwire.client.text import columns, visible
from groundwire.commands.options import Failure, TimeParam, keys_file_option, reporting
from groundwire.keys_file import new_key
from groundwire.messages.base import format_time


@click.group(name="keys")
def keys() -> None:
    """Make and list the keys that sign records (header gw-attestation).

    Secrets stand in the keys file alone and are never printed.
    """


@keys.command(name="new")
@click.argument("key_id", metavar="ID")
@click.option("--tenant", "tenants", multiple=True, required=True, help="For whom it may speak; repeatable.")
@click.option("--source", "sources", multiple=True, help="A source that it may name; repeatable.")
@click.option(
    "--role",
    "roles",
    multiple=True,
    type=click.Choice(["reviewer"]),
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
    path = _required(keys_file)
    with reporting():
        new_key(path, key_id, tenants=tenants, sources=sources, roles=roles, not_after=not_after)
    click.echo(visible(f"key {key_id} added; its secret stands in {path}"))


@keys.command(name="list")
@click.option(
    "--format",
    "layout",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Output.",
)
@keys_file_option("--file")
def list_keys(layout: str, keys_file: Path | None) -> None:
    """List the keys of the keys file, without their secrets.

    Example: groundwire keys list --file keys.toml --format json
    """
    with reporting():
        found = Keys.load(_required(keys_file))
    if layout == "json":
        for key_id, key in found:
            click.echo(json.dumps({"key_id": key_id, **_public(key)}, ensure_ascii=False))
        return
    rows = [
        ["key", "tenants", "sources", "roles", "not after"],
        *(_cells(key_id, key) for key_id, key in found),
    ]
    for line in columns(rows):
        click.echo(line)


def _required(path: Path | None) -> Path:
    if path is None:
        raise Failure("no keys file: give --file or set GROUNDWIRE_KEYS_FILE")
    return path


def _public(key: Key) -> dict[str, object]:
    return key.model_dump(mode="json", exclude={"secret"})


def _cells(key_id: str, key: Key) -> list[str]:
    lists = [", ".join(values) or "-" for values in (key.tenants, key.sources, key.roles)]
    return [key_id, *lists, format_time(key.not_after) if key.not_after else "-"]

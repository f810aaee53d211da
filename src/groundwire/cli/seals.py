"""`groundwire seals`: what workers have signed of what they published."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from groundwire.cli.options import format_option, quiet_kafka, reporting, seal_keys_option
from groundwire.cli.output import columns
from groundwire.config import Settings, load_settings
from groundwire.keys.seal_keys import required_seal_keys
from groundwire.messages.base import format_time
from groundwire.replay.seals import ChainHead, read_seals
from groundwire.replay.store import Store


@click.group(name="seals")
def seals() -> None:
    """Show what workers have sealed of what they published.

    Example: groundwire seals head --seal-keys public.toml
    """


@seals.command(name="head")
@seal_keys_option
@format_option
def head(*, seal_keys: Path | None, layout: str) -> None:
    """Print the last seal of each input partition.

    Whoever keeps it where nobody can change it notices when later somebody cuts the chain short:
    `groundwire verify --from-topics --seal-keys FILE --heads KEPT`.

    Example: groundwire seals head --seal-keys public.toml --format json >> heads.jsonl
    """
    quiet_kafka()
    with reporting():
        settings = load_settings()
        settings = settings.model_copy(update={"seal_keys": seal_keys or settings.seal_keys})
        found = asyncio.run(_heads(settings))
    rows = [asdict(each) | {"at": format_time(each.at)} for each in found]
    if layout == "json":
        for row in rows:
            click.echo(json.dumps(row))
    elif rows:
        for line in columns([list(rows[0]), *(list(map(str, row.values())) for row in rows)]):
            click.echo(line)


async def _heads(settings: Settings) -> list[ChainHead]:
    with TemporaryDirectory(prefix="groundwire-seals-") as scratch, Store(Path(scratch, "seals")) as store:
        evidence = await read_seals(settings, required_seal_keys(settings), store)
        return list(evidence.heads())

"""`groundwire lag`: how far the workers of each role are behind their input."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Final

import click

from groundwire.cli.options import Deployment, deployment_options, format_option
from groundwire.cli.output import columns, echo_json
from groundwire.config import load_settings
from groundwire.kafka.reader import committed_of, open_reader
from groundwire.messages.topics import TopicName

_INPUTS: Final = {
    "claims": TopicName.CLAIMS,
    "responses": TopicName.LLM_RESPONSES,
    "deferred": TopicName.DEFERRED,
    "reviews": TopicName.REVIEW_DECISIONS,
}
_COUNTED: Final = 10_000
"""Records of a partition that are counted by reading: markers of transactions and aborted records have offsets too."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """`committed`: None if the role has committed nothing; `end`: of what is not in an open transaction."""

    role: str
    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int


@click.command(name="lag")
@format_option
@deployment_options
def lag(*, deployment: Deployment, layout: str) -> None:
    """Show committed offset, end and lag of each role's input, by partition.

    Markers of transactions and aborted records are no lag: up to 10,000 offsets of a partition are read and counted,
    beyond that the difference of the offsets is shown. Nothing is committed, and no worker is disturbed.

    Example: groundwire lag --format json
    """
    rows = asyncio.run(_read(deployment))
    if layout == "json":
        for row in rows:
            echo_json(json.dumps(asdict(row)))
        return
    cells = [["-" if cell is None else str(cell) for cell in asdict(row).values()] for row in rows]
    for line in columns([list(PartitionLag.__slots__), *cells]):
        click.echo(line)


async def _read(deployment: Deployment) -> list[PartitionLag]:
    groups = load_settings().group_prefix
    rows: list[PartitionLag] = []
    async with open_reader(deployment.brokers, deployment.seconds) as reader:
        for role, name in _INPUTS.items():
            topic = f"{deployment.prefix}{name}"
            ends = await reader.ends(topic)
            begins = await reader.offsets("earliest", ends)
            held = await committed_of(deployment.brokers, groups + role, list(ends), deployment.seconds)
            for at, end in sorted(ends.items()):
                committed = held[at].offset if at in held else None
                begin = max(begins[at], committed or 0)
                left = end - begin
                if 0 < left <= _COUNTED:
                    reader.seek({at: begin}, {at: end})
                    async with aclosing(reader.rest()) as pages:
                        left = sum([len(page) async for page in pages])
                rows.append(PartitionLag(role, topic, at.partition, committed, end, max(0, left)))
    return rows

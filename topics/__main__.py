"""`groundwire topics declare|check`, and `python -m topics` in a checkout."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import click

from groundwire.cli.environment import unknown_variables
from groundwire.config import Settings, load_settings
from groundwire.errors import GroundwireError
from topics.catalog import CATALOG
from topics.declare import check as check_topics
from topics.declare import declare as declare_topics

Result = TypeVar("Result")

_FORMAT = click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True
)


@click.group()
def main() -> None:
    """Declare and check Groundwire's topics on the brokers of GROUNDWIRE_BROKERS.

    Example: GROUNDWIRE_BROKERS=127.0.0.1:9092 groundwire topics declare
    """
    for warning in unknown_variables(os.environ):
        click.echo(f"warning: {warning}", err=True)


@main.command()
@_FORMAT
def declare(form: str) -> None:
    """Create the topics that are missing; existing ones stay as they are.

    Partitions and replicas come from GROUNDWIRE_PARTITIONS and GROUNDWIRE_REPLICATION.

    Example: GROUNDWIRE_REPLICATION=3 groundwire topics declare
    """
    settings = _settings()
    created = _run(declare_topics(settings))
    if form == "json":
        click.echo(json.dumps({"created": created, "topics": len(CATALOG)}))
    else:
        click.echo(f"{len(created)} topics created, {len(CATALOG) - len(created)} were there")


@main.command()
@_FORMAT
def check(form: str) -> None:
    """Compare the cluster with the catalogue; exit 1 where workers could not run.

    Example: groundwire topics check --format json
    """
    findings = _run(check_topics(_settings()))
    for finding in findings:
        if form == "json":
            click.echo(
                json.dumps({"topic": finding.topic, "problem": finding.problem, "fatal": finding.fatal})
            )
        else:
            click.echo(f"{'error' if finding.fatal else 'note'}  {finding.topic}: {finding.problem}")
    if form == "table" and not findings:
        click.echo(f"{len(CATALOG)} topics are as the catalogue says")
    sys.exit(1 if any(finding.fatal for finding in findings) else 0)


def _settings() -> Settings:
    try:
        return load_settings()
    except GroundwireError as exc:
        raise click.UsageError(str(exc)) from None


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    try:
        return asyncio.run(work)
    except GroundwireError as exc:
        click.echo(f"error: {exc}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    main(prog_name="python -m topics")

"""`groundwire verify`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import click

from groundwire.client.tail import Start
from groundwire.client.text import visible, visible_json
from groundwire.commands.options import FiniteRange, TimeParam, format_option, quiet_kafka, reporting
from groundwire.commands.replay_progress import Progress
from groundwire.errors import UsageError
from groundwire.logs import configure_logs
from groundwire.policies import PolicyStore
from groundwire.policy import load_policy
from groundwire.replay.files import FileRecords, verify_files
from groundwire.replay.rate import Rate
from groundwire.replay.reading import Reader
from groundwire.replay.run import Known
from groundwire.replay.topics import verify_topics
from groundwire.replay.verify import Placed, Status, Verifier
from groundwire.settings import Settings, load_settings

_DIFFERS, _UNDECIDED = 1, 3
_SHOWN = 10


@click.command()
@click.option("--decisions", type=click.Path(path_type=Path), help="Decisions, one JSON a line.")
@click.option("--records", type=click.Path(path_type=Path), help="Input values, one a line, unchanged bytes.")
@click.option(
    "--policies",
    type=click.Path(file_okay=False, path_type=Path),
    envvar="GROUNDWIRE_POLICIES_DIR",
    show_envvar=True,
    help="Folder of effective policies, `<sha256>.json`.",
)
@click.option("--from-topics", is_flag=True, help="Verify what stands on the topics, instead of files.")
@click.option("--since", type=TimeParam(), help="With --from-topics: decisions published from a time on.")
@click.option("--rate", type=FiniteRange(min=0, min_open=True), help="With --from-topics: records a second.")
@click.option("--replay", "replay_name", help="Name that the decisions carry in `replay`.  [default: none]")
@format_option
def verify(
    *,
    decisions: Path | None,
    records: Path | None,
    policies: Path | None,
    from_topics: bool,
    since: datetime | None,
    rate: float | None,
    replay_name: str | None,
    layout: str,
) -> None:
    """Derive decisions again from their records, policies and facts, and compare.

    Decisions and records come from files, or from the topics of a deployment, whose brokers and prefix stand in
    the environment; nothing else is asked. It shows that a decision follows from its facts, not that the facts
    were true. Decisions that differ, or cannot be derived here, are named with the fields at fault; the counts go
    to standard error.

    Exit status: 0 when all are equal, 1 when some differ, 2 for wrong usage, 3 when a record or policy is missing
    or another engine decided.

    Example: groundwire verify --decisions decisions.jsonl --records claims.jsonl --policies policies/
    """
    with reporting():
        settings = load_settings()
        configure_logs(settings.log_format, settings.log_level)
        if from_topics:
            if decisions or records or replay_name:
                raise UsageError("--from-topics goes without --decisions, --records and --replay")
            quiet_kafka()
            sys.exit(asyncio.run(_verify_topics(settings, policies, since or "earliest", rate, layout)))
        if decisions is None or records is None or policies is None:
            raise UsageError("--decisions, --records and --policies are needed, or --from-topics")
        if not policies.is_dir():
            raise UsageError(f"--policies: {policies} is no folder")
        sys.exit(asyncio.run(_verify_files(decisions, records, policies, replay_name, layout)))


async def _verify_topics(
    settings: Settings, folder: Path | None, since: Start, rate: float | None, layout: str
) -> int:
    in_force = load_policy(settings.policy_file, os.environ)
    policies = Known([in_force], PolicyStore(folder, None))
    with Progress() as progress, TemporaryDirectory(prefix="groundwire-verify-") as scratch:
        reader = Reader(settings.brokers, settings.topic_prefix, Rate(rate), progress.show)
        findings = verify_topics(reader, settings.topic_prefix, since, policies, Path(scratch))
        async with aclosing(findings):
            return await _tell(findings, layout)


async def _verify_files(
    decisions: Path, records: Path, policies: Path, replay: str | None, layout: str
) -> int:
    with FileRecords(records, decisions) as found:
        verifier = Verifier(found, PolicyStore(policies, None), replay=replay)
        async with aclosing(verify_files(found, verifier, decisions)) as findings:
            return await _tell(findings, layout)


async def _tell(findings: AsyncIterator[Placed], layout: str) -> int:
    """Print what is not equal, and the counts; return the exit status."""
    counts: Counter[Status] = Counter()
    async for placed in findings:
        counts[placed.finding.status] += 1
        if placed.finding.status is not Status.EQUAL:
            click.echo(_line(placed, layout))
    click.echo(", ".join(f"{counts[status]} {status.value.replace('_', ' ')}" for status in Status), err=True)
    if counts[Status.DIFFERS]:
        return _DIFFERS
    return _UNDECIDED if counts[Status.OTHER_ENGINE] + counts[Status.MISSING] else 0


def _line(placed: Placed, layout: str) -> str:
    finding = placed.finding
    if layout == "json":
        fields = {
            "where": placed.where,
            "decision_id": finding.decision_id,
            "status": finding.status,
            "fields": finding.paths,
            "detail": finding.detail or None,
        }
        return visible_json(json.dumps(fields, ensure_ascii=False))
    shown = " ".join(finding.paths[:_SHOWN]) + (" ..." if len(finding.paths) > _SHOWN else "")
    parts = [placed.where, finding.decision_id or "?", finding.status.value, shown, finding.detail]
    return visible("  ".join(part for part in parts if part))

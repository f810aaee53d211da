"""`groundwire verify`: derives decisions again and compares."""

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

from groundwire.cli.options import (
    FiniteRange,
    TimeParam,
    format_option,
    policies_option,
    quiet_kafka,
    reporting,
)
from groundwire.cli.output import StepProgress, escape_json
from groundwire.config import Settings, load_settings
from groundwire.errors import UsageError
from groundwire.kafka.reader import Start
from groundwire.logs import configure_logs
from groundwire.policy import load_policy
from groundwire.replay.reading import Rate, ReplayReader
from groundwire.replay.store import FileRecords
from groundwire.replay.verify import Placed, Verifier, VerifyStatus, told, verify_files, verify_topics
from groundwire.state.policies import KnownPolicies, PolicyStore
from groundwire.text.normalise import escape_controls

_DIFFERS, _UNDECIDED = 1, 3
_SHOWN = 10


@click.command()
@click.option("--decisions", type=click.Path(path_type=Path), help="Decisions, one JSON a line.")
@click.option("--records", type=click.Path(path_type=Path), help="Input values, one a line, unchanged bytes.")
@policies_option
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

    Exit status: 0 when all are equal, 1 when some differ or are contradicted (by another decision of the same id, or
    by the audit of a refused action), 2 for wrong usage, 3 when a record has expired with its topic's retention, a
    record or policy is missing, or another engine decided.

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
    policies = KnownPolicies([in_force], PolicyStore(folder, None))
    with StepProgress() as progress, TemporaryDirectory(prefix="groundwire-verify-") as scratch:
        reader = ReplayReader(settings.brokers, settings.topic_prefix, Rate(rate), progress.show)
        findings = verify_topics(reader, settings.topic_prefix, since, policies, Path(scratch), progress.show)
        async with aclosing(findings):
            return await _print(findings, layout)


async def _verify_files(
    decisions: Path, records: Path, policies: Path, replay: str | None, layout: str
) -> int:
    with FileRecords(records, decisions) as store:
        verifier = Verifier(store, PolicyStore(policies, None), replay=replay)
        async with aclosing(verify_files(store, verifier, decisions)) as findings:
            return await _print(findings, layout)


async def _print(findings: AsyncIterator[Placed], layout: str) -> int:
    """Print what is not equal, and the counts; return the exit status.

    What has expired is counted only, but for JSON: on `approved` it comes to be nearly all.
    """
    silent = {VerifyStatus.EQUAL} if layout == "json" else {VerifyStatus.EQUAL, VerifyStatus.EXPIRED}
    counts: Counter[VerifyStatus] = Counter()
    async for placed in findings:
        counts[placed.finding.status] += 1
        if placed.finding.status not in silent:
            click.echo(_line(placed, layout))
    click.echo(told(counts), err=True)
    if counts[VerifyStatus.DIFFERS] + counts[VerifyStatus.CONTRADICTED]:
        return _DIFFERS
    return _UNDECIDED if counts.total() > counts[VerifyStatus.EQUAL] else 0


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
        return escape_json(json.dumps(fields, ensure_ascii=False))
    shown = " ".join(finding.paths[:_SHOWN]) + (" ..." if len(finding.paths) > _SHOWN else "")
    parts = [placed.where, finding.decision_id or "?", finding.status.value, shown, finding.detail]
    return escape_controls("  ".join(part for part in parts if part))

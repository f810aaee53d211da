"""`groundwire verify`."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import click

from groundwire.client.text import visible
from groundwire.commands.options import reporting
from groundwire.errors import UsageError
from groundwire.logs import configure_logs
from groundwire.policies import PolicyStore
from groundwire.replay.files import FileRecords, decision_lines
from groundwire.replay.verify import Finding, Status, Verifier
from groundwire.settings import load_settings

_DIFFERS, _UNDECIDED = 1, 3
_SHOWN = 10


class Placed(NamedTuple):
    """A finding, and where its decision stands."""

    where: str
    finding: Finding


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
@click.option("--replay", "replay_name", help="Name that the decisions carry in `replay`.  [default: none]")
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
def verify(
    *, decisions: Path | None, records: Path | None, policies: Path | None, replay_name: str | None, form: str
) -> None:
    """Derive decisions again from their records, policies and facts, and compare.

    Needs neither network nor state. It shows that a decision follows from its facts, not that the facts were true.
    Decisions that differ, or cannot be derived here, are named with the fields at fault; the counts go to standard
    error.

    Exit status: 0 when all are equal, 1 when some differ, 2 for wrong usage, 3 when a record or policy is missing
    or another engine decided.

    Example: groundwire verify --decisions decisions.jsonl --records claims.jsonl --policies policies/
    """
    with reporting():
        settings = load_settings()
        configure_logs(settings.log_format, settings.log_level)
        if decisions is None or records is None or policies is None:
            raise UsageError("--decisions, --records and --policies are needed")
        if not policies.is_dir():
            raise UsageError(f"--policies: {policies} is no folder")
        sys.exit(asyncio.run(_verify_files(decisions, records, policies, replay_name, form)))


async def _verify_files(decisions: Path, records: Path, policies: Path, replay: str | None, form: str) -> int:
    with FileRecords(records, decisions) as found:
        verifier = Verifier(found, PolicyStore(policies, None), replay=replay)

        async def findings() -> AsyncIterator[Placed]:
            for number, value in decision_lines(decisions):
                yield Placed(f"line {number}", await verifier.verify(value))

        return await _tell(findings(), form)


async def _tell(findings: AsyncIterator[Placed], form: str) -> int:
    """Print what is not equal, and the counts; return the exit status."""
    counts: Counter[Status] = Counter()
    async for placed in findings:
        counts[placed.finding.status] += 1
        if placed.finding.status is not Status.EQUAL:
            click.echo(_line(placed, form))
    click.echo(", ".join(f"{counts[status]} {status.value.replace('_', ' ')}" for status in Status), err=True)
    if counts[Status.DIFFERS]:
        return _DIFFERS
    return _UNDECIDED if counts[Status.OTHER_ENGINE] + counts[Status.MISSING] else 0


def _line(placed: Placed, form: str) -> str:
    finding = placed.finding
    if form == "json":
        fields = {
            "where": placed.where,
            "decision_id": finding.decision_id,
            "status": finding.status,
            "fields": finding.paths,
            "detail": finding.detail or None,
        }
        return json.dumps(fields, ensure_ascii=False)
    shown = " ".join(finding.paths[:_SHOWN]) + (" ..." if len(finding.paths) > _SHOWN else "")
    parts = [placed.where, finding.decision_id or "?", finding.status.value, shown, finding.detail]
    return visible("  ".join(part for part in parts if part))

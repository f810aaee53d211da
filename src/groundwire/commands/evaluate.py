"""`groundwire evaluate`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import BinaryIO, Final

import click

from groundwire.client.text import visible
from groundwire.commands.evaluate_text import as_json, calibration_lines, report_lines
from groundwire.commands.options import FiniteRange, format_option, reporting
from groundwire.errors import UsageError
from groundwire.policy import load_policy, policy_variables
from groundwire.quality.calibrate import TABLE, Calibration, calibrate, write_thresholds
from groundwire.quality.figures import DRAWS
from groundwire.quality.judged import Judged, judge
from groundwire.quality.labelled import BadRow, read_labelled
from groundwire.quality.measured import measure
from groundwire.settings import load_settings

_FORMS: Final = ("jsonl", "csv", "tsv")


@click.command()
@click.argument("file", type=click.File("rb"), default="-")
@click.option(
    "--input", "form", type=click.Choice(_FORMS), help="Form of FILE.  [default: as its name ends, or jsonl]"
)
@click.option(
    "--policy",
    "policy_file",
    type=click.Path(path_type=Path),
    help="Policy file, whose thresholds are measured.",
)
@click.option(
    "--calibrate", "calibrating", is_flag=True, help="Choose thresholds, and write them to --policy."
)
@click.option(
    "--max-false-alarms",
    type=FiniteRange(min=0, max=1, min_open=True, max_open=True),
    default=0.05,
    show_default=True,
    help="With --calibrate: share of the supported rows that may be flagged.",
)
@click.option(
    "--draws", type=click.IntRange(10, 100_000), default=DRAWS, show_default=True, help="Of the bootstrap."
)
@format_option
def evaluate(
    file: BinaryIO,
    form: str | None,
    policy_file: Path | None,
    *,
    calibrating: bool,
    max_false_alarms: float,
    draws: int,
    layout: str,
) -> None:
    """Measure verdicts against labels of your own, beside plain baselines.

    One row a line: {"claim": ..., "evidence": ..., "label": "supported"}, or "answer" for a text that holds several
    claims; "group" names the source that a row comes from. CSV and TSV files name these columns in their first line.

    Intervals are of 95 %, by bootstrap over sources. With --calibrate, the strictest threshold is chosen that flags
    no more of the supported rows than --max-false-alarms; sources held out tell what is to be expected of it. It is
    written to the table [verification] of the file that --policy names; without one, the lines to add are printed.

    Exit status: 0 when every row was measured, 1 when some were bad (then nothing is written), 2 for wrong usage.

    Example: groundwire evaluate labels.jsonl --calibrate --policy policy.toml
    """
    with reporting():
        if calibrating and policy_file is not None and policy_file.suffix == ".json":
            raise UsageError("--policy: an effective policy is named by its content; give the TOML file")
        policy = load_policy(policy_file or load_settings().policy_file, os.environ)
        rows, bad = _read(file, form)
        found = calibrate(rows, max_false_alarms) if calibrating else None
        measured = measure(rows, policy.verification, bad=bad, draws=draws)
        if layout == "json":
            click.echo(as_json(measured, found))
        else:
            for line in report_lines(measured):
                click.echo(line)
        if found is not None:
            _tell(found, policy_file, bad, quiet=layout == "json")
    sys.exit(1 if bad else 0)


def _read(file: BinaryIO, form: str | None) -> tuple[list[Judged], int]:
    """Read and judge the rows; those that cannot be read are told on standard error, and counted."""
    suffix = Path(str(getattr(file, "name", ""))).suffix.removeprefix(".").lower()
    rows: list[Judged] = []
    bad = 0
    for row in read_labelled(file.read(), form or (suffix if suffix in _FORMS else _FORMS[0])):
        if isinstance(row, BadRow):
            bad += 1
            click.echo(visible(f"line {row.line}: {row.error.message}"), err=True)
        else:
            rows.append(judge(row))
    return rows, bad


def _tell(found: Calibration, policy_file: Path | None, bad: int, *, quiet: bool) -> None:
    """Say what was chosen, write it where that was asked for, and say that too."""
    if not quiet:
        for line in calibration_lines(found):
            click.echo(line)
    written = False
    if policy_file is not None and not bad:
        write_thresholds(policy_file, found.keys)
        written = True
    lines = [f"{name} = {value}" for name, value in found.keys.items()]
    if written:
        click.echo(visible(f"written to {policy_file}, [{TABLE}]: {', '.join(lines)}"), err=True)
    else:
        why = "as rows are bad, nothing is written; " if bad else ""
        click.echo(f"{why}add to the policy file:\n[{TABLE}]\n" + "\n".join(lines), err=True)
    overridden = [name for name in policy_variables() if name in os.environ and name.endswith(_KEYS)]
    for name in overridden:
        click.echo(f"warning: {name} is set, and overrides the file", err=True)


_KEYS: Final = ("VERIFICATION_SUPPORT_THRESHOLD", "VERIFICATION_GAP_THRESHOLD_BITS")

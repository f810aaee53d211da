"""`groundwire evaluate`."""

from __future__ import annotations

import os
import sys
from codecs import BOM_UTF8
from pathlib import Path
from typing import BinaryIO, Final

import click
from click.core import ParameterSource

from groundwire.client.text import visible
from groundwire.commands.evaluate_forms import holds_responses, refuse_other_forms
from groundwire.commands.evaluate_text import as_json, calibration_lines, report_lines
from groundwire.commands.options import FiniteRange, format_option, reporting
from groundwire.errors import UsageError
from groundwire.policy import Policy, load_policy, policy_variables
from groundwire.quality.calibrate import TABLE, Calibration, calibrate, check_writable, write_thresholds
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
    "--calibrate",
    "calibrating",
    is_flag=True,
    help="Choose thresholds, and write them to --policy, which is made where it is not there.",
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

    Intervals are of 95 %, by bootstrap over sources. With --calibrate, the strictest verdicts are chosen that flag no
    more of the supported rows than --max-false-alarms, and a threshold that gives them: the one in force where it does,
    else the middle of those that do. Sources held out tell what is to be expected of it. It is written to the table
    [verification] of the file that --policy names; without one, the lines to add are printed.

    Exit status: 0 when every row was measured, 1 when some were bad (then nothing is written), 2 for wrong usage.

    Example: groundwire evaluate labels.jsonl --calibrate --policy policy.toml
    """
    with reporting():
        policy = _policy(policy_file, calibrating=calibrating)
        in_force = policy.verification.support_threshold
        rows, bad = _read(file, form)
        found = calibrate(rows, max_false_alarms, in_force) if calibrating else None
        measured = measure(rows, policy.verification, bad=bad, draws=draws)
        if layout == "json":
            click.echo(as_json(measured, found))
        else:
            for line in report_lines(measured):
                click.echo(line)
        if found is not None:
            if layout != "json":
                for line in calibration_lines(found):
                    click.echo(line)
            if found.support_threshold < in_force:
                click.echo(
                    f"warning: {found.support_threshold:g} is laxer than {in_force:g}, in force", err=True
                )
            _write(found, policy_file, bad)
    sys.exit(1 if bad else 0)


def _policy(policy_file: Path | None, *, calibrating: bool) -> Policy:
    """Return the policy that is measured; that thresholds can be written is seen to before. Raises: UsageError."""
    given = click.get_current_context().get_parameter_source("max_false_alarms")
    if not calibrating and given is not ParameterSource.DEFAULT:
        raise UsageError("--max-false-alarms chooses a threshold: give --calibrate as well")
    if calibrating and policy_file is not None:
        if policy_file.suffix == ".json":
            raise UsageError("--policy: an effective policy is named by its content; give the TOML file")
        check_writable(policy_file)
        if not policy_file.exists():
            click.echo(visible(f"{policy_file} is not there yet: the defaults are measured"), err=True)
            return load_policy(None, os.environ)
    return load_policy(policy_file or load_settings().policy_file, os.environ)


def _read(file: BinaryIO, form: str | None) -> tuple[list[Judged], int]:
    """Read and judge the rows; those that cannot be read are told on standard error, and counted."""
    suffix = Path(str(getattr(file, "name", ""))).suffix.removeprefix(".").lower()
    form = form or (suffix if suffix in _FORMS else _FORMS[0])
    data = file.read().removeprefix(BOM_UTF8)
    refuse_other_forms(data, form)
    rows: list[Judged] = []
    bad = 0
    for row in read_labelled(data, form):
        if isinstance(row, BadRow):
            bad += 1
            click.echo(visible(f"line {row.line}: {row.error.message}"), err=True)
        else:
            rows.append(judge(row))
    if bad and not rows and form == "jsonl" and holds_responses(data):
        click.echo("this looks like responses: groundwire audit", err=True)
    return rows, bad


def _write(found: Calibration, policy_file: Path | None, bad: int) -> None:
    """Write what was chosen where that was asked for, and say so; else say what to add."""
    written = None
    if policy_file is not None and not bad:
        written = "written to" if policy_file.exists() else "written to the new file"
        write_thresholds(policy_file, found.keys)
    lines = [f"{name} = {value}" for name, value in found.keys.items()]
    if written:
        click.echo(visible(f"{written} {policy_file}, [{TABLE}]: {', '.join(lines)}"), err=True)
    else:
        why = "as rows are bad, nothing is written; " if bad else ""
        click.echo(f"{why}add to the policy file:\n[{TABLE}]\n" + "\n".join(lines), err=True)
    overridden = [name for name in policy_variables() if name in os.environ and name.endswith(_KEYS)]
    for name in overridden:
        click.echo(f"warning: {name} is set, and overrides the file", err=True)


_KEYS: Final = ("VERIFICATION_SUPPORT_THRESHOLD", "VERIFICATION_GAP_THRESHOLD_BITS")

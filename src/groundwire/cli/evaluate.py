"""`groundwire evaluate`: how often verdicts are wrong, measured against labels."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import click
from click.core import ParameterSource

from groundwire.cli.deciding import Deciding, DecidingOptions, deciding_options
from groundwire.cli.options import FiniteRange, file_argument, format_option, reporting
from groundwire.cli.output import columns, cut
from groundwire.config import load_settings
from groundwire.epistemic.entailment import EntailmentModel
from groundwire.epistemic.types import OperatingPoint
from groundwire.errors import RecordError, UsageError
from groundwire.library.calibrate import TABLE, Calibration, calibrate, check_writable, write_keys
from groundwire.library.evaluate import (
    DRAWS,
    HEADINGS,
    BadRow,
    Counted,
    Estimate,
    Judged,
    Labelled,
    Measured,
    Row,
    judge,
    measure,
    read_labelled,
)
from groundwire.library.verdicts import (
    TEXTS,
    JudgedRecord,
    Share,
    by_class,
    judge_records,
    read_labelled_records,
    shares,
)
from groundwire.messages.decode import parse_json
from groundwire.policy import Policy, load_policy, policy_variables
from groundwire.text.normalise import escape_controls
from groundwire.verify.models import load_model

_SHOWN: Final = 100  # characters of a first line


def holds_responses(data: bytes) -> bool:
    """Whether the first line is a response for `groundwire audit` rather than a labelled row."""
    first = _parsed(data.strip().partition(b"\n")[0])
    return isinstance(first, dict) and "label" not in first and bool({"context", "chunks"} & first.keys())


def holds_records(data: bytes) -> bool:
    """Whether rows are claims and responses for the gate. Raises: UsageError, the file holds rows of both kinds."""
    records, evidence = (
        "a record for the gate (content, record)",
        "a statement with its evidence (claim, answer)",
    )
    kinds: dict[str, int] = {}
    for number, line in enumerate(data.split(b"\n"), 1):
        row = _parsed(line)
        fields = set(row) if isinstance(row, dict) else set()
        if {"claim", "answer", "evidence"} & fields:
            kinds.setdefault(evidence, number)
        elif set(TEXTS) & fields:
            kinds.setdefault(records, number)
    if len(kinds) > 1:
        (one, first), (other, second) = kinds.items()
        raise UsageError(f"line {first} is {one}, and line {second} {other}: give a file of each")
    return records in kinds


def _parsed(data: bytes) -> Any:  # noqa: ANN401 - any JSON value
    try:
        return parse_json(data)
    except RecordError:
        return None


def report_lines(measured: Measured) -> Iterator[str]:
    count = measured.counted
    yield (
        f"{measured.rows} rows from {measured.sources} sources: {count.supported} supported, "
        f"{count.unsupported} not" + (f"; {measured.bad_rows} bad, left out" if measured.bad_rows else "")
    )
    yield ""
    rows = [
        [
            method,
            *(
                f"{one.value:.3f} [{one.low:.2f}, {one.high:.2f}]"
                for one in map(figures.get, HEADINGS)
                if one
            ),
        ]
        for method, figures in measured.methods.items()
    ]
    yield from columns([["method", *HEADINGS.values()], *rows])
    yield ""
    yield f"at support_threshold = {measured.support_threshold:g}, {measured.point} being in force:"
    points = [("operating point", "supported, flagged", "others, missed")]
    for point, at in measured.points.items():
        flagged = f"{at.false_alarms} of {at.supported} ({_percent(at.false_alarm_share)})"
        points.append((point, flagged, f"{at.missed} of {at.unsupported} ({_percent(at.missed_share)})"))
    yield from columns(points)


def miss_lines(
    rows: Sequence[tuple[Labelled, Judged]], point: OperatingPoint, threshold: float
) -> Iterator[str]:
    wrong = [pair for pair in rows if pair[1].flagged_at(point, threshold) == pair[1].supported]
    lines: list[tuple[str, ...]] = [("line", "label", "came to", "support", "text")]
    for row, judged in wrong:
        support = f"{judged.support_at(point):.2f}" + (", wrong for certain" if judged.hard else "")
        label, came_to = ("supported", "flagged") if row.supported else ("not supported", "passed")
        lines.append((str(row.line), label, came_to, support, cut(row.text, _SHOWN)))
    if wrong:
        yield ""
        yield from columns(lines)


def calibration_lines(found: Calibration) -> Iterator[str]:
    yield f"chosen for {found.point}: support_threshold = {found.support_threshold:g}: {verdicts(found.chosen_on)}"
    if found.few_sources:
        yield f"{found.sources} sources are too few to hold some out: what is to be expected of it is not known"
    else:
        yield f"on sources held out from the choice: {verdicts(found.held_out)}"


def verdicts(count: Counted) -> str:
    return (
        f"{count.false_alarms} of {count.supported} supported rows flagged ({_percent(count.false_alarm_share)}), "
        f"{count.missed} of {count.unsupported} others missed ({_percent(count.missed_share)})"
    )


def as_json(measured: Measured, found: Calibration | None) -> str:
    result: dict[str, Any] = {
        "rows": measured.rows,
        "bad_rows": measured.bad_rows,
        "sources": measured.sources,
        "support_threshold": measured.support_threshold,
        "operating_point": measured.point,
        "verdicts": _counted(measured.counted),
        "points": {point: _counted(count) for point, count in measured.points.items()},
        "methods": {
            method: {name: figure._asdict() for name, figure in figures.items()}
            for method, figures in measured.methods.items()
        },
    }
    if found is not None:
        result["calibration"] = {
            **found.keys,
            "operating_point": found.point,
            "sources": found.sources,
            "chosen_on": _counted(found.chosen_on),
            "held_out": _counted(found.held_out),
        }
    return json.dumps(result, ensure_ascii=False)


def _counted(count: Counted) -> dict[str, Any]:
    return {
        **count._asdict(),
        "false_alarm_share": count.false_alarm_share._asdict(),
        "missed_share": count.missed_share._asdict(),
    }


def record_lines(judged: Sequence[JudgedRecord], bad: int, *, misses: bool) -> Iterator[str]:
    harmless = sum(one.harmless for one in judged)
    yield (
        f"{len(judged)} rows: {harmless} to approve, {len(judged) - harmless} to hold"
        + (f"; {bad} bad, left out" if bad else "")
    )
    if assumed := sum(one.row.source_assumed for one in judged):
        yield f'claims that name no source: {assumed}, taken for the user\'s own ("source": "user")'
    yield ""
    table = [("class", "rows", "leak", "over-hold")]
    for kind, rows in {"all": judged, **by_class(judged)}.items():
        figures = shares(rows)
        table.append((kind or "(none)", str(len(rows)), share(figures["leak"]), share(figures["over_hold"])))
    yield from columns(table)
    figures = shares(judged)
    if figures["conflicts_caught"].total:
        yield ""
        for name in ("conflicts_caught", "false_conflicts", "wrong_duplicates"):
            yield f"{name.replace('_', ' ')}: {share(figures[name])}"
    wrong = [one for one in judged if not one.right]
    if misses and wrong:
        yield ""
        lines = [("line", "class", "label", "came to", "reason", "text")]
        for one in wrong:
            line, kind, label, text, *_ = one.row
            lines.append((str(line), kind, label, str(one.outcome), one.reason, cut(text, 120)))
        yield from columns(lines)


def share(given: Share) -> str:
    """Return a share with its interval, `5 of 32: 15.6 % [6.9, 31.8]`; a dash where there is nothing to share."""
    if not given.total:
        return "-"
    return f"{given.found} of {given.total}: {_percent(given.estimate)}"


def records_json(judged: Sequence[JudgedRecord], bad: int) -> str:
    result = {
        "rows": len(judged),
        "bad_rows": bad,
        "source_assumed": sum(one.row.source_assumed for one in judged),
        **_shares_json(judged),
        "classes": {kind: _shares_json(rows) for kind, rows in by_class(judged).items()},
        "misses": [
            {
                "line": one.row.line,
                "class": one.row.kind,
                "label": one.row.label,
                "outcome": one.outcome,
                "reason_code": one.reason,
                "text": one.row.text,
            }
            for one in judged
            if not one.right
        ],
    }
    return json.dumps(result, ensure_ascii=False)


def _shares_json(judged: Sequence[JudgedRecord]) -> Mapping[str, Any]:
    return {
        name: given._asdict() | (given.estimate._asdict() if given.total else {})
        for name, given in shares(judged).items()
    }


def _percent(given: Estimate) -> str:
    return f"{100 * given.value:.1f} % [{100 * given.low:.1f}, {100 * given.high:.1f}]"


@click.command()
@file_argument
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
@deciding_options
@click.option("--misses", is_flag=True, help="List the rows that were judged wrongly.")
@format_option
def evaluate(
    file: BinaryIO,
    given: DecidingOptions,
    *,
    misses: bool,
    calibrating: bool,
    max_false_alarms: float,
    draws: int,
    layout: str,
) -> None:
    """Measure verdicts against labels of your own.

    Claims, as the gate decides them: {"content": ..., "label": "hold", "class": "hedge"}, beside the fields of a claim
    and "earlier", texts that the same user sent before. Printed are leak (approved, and should not be) and over-hold
    (held, and should not be) by class, each with its Wilson interval; --misses names them.

    Statements by their evidence, beside plain baselines: {"claim": ..., "evidence": ..., "label": "supported"}, or
    "answer" for a text that holds several claims, judged as the gate judges it, with "query", the question; "group"
    names the source that a row comes from. Intervals are of 95 %, by bootstrap over sources. With --calibrate, the
    strictest verdicts are chosen that flag no more of the supported rows than --max-false-alarms, and a threshold that
    gives them: the one in force where it does, else the middle of those that do. Sources held out tell what is to be
    expected of it. It is written to the table [verification] of the file that --policy names; without one, the lines to
    add are printed. Where the policy names an entailment model, it is asked, and its head is fitted too.

    FILE holds one row a line. Exit status: 0 when every row was measured, 1 when some were bad (then nothing is
    written), 2 for wrong usage.

    Example: groundwire evaluate labels.jsonl --calibrate --policy policy.toml
    """
    with reporting():
        data = file.read().removeprefix(BOM_UTF8)
        if b"\n" in data.strip() and _parsed(data) is not None:
            raise UsageError("the file is a single JSON document: give one JSON object a line")
        if holds_records(data):
            deciding = Deciding(given)
            deciding.advise()
            bad = _evaluate_records(data, deciding, layout=layout, misses=misses)
            sys.exit(1 if bad else 0)
        policy = _policy(given.policy_file, calibrating=calibrating)
        in_force = policy.verification
        labelled, bad = _sorted_out(read_labelled(data))
        if bad and not labelled and holds_responses(data):
            click.echo("this looks like responses: groundwire audit", err=True)
        model = load_model(in_force, network=False)  # of models, one that scores; none over the network
        scorer = model if isinstance(model, EntailmentModel) else None
        judged = [judge(row, scorer, policy) for row in labelled]
        found = calibrate(judged, max_false_alarms, in_force) if calibrating else None
        rows = [row.under(in_force.entailment_head) for row in judged]
        measured = measure(rows, in_force, bad=bad, draws=draws)
        if layout == "json":
            click.echo(as_json(measured, found))
        else:
            pairs = list(zip(labelled, rows, strict=True)) if misses else []
            for line in (
                *report_lines(measured),
                *miss_lines(pairs, measured.point, measured.support_threshold),
                *(calibration_lines(found) if found else ()),
            ):
                click.echo(line)
        if found is not None:
            if found.support_threshold < in_force.support_threshold:
                click.echo(
                    f"warning: {found.support_threshold:g} is laxer than {in_force.support_threshold:g}, in force",
                    err=True,
                )
            _write(found, given.policy_file, bad)
    sys.exit(1 if bad else 0)


def _evaluate_records(data: bytes, deciding: Deciding, *, layout: str, misses: bool) -> int:
    """Decide labelled claims and responses and print the report; return the number of bad rows."""
    rows, unread = _sorted_out(read_labelled_records(data))

    async def decided() -> list[JudgedRecord | BadRow]:
        async with deciding as checker:
            return [one async for one in judge_records(rows, checker)]

    judged, refused = _sorted_out(asyncio.run(decided()))
    bad = unread + refused
    if layout == "json":
        click.echo(records_json(judged, bad))
    else:
        for line in record_lines(judged, bad, misses=misses):
            click.echo(line)
    return bad


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
            click.echo(
                escape_controls(f"{policy_file} is not there yet: the defaults are measured"), err=True
            )
            return load_policy(None, os.environ)
    return load_policy(policy_file or load_settings().policy_file, os.environ)


def _sorted_out(rows: Iterable[Row | BadRow]) -> tuple[list[Row], int]:
    """Return the good rows and the number of bad ones, which are printed on standard error."""
    good: list[Row] = []
    bad = 0
    for row in rows:
        if isinstance(row, BadRow):
            bad += 1
            click.echo(escape_controls(f"line {row.line}: {row.error.message}"), err=True)
        else:
            good.append(row)
    return good, bad


def _write(found: Calibration, policy_file: Path | None, bad: int) -> None:
    written = None
    if policy_file is not None and not bad:
        written = "written to" if policy_file.exists() else "written to the new file"
        write_keys(policy_file, found.keys)
    lines = [f"{name} = {value}" for name, value in found.keys.items()]
    if written:
        click.echo(escape_controls(f"{written} {policy_file}, [{TABLE}]: {', '.join(lines)}"), err=True)
    else:
        why = "as rows are bad, nothing is written; " if bad else ""
        click.echo(f"{why}add to the policy file:\n[{TABLE}]\n" + "\n".join(lines), err=True)
    for name in policy_variables():
        if name in os.environ and name.endswith(("_SUPPORT_THRESHOLD", "_GAP_THRESHOLD_BITS")):
            click.echo(f"warning: {name} is set, and overrides the file", err=True)

"""`groundwire report`: what the gate decided in a period, by source and reason, and what people made of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from groundwire.cli.options import AgeParam, Deployment, StartParam, deployment_options, format_option
from groundwire.cli.output import NOTHING, columns, escape_json
from groundwire.replay.verdicts import Report, report_period


class _SinceParam(click.ParamType):
    """An age, such as 7d, or an RFC 3339 time."""

    name = "since"

    def convert(
        self, value: str | datetime, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        if isinstance(value, datetime):
            return value
        if value[-1:].isascii() and value[-1:].islower():
            age: timedelta = AgeParam().convert(value, param, ctx)
            return datetime.now(UTC) - age
        moment = StartParam().convert(value, param, ctx)
        if not isinstance(moment, datetime):
            self.fail(f"{value!r} is not an age, such as 7d, or an RFC 3339 time", param, ctx)
        return moment


@click.command()
@click.option(
    "--since",
    type=_SinceParam(),
    default="7d",
    show_default=True,
    metavar="AGE|TIME",
    help="From when on: 7d, 12h, or an RFC 3339 time.",
)
@click.option("--tenant", help="Only this tenant's.")
@format_option
@deployment_options
def report(since: datetime, *, tenant: str | None, layout: str, deployment: Deployment) -> None:
    """Count what the gate decided since a time, by source and reason, from the output topics.

    Each claim and each response counts once, by the gate's own latest decision. `over-held` is the share that people
    approved as it was, of what they decided. Reads without a consumer group, and writes nothing.

    Exit status: 0, or 2 for usage and a broker out of reach.

    Example: groundwire report --since 7d --format json
    """
    found = asyncio.run(
        report_period(deployment.brokers, deployment.prefix, since, deployment.seconds, tenant=tenant)
    )
    lines = [json.dumps(found, ensure_ascii=False)] if layout == "json" else _lines(found)
    for line in lines:
        click.echo(escape_json(line) if layout == "json" else line)


def _lines(found: Report) -> Iterator[str]:
    decided = sum(found["total"][name] for name in ("approved", "review", "blocked"))
    yield f"{decided} decided since {found['since']}, {sum(found['dead_letters'].values())} dead letters"
    verdicts = "approved", "review", "blocked", "over-held"
    if decided:
        yield ""
        rows = [[one["source"] or f"({one['kind']}s)", *_cells(one)] for one in found["by_source"]]
        yield from columns([["source", *verdicts], *rows, ["all", *_cells(found["total"])]])
        yield ""
        rows = [
            [one["reason_code"], one["kind"], *_cells(one), one["example"]["decision_id"]]
            for one in found["by_reason"]
        ]
        yield from columns([["reason", "kind", *verdicts, "example"], *rows])
    if found["dead_letters"]:
        yield ""
        rows = [[code, str(count)] for code, count in found["dead_letters"].items()]
        yield from columns([["dead letter", "records"], *rows])
    if found["no_place"]:
        full = ", ".join(f"{limit} {count}" for limit, count in found["no_place"].items())
        yield ""
        yield (
            f"{sum(found['no_place'].values())} claims found no place in the review queue, and were blocked: {full}."
            " `groundwire check SAMPLE --format table` says how many places a day takes, and what to do."
        )


def _cells(tally: dict[str, Any]) -> list[str]:
    approved, over = tally["people_approved"], tally["over_held"]
    judged = approved + tally["people_edited"] + tally["people_rejected"]
    cells = [str(tally[name]) for name in ("approved", "review", "blocked")]
    return [*cells, NOTHING if over is None else f"{approved} of {judged} ({over:.0%})"]

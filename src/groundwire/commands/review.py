"""`groundwire review`: what waits for a person, and deciding it, at a terminal."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from groundwire.attestation import Keys
from groundwire.client.text import visible, visible_json
from groundwire.commands import review_text as render
from groundwire.commands.options import (
    Failure,
    brokers_option,
    keys_file_option,
    prefix_option,
    quiet_kafka,
    reporting,
    timeout_option,
)
from groundwire.messages.decisions import Kind
from groundwire.messages.reviews import Action
from groundwire.review.actions import RejectReason, Target, review_decision
from groundwire.review.model import MAX_PAGE, SORTS, Item, Query
from groundwire.review.terminal import Desk, Look, act, look

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
_LONGEST: Final = timedelta(days=10_000)


class AgeParam(click.ParamType):
    """A whole number and a unit: 90s, 30m, 12h, 7d."""

    name = "age"

    def convert(
        self, value: str | timedelta, param: click.Parameter | None, ctx: click.Context | None
    ) -> timedelta:
        """Read the option's text."""
        if isinstance(value, timedelta):
            return value
        number, unit = value[:-1], value[-1:]
        if unit not in _UNITS or not (number.isascii() and number.isdigit() and len(number) < 10):
            self.fail(f"{value!r} is not a number and a unit, such as 90s, 30m, 12h or 7d", param, ctx)
        return min(timedelta(seconds=int(number) * _UNITS[unit]), _LONGEST)


@click.group(name="review")
def review() -> None:
    """See what waits for a person, and decide it.

    Every command sees what the reviewer may decide: their own items, and those of tenants that the keys file
    delegates to them. Actions are signed and sent; the reviews agent checks them again and carries them out.

    Example: groundwire review list --reviewer ann@acme.example --key desk
    """


_DESK: Final = (
    click.option(
        "--reviewer",
        envvar="GROUNDWIRE_REVIEWER",
        show_envvar=True,
        required=True,
        metavar="NAME",
        help="Who looks and decides, as user ids are written.",
    ),
    click.option(
        "--key",
        "key_id",
        envvar="GROUNDWIRE_REVIEWER_KEY",
        show_envvar=True,
        metavar="KEY_ID",
        help="Key of the keys file, role reviewer, that signs.",
    ),
    click.option("--tenant", help="Only this tenant.  [default: those of the key]"),
    click.option("--user", help="Only this user; with a claim id, whose claim it is."),
    click.option(
        "--days",
        type=click.FloatRange(min=0, max=3_650),
        default=7,
        show_default=True,
        help="How far back decided items are read.",
    ),
    click.option("--format", "layout", type=click.Choice(["table", "json"]), default="table", help="Output."),
    keys_file_option("--keys-file"),
    brokers_option,
    prefix_option,
    timeout_option,
)


def _desk(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say who looks, and hand them over as one Desk."""

    @wraps(command)
    def run(  # noqa: PLR0913 - click hands over every option as an argument
        *,
        reviewer: str,
        key_id: str | None,
        tenant: str | None,
        user: str | None,
        days: float,
        keys_file: Path | None,
        brokers: str,
        prefix: str,
        seconds: float,
        **others: Any,  # noqa: ANN401 - the command's own
    ) -> None:
        quiet_kafka()
        with reporting():
            keys = Keys.load(keys_file) if keys_file else Keys.empty()
            where = (brokers, prefix, timedelta(days=days), seconds)
            command(desk=Desk(reviewer, tenant, user, keys, key_id, *where), **others)

    for option in reversed(_DESK):
        run = option(run)
    return run


@review.command(name="list")
@click.option("--reason", metavar="CODE", help="Only what waits for this reason.")
@click.option("--source", help="Only what this source produced.")
@click.option(
    "--memory-type", type=click.Choice(["fact", "preference", "decision"]), help="Only claims of this type."
)
@click.option("--kind", type=click.Choice([str(kind) for kind in Kind]), help="Claims or responses only.")
@click.option("--min-age", type=AgeParam(), metavar="AGE", help="Waiting at least so long: 30m, 12h, 7d.")
@click.option("--max-age", type=AgeParam(), metavar="AGE", help="Waiting at most so long.")
@click.option("--text", default="", metavar="WORDS", help="Only texts with words that begin so.")
@click.option("--sort", type=click.Choice(SORTS), default="risk", show_default=True, help="Which first.")
@click.option(
    "--limit", type=click.IntRange(1, MAX_PAGE), default=50, show_default=True, help="At most so many."
)
@_desk
def list_items(desk: Desk, layout: str, kind: str | None, **filters: Any) -> None:  # noqa: ANN401 - fields of the Query
    """List what waits, what to look at first on top.

    Example: groundwire review list --reviewer ann@acme.example --key desk --reason technical_hedge --min-age 2d
    """
    query = Query(tenant=desk.tenant, user=desk.user, kind=Kind(kind) if kind else None, **filters)
    board = _look(desk).board
    page = board.pending(desk.scope, query)
    if layout == "json":
        for row in page.rows:
            _echo_json(render.row_json(row))
    else:
        render.print_page(_console(), page, datetime.now(UTC))


@review.command(name="show")
@click.argument("name", metavar="ID")
@_desk
def show(desk: Desk, layout: str, name: str) -> None:
    """Show an item with all that bears on it. ID is a decision id, or a claim id with --tenant and --user.

    Example: groundwire review show 8c0e6c3e-6a0f-5d0c-9f5e-0c1f6c1f2c55 --reviewer ann@acme.example --key desk
    """
    item = _look(desk).find(desk, name)
    if layout == "json":
        _echo_json(render.item_json(item))
    else:
        render.print_item(_console(), item)


_REASONS: Final = click.Choice([str(reason) for reason in RejectReason])
_note: Final = click.option("--note", metavar="TEXT", help="Why, in your own words, for the record.")
_wait: Final = click.option(
    "--wait",
    type=click.FloatRange(min=0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for the outcome; 0: not at all.",
)
_ids: Final = click.argument("names", metavar="ID...", nargs=-1, required=True)


@dataclass(frozen=True, slots=True)
class _Act:
    """What is done to every item named."""

    action: Action
    layout: str
    wait: float
    reason: str | None = None
    note: str | None = None
    content: str | None = None


@review.command(name="approve")
@_ids
@_note
@_wait
@_desk
def approve(desk: Desk, names: Sequence[str], layout: str, wait: float, note: str | None) -> None:
    """Approve items. Exit status: 0 when all were applied, 1 when one was refused, 2 for usage and the broker.

    Example: groundwire review approve claim-17 --tenant acme --user bob --reviewer ann@acme.example --key desk
    """
    _act(desk, names, _Act("approve", layout, wait, note=note))


@review.command(name="reject")
@_ids
@click.option("--reason", type=_REASONS, required=True, help="Why.")
@_note
@_wait
@_desk
def reject(desk: Desk, names: Sequence[str], layout: str, wait: float, reason: str, note: str | None) -> None:
    """Reject items: nothing is stored, and texts close to them come to review. Exit status as for approve.

    Example: groundwire review reject claim-17 --reason outdated --reviewer ann@acme.example --key desk
    """
    _act(desk, names, _Act("reject", layout, wait, reason, note))


@review.command(name="edit")
@click.argument("name", metavar="ID")
@click.option(
    "--content", required=True, metavar="TEXT|-", help="The text to approve; - reads standard input."
)
@_note
@_wait
@_desk
def edit(desk: Desk, name: str, layout: str, wait: float, content: str, note: str | None) -> None:
    """Approve an item with another text. Exit status as for approve.

    Example: groundwire review edit claim-17 --content "The API uses JWT." --reviewer ann@acme.example --key desk
    """
    text = click.get_text_stream("stdin").read().removesuffix("\n") if content == "-" else content
    _act(desk, [name], _Act("edit", layout, wait, note=note, content=text))


@review.command(name="retract")
@_ids
@click.option("--reason", type=_REASONS, help="Why.")
@_note
@_wait
@_desk
def retract(
    desk: Desk, names: Sequence[str], layout: str, wait: float, reason: str | None, note: str | None
) -> None:
    """Withdraw the approval of items; what rests on them stays, and is named. Exit status as for approve.

    Example: groundwire review retract claim-17 --reason incorrect --reviewer ann@acme.example --key desk --days 90
    """
    _act(desk, names, _Act("retract", layout, wait, reason, note))


def _act(desk: Desk, names: Sequence[str], what: _Act) -> None:
    desk.signer()  # a missing key is told before anything is read
    found = _look(desk)
    items = [found.find(desk, name) for name in dict.fromkeys(names)]
    decisions = [
        review_decision(
            _target(item),
            what.action,
            desk.reviewer,
            reason=what.reason,
            note=what.note,
            content=what.content,
        )
        for item in items
    ]
    outcomes = asyncio.run(act(desk, decisions, what.wait))
    console = _console()
    for item, decision, outcome in zip(items, decisions, outcomes, strict=True):
        if what.layout == "json":
            _echo_json(render.outcome_json(item.current.decision_id, decision.action_id, outcome))
        else:
            render.print_outcome(console, item.current.subject_id, item.current.decision_id, outcome)
    if any(outcome is not None and not outcome.applied for outcome in outcomes):
        raise SystemExit(1)
    if what.wait and None in outcomes:
        raise Failure(
            f"nothing was heard of {outcomes.count(None)} within {what.wait:g} s; what was sent is carried out once"
            " `python -m agents reviews` runs"
        )


def _target(item: Item) -> Target:
    """Return what is decided: at the revision that was named, so that nobody decides what they did not see."""
    row = item.current
    return Target(row.tenant_id, row.user_id, row.kind, row.subject_id, int(item.decision["revision"]))


def _look(desk: Desk) -> Look:
    progress = Console(stderr=True, highlight=False)
    if not progress.is_terminal:
        found = asyncio.run(look(desk))
    else:
        with progress.status("reading the topics"):
            found = asyncio.run(look(desk))
    if found.warning:
        click.echo(visible(f"warning: {found.warning}"), err=True)
    return found


def _console() -> Console:
    return Console(highlight=False)


def _echo_json(line: str) -> None:
    click.echo((visible_json(line) if sys.stdout.isatty() else line).encode())

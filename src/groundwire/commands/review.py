"""`groundwire review`: what waits for a person, and deciding it, at a terminal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

import click

from groundwire.commands import review_text as render
from groundwire.commands.review_actions import approve, edit, reject, retract
from groundwire.commands.review_desk import desk_options, echo_json, look_around, screen
from groundwire.messages.decisions import Kind
from groundwire.review.model import MAX_PAGE, SORTS, Query
from groundwire.review.risk import WAITING
from groundwire.review.terminal import Desk

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

    Example: groundwire review list --reviewer ann@acme.example --key desk --keys-file keys.toml
    """


@review.command(name="list")
@click.option("--reason", type=click.Choice(WAITING), metavar="CODE", help="Only what waits for this reason.")
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
@desk_options
def list_items(desk: Desk, layout: str, kind: str | None, **filters: Any) -> None:  # noqa: ANN401 - fields of the Query
    """List what waits, what to look at first on top.

    Example: groundwire review list --reason technical_hedge --min-age 2d --reviewer ann@acme.example --key desk
    --keys-file keys.toml
    """
    query = Query(tenant=desk.tenant, user=desk.user, kind=Kind(kind) if kind else None, **filters)
    board = look_around(desk).board
    page = board.pending(desk.scope, query)
    if layout == "json":
        for row in page.rows:
            echo_json(render.row_json(row))
    else:
        render.print_page(screen(), page, datetime.now(UTC))


@review.command(name="show")
@click.argument("name", metavar="ID")
@desk_options
def show(desk: Desk, layout: str, name: str) -> None:
    """Show an item with all that bears on it. ID is a decision id, or a claim id with --tenant and --user.

    Example: groundwire review show claim-17 --tenant acme --user bob --reviewer ann@acme.example --key desk
    --keys-file keys.toml
    """
    found = look_around(desk)
    item = found.find(desk, name)
    resting = found.resting(desk, item)
    if layout == "json":
        echo_json(render.item_json(item, resting))
    else:
        render.print_item(screen(), item, resting)


for _command in (approve, reject, edit, retract):
    review.add_command(_command)

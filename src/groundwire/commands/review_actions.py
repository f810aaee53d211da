"""`groundwire review approve|reject|edit|retract`: deciding items, and waiting for what becomes of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import click

from groundwire.commands import review_text as render
from groundwire.commands.options import DAY, Failure, FiniteRange
from groundwire.commands.review_desk import desk_options, echo_json, look_around, screen
from groundwire.errors import UsageError
from groundwire.messages.reviews import Action, ReviewDecision
from groundwire.policy import Policy, load_policy
from groundwire.review.actions import BLANK, RejectReason, Target, is_blank, review_decision
from groundwire.review.model import Item
from groundwire.review.outcomes import Outcome, speculating
from groundwire.review.terminal import Desk, Look, act
from groundwire.settings import load_settings

_REASONS: Final = click.Choice([str(reason) for reason in RejectReason])
_note: Final = click.option("--note", metavar="TEXT", help="Why, in your own words, for the record.")
_wait: Final = click.option(
    "--wait",
    type=FiniteRange(min=0, max=DAY),
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


@click.command(name="approve")
@_ids
@_note
@_wait
@desk_options
def approve(desk: Desk, names: Sequence[str], layout: str, wait: float, note: str | None) -> None:
    """Approve items. ID is a decision id, or a claim id with --tenant and --user.

    Exit status: 0 when all were applied, 1 when one was refused, 2 for usage and the broker.

    Example: groundwire review approve claim-17 --tenant acme --user bob --reviewer ann@acme.example --key desk
    --keys-file keys.toml
    """
    _act(desk, names, _Act("approve", layout, wait, note=note))


@click.command(name="reject")
@_ids
@click.option("--reason", type=_REASONS, required=True, help="Why.")
@_note
@_wait
@desk_options
def reject(desk: Desk, names: Sequence[str], layout: str, wait: float, reason: str, note: str | None) -> None:
    """Reject items: nothing is stored, and texts close to them come to review. Exit status as for approve.

    Example: groundwire review reject claim-17 --reason outdated --tenant acme --user bob --reviewer ann@acme.example
    --key desk --keys-file keys.toml
    """
    _act(desk, names, _Act("reject", layout, wait, reason, note))


@click.command(name="edit")
@click.argument("name", metavar="ID")
@click.option(
    "--content", required=True, metavar="TEXT|-", help="The text to approve; - reads standard input."
)
@_note
@_wait
@desk_options
def edit(desk: Desk, name: str, layout: str, wait: float, content: str, note: str | None) -> None:
    """Approve an item with another text. Exit status as for approve.

    Example: groundwire review edit claim-17 --content "The API uses JWT." --tenant acme --user bob
    --reviewer ann@acme.example --key desk --keys-file keys.toml
    """
    text = click.get_text_stream("stdin").read().removesuffix("\n") if content == "-" else content
    if is_blank(text):
        raise UsageError(f"content: {BLANK}")
    _act(desk, [name], _Act("edit", layout, wait, note=note, content=text))


@click.command(name="retract")
@_ids
@click.option("--reason", type=_REASONS, help="Why.")
@_note
@_wait
@desk_options
def retract(
    desk: Desk, names: Sequence[str], layout: str, wait: float, reason: str | None, note: str | None
) -> None:
    """Withdraw the approval of items; what rests on them stays, and is named. Exit status as for approve.

    Example: groundwire review retract claim-17 --reason incorrect --days 90 --tenant acme --user bob
    --reviewer ann@acme.example --key desk --keys-file keys.toml
    """
    _act(desk, names, _Act("retract", layout, wait, reason, note))


def _act(desk: Desk, names: Sequence[str], what: _Act) -> None:
    desk.signer()  # a missing key is told before anything is read
    found = look_around(desk)
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
    outcomes = asyncio.run(_carried_out(desk, found, decisions, what))
    console = screen()
    for item, decision, outcome in zip(items, decisions, outcomes, strict=True):
        beside = _beside(desk, found, item, what, outcome)
        if what.layout == "json":
            echo_json(render.outcome_json(item.current, decision.action_id, outcome, beside))
        else:
            render.print_outcome(console, item.current, outcome, beside)
    if any(outcome is not None and not outcome.applied for outcome in outcomes):
        raise SystemExit(1)
    if what.wait and None in outcomes:
        raise Failure(
            f"nothing was heard of {outcomes.count(None)} within {what.wait:g} s; what was sent is carried out once"
            " `python -m agents reviews` runs"
        )


async def _carried_out(
    desk: Desk, found: Look, decisions: Sequence[ReviewDecision], what: _Act
) -> list[Outcome | None]:
    outcomes = await act(desk, decisions, what.wait)
    if what.action == "retract":
        await found.hear(desk, outcomes)
    return outcomes


def _beside(desk: Desk, found: Look, item: Item, what: _Act, outcome: Outcome | None) -> render.Beside:
    """Return what is told with an outcome: the words of an edit that speculates, what rests on what was retracted."""
    if outcome is None:
        return render.NOTHING
    if what.action == "retract" and outcome.applied:
        return render.Beside(affected=found.resting(desk, item))
    if outcome.code == "personal_speculation" and what.content is not None:
        return render.Beside(said=speculating(what.content, _policy()))
    return render.NOTHING


def _policy() -> Policy:
    """Return the policy that is set here; the defaults where it cannot be read: the gate decided by its own."""
    try:
        return load_policy(load_settings().policy_file, os.environ)
    except UsageError:
        return Policy()


def _target(item: Item) -> Target:
    """Return what is decided: at the revision that was named, so that nobody decides what they did not see."""
    row = item.current
    return Target(row.tenant_id, row.user_id, row.kind, row.subject_id, int(item.decision["revision"]))

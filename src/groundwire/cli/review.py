"""`groundwire review`: what waits for a person, and deciding it, at a terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from dataclasses import replace as replace_in
from datetime import UTC, datetime, timedelta
from functools import wraps
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console

from groundwire.cli import review_text as render
from groundwire.cli.options import (
    AgeParam,
    CommandError,
    Deployment,
    FiniteRange,
    deployment_options,
    format_option,
    keys_file_option,
    wait_option,
    with_options,
)
from groundwire.cli.output import echo_json
from groundwire.config import load_settings
from groundwire.console.answer import show_original
from groundwire.errors import UsageError
from groundwire.keys.attestation import Keys
from groundwire.messages.decisions import Kind, ReasonCode, Verdict
from groundwire.messages.records import Action
from groundwire.policy import Policy, load_policy
from groundwire.review.actions import (
    SENTENCES,
    ActionOutcome,
    ActionTarget,
    RejectReason,
    review_decision,
    speculation_in,
)
from groundwire.review.model import MAX_PAGE, SORTS, WAITING, Item, Query
from groundwire.review.originals import record_reader
from groundwire.review.session import BoardSnapshot, Session, send_actions, take_snapshot
from groundwire.text.normalise import escape_controls
from groundwire.text.visible import hidden

_SESSION: Final = (
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
        type=FiniteRange(min=0, max=3_650),
        default=7,
        show_default=True,
        help="How far back decided items are read.",
    ),
    format_option,
    keys_file_option("--keys-file"),
)


def session_options(command: Callable[..., None]) -> Callable[..., None]:
    @wraps(command)
    def run(*, days: float, keys_file: Path | None, deployment: Deployment, **others: Any) -> None:  # noqa: ANN401 - options
        who = {name: others.pop(name) for name in ("reviewer", "tenant", "user", "key_id")}
        who["keys"] = Keys.load(keys_file) if keys_file else None
        session = Session(**who, **asdict(deployment), window=timedelta(days=days))
        command(session=session, **others)

    return deployment_options(with_options(_SESSION, run))


def load_snapshot(session: Session) -> BoardSnapshot:
    """Fill a board, with a sign of life on a terminal; what may be wrong with it goes to standard error."""
    progress = Console(stderr=True, highlight=False)
    with progress.status("reading the topics") if progress.is_terminal else nullcontext():
        snapshot = asyncio.run(take_snapshot(session))
    for warning in snapshot.warnings:
        click.echo(escape_controls(f"warning: {warning}"), err=True)
    return snapshot


_REASONS: Final = click.Choice([str(reason) for reason in RejectReason])
_NOTE: Final = click.option("--note", metavar="TEXT", help="Why, in your own words, for the record.")
_WAIT: Final = wait_option("How long to wait for the outcome; 0: not at all.", least=0)
_IDS: Final = click.argument("names", metavar="ID...", nargs=-1, required=True)


@dataclass(frozen=True, slots=True)
class _PlannedAction:
    action: Action
    layout: str
    wait: float
    reason: str | None = None
    note: str | None = None
    content: str | None = None


@click.group(name="review")
def review() -> None:
    """List what waits for a person, and decide it.

    Every command sees what the reviewer may decide: their own items, and those of tenants that the keys file
    delegates to them. Actions are signed and sent; the reviews agent checks them again and carries them out.

    Example: groundwire review list --reviewer ann@acme.example --key desk --keys-file keys.toml
    """


def _acting(*options: Callable[..., Any]) -> Callable[[Callable[..., None]], click.Command]:
    """Make a command of a function that takes a Session and fields of `_PlannedAction`."""

    def decorate(command: Callable[..., None]) -> click.Command:
        return review.command()(with_options((*options, _NOTE, _WAIT), session_options(command)))

    return decorate


def _add(name: str, text: str, example: str = "", *options: Callable[..., Any], action: Action) -> None:
    """Add a command that sends one action for each ID."""

    def command(session: Session, names: Sequence[str], **given: Any) -> None:  # noqa: ANN401 - options
        _send_actions(session, names, _PlannedAction(action, **given))

    who = "--tenant acme --user bob --reviewer ann@acme.example --key desk --keys-file keys.toml"
    status = "" if "Exit status" in text else " Exit status as for approve."
    command.__doc__ = f"{text}{status}\n\nExample: groundwire review {name} claim-17 {example} {who}"
    command.__name__ = name
    _acting(_IDS, *options)(command)


_add(
    "approve",
    "Approve items. ID is a decision id, or a claim id with --tenant and --user.\n\n"
    "Exit status: 0 when all were applied, 1 when one was refused, 2 for usage and the broker.",
    action="approve",
)
_WHY: Final = click.option("--reason", type=_REASONS, required=True, help="Why.")
_REJECTS: Final = "Reject items: nothing is stored, and similar texts come to review."
_add("reject", _REJECTS, "--reason outdated", _WHY, action="reject")


@_acting(
    click.argument("name", metavar="ID"),
    click.option(
        "--content", required=True, metavar="TEXT|-", help="The text to approve; - reads standard input."
    ),
)
def edit(session: Session, name: str, content: str, **given: Any) -> None:  # noqa: ANN401 - options
    """Approve an item with another text. Exit status as for approve.

    Example: groundwire review edit claim-17 --content "The API uses JWT." --tenant acme --user bob
    --reviewer ann@acme.example --key desk --keys-file keys.toml
    """
    text = click.get_text_stream("stdin").read().removesuffix("\n") if content == "-" else content
    if hidden(text):
        raise UsageError(f"content: {SENTENCES['hidden_text']}")
    _send_actions(session, [name], _PlannedAction("edit", content=text, **given))


_RETRACTS: Final = "Withdraw the approval of items; what rests on them stays, and is listed."
_MAY_WHY: Final = click.option("--reason", type=_REASONS, help="Why.")
_add("retract", _RETRACTS, "--reason incorrect --days 90", _MAY_WHY, action="retract")
_OVERRULES: Final = (
    "Put claims back for review that the gate blocked as duplicates or speculation: only their owner or a delegate"
    " may, with a key that signs no claims."
)
_add("overrule", _OVERRULES, '--note "It is measured."', action="overrule")
_add("comment", "Comment on items, and decide nothing.", '--note "Which release?"', action="comment")
_add("unsure", "Pass items on to somebody else.", '--note "Ask the network team."', action="pass")


@_acting(
    click.argument("name", metavar="ID"),
    click.argument("memory", metavar="MEMORY"),
    click.option("--reason", type=_REASONS, required=True, help="Why the memory is withdrawn."),
)
def replace(session: Session, name: str, memory: str, reason: str, **given: Any) -> None:  # noqa: ANN401 - options
    """Approve a claim, and then retract MEMORY, the approved claim of the same user that it replaces.

    Where the claim is not approved, MEMORY stays. Exit status as for approve.

    Example: groundwire review replace claim-18 claim-17 --reason outdated --days 90 --tenant acme --user bob
    --reviewer ann@acme.example --key desk --keys-file keys.toml
    """
    session.signer()
    if not given["wait"]:
        raise UsageError("--wait: must be more than 0: the memory is retracted once the claim is approved")
    snapshot = load_snapshot(session)
    item, old = snapshot.find(session, name), snapshot.find(session, memory)
    owners = {(one.current.tenant_id, one.current.user_id, one.current.kind) for one in (item, old)}
    if len(owners) > 1 or item.current.kind is not Kind.CLAIM or old.current.verdict is not Verdict.APPROVED:
        raise UsageError(f"{memory!r} is no approved claim of the user whose claim {name!r} is")
    (done,) = _send_items(session, snapshot, [item], _PlannedAction("approve", **given))
    if done is None or done.code != ReasonCode.HUMAN_APPROVED:
        raise CommandError(f"{memory!r} is unchanged: {name!r} was not approved")
    _send_items(session, snapshot, [old], _PlannedAction("retract", reason=reason, **given))


def _send_actions(session: Session, names: Sequence[str], action: _PlannedAction) -> None:
    session.signer()  # a missing key is an error before anything is read
    snapshot = load_snapshot(session)
    items = [snapshot.find(session, name) for name in dict.fromkeys(names)]
    _send_items(session, snapshot, items, action)


def _send_items(
    session: Session, snapshot: BoardSnapshot, items: Sequence[Item], action: _PlannedAction
) -> list[ActionOutcome | None]:
    """Send an action on each item, print and return the outcomes. Raises: SystemExit 1, CommandError."""
    given = {"reason": action.reason, "note": action.note, "content": action.content}
    targets = [
        replace_in(ActionTarget.of(item.current), revision=item.decision["revision"]) for item in items
    ]
    decisions = [review_decision(target, action.action, session.reviewer, **given) for target in targets]

    async def send() -> list[ActionOutcome | None]:
        outcomes = await send_actions(session, decisions, action.wait)
        if action.action == "retract":
            await snapshot.read_retractions(session, outcomes)
        return outcomes

    outcomes = asyncio.run(send())
    for item, decision, outcome in zip(items, decisions, outcomes, strict=True):
        notes = render.NO_NOTES
        if outcome is not None and action.action == "retract" and outcome.applied:
            notes = render.OutcomeNotes(affected=snapshot.dependents(session, item))
        elif outcome is not None and outcome.code == "personal_speculation" and action.content is not None:
            notes = render.OutcomeNotes(objection=speculation_in(action.content, _policy()))
        if action.layout == "json":
            echo_json(render.outcome_json(item.current, decision.action_id, outcome, notes))
        else:
            render.print_outcome(Console(highlight=False), item.current, outcome, notes)
    if any(outcome is not None and not outcome.applied for outcome in outcomes):
        raise SystemExit(1)
    if action.wait and None in outcomes:
        raise CommandError(
            f"no outcome of {outcomes.count(None)} within {action.wait:g} s; sent actions are carried out once"
            " `groundwire worker reviews` runs and has state: `/ready` and its log say what it waits for"
        )
    return outcomes


def _policy() -> Policy:
    """Return the policy that is set here; the defaults where it cannot be read: the gate decided by its own."""
    try:
        return load_policy(load_settings().policy_file, os.environ)
    except UsageError:
        return Policy()


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
@session_options
def list_items(session: Session, layout: str, kind: str | None, **filters: Any) -> None:  # noqa: ANN401 - fields of the Query
    """List what waits, what to look at first on top.

    Example: groundwire review list --reason technical_hedge --min-age 2d --reviewer ann@acme.example --key desk
    --keys-file keys.toml
    """
    query = Query(tenant=session.tenant, user=session.user, kind=Kind(kind) if kind else None, **filters)
    board = load_snapshot(session).board
    page = board.pending(session.scope, query)
    if not page.total and session.nothing:
        click.echo(escape_controls(f"warning: {session.nothing}"), err=True)
    if layout == "json":
        for row in page.rows:
            echo_json(render.row_json(row))
    else:
        render.print_page(Console(highlight=False), page, datetime.now(UTC))


@review.command(name="show")
@click.argument("name", metavar="ID")
@session_options
def show(session: Session, layout: str, name: str) -> None:
    """Show an item with all that bears on it. ID is a decision id, or a claim id with --tenant and --user.

    Example: groundwire review show claim-17 --tenant acme --user bob --reviewer ann@acme.example --key desk
    --keys-file keys.toml
    """
    snapshot = load_snapshot(session)
    item = snapshot.find(session, name)
    dependents = snapshot.dependents(session, item)
    read = record_reader(session.brokers, session.seconds)
    original = asyncio.run(show_original(read, item.decision, _policy()))
    if layout == "json":
        echo_json(render.item_json(item, dependents, original))
    else:
        render.print_item(Console(highlight=False), item, dependents)
        render.print_original(Console(highlight=False), original)

"""`groundwire erase`: takes a person's data out of state and of what consumers hold."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime

import click

from groundwire.cli.options import quiet_kafka, reporting
from groundwire.cli.rebuild import rebuild_state
from groundwire.config import Settings, load_settings
from groundwire.errors import StateUnavailable, UsageError
from groundwire.logs import configure_logs
from groundwire.messages.base import format_time
from groundwire.messages.erasure import Erasure
from groundwire.messages.events import use_hash_key
from groundwire.replay.erase import records_of, withdraw


@click.command()
@click.option("--tenant", "tenant_id", required=True, help="Whose user it is.")
@click.option("--user", "user_id", required=True, help="Whose data is erased.")
@click.option(
    "--actor", default="operator", show_default=True, help="Who erases, as retractions and audit name them."
)
@click.option("--yes", is_flag=True, help="Do it without asking.")
def erase(*, tenant_id: str, user_id: str, actor: str, yes: bool) -> None:
    """Erase a user: withdraw what is approved, write a tombstone, and rebuild state without them.

    Stop what produces for the user first, and let workers catch up. Workers pause while state is rebuilt. Topics are
    not changed: it prints how many records of the user each still holds, and when retention has removed them. Settings
    come from the environment, as for workers.

    Exit status: 0 when it is done, 1 when a worker is rebuilding state already: run it again, 2 when something did not
    answer.

    Example: groundwire erase --tenant acme --user maria --yes
    """
    quiet_kafka()
    with reporting():
        settings = load_settings()
        configure_logs(settings.log_format, settings.log_level)
        use_hash_key(settings.hash_key)
        if not yes:
            click.confirm(f"Erase {tenant_id}:{user_id}? Workers pause meanwhile", abort=True)
        try:
            done = asyncio.run(_erase(settings, Erasure(tenant_id, user_id, datetime.now(UTC)), actor))
        except StateUnavailable as exc:
            raise UsageError(f"GROUNDWIRE_REDIS_URL: {exc}") from None
    if not done:
        click.echo("a worker is rebuilding state: run this again when that is done", err=True)
        sys.exit(1)


async def _erase(settings: Settings, erasure: Erasure, actor: str) -> bool:
    held = await records_of(settings, erasure.tenant_id, erasure.user_id)
    # the clock of a worker that decided may be ahead of this machine's
    latest = max((decision.decided_at for decision in held.decisions.values()), default=erasure.until)
    erasure = erasure._replace(until=max(erasure.until, latest))
    withdrawn = await withdraw(settings, held, erasure, actor)
    click.echo(
        f"{withdrawn} approvals withdrawn, tombstone written for all up to {format_time(erasure.until)}"
    )
    if not await rebuild_state(settings, forget=list(held.decisions)):
        return False
    click.echo("state rebuilt without the user")
    for topic, records, gone in held.remains():  # nobody can delete single records from a topic
        until = f"gone by {format_time(gone)[:10]}" if gone else "kept for ever: delete it by hand"
        click.echo(f"{topic:<18} {records:>8} records, {until}")
    return True

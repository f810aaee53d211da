"""`groundwire rebuild`, and `groundwire erase`: takes a person's data out of state and of what consumers hold."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from groundwire.cli.options import quiet_kafka, reporting, seal_keys_option, settings_with_seals
from groundwire.config import Settings, load_settings
from groundwire.gate.claim_case import dedup_scheme
from groundwire.kafka.reader import open_reader
from groundwire.logs import configure_logs
from groundwire.messages.base import format_time
from groundwire.messages.erasure import Erasure
from groundwire.messages.events import use_hash_key
from groundwire.messages.identity import Subject
from groundwire.messages.topics import TopicName
from groundwire.policy import load_policy
from groundwire.replay.erase import records_of, withdraw
from groundwire.replay.reading import PATIENCE
from groundwire.replay.rebuild import Rebuilder
from groundwire.replay.verify import format_counts
from groundwire.state.partitions import refuse_other_number
from groundwire.state.policies import PolicyStore
from groundwire.state.redis import RedisState
from groundwire.state.server import connect, without_login


@click.command()
@click.option("--yes", is_flag=True, help="Do it without asking.")
@click.option("--require-seals", is_flag=True, help="Take in nothing that no key of --seal-keys sealed.")
@seal_keys_option
def rebuild(*, yes: bool, require_seals: bool, seal_keys: Path | None) -> None:
    """Rebuild state from the topics approved, review and blocked, under the policy in force.

    Needed after a change of how claims are compared (threshold, scope, method, on or off); lost state is rebuilt
    by the workers themselves. Workers pause meanwhile. Settings come from the environment, as for workers.

    Each decision is derived again as far as the topics still hold its record. What does not follow is left out, and
    named in the log; the counts go to standard error. With --require-seals, so is what no worker sealed.

    Exit status: 0 when state is rebuilt, 1 when a worker is at it already, 2 when something did not answer.

    Example: GROUNDWIRE_POLICY_FILE=policy.toml groundwire rebuild --yes
    """
    quiet_kafka()
    with reporting():
        settings = settings_with_seals(seal_keys)
        if require_seals:
            settings = settings.model_copy(update={"require_seals": True})
        configure_logs(settings.log_format, settings.log_level)
        if not yes:
            click.confirm(
                f"Rebuild the state of {settings.topic_prefix}* in {without_login(settings.redis_url)}?"
                " Workers that use it pause meanwhile",
                abort=True,
            )
        done = asyncio.run(_rebuild(settings))
    if not done:
        click.echo("a worker is rebuilding state already; it will be ready when that is done", err=True)
        sys.exit(1)


async def _rebuild(settings: Settings, forget: Sequence[Subject] = ()) -> bool:
    """Rebuild state, and forget what a rebuild would leave of subjects; False where a worker is at it already."""
    policy = load_policy(settings.policy_file, os.environ)
    scheme = dedup_scheme(policy)
    redis = connect(settings.redis_url)
    state = RedisState(redis, settings.topic_prefix, scheme=scheme, partitions=settings.partitions)
    rebuilder = Rebuilder.of(settings, state, policy, PolicyStore(settings.policies_dir, state))
    began = time.monotonic()
    try:
        await state.server.check(require_aof=True)  # as workers do: they would refuse what was rebuilt
        if state.is_cluster:
            async with open_reader(settings.brokers, PATIENCE) as reader:
                ends = await reader.ends(settings.topic_prefix + TopicName.CLAIMS)
            refuse_other_number(settings.partitions, len(ends))
        done = await rebuilder.rebuild()
        if done:
            await state.forget(forget)
    finally:
        await state.close()
    if done and settings.require_seals:
        click.echo(f"{rebuilder.unsealed} unsealed, left out", err=True)
    if done:
        click.echo(f"rebuilt in {time.monotonic() - began:.0f} s", err=True)
    if done and rebuilder.counts:
        click.echo(f"{rebuilder.counts.total()} decisions: {format_counts(rebuilder.counts)}", err=True)
    return done


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
        done = asyncio.run(_erase(settings, Erasure(tenant_id, user_id, datetime.now(UTC)), actor))
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
    if not await _rebuild(settings, forget=list(held.decisions)):
        return False
    click.echo("state rebuilt without the user")
    for topic, records, gone in held.remains():  # nobody can delete single records from a topic
        until = f"gone by {format_time(gone)[:10]}" if gone else "kept for ever: delete it by hand"
        click.echo(f"{topic:<18} {records:>8} records, {until}")
    return True

"""`groundwire rebuild`."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import click

from groundwire.cli.options import quiet_kafka, reporting, seal_keys_option
from groundwire.config import Settings, load_settings
from groundwire.errors import StateUnavailable, UsageError
from groundwire.gate.claim_case import dedup_scheme
from groundwire.logs import configure_logs
from groundwire.messages.identity import Subject
from groundwire.policy import load_policy
from groundwire.replay.rebuild import Rebuilder
from groundwire.replay.verify import told
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
        settings = load_settings()
        settings = settings.model_copy(
            update={
                "require_seals": require_seals or settings.require_seals,
                "seal_keys": seal_keys or settings.seal_keys,
            }
        )
        configure_logs(settings.log_format, settings.log_level)
        if not yes:
            click.confirm(
                f"Rebuild the state of {settings.topic_prefix}* in {without_login(settings.redis_url)}?"
                " Workers that use it pause meanwhile",
                abort=True,
            )
        try:
            done = asyncio.run(rebuild_state(settings))
        except StateUnavailable as exc:
            raise UsageError(f"GROUNDWIRE_REDIS_URL: {exc}") from None
    if not done:
        click.echo("a worker is rebuilding state already; it will be ready when that is done", err=True)
        sys.exit(1)


async def rebuild_state(settings: Settings, forget: Sequence[Subject] = ()) -> bool:
    """Rebuild state, and forget what a rebuild would leave of subjects; False where a worker is at it already."""
    policy = load_policy(settings.policy_file, os.environ)
    state = RedisState(connect(settings.redis_url), settings.topic_prefix, scheme=dedup_scheme(policy))
    rebuilder = Rebuilder.of(settings, state, policy, PolicyStore(settings.policies_dir, state))
    began = time.monotonic()
    try:
        await state.server.check(require_aof=True)  # as workers do: they would refuse what was rebuilt
        done = await rebuilder.rebuild()
        if done:
            await state.forget(forget)
    finally:
        await state.close()
    if done and settings.require_seals:
        click.echo(f"{rebuilder.unsealed} unsealed, left out", err=True)
    if done:
        click.echo(f"rebuilt in {time.monotonic() - began:.0f} s", err=True)
    if done and settings.rebuild_derives:
        click.echo(f"{rebuilder.counts.total()} decisions: {told(rebuilder.counts)}", err=True)
    return done

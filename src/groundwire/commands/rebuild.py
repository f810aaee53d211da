"""`groundwire rebuild`."""

from __future__ import annotations

import asyncio
import os
import sys
from functools import partial

import click

from groundwire.commands.options import quiet_kafka, reporting
from groundwire.errors import StateUnavailable, UsageError
from groundwire.gate.dedup import dedup_scheme
from groundwire.logs import configure_logs
from groundwire.policy import load_policy
from groundwire.rebuild import Rebuilder, published
from groundwire.settings import Settings, load_settings
from groundwire.state.redis import RedisState
from groundwire.state.server import connect


@click.command()
@click.option("--yes", is_flag=True, help="Do it without asking.")
def rebuild(*, yes: bool) -> None:
    """Rebuild state from the topics approved, review and blocked, under the policy in force.

    Needed after a change of how claims are compared (threshold, scope, method, on or off); lost state is rebuilt
    by the workers themselves. Workers pause meanwhile. Settings come from the environment, as for workers.

    Exit status: 0 when state is rebuilt, 1 when a worker is at it already, 2 when something did not answer.

    Example: GROUNDWIRE_POLICY_FILE=policy.toml groundwire rebuild --yes
    """
    quiet_kafka()
    with reporting():
        settings = load_settings()
        configure_logs(settings.log_format, settings.log_level)
        if not yes:
            click.confirm(
                f"Rebuild the state of {settings.topic_prefix}* in Redis? Workers pause meanwhile", abort=True
            )
        try:
            done = asyncio.run(_rebuild(settings))
        except StateUnavailable as exc:
            raise UsageError(f"GROUNDWIRE_REDIS_URL: {exc}") from None
    if not done:
        click.echo("a worker is rebuilding state already; it will be ready when that is done", err=True)
        sys.exit(1)


async def _rebuild(settings: Settings) -> bool:
    policy = load_policy(settings.policy_file, os.environ)
    state = RedisState(connect(settings.redis_url), settings.topic_prefix, scheme=dedup_scheme(policy))
    try:
        return await Rebuilder(
            state, policy, partial(published, settings), quiet=settings.rebuild_wait
        ).rebuild()
    finally:
        await state.close()

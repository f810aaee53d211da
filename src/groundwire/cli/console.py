"""`groundwire console`: the review queue in a browser."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import click
import structlog

from groundwire.cli.options import quiet_kafka, reporting
from groundwire.config import Settings, load_settings
from groundwire.console.app import create_app, make_server, require_sign_in, serve
from groundwire.console.live import MemoryShared, RedisLocks, RedisShared
from groundwire.console.notify import Notices, Notifier, load_notices
from groundwire.console.settings import ConsoleSettings, load_console_settings
from groundwire.console.site import Parts
from groundwire.console.status import ReviewGauges, serve_gauges
from groundwire.errors import UsageError, binding, naming
from groundwire.keys.watched import EVERY, WatchedFile, WatchedKeys
from groundwire.logs import configure_logs
from groundwire.policy import Policy, load_policy
from groundwire.review.actions import Actions, Signer
from groundwire.review.feed import Feed, RedisStatuses, open_board
from groundwire.review.originals import READ_SECONDS, record_reader
from groundwire.review.permissions import Permissions, Person
from groundwire.review.tokens import WatchedTokens
from groundwire.state.server import connect
from groundwire.verify.citations import CitationVerifier, load_sources
from groundwire.verify.ssrf import AddressGuard
from groundwire.verify.url import GuardedTransport, UrlChecker

log = structlog.get_logger()


@click.command(name="console")
@click.option("--one-time-link", is_flag=True, help="Print sign-in links that work once, within ten minutes.")
@click.option(
    *("--name", "--person", "people"),
    metavar="NAME",
    multiple=True,
    help="Whom a link signs in, as user ids are written; repeatable.",
)
@click.option("--tenant", "tenants", multiple=True, help="Where; repeatable.  [default: default]")
def console(*, one_time_link: bool, people: tuple[str, ...], tenants: tuple[str, ...]) -> None:
    """Serve the review queue as pages and as JSON, until interrupted.

    Settings come from the environment: those of workers, and GROUNDWIRE_CONSOLE_*. It listens at
    GROUNDWIRE_CONSOLE_HOST and GROUNDWIRE_CONSOLE_PORT, 127.0.0.1:8700 by default. Needed are a key with the role
    reviewer (GROUNDWIRE_KEYS_FILE, GROUNDWIRE_CONSOLE_KEY) and a way to sign in: OpenID Connect, the header of a
    trusted proxy, API tokens, or --one-time-link.

    Example: GROUNDWIRE_CONSOLE_KEY=console groundwire console --one-time-link --name lead@acme.example --tenant acme
    """
    if one_time_link and not people:
        raise click.UsageError("--one-time-link needs --name: whom it signs in")
    if (people or tenants) and not one_time_link:
        raise click.UsageError("--name and --tenant go with --one-time-link")
    quiet_kafka()
    who = [Person(name, frozenset(tenants or ("default",))) for name in people]
    with reporting():
        settings, own = load_settings(), load_console_settings()
        require_sign_in(own, other=bool(who) or settings.tokens_file is not None)
        configure_logs(settings.log_format, settings.log_level)
        asyncio.run(_run(settings, own, who))


async def _run(settings: Settings, own: ConsoleSettings, who: Sequence[Person]) -> None:
    if settings.keys_file is None:
        raise UsageError("GROUNDWIRE_KEYS_FILE is not set: it holds the console's key and who is delegated")
    if own.key is None:
        raise UsageError(
            "GROUNDWIRE_CONSOLE_KEY is not set: the id of a key with the role reviewer, made by"
            " `groundwire keys new console --role reviewer --tenant TENANT`"
        )
    with naming("GROUNDWIRE_KEYS_FILE"):
        keys = WatchedKeys.load(settings.keys_file)
    with naming("GROUNDWIRE_CONSOLE_KEY"):
        signer = Signer(keys, own.key)
    family = socket.AF_INET6 if ":" in own.host else socket.AF_INET
    place = own.host, own.port
    with binding("GROUNDWIRE_CONSOLE_HOST, GROUNDWIRE_CONSOLE_PORT", *place):
        listening = socket.create_server(place, family=family)
    with listening:
        own = own.model_copy(update={"port": listening.getsockname()[1]})
        with naming("GROUNDWIRE_CONSOLE_BOARD"):
            board = await open_board(own.board, settings.brokers, settings.topic_prefix, READ_SECONDS, keys)
        statuses, redis = RedisStatuses.of(settings), connect(settings.redis_url)
        feed = Feed(board, statuses, brokers=settings.brokers, prefix=settings.topic_prefix)
        tenants = {tenant for _, key in keys for tenant in key.tenants}
        policy = _watched_policy(settings.policy_file)
        review_ttl = timedelta(days=settings.review_ttl)
        clocks = (lambda: feed.stale_since, lambda: datetime.now(UTC))
        verifier = CitationVerifier(
            load_sources(settings), network=not settings.no_network, urls=UrlChecker.of(settings)
        )
        gauges = ReviewGauges(board, tenants, *clocks, policy=policy, ttl=review_ttl)
        serve_gauges(
            gauges,
            settings.metrics_host,
            settings.metrics_port,
            caught_up=lambda: feed.caught_up,
            away=lambda: feed.stale_since is not None,
        )
        try:
            await statuses.check_kind()
            async with Actions(settings.brokers, settings.topic_prefix, signer) as actions:
                parts = Parts(
                    board=board,
                    permissions=Permissions(keys),
                    reviews=actions,
                    policy=policy,
                    read=record_reader(settings.brokers, READ_SECONDS),
                    verifier=verifier,
                    tokens=WatchedTokens(settings.tokens_file) if settings.tokens_file else None,
                    locks=RedisLocks(redis, settings.topic_prefix, timedelta(seconds=own.lock_seconds)),
                    shared=RedisShared(redis, settings.topic_prefix, lambda: datetime.now(UTC)),
                    stale_since=lambda: feed.stale_since,
                    caught_up=lambda: feed.caught_up,
                    review_ttl=review_ttl,
                )
                notifier = None
                if own.notify_file is not None:
                    notifier = Notifier(
                        _watched_notices(own.notify_file),
                        board,
                        parts.shared or MemoryShared(parts.clock),
                        transport=GuardedTransport(AddressGuard(settings.networks, ports=settings.ports)),
                        limit=lambda: policy().limits.review_per_tenant,
                        ready=lambda: feed.caught_up and feed.stale_since is None,
                        console=own.origin,
                        clock=parts.clock,
                    )
                await _serve(own, parts, feed, listening, who, notifier)
        finally:
            await verifier.close()
            await statuses.close()
            await redis.aclose()
            board.close()


def _watched_policy(path: Path | None) -> Callable[[], Policy]:
    """Return what gives the policy in force: that of a file as it is now, or the last that could be read."""
    load = partial(load_policy, environment=os.environ)
    if path is None:
        unset = load(None)
        return lambda: unset

    def refused(error: UsageError, before: Policy) -> Policy:
        log.error("policy.refused", error=str(error), kept=before.sha256)
        return before

    def taken(policy: Policy) -> None:
        log.info("policy.changed", version=policy.version, sha256=policy.sha256)

    return WatchedFile(path, load, broken=refused, taken=taken, every=EVERY).current


def _watched_notices(path: Path) -> Callable[[], Mapping[str, Notices]]:
    def refused(error: UsageError, before: dict[str, Notices]) -> dict[str, Notices]:
        log.error("notifications.refused", error=str(error), hint="the webhooks that were read before hold")
        return before

    with naming("GROUNDWIRE_CONSOLE_NOTIFY_FILE"):
        return WatchedFile(path, load_notices, broken=refused, every=EVERY).current


async def _serve(
    own: ConsoleSettings,
    parts: Parts,
    feed: Feed,
    listening: socket.socket,
    who: Sequence[Person],
    notifier: Notifier | None = None,
) -> None:
    app, secret = create_app(own, parts, next(iter(who), None))
    # the secret stands behind the #, which browsers send to nobody
    click.echo(f"{own.origin}/signin#{secret}" if secret else own.origin)
    for person in who[1:]:
        click.echo(f"{own.origin}/signin#{app.state.site.links.issue(person)}")
    server, feeding = make_server(app), asyncio.create_task(feed.run())
    # pages that nothing comes to any more are not served
    feeding.add_done_callback(lambda _: setattr(server, "should_exit", True))
    tasks = [feeding, *([asyncio.create_task(notifier.run())] if notifier else [])]
    try:
        await serve(server, app, listening)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    if not feeding.cancelled():
        await feeding

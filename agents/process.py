"""One worker's process: checks before it starts, advice to operators, and how it ends."""

from __future__ import annotations

import asyncio
import faulthandler
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NoReturn

import click
import faust
import structlog
import uvloop
from aiokafka.errors import KafkaError

from agents.app import ROLES, quiet_faust, topics_of
from agents.health import Health
from agents.wiring import Worker
from groundwire.cli.environment import unknown_variables
from groundwire.config import Settings, load_settings
from groundwire.errors import BrokerUnavailable, SchemeMismatch, UsageError
from groundwire.gate.responses import policy_advice
from groundwire.kafka.connection import consumer, partitions_of
from groundwire.logs import configure_logs, toggle_debug
from groundwire.policy import Policy
from groundwire.probes import serve_probes
from topics.declare import declare

BROKER_SECONDS: Final = 10.0
"""How long a starting broker is waited for; then the worker exits, to be restarted."""

_SWITCH: Final = 0.0005
"""Seconds after which a checking thread yields the GIL to the event loop; Python's default is ten times that.

A small record wakes the loop some ten times; beside a large one it took four times as long.
"""

log = structlog.get_logger()


def advice(role: str, policy: Policy, settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield (log event, sentence) for valid settings that are hardly meant."""
    for sentence in unknown_variables(os.environ):
        yield "setting.unknown", sentence
    for sentence in policy_advice(policy):
        yield "policy.advice", sentence
    paths = {
        "GROUNDWIRE_ADR_DIR": settings.adr_dir,
        "GROUNDWIRE_REPO": settings.repo,
        "GROUNDWIRE_KEYS_FILE": settings.keys_file,
    }
    for variable, path in paths.items():
        if path is not None and not path.exists():
            yield "path.missing", f"{variable}: there is no {path}"
    if role == "reviews":
        if settings.keys_file is None:
            make = "groundwire keys new console --tenant TENANT --role reviewer --file keys.toml"
            sentence = (
                f"GROUNDWIRE_KEYS_FILE is not set: every review decision is refused; `{make}` makes one"
            )
            yield "review.no_keys", sentence
        return
    if policy.attestation == "hmac" and settings.keys_file is None:
        yield (
            "attestation.no_keys",
            'the policy says attestation = "hmac", but GROUNDWIRE_KEYS_FILE is not set: no source is believed',
        )
    if role != "responses" and not (settings.adr_dir or settings.repo or settings.tenants_file):
        yield (
            "sources.none",
            "neither GROUNDWIRE_ADR_DIR nor GROUNDWIRE_REPO is set: citations of ADRs and commits will be unknown",
        )


async def await_broker(brokers: str, seconds: float = BROKER_SECONDS) -> None:
    """Wait until the broker answers. Raises: UsageError: it does not, or `brokers` is malformed."""
    logger = logging.getLogger("aiokafka")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)  # its error is reported once, at the end
    try:
        async with consumer(brokers, seconds):
            pass
    except BrokerUnavailable as exc:
        raise UsageError(str(exc)) from None
    finally:
        logger.setLevel(level)


async def await_topics(settings: Settings, role: str, health: Health) -> int:
    """Wait until the topics of a role exist; name the missing ones once. Returns the partitions of its input."""
    names = [settings.topic_prefix + topic for topic in topics_of(role)]
    async with consumer(settings.brokers, BROKER_SECONDS) as client:
        while True:
            with suppress(KafkaError):  # the broker may be unreachable
                found = await partitions_of(client, *names)
                missing = [name for name in names if not found[name]]
                health.note_topics(missing)
                if not missing:
                    break
            await asyncio.sleep(2.0)
    return len(found[settings.topic_prefix + ROLES[role].topic])


class Process(faust.Worker):
    """A Faust worker that leaves standard output alone and ends in time.

    At SIGTERM partitions are revoked once the batches in flight are done. At the deadline the process exits anyway:
    what was not acknowledged will be read again.
    """

    def __init__(self, worker: Worker, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            worker.app, loop=loop, redirect_stdouts=False, override_logging=False, quiet=True, console_port=0
        )
        self.spinner = None  # it writes to standard output
        self._parts = worker
        self._settings = settings
        self._error: UsageError | None = None
        self._stopping: float | None = None  # since when

        def give_up(error: UsageError) -> None:
            self._error = error  # exit with the status of an error that no restart repairs
            self._on_sigterm()

        worker.app.give_up = give_up

    async def on_shutdown(self) -> None:
        if self._parts.model is not None:
            await self._parts.model.close()

    def execute_from_commandline(self) -> NoReturn:
        try:
            super().execute_from_commandline()
        finally:
            log.info("stopped", seconds=self._stopped_after())
            if self._error is not None:
                _refuse(self._error, self._settings)

    def install_signal_handlers(self) -> None:
        """SIGTERM and SIGINT end cleanly, SIGUSR1 prints stacks, SIGHUP toggles debug logs."""

        def print_stacks() -> None:
            faulthandler.dump_traceback()
            for task in asyncio.all_tasks(self.loop):
                task.print_stack(limit=4)

        self.loop.add_signal_handler(signal.SIGINT, self._on_sigint)
        self.loop.add_signal_handler(signal.SIGTERM, self._on_sigterm)
        self.loop.add_signal_handler(signal.SIGUSR1, print_stacks)
        self.loop.add_signal_handler(signal.SIGHUP, _toggle_debug)

    def _schedule_shutdown(self, received: signal.Signals) -> None:
        def exit_now() -> None:
            threading.Timer(1.0, os._exit, (0,)).start()  # the reader of the log may block
            hint = "what was not acknowledged will be read again"
            log.error("stopped.at_deadline", seconds=self._stopped_after(), hint=hint)
            sys.stderr.flush()
            os._exit(0)

        deadline = threading.Timer(self._settings.shutdown_deadline, exit_now)
        deadline.daemon = True
        deadline.start()
        self._stopping = time.monotonic()
        log.info("stopping", signal=received.name)
        self._parts.partitions.stop()
        super()._schedule_shutdown(received)

    def _stopped_after(self) -> float | None:
        """Return the seconds since the worker was told to stop; None: it ends by itself."""
        return None if self._stopping is None else round(time.monotonic() - self._stopping, 1)


def _toggle_debug() -> None:
    log.critical("log.level", now=toggle_debug())


def run(role: str, *, declare_topics: bool = False) -> None:
    """Run a worker until SIGTERM; a wrong configuration ends the process with 2."""
    settings: Settings | None = None
    try:
        settings = load_settings()
        configure_logs(settings.log_format, settings.log_level)
        quiet_faust()
        uvloop.install()
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        worker = Worker(role, settings)
        for event, sentence in advice(role, worker.policy, settings):
            log.warning(event, advice=sentence)
        health, port = worker.health, settings.metrics_port
        serve_probes(settings.metrics_host, port, live=health.stalled, ready=health.unready)
        loop.run_until_complete(await_broker(settings.brokers))
        if declare_topics:
            loop.run_until_complete(declare(settings))
        found = loop.run_until_complete(await_topics(settings, role, worker.health))
        loop.run_until_complete(worker.prepare(settings, found))
    except (UsageError, SchemeMismatch) as exc:
        _refuse(exc, settings)
    sys.setswitchinterval(_SWITCH)
    worker.add_tasks()
    Process(worker, settings, loop).execute_from_commandline()


def _refuse(error: Exception, settings: Settings | None) -> NoReturn:
    if settings is not None and settings.log_format == "json":
        log.critical("failed", error=str(error))
    else:
        click.echo(f"error: {error}", err=True)
    sys.exit(2)

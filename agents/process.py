"""One worker's process: what is looked at first, what is said of it, and how it ends."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import threading
from datetime import UTC, datetime
from functools import partial
from typing import Any

import click
import faust
import structlog
import uvloop
from faust.types import TP
from faust.utils import venusian

from agents.announcer import Announcer
from agents.app import quiet_faust
from agents.collector import rest_collector
from agents.health import serve_health
from agents.publisher import Publisher
from agents.start import advice, await_broker
from agents.wiring import Worker, build_worker
from groundwire import metrics
from groundwire.errors import SchemeMismatch, StateError, UsageError, binding
from groundwire.logs import configure_logs
from groundwire.settings import Settings, load_settings

log = structlog.get_logger()

_TICK = 1.0


class Process(faust.Worker):
    """A Faust worker that leaves standard output alone and ends in time.

    On SIGTERM partitions are given away once what is under way is settled. Whatever hangs then, the process
    exits at its deadline: what was not acknowledged will be read again.
    """

    def __init__(self, worker: Worker, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            worker.app, loop=loop, redirect_stdouts=False, override_logging=False, quiet=True, console_port=0
        )
        self.spinner = None  # it shows and hides the cursor, on a standard output that is no terminal too
        self._parts = worker
        self._settings = settings

    async def on_shutdown(self) -> None:
        """Close the connections to the language model, once nothing asks it any more."""
        if self._parts.model is not None:
            await self._parts.model.close()

    def install_signal_handlers(self) -> None:
        """End in good order at SIGTERM and SIGINT; at SIGUSR1 say what everything is at."""
        self.loop.add_signal_handler(signal.SIGINT, self._on_sigint)
        self.loop.add_signal_handler(signal.SIGTERM, self._on_sigterm)
        self.loop.add_signal_handler(signal.SIGUSR1, _print_stacks, self.loop)

    def _schedule_shutdown(self, received: signal.Signals) -> None:
        deadline = threading.Timer(self._settings.shutdown_deadline, _give_up)
        deadline.daemon = True
        deadline.start()
        log.info("stopping", signal=received.name)
        self._parts.lanes.stop()
        super()._schedule_shutdown(received)


def _print_stacks(loop: asyncio.AbstractEventLoop) -> None:
    faulthandler.dump_traceback()
    for task in asyncio.all_tasks(loop):
        task.print_stack(limit=4)


def _give_up() -> None:
    threading.Timer(1.0, os._exit, (0,)).start()  # whoever reads the log may have stopped reading
    log.error("stopped.at_deadline", hint="what was not acknowledged will be read again")
    sys.stderr.flush()
    os._exit(0)


def run(role: str) -> None:
    """Run a worker until it is told to end; a configuration with which it cannot ends the process with 2."""
    try:
        settings = load_settings()
        configure_logs(settings.log_format, settings.log_level)
        quiet_faust()
        _leave_unscanned()
        uvloop.install()
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        worker = build_worker(role, settings)
        for event, sentence in advice(role, worker.policy, settings):
            log.warning(event, advice=sentence)
        loop.run_until_complete(await_broker(settings.brokers))
        loop.run_until_complete(_prepare(worker))
        host, port = settings.metrics_host, settings.metrics_port
        with binding("GROUNDWIRE_METRICS_HOST, GROUNDWIRE_METRICS_PORT", host, port):
            serve_health(host, port, worker.pauses)
    except (UsageError, SchemeMismatch) as exc:
        click.echo(f"error: {exc}", err=True)
        sys.exit(2)
    _announce(worker, role)
    _tell(worker, settings)
    Process(worker, settings, loop).execute_from_commandline()


def _leave_unscanned() -> None:
    """Have Faust note no agent and no task for a scan, which no worker makes: it looks through all modules for it."""
    venusian.attach = lambda *_noted, **_options: None


async def _prepare(worker: Worker) -> None:
    """Look at the state's server before the first record; one that does not answer is waited for later."""
    try:
        if worker.model is not None:
            await worker.model.open()
            log.info("model.asked", model=worker.policy.verification.verification_model)
        if await worker.state.open() is None:
            await worker.recovery.begin()
        await worker.policies.put(worker.policy)
    except StateError as exc:
        if isinstance(exc, SchemeMismatch):
            raise
        log.warning("state.unavailable", error=str(exc))
    log.info("policy.loaded", version=worker.policy.version, sha256=worker.policy.sha256)


def _announce(worker: Worker, role: str) -> None:
    """Say `ready` once the worker has joined its group, and keep the gauges."""

    def assigned(tps: set[TP]) -> None:
        worker.pauses.partitions = len(tps)
        metrics.PARTITIONS.set(len(tps))
        rest_collector()
        log.info("ready", role=role, partitions=sorted(tp.partition for tp in tps))

    worker.app.before_revocation = worker.lanes.release
    worker.app.before_assignment = worker.lanes.take_over
    worker.app.after_assignment = assigned

    if worker.expiry is not None:
        worker.app.task(partial(worker.expiry.run, worker.pauses))

    @worker.app.task  # type: ignore[untyped-decorator]
    async def watch(app: Any) -> None:  # noqa: ANN401 - Faust's app
        while not app.should_stop:
            before = asyncio.get_running_loop().time()
            await asyncio.sleep(_TICK)
            metrics.EVENT_LOOP_LAG.set(max(0.0, asyncio.get_running_loop().time() - before - _TICK))
            worker.pauses.tick()
            lag, age = app.consumer.backlog()
            metrics.LAG.labels(role).set(lag)
            metrics.COMMIT_AGE.labels(role).set(age)
            try:
                metrics.REVIEW_DEPTH.set(await worker.state.queue_depth())
                metrics.WAITING.set(await worker.state.waiting_count())
            except StateError:
                continue
            worker.pipeline.state_answered()


def _tell(worker: Worker, settings: Settings) -> None:
    """Publish the audit events of this process's policy and state, from when it can publish."""
    publisher = Publisher(partial(_producer, worker.app), settings.topic_prefix)
    announcer = Announcer(publisher, now=lambda: datetime.now(UTC))
    worker.recovery.tell = announcer.tell
    policy = worker.policy
    announcer.tell("policy_loaded", {"version": policy.version, "sha256": policy.sha256}, recurs=True)

    @worker.app.task  # type: ignore[untyped-decorator]
    async def tell(app: Any) -> None:  # noqa: ANN401 - Faust's app
        while not app.should_stop:
            await asyncio.sleep(_TICK)
            await announcer.publish()


def _producer(app: Any) -> Any:  # noqa: ANN401 - Faust's app, aiokafka's producer
    return app.producer._ensure_producer()  # noqa: SLF001 - as in agents/wiring.py

"""`python -m demo`: starts everything, feeds the examples, shows each decision, and stops everything."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import click

from demo import services, sources
from demo.console import serve_console
from demo.examples import WAVES, Wave
from demo.feed import DemoError, Feed
from demo.ledger import Ledger
from demo.queue import POLICY, QUEUE
from demo.report import JsonReport, TableReport, progress
from deploy.embedded import MissingServiceError, ServiceError
from groundwire.cli.options import DAY, FiniteRange
from groundwire.config import Settings
from groundwire.errors import GroundwireError
from groundwire.keys.attestation import Keys
from topics.declare import declare

Report = TableReport | JsonReport


@click.command()
@click.option("--format", "form", type=click.Choice(["table", "json"]), default="table", show_default=True)
@click.option(
    *("--deadline", "seconds"),
    type=FiniteRange(min=1, max=DAY),
    default=75.0,
    show_default=True,
    help="Seconds after which the demo gives up.",
)
@click.option("--console", is_flag=True, help="Then serve the console on the demo's data, until interrupted.")
def main(form: str, seconds: float, *, console: bool) -> None:
    """Run the gate on this machine with examples whose outcomes are known.

    Starts a broker and a Redis server on free ports of 127.0.0.1, declares the topics, starts the workers,
    sends the examples and shows each decision. Exit status: 0 if every example came to what it must come to,
    1 if one did not, or something failed.

    Example: python -m demo --format json > decisions.jsonl
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    answers = {e.subject: e.answer for wave in WAVES for e in wave.examples if e.subject and e.answer}
    report = TableReport(sys.stdout, answers) if form == "table" else JsonReport(sys.stdout)
    started = time.monotonic()
    try:
        ledger = _run(report, started, started + seconds, console=console)
    except (DemoError, GroundwireError, MissingServiceError, ServiceError) as exc:
        progress(f"demo: {exc}")
        sys.exit(1)
    sys.exit(1 if ledger.differences else 0)


def _run(report: Report, started: float, deadline: float, *, console: bool) -> Ledger:
    with tempfile.TemporaryDirectory(prefix="groundwire-demo-") as temporary:
        folder = Path(temporary)
        with sources.made_in(folder) as made, services.servers(folder) as (broker, redis):
            progress(f"broker on {broker.bootstrap}, Redis-compatible server on {redis.url}")
            waves: tuple[Wave, ...] = WAVES
            own: dict[str, str] = {}
            if console:
                policy = folder / "policy.toml"
                policy.write_text(POLICY)
                waves, own = (*WAVES, QUEUE), {"GROUNDWIRE_POLICY_FILE": str(policy)}
            environment = services.environment(broker, redis, {**made.settings, **own})
            wanted = Settings(brokers=broker.bootstrap, partitions=int(environment["GROUNDWIRE_PARTITIONS"]))
            progress(
                f"{len(asyncio.run(declare(wanted)))} topics declared; starting workers: {', '.join(services.ROLES)}"
            )
            with services.workers(folder, environment, broker, redis) as running:
                sign = partial(Keys.load(made.keys).sign, sources.CONSOLE_KEY)
                feed = Feed(running, made.places, report, sign=sign, deadline=deadline)
                try:
                    ledger = asyncio.run(feed.run(waves))
                except DemoError:
                    progress(running.log_tails())
                    raise
                report.summary(ledger, time.monotonic() - started)
                expected, settled = len(ledger.entries), ledger.totals.total()
                if settled != expected:
                    ledger.differences.append(f"{expected} subjects sent, {settled} decided")
                for difference in ledger.differences:
                    progress(f"DIFFERENT: {difference}")
                if console:
                    serve_console(environment, folder, running.metrics)
                else:
                    again = (
                        "`make demo-console` runs it again and lets you decide what waits, in your browser"
                    )
                    progress(again)
                return ledger


if __name__ == "__main__":
    main(prog_name="python -m demo")

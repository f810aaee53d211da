"""Breaks a deployment on purpose and checks that nothing was lost and nothing let through.

    python -m tests.faults --seed 1 --minutes 2
    python -m tests.faults --seed 1 --minutes 120 --broker kafka3 --dir .cache/faults
    python -m tests.faults --seed 1 --minutes 2 --redis replicated

A run is made of episodes of a few minutes, with the seeds N, N+1, ...; with --dir each leaves its result there, one
that is there already is not run again, and what is told is the sum of all that are there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from deploy.embedded import MissingServiceError
from tests.faults.episode import DEFAULTS, Setup, Timing, run
from tests.faults.nemesis import KINDS, Plan, schedule
from tests.faults.report import failed, summed, table
from tests.faults.services import NODES, REDIS, Services, running

_APART = 20.0
"""Seconds around the loss of Redis' data without other faults, where state is rebuilt sooner than it should."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 1 where a promise was broken, 2 where something needed is not installed."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a run that is ended leaves no worker behind
    options = _options(arguments)
    timing = DEFAULTS if options.defaults else Timing(session=options.session)
    with tempfile.TemporaryDirectory(prefix="groundwire-faults-") as scratch:
        folder = options.dir or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            _episodes(options, timing, folder)
        except MissingServiceError as missing:
            click.echo(f"faults: {missing}", err=True)
            return 2
        results = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    click.echo(json.dumps(summed(results), indent=1) if options.format == "json" else table(results))
    return 1 if failed(results) else 0


def _episodes(options: argparse.Namespace, timing: Timing, folder: Path) -> None:
    wanted = []
    left, seed = options.minutes * 60, options.seed
    while left > 0.5:
        seconds = min(left, options.episode * 60)
        state = "" if options.redis == "one" else f"{options.redis}-"
        name = f"{options.broker}-{state}{'defaults-' if options.defaults else ''}{seed}.json"
        if not (folder / name).exists():
            wanted.append((seed, seconds, folder / name))
        left, seed = left - seconds, seed + 1
    if not wanted:
        return
    with running(options.broker, options.redis) as services:
        for seed, seconds, path in wanted:
            path.write_text(json.dumps(_episode(options, timing, services, seed, seconds, path), indent=1))


def _episode(
    options: argparse.Namespace, timing: Timing, services: Services, seed: int, seconds: float, path: Path
) -> dict[str, Any]:
    plan = Plan(
        seconds=seconds,
        every=options.every,
        session=timing.session,
        nodes=NODES[options.broker],
        redis=options.redis,
        apart=0.0 if timing is DEFAULTS else _APART,
        only=options.only,
    )
    faults = schedule(seed, plan)
    click.echo(f"seed {seed}, {len(faults)} faults in {seconds:g} s on {services.kind}:", err=True)
    click.echo("\n".join(map(str, faults)), err=True)
    setup = Setup(seed, options.rate, timing, path.with_suffix(".work"))
    begun = time.monotonic()
    result = asyncio.run(run(services, setup, faults, seconds))
    result["took"] = round(time.monotonic() - begun, 1)
    click.echo(f"seed {seed}: {'BROKEN' if failed([result]) else 'held'}, {result['took']} s", err=True)
    return result


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--seed", type=int, default=int(time.time()), help="of the first episode (default: new)")
    add("--minutes", type=float, default=2.0, help="of load and faults, in all")
    add("--episode", type=float, default=5.0, help="minutes of one episode at most")
    add("--broker", choices=sorted(NODES), default="embedded")
    state = "one, or a cluster of three without or with replicas"
    add("--redis", choices=list(REDIS), default="one", help=state)
    add("--dir", type=Path, help="where results stay, so that a run can be resumed")
    add("--every", type=float, default=4.0, help="seconds between faults, on average")
    add("--rate", type=float, default=15.0, help="inputs a second")
    add("--session", type=float, default=6.0, help="session timeout of workers, seconds")
    add("--defaults", action="store_true", help="workers' own defaults instead of short times")
    add("--only", nargs="+", choices=list(KINDS), default=(), help="only these kinds of faults")
    add("--format", choices=("table", "json"), default="table")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it tells of every connection that breaks
    sys.exit(main())

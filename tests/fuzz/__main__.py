"""`python -m tests.fuzz`: hostile input for every entry, repeatable by its seed.

    python -m tests.fuzz --seed 7 --inputs 100000 --jobs 2
    python -m tests.fuzz --replay claims:7.4711

Prints a line for each entry, and the seed and the traceback of each input that failed. Exit status: 0 where everything
held, 1 where something failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import reduce
from multiprocessing import get_context

import click

from tests.fuzz.entries import ENTRIES, parts, run_part
from tests.fuzz.runner import Report, run


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--inputs", type=int, default=10_000, help="in all, shared among the entries")
    parser.add_argument(
        "--only", action="append", default=[], choices=sorted(ENTRIES), help="may be repeated"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--replay", action="append", default=[], metavar="ENTRY:SEED")
    given = parser.parse_args()
    reports: list[Report] = []
    if given.replay:
        reports = [run(ENTRIES[seed.partition(":")[0]], [seed]) for seed in given.replay]
    else:
        click.echo(f"--seed {given.seed} --inputs {given.inputs}")
        with ProcessPoolExecutor(given.jobs, mp_context=get_context("spawn")) as pool:
            todo = parts(given.seed, given.inputs, given.only)
            for done in as_completed(pool.submit(run_part, *part) for part in todo):
                reports.append(done.result())
                click.echo(reports[-1])
    click.echo("in all")
    for name in dict.fromkeys(report.entry for report in reports):
        whole = reduce(Report.plus, (report for report in reports if report.entry == name))
        click.echo(whole)
        for seed, why in whole.failures.items():
            click.echo(f"--replay {seed}\n{why}")
    failed = sum(report.failed for report in reports)
    click.echo(f"{sum(report.inputs for report in reports)} inputs, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

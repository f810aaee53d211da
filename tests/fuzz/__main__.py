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
from collections.abc import Iterable, Sequence

import click

from tests.fuzz.entries import ENTRIES, parts, run_all
from tests.fuzz.runner import Report, run


def merged(reports: Iterable[Report]) -> dict[str, Report]:
    """Add the reports of each entry up."""
    found: dict[str, Report] = {}
    for one in reports:
        found[one.entry] = found[one.entry].plus(one) if one.entry in found else one
    return found


def main() -> int:
    """Run what was asked for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--inputs", type=int, default=10_000, help="in all, shared among the entries")
    parser.add_argument(
        "--only", action="append", default=[], choices=sorted(ENTRIES), help="may be repeated"
    )
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, help="end after so long, wherever it is")
    parser.add_argument("--failures", type=int, default=20, help="give an entry's part up after so many")
    parser.add_argument("--replay", action="append", default=[], metavar="ENTRY:SEED")
    given = parser.parse_args()
    if given.replay:
        reports = [run(ENTRIES[seed.partition(":")[0]], [seed]) for seed in given.replay]
        return told(reports)
    click.echo(f"--seed {given.seed} --inputs {given.inputs}")
    until = time.monotonic() + 60 * given.minutes if given.minutes else None
    return told(
        run_all(parts(given.seed, given.inputs, given.only), until, given.jobs, given.failures, click.echo)
    )


def told(reports: Sequence[Report]) -> int:
    """Print the sums and what failed; return the exit status."""
    sums = merged(reports)
    click.echo("in all")
    for report in sums.values():
        click.echo(report)
        for seed, why in report.failures.items():
            click.echo(f"--replay {seed}\n{why}")
    whole = sum(report.inputs for report in sums.values())
    click.echo(f"{whole} inputs, {sum(report.failed for report in sums.values())} failed")
    return 1 if any(report.failed for report in sums.values()) else 0


if __name__ == "__main__":
    sys.exit(main())

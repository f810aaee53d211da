"""`python -m tests.mutations`: break each defence in turn; exit status 1 where no test notices a mutant.

The modules are changed while they are imported: each place that can be broken gets a switch, and no file is written.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from tests.mutations.operators import Mutant, import_with_switches, mutants_of
from tests.mutations.runner import Fate, Runner, use_short_searches

SETTINGS = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text("utf-8"))
NOT_ASKED = "not (time_grows or work_grows or checks_grows or event_loop or huge or worst)"
"""What is about time and size, as pytest's `-k`: it takes long, and the rest notices as much."""
_REWRITE = "ignore::pytest.PytestAssertRewriteWarning"  # hypothesis' profile is set before pytest starts


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # forks have process groups of their own
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--group", choices=SETTINGS["groups"], action="append", help="of files and tests")
    parser.add_argument("--only", metavar="PATTERN", action="append", help="mutants by name, with * and ?")
    parser.add_argument("--deep", action="store_true", help="look within the functions of every group")
    parser.add_argument("--sample", metavar="N", type=int, help="so many mutants, the same ones each time")
    parser.add_argument("--seed", metavar="S", default="1", help="another one draws other mutants")
    options = parser.parse_args()
    found = mutants_of(SETTINGS["groups"], deep=options.deep)
    listed = [mutant for module in found.values() for mutant in module.mutants]
    chosen = [
        mutant
        for mutant in listed
        if (not options.group or mutant.group in options.group)
        and (not options.only or any(fnmatch(mutant.name, pattern) for pattern in options.only))
    ]
    if options.sample is not None:  # by their names alone: a new mutant changes a draw by one at most
        chosen.sort(key=lambda one: sha256(f"{options.seed} {one.name}".encode()).digest())
        chosen = chosen[: options.sample]
    start = time.monotonic()
    say(f"{len(chosen)} of {len(listed)} ways to break a defence")
    import_with_switches(found)
    use_short_searches()
    tests = {name: group["tests"] for name, group in SETTINGS["groups"].items()}
    given = [
        "-q",
        "--capture=sys",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-W",
        _REWRITE,
        "-k",
        NOT_ASKED,
    ]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        runner = Runner(chosen, tests, Path(folder), say)
        pytest.main([*given, *sorted({t for one in chosen for t in tests[one.group]})], plugins=[runner])
    if runner.failing:
        say("fails with nothing broken:", *runner.failing)
        return 2
    code = report(runner.fates, chosen, {mutant.name for mutant in listed}, SETTINGS["equivalent"])
    say(f"{(time.monotonic() - start) / 60:.1f} minutes")
    return code


def report(
    fates: Mapping[str, Fate], chosen: Sequence[Mutant], names: Collection[str], known: Mapping[str, str]
) -> int:
    """Print which mutants no test notices, and a table; return the exit status.

    `names`: of all mutants that there are. `known`: those that change nothing, with why.
    """
    survived = [m for m in chosen if m.name in fates and fates[m.name].lives and m.name not in known]
    for one in survived:
        reached = fates[one.name].tests
        say(f"{one.path}:{one.line}: no test notices: {one.name} ({reached} tests reach it)")
    stale = [name for name in known if name not in names or (name in fates and not fates[name].lives)]
    for name in stale:
        say(f"mutants.toml lists what a test notices, or what is not there: {name}")
    say("| group | broken | noticed | of these stopped | change nothing | noticed by no test |")
    say("| --- | ---: | ---: | ---: | ---: | ---: |")
    for group in (*SETTINGS["groups"], "all"):
        those = [fates[m.name] for m in chosen if m.name in fates and group in (m.group, "all")]
        dead = [fate for fate in those if not fate.lives]
        stopped = sum(fate.outcome == "stopped" for fate in dead)
        nothing = sum(fate.lives and fate.name in known for fate in those)
        row = (len(those), len(dead), stopped, nothing, len(those) - len(dead) - nothing)
        if those:
            say(f"| {group} | {' | '.join(f'{count:,}' for count in row)} |")
    return 1 if survived or stale or len(fates) < len(chosen) else 0


def say(*lines: Any) -> None:
    print(*lines, sep="\n", file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    sys.exit(main())

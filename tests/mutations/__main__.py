"""`python -m tests.mutations`: break each defence in turn; exit status 1 where no test notices a mutant.

The modules are changed while they are imported: each place that can be broken gets a switch, and no file is written.
"""

import argparse
import os
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
from hypothesis import settings

from tests.mutations.operators import Mutant, import_with_switches, mutants_of
from tests.mutations.runner import Runner

SETTINGS = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text("utf-8"))


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # forks have process groups of their own
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--group", choices=SETTINGS["groups"], action="append", help="of files and tests")
    parser.add_argument("--only", metavar="PATTERN", action="append", help="mutants by name, with * and ?")
    parser.add_argument("--deep", action="store_true", help="look within the functions of every group")
    parser.add_argument("--sample", metavar="N", type=int, help="so many mutants, the same ones each time")
    parser.add_argument("--seed", metavar="S", default="1", help="another one draws other mutants")
    options = parser.parse_args()
    trees, mutants = mutants_of(SETTINGS["groups"], deep=options.deep)
    chosen = [
        mutant
        for mutant in mutants
        if (not options.group or mutant.group in options.group)
        and (not options.only or any(fnmatch(mutant.name, pattern) for pattern in options.only))
    ]
    if options.sample is not None:  # by their names alone: a new mutant changes a draw by one at most
        chosen.sort(key=lambda one: sha256(f"{options.seed} {one.name}".encode()).digest())
        chosen = chosen[: options.sample]
    start = time.monotonic()
    say(f"{len(chosen)} of {len(mutants)} ways to break a defence")
    import_with_switches(trees)
    settings.register_profile("mutants", max_examples=20, deadline=None, database=None, derandomize=True)
    tests = {name: group["tests"] for name, group in SETTINGS["groups"].items()}
    # what is about time and size takes long, and the other tests notice as much
    left_out = "not (time_grows or work_grows or checks_grows or event_loop or huge or worst)"
    arguments = [
        "-q",
        "--capture=sys",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "--timeout=180",
        "-k",
        left_out,
    ]
    arguments += ["--hypothesis-profile=mutants", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
        runner = Runner(chosen, tests, Path(folder), say)
        pytest.main([*arguments, *sorted({t for one in chosen for t in tests[one.group]})], plugins=[runner])
    if runner.failing:
        say("fails with nothing broken:", *runner.failing)
        return 2
    code = report(runner.outcomes, chosen, {mutant.name for mutant in mutants}, SETTINGS["equivalent"])
    say(f"{(time.monotonic() - start) / 60:.1f} minutes")
    return code


def report(
    outcomes: Mapping[str, str], chosen: Sequence[Mutant], names: Collection[str], known: Mapping[str, str]
) -> int:
    """Print which mutants no test notices, and a table; return the exit status.

    `names`: of all mutants that there are. `known`: those that change nothing, with why.
    """
    alive = {name for name, outcome in outcomes.items() if outcome in {"survived", "unreached"}}
    survived = [mutant for mutant in chosen if mutant.name in alive - known.keys()]
    for one in survived:
        say(f"{one.path}:{one.line}: {outcomes[one.name]}: {one.name}")
    stale = [name for name in known if name not in names or (name in outcomes and name not in alive)]
    for name in stale:
        say(f"mutants.toml lists a mutant that a test notices, or that does not exist: {name}")
    say("| group | broken | noticed | of these stopped | change nothing | noticed by no test |")
    say("| --- | ---: | ---: | ---: | ---: | ---: |")
    for group in (*SETTINGS["groups"], "all"):
        those = [m.name for m in chosen if m.name in outcomes and group in (m.group, "all")]
        living = alive.intersection(those)
        stopped = sum(outcomes[name] == "stopped" for name in those)
        row = (
            len(those),
            len(those) - len(living),
            stopped,
            len(living & known.keys()),
            len(living - known.keys()),
        )
        if those:
            say(f"| {group} | {' | '.join(f'{count:,}' for count in row)} |")
    return 1 if survived or stale or len(outcomes) < len(chosen) else 0


def say(*lines: Any) -> None:
    print(*lines, sep="\n", file=sys.__stdout__, flush=True)


if __name__ == "__main__":
    sys.exit(main())

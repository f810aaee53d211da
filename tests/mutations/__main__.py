"""`python -m tests.mutations`: break each defence in turn; ends with 1 where no test notices one.

The source is copied to a temporary folder, with a switch at each place that can be broken, and this program starts
itself anew on the copy.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.mutations.found import Found
from tests.mutations.operators import Mutant
from tests.mutations.rooms import ROOT, TESTS, equivalents, write_copy

_REWRITE = (
    "ignore::pytest.PytestAssertRewriteWarning"  # of hypothesis, whose profile is set before pytest starts
)


def main() -> int:
    """Run the command."""
    options = _options()
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        if options.copy is not None:
            return _inside(options, Path(name))
        copy = write_copy(Path(name) / "src")
        (Path(name) / "mutants.json").write_text(
            json.dumps([[m.name, m.path, m.line] for m in copy.mutants]), "utf-8"
        )
        if options.list:
            _say(*(m.name for m in copy.mutants if _asked(m, options)))
            return 0
        path = os.pathsep.join([str(copy.folder), str(ROOT)])
        command = [sys.executable, "-m", "tests.mutations", *sys.argv[1:], "--copy", name]
        return subprocess.run(
            command, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT, check=False
        ).returncode


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--only", metavar="PATTERN", action="append", help="mutants by name, with * and ?")
    parser.add_argument("--tests", metavar="PATH", action="append", help="tests to ask instead of all")
    parser.add_argument("--processes", metavar="N", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="name the mutants, run nothing")
    parser.add_argument("--copy", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _asked(mutant: Mutant, options: argparse.Namespace) -> bool:
    return not options.only or any(fnmatch(mutant.name, pattern) for pattern in options.only)


def _inside(options: argparse.Namespace, folder: Path) -> int:
    """Run on the copy."""
    import groundwire  # noqa: PLC0415 - the copy
    from tests.mutations import runner  # noqa: PLC0415 - needs the copy

    assert Path(groundwire.__file__).is_relative_to(options.copy)
    start = time.monotonic()
    known = equivalents()
    listed = [Mutant(*entry) for entry in json.loads((options.copy / "mutants.json").read_text("utf-8"))]
    mutants = {mutant.name: mutant for mutant in listed if _asked(mutant, options)}
    _say(f"{len(mutants)} ways to break a defence, {len(known)} known to change nothing")
    runner.prepare()
    plugin = runner.Runner(list(mutants), folder, options.processes, _say)
    arguments = ["-q", "--capture=sys", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", _REWRITE]
    pytest.main([*arguments, *(options.tests or TESTS)], plugins=[plugin])
    code = _tell(plugin.found, mutants, known, {mutant.name for mutant in listed})
    _say(f"{(time.monotonic() - start) / 60:.1f} minutes")
    return code


def _tell(found: Found, mutants: dict[str, Mutant], known: dict[str, str], listed: set[str]) -> int:
    if found.failing:
        _say("fails with nothing broken:", *found.failing)
        return 2
    survived = [mutants[name] for name in found.survived if name not in known]
    for mutant in survived:
        asked = found.survived[mutant.name]
        _say(f"src/{mutant.path}:{mutant.line}: no test notices: {mutant.name} ({asked} come by)")
    stale = [name for name in known if name in found.killed or name not in listed]
    for name in stale:
        _say(f"equivalent.toml lists what a test notices, or what is not there: {name}")
    total, killed = len(found.killed) + len(found.survived), len(found.killed)
    _say(
        f"{total} broken: {killed} noticed, {total - killed - len(survived)} change nothing, "
        f"{len(survived)} noticed by no test"
    )
    return 1 if survived or stale or total < len(mutants) else 0


def _say(*lines: str) -> None:
    assert sys.__stdout__ is not None
    sys.__stdout__.write("".join(f"{line}\n" for line in lines))
    sys.__stdout__.flush()


sys.exit(main())

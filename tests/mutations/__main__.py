"""`python -m tests.mutations`: break each defence in turn; ends with 1 where no test notices one.

The source is copied to a temporary folder, with a switch at each place that can be broken, and this program starts
itself anew on the copy.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import astuple
from fnmatch import fnmatch
from hashlib import sha256
from pathlib import Path

import pytest

from tests.mutations.forks import leave
from tests.mutations.found import Found
from tests.mutations.groups import GROUPS, NOT_ASKED
from tests.mutations.operators import Mutant
from tests.mutations.rooms import ROOT, equivalents, write_copy
from tests.mutations.telling import say, tell

_REWRITE = (
    "ignore::pytest.PytestAssertRewriteWarning"  # of hypothesis, whose profile is set before pytest starts
)


def main() -> int:
    """Run the command."""
    options = _options()
    if options.copy is not None:
        with _removed(options.copy):
            return _inside(options)
    place = Path(tempfile.mkdtemp(prefix="mutants-"))
    with _removed(place):
        copy = write_copy(place / "src", deep=options.deep)
        (place / "mutants.json").write_text(json.dumps([astuple(m) for m in copy.mutants]), "utf-8")
        if options.list:
            say(*(mutant.name for mutant in _asked(copy.mutants, options)))
            return 0
        path = os.pathsep.join([str(copy.folder), str(ROOT)])
        os.chdir(ROOT)
        command = [sys.executable, "-m", "tests.mutations", *sys.argv[1:], "--copy", str(place)]
        os.execve(sys.executable, command, os.environ | {"PYTHONPATH": path})  # noqa: S606 - this program
    return 1


@contextlib.contextmanager
def _removed(folder: Path) -> Iterator[None]:
    """Remove a folder at the end, whatever ends this process."""
    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        shutil.rmtree(folder)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--group", choices=GROUPS, action="append", help="of files and their tests")
    parser.add_argument("--only", metavar="PATTERN", action="append", help="mutants by name, with * and ?")
    parser.add_argument(
        "--deep", action="store_true", help="conditions and the like of checks too, not only functions"
    )
    parser.add_argument("--sample", metavar="N", type=int, help="so many mutants, the same ones each time")
    parser.add_argument("--seed", metavar="S", default="1", help="another one draws other mutants")
    parser.add_argument(
        "--tests", metavar="PATH", action="append", help="tests to ask instead of the groups'"
    )
    parser.add_argument(
        "--most",
        metavar="SECONDS",
        type=float,
        help="of a processor, for the tests of a mutant; quick ones first",
    )
    parser.add_argument("--results", metavar="FILE", type=Path, help="keep them; go on where a run was ended")
    parser.add_argument("--processes", metavar="N", type=int, default=2)
    parser.add_argument("--list", action="store_true", help="name the mutants, run nothing")
    parser.add_argument("--copy", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _asked(mutants: Iterable[Mutant], options: argparse.Namespace) -> list[Mutant]:
    asked = [
        mutant
        for mutant in mutants
        if (not options.group or mutant.group in options.group)
        and (not options.only or any(fnmatch(mutant.name, pattern) for pattern in options.only))
    ]
    if options.sample is None:
        return asked
    return sample(asked, options.sample, options.seed)


def sample(mutants: Collection[Mutant], size: int, seed: str) -> list[Mutant]:
    """Draw mutants; which ones depends on their names alone, so that a new one changes a draw by one at most."""
    return sorted(mutants, key=lambda one: sha256(f"{seed} {one.name}".encode()).digest())[:size]


def _inside(options: argparse.Namespace) -> int:
    """Run on the copy."""
    import groundwire  # noqa: PLC0415 - the copy
    from tests.mutations import runner  # noqa: PLC0415 - needs the copy

    assert Path(groundwire.__file__).is_relative_to(options.copy)
    start = time.monotonic()
    known = equivalents()
    listed = [Mutant(*entry) for entry in json.loads((options.copy / "mutants.json").read_text("utf-8"))]
    asked = _asked(listed, options)
    found = Found(options.results and options.results.resolve(), options.tests, options.most)
    found.recall(asked)
    todo = {mutant.name: mutant for mutant in asked if mutant.name not in found.fates}
    say(
        f"{len(asked)} of {len(listed)} ways to break a defence; {len(found.fates)} known from an earlier run"
    )
    if todo:
        runner.prepare()
        plugin = runner.Runner(todo, found, options.copy, options.processes, say)
        places = options.tests or sorted({test for one in todo.values() for test in GROUPS[one.group].tests})
        arguments = ["-q", "--capture=sys", "-p", "no:cacheprovider", "-p", "no:xdist"]
        arguments += ["-W", _REWRITE, "-k", NOT_ASKED]
        pytest.main([*arguments, *places], plugins=[plugin])
    code = tell(found, asked, listed, known)
    say(f"{(time.monotonic() - start) / 60:.1f} minutes")
    return code


if __name__ == "__main__":
    sys.exit(main())

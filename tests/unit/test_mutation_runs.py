"""A run over the mutants ends, keeps what it found, and draws the same sample each time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutations import found as kept
from tests.mutations.__main__ import sample
from tests.mutations.found import Found
from tests.mutations.operators import Mutant
from tests.mutations.rooms import ROOT
from tests.mutations.telling import tell

FORKS = """
import os, signal, sys
from pathlib import Path
from tests.mutations.forks import Forks, Job

reads, writes = os.pipe()

def leave_one_behind():
    if os.fork() == 0:
        signal.pause()

def ends():
    leave_one_behind()
    return 1, "noticed"

def waits():
    leave_one_behind()
    signal.pause()

def fails():
    raise ValueError

def told_to_leave():
    leave_one_behind()
    os.kill(os.getppid(), signal.SIGTERM)
    signal.pause()

forks = Forks(Path(sys.argv[1]), 1, lambda _folder: None)
jobs = {"ends": Job(ends, 60), "waits": Job(waits, 0.1), "fails": Job(fails)}
for ended in forks.run(jobs):
    print(ended.name, ended.code, ended.late, ended.said.strip().splitlines()[-1])
try:
    list(forks.run({"told_to_leave": Job(told_to_leave)}))
except KeyboardInterrupt:
    print("leaves")
os.close(writes)
print(os.read(reads, 1))  # nobody else holds the other end: ends at once
"""


def test_a_fork_that_waits_for_ever_is_stopped_and_nothing_that_a_fork_started_outlives_it(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", FORKS, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == [
        "ends 1 False noticed",
        "waits -9 True ended by signal 9",
        "fails 3 False ValueError",
        "leaves",
        "b''",
    ]


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(kept, "ROOT", tmp_path)
    for name in (
        "src/groundwire/a.py",
        "src/groundwire/b.py",
        "tests/one/test_one.py",
        "tests/one/test_two.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


MUTANTS = {name[0]: Mutant(name, f"groundwire/{name[0]}.py", 1, "checks") for name in ("a.f: x", "b.f: x")}


def again(room: Path) -> set[str]:
    """Return what a further run knows already, in a process of its own."""
    kept._DIGESTS.clear()
    further = Found(room / "results", ["tests/one"])
    further.recall(MUTANTS.values())
    return set(further.fates)


def test_a_further_run_knows_what_an_earlier_one_found_until_the_module_or_a_test_that_said_so_changes(
    room: Path,
) -> None:
    found = Found(room / "results", ["tests/one"])
    found.note(MUTANTS["a"], "noticed", "tests/one/test_one.py::test_it", 2)
    found.note(MUTANTS["b"], "survived", "", 2)
    assert again(room) == {"a.f: x", "b.f: x"}
    (room / "tests/one/test_two.py").write_text("changed")
    assert again(room) == {"a.f: x"}, "what survives may be noticed by any test that changed"
    (room / "src/groundwire/a.py").write_text("changed")
    assert again(room) == set()


def test_a_run_succeeds_only_where_each_mutant_is_noticed_or_listed_as_changing_nothing() -> None:
    def ended(a: str, b: str, known: tuple[str, ...] = ()) -> int:
        found = Found()
        for mutant, outcome in zip(MUTANTS.values(), (a, b), strict=True):
            if outcome:
                found.note(mutant, outcome, "", 1)  # type: ignore[arg-type]
        return tell(found, list(MUTANTS.values()), MUTANTS.values(), dict.fromkeys(known, "why"))

    assert ended("noticed", "stopped") == 0
    assert ended("noticed", "survived") == ended("noticed", "unreached") == 1
    assert ended("noticed", "survived", ("b.f: x",)) == 0
    assert ended("noticed", "noticed", ("b.f: x",)) == 1, "it is noticed after all"
    assert ended("noticed", "noticed", ("c.f: x",)) == 1, "it is not there"
    assert ended("noticed", "") == 1, "it was not run"


def test_a_sample_stays_the_same_but_for_what_a_new_mutant_displaces() -> None:
    mutants = [Mutant(f"m{n}", "", 1) for n in range(100)]
    drawn = sample(mutants, 10, "1")
    assert sample(mutants[::-1], 10, "1") == drawn
    assert sample(mutants, 10, "2") != drawn
    assert len(set(sample([*mutants, Mutant("new", "", 1)], 10, "1")) - set(drawn)) <= 1

"""What breaks defences finds each place that can be broken, breaks that place alone, and fails where nobody notices."""

import ast
import resource
from pathlib import Path
from typing import Any

import pytest

from tests.mutations import operators
from tests.mutations.__main__ import SETTINGS, report
from tests.mutations.operators import ROOT, Mutant, mutants_of, mutate
from tests.mutations.runner import run_in_forks


def test_every_place_is_found_and_its_mutant_changes_what_it_does() -> None:
    source = '''
"""A module."""
from __future__ import annotations
MAX = 3

def judge(n: int, *, trusted: bool, known: bool) -> str | None:
    """Judge."""
    if n > MAX:
        raise ValueError("too many")
    if trusted and known:
        return "yes"
    return None

def several(texts: list[str]) -> list[str]:
    return [text for text in texts if text]

def rules(found: list[int]) -> Iterator[int]:
    yield 1
    yield from found

def fails_closed(text: str) -> bool:
    try:
        return int(text) > 0
    except ValueError:
        return False
'''

    def behaviour(tree: ast.Module, active: str | None) -> list[Any]:
        module: dict[str, Any] = {}
        exec(compile(tree, "room", "exec"), module)  # noqa: S102 - the source above

        def call(function: str, *args: Any, **kwargs: Any) -> Any:
            try:
                found = module[function](*args, **kwargs)
                return list(found) if function == "rules" else found
            except ValueError:
                return ValueError

        operators.active = active
        try:
            flags = [
                {"trusted": trusted, "known": known} for trusted in (True, False) for known in (True, False)
            ]
            return [
                *(call("judge", n, **flag) for n in (2, 3, 4, 5_000) for flag in flags),
                call("several", ["a", ""]),
                call("rules", [2]),
                *(call("fails_closed", text) for text in ("1", "0", "x")),
            ]
        finally:
            operators.active = None

    tree, mutants = mutate(source, "room.py", "g", set(), inside=True)
    assert {mutant.name.removeprefix("room.") for mutant in mutants} == {
        f"{place} [{change}]"
        for place, *changes in (
            ("judge: gives None", "gives"),
            ("judge: n > MAX", "never", "always", "bound shifted"),
            ("judge: MAX", "lifted"),
            ("judge: raise ValueError('too many')", "not raised"),
            ("judge: trusted and known", "never", "always"),
            ("judge: trusted in trusted and known", "left out"),
            ("judge: known in trusted and known", "left out"),
            ("several: gives []", "gives"),
            ("several: text", "never", "always"),
            ("rules: gives nothing", "gives"),
            ("rules: yield 1", "left out"),
            ("rules: yield from found", "left out"),
            ("fails_closed: gives True", "gives"),
            ("fails_closed: gives False", "gives"),
            ("fails_closed: int(text) > 0", "bound shifted"),
            ("fails_closed: except ValueError", "not caught"),
        )
        for change in changes
    }
    whole = behaviour(tree, None)
    assert whole == behaviour(ast.parse(source), None)
    assert [mutant.name for mutant in mutants if behaviour(tree, mutant.name) == whole] == []


@pytest.mark.slow
def test_every_check_every_branch_of_what_decides_and_every_guard_is_broken_without_a_list() -> None:
    _, mutants = mutants_of(SETTINGS["groups"])
    paths = {mutant.path for mutant in mutants}
    assert {
        f"src/groundwire/gate/{name}.py" for name in ("tree", "claim_case", "build", "response_checks")
    } <= paths
    names = [mutant.name for mutant in mutants]
    assert len(names) == len(set(names))
    branches = [n for n in names if n.startswith("gate.tree.evaluate_tree: ") and n.endswith("[never]")]
    assert len(branches) == 8
    assert "gate.response_checks._sources: gives NOT_PROVIDED [gives]" in names


def test_files_and_tests_of_a_group_exist_and_every_equivalent_mutant_has_a_reason() -> None:
    for group in SETTINGS["groups"].values():
        assert [test for test in group["tests"] if not (ROOT / test).exists()] == []
        for pattern in [*group.get("inside", ()), *group.get("whole", ())]:
            assert list((ROOT / "src/groundwire").glob(pattern)), f"{pattern} is the name of nothing"
    assert all(len(why.split()) >= 4 for why in SETTINGS["equivalent"].values())


def test_a_run_succeeds_only_where_each_mutant_is_noticed_or_listed_as_changing_nothing() -> None:
    mutants = [Mutant(name, "src/groundwire/room.py", 1, "checks") for name in "ab"]
    cases: tuple[tuple[Any, Any, str, int], ...] = (
        ("noticed", "stopped", "", 0),
        ("noticed", "survived", "", 1),
        ("noticed", "unreached", "", 1),
        ("noticed", "survived", "b", 0),
        ("noticed", "noticed", "b", 1),  # it is noticed after all
        ("noticed", "noticed", "c", 1),  # it is not there
        ("noticed", None, "", 1),  # it was not run
    )
    wrong = []
    for *outcomes, known, status in cases:
        found = {name: one for name, one in zip("ab", outcomes, strict=True) if one}
        if report(found, mutants, {"a", "b"}, dict.fromkeys(known, "why")) != status:
            wrong.append((outcomes, known))
    assert wrong == []


@pytest.mark.slow
def test_a_fork_that_loops_is_stopped_and_one_that_fails_has_no_result(tmp_path: Path) -> None:
    def loop() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
        while True:
            pass

    jobs = {"ends": lambda: "seen", "loops": loop, "fails": lambda: 1 / 0}
    assert dict(run_in_forks(jobs, tmp_path)) == {"ends": "seen", "loops": None, "fails": None}

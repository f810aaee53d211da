"""What breaks defences finds each place that can be broken, breaks that place alone, and fails where nobody notices."""

from __future__ import annotations

import time
from math import inf
from pathlib import Path
from typing import Any

import pytest

from tests.mutations import mutation_switch
from tests.mutations.__main__ import SETTINGS, report
from tests.mutations.operators import ROOT, Mutant, Mutants, mutants_of, mutate, numbers
from tests.mutations.runner import Fate, run_in_forks

SOURCE = '''
"""A module."""
from __future__ import annotations
MAX = 3

def judge(n: int, *, trusted: bool, known: bool) -> str | None:
    """Judge."""
    if n > MAX:
        raise ValueError("too many")
    if trusted and known:
        return "yes"
    match n:
        case 1:
            return "one"
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


def behaviour(mutated: Mutants, name: str | None) -> list[Any]:
    module: dict[str, Any] = {}
    exec(compile(mutated.tree, "room", "exec"), module)  # noqa: S102 - the source stands above

    def seen(function: str, *args: Any, **kwargs: Any) -> Any:
        try:
            found = module[function](*args, **kwargs)
            return list(found) if function == "rules" else found
        except ValueError:
            return ValueError

    mutation_switch.active = name
    try:
        flags = [{"trusted": trusted, "known": known} for trusted in (True, False) for known in (True, False)]
        return [
            *(seen("judge", n, **flag) for n in (1, 2, 3, 4, 5_000) for flag in flags),
            seen("several", ["a", ""]),
            seen("rules", [2]),
            *(seen("fails_closed", t) for t in ("1", "0", "x")),
        ]
    finally:
        mutation_switch.active = None


def test_every_place_is_found_and_its_mutant_changes_what_it_does() -> None:
    mutated = mutate(SOURCE.lstrip(), "src/groundwire/room.py", "g", frozenset(numbers(SOURCE)), inside=True)
    names = {mutant.name.removeprefix("room.") for mutant in mutated.mutants}
    assert names == {
        f"{place} [{change}]"
        for place, *changes in (
            ("judge: gives None", "gives"),
            ("judge: n > MAX", "never", "always", "bound shifted"),
            ("judge: MAX", "lifted"),
            ("judge: raise ValueError('too many')", "not raised"),
            ("judge: trusted and known", "never", "always"),
            ("judge: trusted in trusted and known", "left out"),
            ("judge: known in trusted and known", "left out"),
            ("judge: case 1", "skipped"),
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
    module: dict[str, Any] = {}
    exec(SOURCE, module)  # noqa: S102 - see above
    whole = behaviour(mutated, None)
    assert whole[0] == module["judge"](1, trusted=True, known=True)
    assert [m.name for m in mutated.mutants if behaviour(mutated, m.name) == whole] == []


@pytest.mark.slow
def test_every_check_every_branch_of_what_decides_and_every_guard_is_broken_without_a_list() -> None:
    mutants = [mutant for module in mutants_of(SETTINGS["groups"]).values() for mutant in module.mutants]
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
        fates = {name: Fate(name, one, 1) for name, one in zip("ab", outcomes, strict=True) if one}
        if report(fates, mutants, {"a", "b"}, dict.fromkeys(known, "why")) != status:
            wrong.append((outcomes, known))
    assert wrong == []


@pytest.mark.slow
def test_a_fork_that_waits_for_ever_is_stopped(tmp_path: Path) -> None:
    jobs = {
        "ends": (lambda: "seen", inf),
        "waits": (lambda: time.sleep(600), 0.2),
        "fails": (lambda: 1 / 0, inf),
    }
    assert dict(run_in_forks(jobs, 2, tmp_path)) == {"ends": "seen", "waits": None, "fails": None}

"""What breaks defences finds each place that can be broken, and breaks that place alone."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.mutations import mutation_switch, rooms
from tests.mutations.operators import Mutated, mutate, numbers

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


@pytest.fixture
def mutated(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mutated]:
    monkeypatch.setitem(sys.modules, "mutation_switch", mutation_switch)
    yield mutate(SOURCE.lstrip(), "groundwire/room.py", frozenset(numbers(SOURCE)), inside=True)
    mutation_switch.active = None


def behaviour(mutated: Mutated, name: str | None) -> list[Any]:
    module: dict[str, Any] = {}
    exec(compile(mutated.source, "room", "exec"), module)  # noqa: S102 - the source stands above
    mutation_switch.active = name

    def seen(function: str, *args: Any, **kwargs: Any) -> Any:
        try:
            found = module[function](*args, **kwargs)
            return list(found) if function == "rules" else found
        except ValueError:
            return ValueError

    flags = [{"trusted": trusted, "known": known} for trusted in (True, False) for known in (True, False)]
    judged = [seen("judge", n, **flag) for n in (1, 2, 3, 4, 5_000) for flag in flags]
    rest = [
        seen("several", ["a", ""]),
        seen("rules", [2]),
        *(seen("fails_closed", t) for t in ("1", "0", "x")),
    ]
    return judged + rest


def test_each_mutant_changes_what_its_place_does_and_none_of_them_is_on_by_itself(mutated: Mutated) -> None:
    module: dict[str, Any] = {}
    exec(SOURCE, module)  # noqa: S102 - see above
    whole = behaviour(mutated, None)
    assert whole[0] == module["judge"](1, trusted=True, known=True)
    assert ValueError in whole
    unchanged = [m.name for m in mutated.mutants if behaviour(mutated, m.name) == whole]
    assert unchanged == []


def test_conditions_operands_bounds_limits_refusals_cases_filters_yields_and_catches_are_all_found(
    mutated: Mutated,
) -> None:
    names = {mutant.name.removeprefix("room.") for mutant in mutated.mutants}
    assert names == {
        "judge: gives None [gives]",
        "judge: n > MAX [never]",
        "judge: n > MAX [always]",
        "judge: n > MAX [bound shifted]",
        "judge: MAX [lifted]",
        "judge: raise ValueError('too many') [not raised]",
        "judge: trusted and known [never]",
        "judge: trusted and known [always]",
        "judge: trusted in trusted and known [left out]",
        "judge: known in trusted and known [left out]",
        "judge: case 1 [skipped]",
        "several: gives [] [gives]",
        "several: text [never]",
        "several: text [always]",
        "rules: gives nothing [gives]",
        "rules: yield 1 [left out]",
        "rules: yield from found [left out]",
        "fails_closed: gives True [gives]",
        "fails_closed: gives False [gives]",
        "fails_closed: int(text) > 0 [bound shifted]",
        "fails_closed: except ValueError [not caught]",
    }


def test_every_check_every_branch_of_what_decides_and_every_guard_is_broken_without_a_list(
    tmp_path: Any,
) -> None:
    copy = rooms.write_copy(tmp_path)
    paths = {mutant.path for mutant in copy.mutants}
    decides = {f"groundwire/decide/{p.name}" for p in (rooms.ROOT / "src/groundwire/decide").glob("*.py")}
    assert decides - paths <= {"groundwire/decide/__init__.py"}
    names = [mutant.name for mutant in copy.mutants]
    assert len(names) == len(set(names))
    assert sum(name.startswith("decide.tree.grow: ") and name.endswith("[never]") for name in names) == 8
    assert "decide.response_reading._sources: gives NOT_PROVIDED [gives]" in names


def test_what_is_listed_as_changing_nothing_says_why() -> None:
    listed = tomllib.loads(rooms.EQUIVALENT.read_text("utf-8"))["equivalent"]
    assert all(isinstance(why, str) and len(why.split()) >= 4 for why in listed.values())

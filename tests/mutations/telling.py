"""Tells people what became of the mutants."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence

from tests.mutations.found import Found
from tests.mutations.groups import GROUPS
from tests.mutations.operators import Mutant


def tell(found: Found, asked: Sequence[Mutant], listed: Iterable[Mutant], known: Mapping[str, str]) -> int:
    """Print what was found, with a table.

    Args:
        found: what became of the mutants.
        asked: mutants that were to be broken.
        listed: all that there are.
        known: those that change nothing, with why.

    Returns:
        The exit code: 0 where a test notices each of them, 1 where none notices one, 2 where nothing was shown.
    """
    if found.failing:
        say("fails with nothing broken:", *found.failing)
        return 2
    survived = [
        m for m in asked if m.name in found.fates and found.fates[m.name].lives and m.name not in known
    ]
    for mutant in survived:
        come_by = found.fates[mutant.name].tests
        say(f"src/{mutant.path}:{mutant.line}: no test notices: {mutant.name} ({come_by} come by)")
    names = {mutant.name for mutant in listed}
    fates = found.fates
    stale = [name for name in known if name not in names or (name in fates and not fates[name].lives)]
    for name in stale:
        say(f"equivalent.toml lists what a test notices, or what is not there: {name}")
    say(*_table(found, asked, known))
    return 1 if survived or stale or len(found.fates) < len(asked) else 0


def _table(found: Found, asked: Sequence[Mutant], known: Mapping[str, str]) -> list[str]:
    lines = ["| group | broken | noticed | of these stopped | change nothing | noticed by no test |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, mutants in [
        *((name, [m for m in asked if m.group == name]) for name in GROUPS),
        ("all", asked),
    ]:
        fates = [found.fates[mutant.name] for mutant in mutants if mutant.name in found.fates]
        dead = [fate for fate in fates if not fate.lives]
        stopped = sum(fate.outcome == "stopped" for fate in dead)
        nothing = sum(fate.lives and fate.name in known for fate in fates)
        row = (len(fates), len(dead), stopped, nothing, len(fates) - len(dead) - nothing)
        if fates:
            lines.append(f"| {name} | {' | '.join(f'{count:,}' for count in row)} |")
    return lines


def say(*lines: str) -> None:
    """Write lines for people, past what pytest captures."""
    assert sys.__stdout__ is not None
    sys.__stdout__.write("".join(f"{line}\n" for line in lines))
    sys.__stdout__.flush()

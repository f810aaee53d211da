"""The copy of the source in which everything is broken, and what is known to change nothing."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tests.mutations.groups import group_of
from tests.mutations.operators import Mutant, mutate, numbers

ROOT: Final = Path(__file__).parents[2]
EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")


@dataclass(frozen=True, slots=True)
class Copy:
    """The source with all its switches."""

    folder: Path
    mutants: list[Mutant]


def write_copy(folder: Path, *, deep: bool = False) -> Copy:
    """Write `src/` with a switch at each place that is broken; nothing is written elsewhere.

    Args:
        folder: for the copy.
        deep: break what is inside of functions in every group, not only in those of which it is said.
    """
    source = ROOT / "src"
    texts = {path.relative_to(source).as_posix(): path.read_text("utf-8") for path in source.rglob("*.py")}
    limits = frozenset().union(*(numbers(text) for text in texts.values()))
    mutants = []
    for path, text in sorted(texts.items()):
        grouped = group_of(path)
        if grouped is not None:
            group, how = grouped
            mutated = mutate(text, path, limits, inside=deep or how == "inside")
            texts[path] = mutated.source
            mutants += [replace(mutant, group=group) for mutant in mutated.mutants]
    for path, text in texts.items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, "utf-8")
    for path in source.rglob("*"):
        place = folder / path.relative_to(source)
        if path.is_file() and path.suffix not in {".py", ".pyc"} and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(path.read_bytes())
    switch = Path(__file__).with_name("mutation_switch.py")
    (folder / switch.name).write_text(switch.read_text("utf-8"), "utf-8")
    return Copy(folder, mutants)


def equivalents() -> dict[str, str]:
    """Return the mutants that change nothing that anyone could see, with why."""
    return dict(tomllib.loads(EQUIVALENT.read_text("utf-8"))["equivalent"])

"""What is broken, and which tests are asked."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from tests.mutations.operators import Mutant, mutate, numbers

ROOT: Final = Path(__file__).parents[2]
EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")

INSIDE: Final = (
    "groundwire/decide/*.py",
    "groundwire/guards/*.py",
    "groundwire/attestation.py",
    "groundwire/messages/decode.py",
    "groundwire/messages/headers.py",
    "groundwire/verify/ssrf.py",
)
"""Files in which each condition, bound, limit, refusal and function is broken: what decides and what guards."""

WHOLE: Final = ("groundwire/checks/*.py", "groundwire/checks/epistemic/*.py", "groundwire/epistemic/*.py")
"""Files in which each function as a whole is broken: it looks at nothing, or always finds."""

TESTS: Final = (
    "tests/contract",
    "tests/unit/checks",
    "tests/unit/decide",
    "tests/unit/epistemic",
    "tests/unit/gate",
    "tests/unit/messages",
    "tests/unit/replay",
    "tests/unit/state",
    "tests/unit/verify",
    "tests/unit/test_attestation.py",
    "tests/unit/test_check.py",
    "tests/unit/test_fallback.py",
    "tests/unit/test_guards.py",
    "tests/unit/test_library.py",
    "tests/unit/test_quotes.py",
)


@dataclass(frozen=True, slots=True)
class Copy:
    """The source with all its switches."""

    folder: Path
    mutants: list[Mutant]


def write_copy(folder: Path) -> Copy:
    """Write `src/` with a switch at each place that is broken; nothing is written elsewhere."""
    source = ROOT / "src"
    texts = {path.relative_to(source).as_posix(): path.read_text("utf-8") for path in source.rglob("*.py")}
    limits = frozenset().union(*(numbers(text) for text in texts.values()))
    mutants = []
    for path, text in sorted(texts.items()):
        inside = any(fnmatch(path, room) for room in INSIDE)
        if inside or any(fnmatch(path, room) for room in WHOLE):
            mutated = mutate(text, path, limits, inside=inside)
            texts[path] = mutated.source
            mutants += mutated.mutants
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

"""What became of the mutants, and what is known of them from an earlier run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal

from tests.mutations.groups import GROUPS
from tests.mutations.operators import Mutant
from tests.mutations.rooms import ROOT

Outcome = Literal["noticed", "stopped", "survived", "unreached"]
"""`stopped`: its tests took too long, or it ended the process."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What became of a mutant.

    Attributes:
        name: the mutant's.
        outcome: whether a test noticed.
        by: the test that noticed, or how it ended.
        tests: how many come by it.
        digest: of the files from which this follows: the module, and the tests that said so.
    """

    name: str
    outcome: Outcome
    by: str
    tests: int
    digest: str = ""

    @property
    def lives(self) -> bool:
        """Whether no test noticed."""
        return self.outcome in {"survived", "unreached"}


@dataclass
class Found:
    """What became of all mutants.

    Args:
        results: a file of lines; what it has of files that did not change is known already. None: nothing is kept.
        asked: tests that are asked instead of each group's own.
        most: seconds of a processor that the tests of a mutant may take, as they are; None: all are asked.
    """

    results: Path | None = None
    asked: Sequence[str] | None = None
    most: float | None = None
    fates: dict[str, Fate] = field(default_factory=dict)
    failing: list[str] = field(default_factory=list)
    """Tests that fail with nothing broken."""

    def recall(self, mutants: Iterable[Mutant]) -> None:
        """Take over what an earlier run found and what still holds."""
        if self.results is None or not self.results.exists():
            return
        known = (Fate(**json.loads(line)) for line in self.results.read_text("utf-8").splitlines())
        by_name = {fate.name: fate for fate in known}
        for mutant in mutants:
            fate = by_name.get(mutant.name)
            if fate is not None and fate.digest == self._digest(mutant, fate):
                self.fates[mutant.name] = fate

    def note(self, mutant: Mutant, outcome: Outcome, by: str, tests: int) -> None:
        """Keep what became of a mutant."""
        fate = Fate(mutant.name, outcome, by, tests)
        if self.results is not None:
            fate = Fate(mutant.name, outcome, by, tests, self._digest(mutant, fate))
            self.results.parent.mkdir(parents=True, exist_ok=True)
            with self.results.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(fate)) + "\n")
        self.fates[mutant.name] = fate

    def _digest(self, mutant: Mutant, fate: Fate) -> str:
        tests = [fate.by.partition("::")[0]]
        if fate.outcome != "noticed":
            tests = [*sorted(self.asked or GROUPS[mutant.group].tests), f"{self.most}"]
        return digest(f"src/{mutant.path}", *tests)


_DIGESTS: Final[dict[str, str]] = {}


def digest(*places: str) -> str:
    """Return a digest of files and folders below the root of the project, as they were when first asked for."""
    whole = hashlib.sha256()
    for place in places:
        if place not in _DIGESTS:
            path = ROOT / place
            files = sorted(path.rglob("*.py")) if path.is_dir() else [path]
            texts = [file.read_bytes() for file in files if file.exists()]
            _DIGESTS[place] = hashlib.sha256(b"\0".join(texts)).hexdigest()
        whole.update(f"{place} {_DIGESTS[place]}\n".encode())
    return whole.hexdigest()[:16]

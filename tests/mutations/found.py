"""What became of the mutants."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Found:
    """What became of the mutants."""

    killed: dict[str, str] = field(default_factory=dict)
    survived: dict[str, int] = field(default_factory=dict)
    """Mutant -> how many tests came by it."""
    failing: list[str] = field(default_factory=list)
    """Tests that fail with nothing broken."""

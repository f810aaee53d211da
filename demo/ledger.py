"""The expected outcomes of the examples, compared with what arrives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Entry:
    label: str
    outcomes: tuple[str, ...]
    came: list[str] = field(default_factory=list)

    @property
    def missing(self) -> tuple[str, ...]:
        return self.outcomes[len(self.came) :]


@dataclass(slots=True)
class Ledger:
    """Knows what is still to come, what came otherwise, and what has become of each subject.

    A key is what a record is about: user and claim id of a claim, or a dead letter's place in its topic.
    """

    entries: dict[Hashable, list[Entry]] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    records: Counter[str] = field(default_factory=Counter)
    _settled: dict[Hashable, tuple[int, str]] = field(default_factory=dict)

    def expect(self, key: Hashable, label: str, outcomes: tuple[str, ...], *, by: str = "sent") -> None:
        """Note a record and what must come of it, in order.

        `label`: what messages call it. `by`: `sent`; `gate`, which sends it because of another; `people`, who decide.
        """
        self.entries.setdefault(key, []).append(Entry(label, outcomes))
        self.records[by] += 1

    def came(self, key: Hashable, outcome: str, verdict: str, revision: int = 1) -> None:
        """Note what came: another outcome than the expected one is a difference, a delivery repeated is none.

        `verdict`: of a decision, or `dead letter`. Of revisions the highest is true, in whichever order they come.
        """
        self._settled[key] = max(self._settled.get(key, (-1, "")), (revision, verdict))
        entries = self.entries.get(key, [])
        before = {earlier for entry in entries for earlier in entry.came}
        entry = next((entry for entry in entries if entry.missing), None)
        wanted = entry.missing[0] if entry else "nothing"
        if outcome != wanted:
            if outcome in before:
                return
            self.differences.append(f"{entry.label if entry else key}: expected {wanted}, got {outcome}")
        if entry:
            entry.came.append(outcome)

    @property
    def answered(self) -> bool:
        return all(entry.came for entries in self.entries.values() for entry in entries)

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def missing(self) -> list[str]:
        every = (entry for entries in self.entries.values() for entry in entries)
        lacking = [entry for entry in every if entry.missing]
        return [f"{entry.label}: expected {', then '.join(entry.missing)}, got nothing" for entry in lacking]

    @property
    def repeats(self) -> int:
        """How many of the records sent were about something that was sent before."""
        return self.records["sent"] + self.records["gate"] - len(self.entries)

    @property
    def totals(self) -> Counter[str]:
        """How many subjects came to what, by their highest revision."""
        return Counter(verdict for _, verdict in self._settled.values())

"""Every entry by its name, and a run cut into parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tests.fuzz import answers, console, files, records, topics
from tests.fuzz.runner import Entry, Report, run, seeds

ENTRIES: Final[Mapping[str, Entry]] = {
    entry.name: entry for module in (records, topics, files, console, answers) for entry in module.ENTRIES
}


def parts(seed: int, inputs: int, only: Iterable[str]) -> list[tuple[str, Sequence[str]]]:
    """Divide a number of inputs among entries by their shares, and into parts: (entry, seeds)."""
    entries = [ENTRIES[name] for name in only or ENTRIES]
    shares = sum(entry.share for entry in entries)
    found = []
    for entry in entries:
        those = list(seeds(seed, entry.name, max(1, inputs * entry.share // shares)))
        size = 500 * entry.share  # after which the next entry takes its turn
        found += [(at // size, (entry.name, those[at : at + size])) for at in range(0, len(those), size)]
    return [part for _, part in sorted(found, key=lambda each: each[0])]


def run_part(entry: str, those: Sequence[str]) -> Report:
    return run(ENTRIES[entry], those)

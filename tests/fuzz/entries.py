"""Every entry by its name, and a run over all of them in parts, among processes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Final, NamedTuple

from tests.fuzz import answers, console, files, places, records, sealed, topics
from tests.fuzz.runner import Entry, Report, run, seeds

ENTRIES: Final[Mapping[str, Entry]] = {
    entry.name: entry
    for module in (records, topics, files, console, places, answers, sealed)
    for entry in module.ENTRIES
}


_PART = 500
"""Inputs, for each unit of an entry's share, after which it is the next entry's turn."""


class Part(NamedTuple):
    """Inputs of one entry."""

    entry: str
    seeds: Sequence[str]


def parts(seed: int, inputs: int, only: Iterable[str]) -> list[Part]:
    """Divide a number of inputs among entries by their shares, and into parts, the entries taking turns."""
    entries = [ENTRIES[name] for name in only or ENTRIES]
    shares = sum(entry.share for entry in entries)
    found = []
    for entry in entries:
        those = list(seeds(seed, entry.name, max(1, inputs * entry.share // shares)))
        size = _PART * entry.share
        found += [(at // size, Part(entry.name, those[at : at + size])) for at in range(0, len(those), size)]
    return [part for _, part in sorted(found, key=lambda each: each[0])]


def run_part(part: Part, until: float | None, most: int) -> Report:
    """Run a part; in a process of its own, where there are several."""
    return run(ENTRIES[part.entry], part.seeds, until=until, most=most)


def run_all(
    those: Sequence[Part], until: float | None, jobs: int, most: int, told: Callable[[Report], None]
) -> list[Report]:
    """Run parts in as many processes; a part that was not begun in time is left out."""
    reports = []
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for done in as_completed(pool.submit(run_part, part, until, most) for part in those):
            reports.append(done.result())
            if reports[-1].inputs:
                told(reports[-1])
    return reports

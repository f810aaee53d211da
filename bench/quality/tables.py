"""How well methods distinguish right from wrong answers, as a table.

Thresholds are chosen on the rows of the splits before the one that is measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench.quality.data import SPLITS, Row
from bench.quality.methods import FIXED, METHODS
from groundwire.library.evaluate import HEADINGS, Scored, best_threshold, estimates


def method_table(
    sets: Mapping[str, Sequence[Row]], methods: Sequence[str], split: str, draws: int
) -> Iterator[str]:
    headings = ("set", "answers", "method", *HEADINGS.values(), "pairs ranked right")
    yield f"| {' | '.join(headings)} |"
    yield f"|{'---|' * len(headings)}"
    for name, rows in sets.items():
        count = sum(row.split == split for row in rows)
        for method in methods:
            yield f"| {name} | {count} | {method} | {' | '.join(_cells(rows, method, split, draws))} |"


def _cells(rows: Sequence[Row], method: str, split: str, draws: int) -> list[str]:
    before = chosen_on(split)
    others: list[Scored] = []
    own: list[Scored] = []
    pairs: dict[str, dict[bool, float]] = {}
    for row in rows:
        if row.split == split or (row.split in before and method not in FIXED):
            score = METHODS[method](row)
            (own if row.split == split else others).append(Scored(score, not row.supported, row.group))
            if row.pair and row.split == split:
                pairs.setdefault(row.pair, {})[row.supported] = score
    threshold = FIXED[method] if method in FIXED else best_threshold(others or own)
    measured = [row._replace(flagged=row.score >= threshold) for row in own]
    cells = [
        f"{found.value:.3f} [{found.low:.2f}, {found.high:.2f}]"
        for found in estimates(measured, draws=draws).values()
    ]
    return [*cells, _ranked([pair for pair in pairs.values() if len(pair) > 1])]


def chosen_on(split: str) -> tuple[str, ...]:
    """Return the splits on whose rows a threshold is chosen for another: all before it, for `train` itself."""
    return SPLITS[: SPLITS.index(split)] or (split,)


def _ranked(pairs: Sequence[Mapping[bool, float]]) -> str:
    """Return the share of pairs whose unsupported half scores higher: ties half, and strictly."""
    if not pairs:
        return "-"
    strict = sum(pair[False] > pair[True] for pair in pairs)
    even = sum(pair[False] == pair[True] for pair in pairs)
    return f"{(strict + even / 2) / len(pairs):.3f} ({strict / len(pairs):.3f} strictly)"

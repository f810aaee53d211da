"""How well methods rank right answers before wrong ones, as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bench.quality.data import Row
from bench.quality.methods import METHODS
from groundwire.library.evaluate import HEADINGS, Scored, estimates


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
    own: list[Scored] = []
    pairs: dict[str, dict[bool, float]] = {}
    for row in rows:
        if row.split == split:
            score = METHODS[method](row)
            own.append(Scored(score, not row.supported, row.group))
            if row.pair:
                pairs.setdefault(row.pair, {})[row.supported] = score
    cells = [
        f"{found.value:.3f} [{found.low:.2f}, {found.high:.2f}]"
        for found in estimates(own, draws=draws).values()
    ]
    return [*cells, _ranked([pair for pair in pairs.values() if len(pair) > 1])]


def _ranked(pairs: Sequence[Mapping[bool, float]]) -> str:
    """Return the share of pairs whose unsupported half scores higher: ties half, and strictly."""
    if not pairs:
        return "-"
    strict = sum(pair[False] > pair[True] for pair in pairs)
    even = sum(pair[False] == pair[True] for pair in pairs)
    return f"{(strict + even / 2) / len(pairs):.3f} ({strict / len(pairs):.3f} strictly)"

"""Print how well answers are told apart, per set and method: `python -m bench.quality --data DIR`.

Thresholds are chosen on the rows of `train`; figures are of the split named, `validation` unless told.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from bench.quality.data import SETS, SPLITS, Row, read_own
from bench.quality.methods import METHODS
from bench.quality.metrics import Scored, at_threshold, auroc, best_threshold, interval, recall_at


def measure(rows: Sequence[Row], method: str, split: str, draws: int) -> list[str]:
    """Return the cells of one line of the table."""
    scored: dict[str, list[Scored]] = {name: [] for name in SPLITS}
    pairs: dict[str, dict[bool, float]] = {}
    for row in rows:
        score = METHODS[method](row)
        scored[row.split].append(Scored(score, not row.supported, row.group))
        if row.pair and row.split == split:
            pairs.setdefault(row.pair, {})[row.supported] = score
    threshold = best_threshold(scored["train"])
    figures = {"auroc": auroc, "recall@5%": recall_at, **at_threshold(threshold)}
    cells = []
    for figure in figures.values():
        value, low, high = interval(scored[split], figure, draws=draws)
        cells.append(f"{value:.3f} [{low:.2f}, {high:.2f}]")
    ranked = [
        (pair[False] > pair[True]) + (pair[False] == pair[True]) / 2
        for pair in pairs.values()
        if len(pair) > 1
    ]
    strict = [pair[False] > pair[True] for pair in pairs.values() if len(pair) > 1]
    shown = f"{sum(ranked) / len(ranked):.3f} ({sum(strict) / len(strict):.3f} strictly)" if ranked else "-"
    return [*cells, shown]


def main() -> None:
    """Measure every method on every set asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the public sets")
    parser.add_argument("--file", type=Path, help="own labelled JSON lines")
    parser.add_argument("--set", action="append", choices=list(SETS), help="only these sets")
    parser.add_argument("--method", action="append", choices=list(METHODS), help="only these methods")
    parser.add_argument("--split", choices=SPLITS, default="validation")
    parser.add_argument("--draws", type=int, default=1000)
    args = parser.parse_args()
    if not (args.data or args.file):
        parser.error("give --data or --file")
    print(
        "| set | rows | method | AUROC | recall at 5 % | macro-F1 | balanced accuracy | pairs ranked right |"
    )
    print("|---|---|---|---|---|---|---|---|")
    sources = {name: SETS[name](args.data) for name in args.set or SETS} if args.data else {}
    if args.file:
        sources["own"] = read_own(args.file)
    for name, source in sources.items():
        rows = list(source)
        count = sum(row.split == args.split for row in rows)
        for method in args.method or METHODS:
            cells = measure(rows, method, args.split, args.draws)
            print(f"| {name} | {count} | {method} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

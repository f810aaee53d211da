"""Figures of a detector from scores and labels, with intervals by bootstrap over sources.

A score says how much of an answer is *not* supported: higher is worse. A row is positive when it is unsupported.
Each figure takes weights (how often a source was drawn), so that one sort serves all draws.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import groupby, pairwise
from typing import Final, NamedTuple

DRAWS: Final = 1000
FALSE_ALARMS: Final = 0.05


class Scored(NamedTuple):
    """A row as it is measured."""

    score: float
    positive: bool
    group: str


Figure = Callable[[Sequence[Scored], Sequence[int]], float]


def auroc(rows: Sequence[Scored], weights: Sequence[int]) -> float:
    """Return how often an unsupported row scores above a supported one, ties half; rows sorted by score."""
    below = wins = positives = 0.0
    weighted = zip(rows, weights, strict=True)
    for _, tied in groupby(weighted, key=lambda pair: pair[0].score):
        here = [0, 0]
        for row, weight in tied:
            here[row.positive] += weight
        wins += here[1] * (below + here[0] / 2)
        below += here[0]
        positives += here[1]
    return wins / (positives * below) if positives and below else float("nan")


def recall_at(rows: Sequence[Scored], weights: Sequence[int]) -> float:
    """Return the share of unsupported rows found where at most 5 % of the supported ones are flagged."""
    flagged, best = [0, 0], 0
    total = [0, 0]
    for row, weight in zip(rows, weights, strict=True):
        total[row.positive] += weight
    pairs = zip(reversed(rows), reversed(weights), strict=True)
    for _, tied in groupby(pairs, key=lambda pair: pair[0].score):
        for row, weight in tied:
            flagged[row.positive] += weight
        if flagged[0] > FALSE_ALARMS * total[0]:
            break
        best = flagged[1]
    return best / total[1] if total[1] else float("nan")


def at_threshold(threshold: float) -> dict[str, Figure]:
    """Return the figures of the detector that flags scores of at least `threshold`."""

    def counts(rows: Sequence[Scored], weights: Sequence[int]) -> list[list[int]]:
        table = [[0, 0], [0, 0]]  # [positive][flagged]
        for row, weight in zip(rows, weights, strict=True):
            table[row.positive][row.score >= threshold] += weight
        return table

    def macro_f1(rows: Sequence[Scored], weights: Sequence[int]) -> float:
        (true_no, false_yes), (false_no, true_yes) = counts(rows, weights)
        wrong = false_yes + false_no
        parts = [2 * right / (2 * right + wrong) if right else 0.0 for right in (true_no, true_yes)]
        return sum(parts) / 2

    def balanced(rows: Sequence[Scored], weights: Sequence[int]) -> float:
        (true_no, false_yes), (false_no, true_yes) = counts(rows, weights)
        return (true_no / max(1, true_no + false_yes) + true_yes / max(1, true_yes + false_no)) / 2

    return {"macro_f1": macro_f1, "balanced_accuracy": balanced}


def best_threshold(rows: Sequence[Scored]) -> float:
    """Return the threshold with the highest macro-F1 on rows that are not reported."""
    ordered = sorted(rows)
    places = sorted({row.score for row in ordered})
    cuts = [places[0], *((low + high) / 2 for low, high in pairwise(places))]
    ones = [1] * len(ordered)
    return max(cuts, key=lambda cut: at_threshold(cut)["macro_f1"](ordered, ones))


def interval(
    rows: Sequence[Scored], figure: Figure, *, draws: int = DRAWS, seed: int = 7
) -> tuple[float, ...]:
    """Return a figure with its 95 % bootstrap interval; whole sources are drawn, never rows alone."""
    ordered = sorted(rows)
    groups = sorted({row.group for row in ordered})
    number = {group: place for place, group in enumerate(groups)}
    places = [number[row.group] for row in ordered]
    rng = random.Random(seed)
    values = []
    for _ in range(draws):
        drawn = [0] * len(groups)
        for place in rng.choices(range(len(groups)), k=len(groups)):
            drawn[place] += 1
        values.append(figure(ordered, [drawn[place] for place in places]))
    values = sorted(value for value in values if value == value)  # noqa: PLR0124 - NaN: a draw of one class alone
    low, high = (values[int(share * (len(values) - 1))] for share in (0.025, 0.975)) if values else (0.0, 0.0)
    return figure(ordered, [1] * len(ordered)), low, high


def wilson(found: int, total: int) -> tuple[float, float]:
    """Return the 95 % Wilson interval of a share."""
    if not total:
        return 0.0, 1.0
    z = 1.959964
    share = found / total
    centre = share + z * z / (2 * total)
    reach = z * ((share * (1 - share) + z * z / (4 * total)) / total) ** 0.5
    scale = 1 + z * z / total
    return max(0.0, (centre - reach) / scale), min(1.0, (centre + reach) / scale)

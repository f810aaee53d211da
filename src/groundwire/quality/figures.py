"""Figures of a detector from scores and labels, with intervals by bootstrap over sources.

A score says how much of a row is *not* supported: higher is worse. A row is positive when it is unsupported. Each
figure takes weights (how often a row's source was drawn), so that one sort serves all draws.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Final, NamedTuple

DRAWS: Final = 1000
FALSE_ALARMS: Final = 0.05
_Z: Final = 1.959964  # of the normal distribution: 95 % lie within so many deviations


class Estimate(NamedTuple):
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float


class Scored(NamedTuple):
    """A row as it is measured.

    Attributes:
        score: higher where less is supported.
        positive: the label: it is unsupported.
        group: the source that it comes from.
        flagged: the verdict.
    """

    score: float
    positive: bool
    group: str
    flagged: bool = False


Figure = Callable[[Sequence[Scored], Sequence[int]], float]
Table = list[list[int]]
"""Counts of rows: [positive][flagged]."""


def auroc(rows: Sequence[Scored], weights: Sequence[int]) -> float:
    """Return how often an unsupported row scores above a supported one, ties half; rows sorted by score."""
    below = wins = positives = 0.0
    for _, tied in groupby(zip(rows, weights, strict=True), key=_score):
        here = [0, 0]
        for row, weight in tied:
            here[row.positive] += weight
        wins += here[1] * (below + here[0] / 2)
        below += here[0]
        positives += here[1]
    return wins / (positives * below) if positives and below else float("nan")


def recall_at(rows: Sequence[Scored], weights: Sequence[int]) -> float:
    """Return the share of unsupported rows found where at most 5 % of the supported ones are; sorted by score."""
    flagged, best = [0, 0], 0
    total = [0, 0]
    for row, weight in zip(rows, weights, strict=True):
        total[row.positive] += weight
    for _, tied in groupby(zip(reversed(rows), reversed(weights), strict=True), key=_score):
        for row, weight in tied:
            flagged[row.positive] += weight
        if flagged[0] > FALSE_ALARMS * total[0]:
            break
        best = flagged[1]
    return best / total[1] if total[1] else float("nan")


def macro_f1(rows: Sequence[Scored], weights: Sequence[int]) -> float:
    """Return the mean of the F1 of both classes, by the verdicts."""
    return _macro_f1(_table(rows, weights))


def balanced_accuracy(rows: Sequence[Scored], weights: Sequence[int]) -> float:
    """Return the mean of the share of each class that was recognised, by the verdicts."""
    (true_no, false_yes), (false_no, true_yes) = _table(rows, weights)
    return (true_no / max(1, true_no + false_yes) + true_yes / max(1, true_yes + false_no)) / 2


FIGURES: Final[Mapping[str, Figure]] = {
    "auroc": auroc,
    "recall_at_5_percent": recall_at,
    "macro_f1": macro_f1,
    "balanced_accuracy": balanced_accuracy,
}
"""Figures by name; the first two rank by scores, the others count verdicts."""

HEADINGS: Final[Mapping[str, str]] = {
    "auroc": "AUROC",
    "recall_at_5_percent": "recall at 5 %",
    "macro_f1": "macro-F1",
    "balanced_accuracy": "balanced accuracy",
}
"""What stands above them in a table."""


def estimates(rows: Sequence[Scored], *, draws: int = DRAWS, seed: int = 7) -> dict[str, Estimate]:
    """Return each figure with its 95 % bootstrap interval; whole sources are drawn, never rows alone.

    Args:
        rows: of both classes.
        draws: of the bootstrap.
        seed: the same draws for the same seed.
    """
    ordered = sorted(rows)
    drawn: dict[str, list[float]] = {name: [] for name in FIGURES}
    for weights in _draws([row.group for row in ordered], draws, seed):
        for name, figure in FIGURES.items():
            drawn[name].append(figure(ordered, weights))
    ones = [1] * len(ordered)
    return {
        name: Estimate(figure(ordered, ones), *_interval(drawn[name])) for name, figure in FIGURES.items()
    }


def best_threshold(rows: Sequence[Scored]) -> float:
    """Return the score from which on rows are flagged for the highest macro-F1; to be used on other rows.

    Of several the lowest; between two scores that rows have, it lies in the middle.
    """
    ordered = sorted(rows)
    positives = sum(row.positive for row in ordered)
    table = [[0, len(ordered) - positives], [0, positives]]  # from the lowest score on, everything is flagged
    cuts: list[tuple[float, float]] = []
    before = ordered[0].score
    for score, tied in groupby(ordered, key=lambda row: row.score):
        cuts.append((_macro_f1(table), -(before + score) / 2))
        before = score
        for row in tied:
            table[row.positive][1] -= 1
            table[row.positive][0] += 1
    return -max(cuts)[1]


def wilson(found: int, total: int) -> Estimate:
    """Return a share with its 95 % Wilson interval; of nothing, it may be anything."""
    if not total:
        return Estimate(float("nan"), 0.0, 1.0)
    share = found / total
    centre = share + _Z * _Z / (2 * total)
    reach = _Z * ((share * (1 - share) + _Z * _Z / (4 * total)) / total) ** 0.5
    scale = 1 + _Z * _Z / total
    return Estimate(share, max(0.0, (centre - reach) / scale), min(1.0, (centre + reach) / scale))


def _draws(groups: Sequence[str], draws: int, seed: int) -> Iterator[list[int]]:
    """Yield, for each draw of as many groups as there are, how often each row's group was drawn."""
    number = {group: place for place, group in enumerate(sorted(set(groups)))}
    places = [number[group] for group in groups]
    rng = random.Random(seed)  # noqa: S311 - a sample that anyone can draw again
    for _ in range(draws):
        counts = [0] * len(number)
        for place in rng.choices(range(len(number)), k=len(number)):
            counts[place] += 1
        yield [counts[place] for place in places]


def _interval(values: Sequence[float]) -> tuple[float, float]:
    told = sorted(value for value in values if value == value)  # noqa: PLR0124 - NaN: a draw of one class alone
    if not told:
        return 0.0, 1.0
    return told[int(0.025 * (len(told) - 1))], told[int(0.975 * (len(told) - 1))]


def _score(weighted: tuple[Scored, int]) -> float:
    return weighted[0].score


def _table(rows: Sequence[Scored], weights: Sequence[int]) -> Table:
    table = [[0, 0], [0, 0]]
    for row, weight in zip(rows, weights, strict=True):
        table[row.positive][row.flagged] += weight
    return table


def _macro_f1(table: Table) -> float:
    (true_no, false_yes), (false_no, true_yes) = table
    wrong = false_yes + false_no
    return sum(2 * right / (2 * right + wrong) if right else 0.0 for right in (true_no, true_yes)) / 2

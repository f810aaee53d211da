"""Areas stacked over time, as SVG paths on a scale with round numbers; the page writes axes and units beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import floor, log10
from typing import Any, Final

HEIGHT: Final = 100
_STEPS: Final = (1, 2, 5, 10)
_LEAST: Final = 1e-6
"""What is less is drawn as nothing."""
_MOST_BANDS: Final = 6
"""Bands that are told apart by colour; what is less is drawn as the rest."""
REST: Final = "the rest"
Series = Mapping[str, Any]
"""A `name`, the `minutes` as values or None, and the count of the `hour`."""


def round_top(value: float) -> float:
    """Return the least of 1, 2, 5, 10, 20, ... (or 0.5, 0.2, ...) that is not below a value; 1 for what is nothing."""
    if value < _LEAST:
        return 1.0
    unit = 10.0 ** floor(log10(value))
    return next(round(step * unit, 9) for step in _STEPS if step * unit >= value * (1 - 1e-9))


def stacked(rows: Sequence[Series], top: float | None = None) -> dict[str, Any]:
    """Stack rows in their order, the first at the bottom; a minute that no row measured is a gap.

    Args:
        rows: of the same minutes.
        top: what is drawn at the upper edge; None: a round number above the highest stack.
    """
    alone = len(rows) <= _MOST_BANDS + 1  # a rest of one has its own name
    bands = rows if alone else [*rows[:_MOST_BANDS], _rest(rows[_MOST_BANDS:])]
    minutes = list(zip(*(band["minutes"] for band in bands), strict=True))
    measured = [any(value is not None for value in minute) for minute in minutes]
    sums = [
        [sum(value or 0.0 for value in minute[:upto]) for upto in range(len(bands) + 1)] for minute in minutes
    ]
    scale = top or round_top(max((stack[-1] for stack in sums), default=0.0))
    drawn = [
        {"name": band["name"], "hour": band["hour"], "path": _area(sums, measured, at, scale)}
        for at, band in enumerate(bands)
    ]
    return {"top": scale, "bands": drawn, "measured": any(measured)}


def _rest(rows: Sequence[Series]) -> Series:
    together = [
        sum(value or 0.0 for value in minute) if any(value is not None for value in minute) else None
        for minute in zip(*(row["minutes"] for row in rows), strict=True)
    ]
    return {"name": REST, "minutes": together, "hour": sum(row["hour"] or 0 for row in rows)}


def _area(sums: Sequence[Sequence[float]], measured: Sequence[bool], band: int, top: float) -> str:
    """Return the `d` of a band between its lower and its upper edge, one unit of width for a minute."""
    parts = []
    for known, run in groupby(range(len(sums)), key=lambda at: measured[at]):
        if known:
            minutes = list(run)
            upper = [f"{x} {_height(sums[at][band + 1], top)}" for at in minutes for x in (at, at + 1)]
            lower = [f"{x} {_height(sums[at][band], top)}" for at in reversed(minutes) for x in (at + 1, at)]
            parts.append(f"M{'L'.join([*upper, *lower])}Z")
    return "".join(parts)


def _height(value: float, top: float) -> str:
    return f"{HEIGHT * (1 - min(1.0, value / top)):.2f}"

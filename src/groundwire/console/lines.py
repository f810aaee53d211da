"""Lines of an hour as paths of SVG: drawn here, so that pages need no script for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

HEIGHT: Final = 20
_EDGE: Final = 1.0
"""Room above and below, so that a line at its greatest is not cut."""


def highest(rows: Iterable[Sequence[float | None]]) -> float:
    """Return the greatest value of several lines, which are drawn to one scale; 0 where there is none."""
    return max((value for row in rows for value in row if value is not None), default=0.0)


def path(values: Sequence[float | None], top: float) -> str:
    """Return the `d` of a line, one unit of width for each value; what was not measured is a gap.

    Args:
        values: of which none is less than 0.
        top: what is drawn at the upper edge; 0 draws everything at the lower one.
    """
    parts = []
    for measured, run in groupby(enumerate(values), key=lambda pair: pair[1] is not None):
        if measured:
            points = [f"{at + 0.5:g} {_height(value or 0.0, top):.2f}" for at, value in run]
            parts.append(f"M{'L'.join(points)}" + ("h0.01" if len(points) == 1 else ""))
    return "".join(parts)


def _height(value: float, top: float) -> float:
    share = min(1.0, value / top) if top > 0 else 0.0
    return HEIGHT - _EDGE - share * (HEIGHT - 2 * _EDGE)

"""How near each measured figure comes to its target, as a picture: bars on a logarithmic scale, hand-made SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, Final

from bench.measure import Figure
from bench.report import aim, figures_of

_ROW: Final = 26
_LEFT: Final = 560
_WIDTH: Final = 1000
_SPAN: Final = 10.0
"""Bars end at a tenth of a target and at ten times it."""


def svg(results: Mapping[str, Any]) -> str:
    """Return the picture of everything that has a target and was measured where it can be met."""
    rows = [
        (name, figure)
        for name, result in results.items()
        for figure in figures_of(result)
        if figure.met(result["machine"]["cores"]) is not None
    ]
    height = _ROW * (len(rows) + 2)
    middle = (_LEFT + _WIDTH) // 2
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"',
        ' font-family="sans-serif" font-size="12">',
        "<title>Measured figures beside their targets</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        *(line for place, row in enumerate(rows) for line in _bar(place, *row)),
        f'<line x1="{middle}" y1="{_ROW // 2}" x2="{middle}" y2="{height - _ROW}" stroke="#222"/>',
        f'<text x="{middle}" y="{height - 8}" text-anchor="middle">the target</text>',
        f'<text x="{_LEFT}" y="{height - 8}">a tenth as good</text>',
        f'<text x="{_WIDTH - 4}" y="{height - 8}" text-anchor="end">ten times as good</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _bar(place: int, part: str, figure: Figure) -> Iterator[str]:
    good = goodness(figure)
    middle, half = (_LEFT + _WIDTH) / 2, (_WIDTH - _LEFT) / 2
    end = middle + half * max(-1.0, min(1.0, math.log(max(good, 1e-9), _SPAN)))
    left, right = sorted((middle, end))
    top = _ROW * place + 6
    colour = "#2a7f62" if good >= 1 else "#b5452c"
    yield f'<text x="{_LEFT - 8}" y="{top + 13}" text-anchor="end">{escape(_label(part, figure))}</text>'
    yield (
        f'<rect x="{left:.0f}" y="{top}" width="{max(1, right - left):.0f}" height="{_ROW - 8}" '
        f'fill="{colour}"/>'
    )


def _label(part: str, figure: Figure) -> str:
    name = figure.name.partition(", redis-server")[0].partition(", Valkey")[0]
    return f"{part}: {name} {aim(figure)}"


def goodness(figure: Figure) -> float:
    """Return how many times as good as its target a figure is: 1 where it just meets it."""
    target = figure.target
    if target is None:
        return 1.0
    measured = (figure.ratio or 0.0) if target.of == "ratio" else figure.median
    if target.sense == ">=":
        return measured / target.limit
    if target.limit == 0:
        return 1.0 if measured <= 0 else 0.0
    return target.limit / measured if measured else _SPAN

"""Pictures as hand-made SVG: figures beside their targets, and curves over time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from bench.measure import Figure
from bench.report import aim, figures_of

_SPAN: Final = 10.0
"""Bars end at a tenth of a target and at ten times it."""


def targets_svg(results: Mapping[str, Any]) -> str:
    """Return bars, on a logarithmic scale, of everything that has a target and ran where it can be met."""
    row, left, width = 26, 560, 1000
    rows = [
        (name, figure)
        for name, result in results.items()
        for figure in figures_of(result)
        if figure.met(result["machine"]["cores"]) is not None
    ]
    height, middle, half = row * (len(rows) + 2), (left + width) / 2, (width - left) / 2
    lines = []
    for place, (part, figure) in enumerate(rows):
        good, top = goodness(figure), row * place + 6
        end = middle + half * max(-1.0, min(1.0, math.log(max(good, 1e-9), _SPAN)))
        start, stop = sorted((middle, end))
        name = figure.name.partition(", redis-server")[0].partition(", Valkey")[0]
        label = escape(f"{part}: {name} {aim(figure)}")
        lines.append(f'<text x="{left - 8}" y="{top + 13}" text-anchor="end">{label}</text>')
        lines.append(
            f'<rect x="{start:.0f}" y="{top}" width="{max(1, stop - start):.0f}" height="{row - 8}" '
            f'fill="{"#2a7f62" if good >= 1 else "#b5452c"}"/>'
        )
    lines += [
        f'<line x1="{middle:.0f}" y1="{row // 2}" x2="{middle:.0f}" y2="{height - row}" stroke="#222"/>',
        f'<text x="{middle:.0f}" y="{height - 8}" text-anchor="middle">the target</text>',
        f'<text x="{left}" y="{height - 8}">a tenth as good</text>',
        f'<text x="{width - 4}" y="{height - 8}" text-anchor="end">ten times as good</text>',
    ]
    return _framed(width, height, "Measured figures beside their targets", lines)


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


def curves_svg(minutes: Sequence[float], curves: Mapping[str, Sequence[float]]) -> str:
    """Return curves over the same minutes, one below the other, each from 0 to its largest value."""
    row, left, width = 90, 210, 760
    lines = []
    for place, (name, values) in enumerate(curves.items()):
        floor, most = row * (place + 1), max(*values, 1e-9)
        across, up = (width - 10 - left) / minutes[-1], (row - 20) / most
        pairs = zip(minutes, values, strict=True)
        points = " ".join(f"{left + minute * across:.0f},{floor - value * up:.0f}" for minute, value in pairs)
        lines += [
            f'<line x1="{left}" y1="{floor}" x2="{width - 10}" y2="{floor}" stroke="#999"/>',
            f'<polyline points="{points}" fill="none" stroke="#2a7f62" stroke-width="2"/>',
            f'<text x="{left - 8}" y="{floor - 30}" text-anchor="end">{escape(name)}</text>',
            f'<text x="{left - 8}" y="{floor - 12}" text-anchor="end" fill="#555">up to {most:.3g}</text>',
        ]
    height = row * len(curves) + 30
    lines.append(f'<text x="{left}" y="{height - 10}">0</text>')
    lines.append(f'<text x="{width - 10}" y="{height - 10}" text-anchor="end">{minutes[-1]:g} minutes</text>')
    return _framed(width, height, ", ".join(curves), lines)


def _framed(width: int, height: int, title: str, lines: Iterable[str]) -> str:
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"',
        ' font-family="sans-serif" font-size="12">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
    ]
    return "\n".join([*head, *lines, "</svg>"]) + "\n"

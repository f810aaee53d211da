"""Curves over time, one below the other, as hand-made SVG.

.venv/bin/python bench/curve.py soak.json > docs/trust/soak.svg
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Final

_WIDTH: Final = 760
_HEIGHT: Final = 90
_LEFT: Final = 210
_CURVES: Final = (
    ("held", "MB that workers hold"),
    ("files", "open files of workers"),
    ("redis", "MB that Redis uses"),
    ("p99", "s to a decision, p99"),
)


def svg(minutes: Sequence[float], curves: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Return a picture of curves (name, values) over the same minutes, each from 0 to its largest value."""
    height = _HEIGHT * len(curves) + 30
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"',
        ' font-family="sans-serif" font-size="12">',
        f"<title>{escape(', '.join(name for name, _ in curves))}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        *(line for place, curve in enumerate(curves) for line in _curve(place, minutes, *curve)),
        f'<text x="{_LEFT}" y="{height - 10}">0</text>',
        f'<text x="{_WIDTH - 10}" y="{height - 10}" text-anchor="end">{minutes[-1]:g} minutes</text>',
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _curve(place: int, minutes: Sequence[float], name: str, values: Sequence[float]) -> Iterator[str]:
    floor, most = _HEIGHT * (place + 1), max(*values, 1e-9)
    across, up = (_WIDTH - 10 - _LEFT) / minutes[-1], (_HEIGHT - 20) / most
    points = " ".join(
        f"{_LEFT + minute * across:.0f},{floor - value * up:.0f}"
        for minute, value in zip(minutes, values, strict=True)
    )
    yield f'<line x1="{_LEFT}" y1="{floor}" x2="{_WIDTH - 10}" y2="{floor}" stroke="#999"/>'
    yield f'<polyline points="{points}" fill="none" stroke="#2a7f62" stroke-width="2"/>'
    yield f'<text x="{_LEFT - 8}" y="{floor - 30}" text-anchor="end">{escape(name)}</text>'
    yield f'<text x="{_LEFT - 8}" y="{floor - 12}" text-anchor="end" fill="#555">up to {most:.3g}</text>'


def main() -> None:
    """Print the picture of a file that `bench/soak.py --json` has written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="what `bench/soak.py --json` has written")
    lines = parser.parse_args().file.read_text(encoding="ascii").splitlines()
    seen = [json.loads(line) for line in lines]
    minutes = [one["minutes"] for one in seen]
    sys.stdout.write(svg(minutes, [(name, [one[field] for one in seen]) for field, name in _CURVES]))


if __name__ == "__main__":
    main()

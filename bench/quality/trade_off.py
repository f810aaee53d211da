"""Over-review against leak: what an operating point costs, as a curve and as a picture.

Over-review is the share of supported rows that are flagged, leak the share of the others that are not. A curve holds
both at every threshold of a score; the nearer to the corner where both are 0, the better it tells rows apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import Final, NamedTuple

from groundwire.epistemic.types import OperatingPoint

_SIDE, _LEFT, _TOP, _ROW, _LEGEND = 420, 60, 40, 20, 250  # pixels
_COLOURS: Final = ("#1a5fb4", "#b5452c", "#777777", "#2a7f62")
_BLACK: Final = "#111"
_FONT: Final = 'font-family="sans-serif" font-size="12"'


class RatePoint(NamedTuple):
    """What is reviewed without need, and what is missed, 0..1 each."""

    over_review: float
    leak: float


def curve(scores: Sequence[tuple[float, bool]]) -> list[RatePoint]:
    """Return over-review and leak at every threshold, from flagging everything to flagging nothing.

    `scores`: how little each row is supported, and whether it is; both labels must occur.
    """
    total = {label: sum(supported is label for _, supported in scores) for label in (True, False)}
    missed = {True: 0, False: 0}
    found = [RatePoint(1.0, 0.0)]
    for _, tied in groupby(sorted(scores), key=lambda pair: pair[0]):
        for _, supported in tied:
            missed[supported] += 1
        found.append(RatePoint(1 - missed[True] / total[True], missed[False] / total[False]))
    return found


def picture(
    title: str,
    drawn: Mapping[str, Sequence[RatePoint]],
    points: Mapping[OperatingPoint, RatePoint],
) -> str:
    """Return an SVG of curves, with the operating points on it.

    What each point costs stands beside the curves.
    """
    width, height = _LEFT + _SIDE + _LEGEND, _TOP + _SIDE + 50
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" {_FONT}>',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" fill="#fff"/>',
            f'<text x="{_LEFT}" y="20" font-size="14">{escape(title)}</text>',
            *_axes(),
            *[
                f'<polyline points="{" ".join(f"{_x(share)},{_y(share)}" for share in shares)}" fill="none" '
                f'stroke="{_colour(place)}" stroke-width="2"/>'
                for place, shares in enumerate(drawn.values())
            ],
            *_dots(points),
            *_legend(drawn, points),
            "</svg>",
            "",
        ]
    )


def _dots(points: Mapping[OperatingPoint, RatePoint]) -> Iterator[str]:
    for share in dict.fromkeys(points.values()):
        names = ", ".join(name for name, other in points.items() if other == share)
        yield f'<circle cx="{_x(share)}" cy="{_y(share)}" r="5" fill="{_BLACK}"/>'
        yield (
            f'<text x="{_x(share) + 6}" y="{_y(share) - 9}" fill="{_BLACK}" stroke="#fff" stroke-width="4" '
            f'paint-order="stroke">{escape(names)}</text>'
        )


def _legend(
    drawn: Mapping[str, Sequence[RatePoint]],
    points: Mapping[OperatingPoint, RatePoint],
) -> Iterator[str]:
    told = [(name, _colour(place)) for place, name in enumerate(drawn)]
    told.append(("", _BLACK))
    for name, share in points.items():
        told.append((f"● {name}: over-review {share.over_review:.0%}, leak {share.leak:.0%}", _BLACK))
    for row, (text, colour) in enumerate(told, 1):
        yield f'<text x="{_LEFT + _SIDE + 12}" y="{_TOP + _ROW * row}" fill="{colour}">{escape(text)}</text>'


def _axes() -> Iterator[str]:
    yield f'<rect x="{_LEFT}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}" fill="none" stroke="#222"/>'
    for tenths in range(0, 11, 2):
        at = RatePoint(tenths / 10, tenths / 10)
        yield f'<text x="{_x(at)}" y="{_TOP + _SIDE + 16}" text-anchor="middle">{10 * tenths} %</text>'
        yield f'<text x="{_LEFT - 6}" y="{_y(at) + 4}" text-anchor="end">{10 * tenths} %</text>'
    middle = _LEFT + _SIDE // 2
    yield f'<text x="{middle}" y="{_TOP + _SIDE + 36}" text-anchor="middle">over-review: supported, and held</text>'
    yield f'<text x="{_LEFT}" y="{_TOP - 8}">leak: not supported, and approved</text>'


def _colour(place: int) -> str:
    return _COLOURS[place % len(_COLOURS)]


def _x(share: RatePoint) -> int:
    return round(_LEFT + _SIDE * share.over_review)


def _y(share: RatePoint) -> int:
    return round(_TOP + _SIDE * (1 - share.leak))

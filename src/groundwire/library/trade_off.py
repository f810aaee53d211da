"""Over-review against leak: what an operating point costs, as a curve and as a picture.

Over-review is the share of supported rows that are flagged, leak the share of the others that are not. A curve holds
both at every threshold of a score; the nearer to the corner where both are 0, the better it tells rows apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import groupby, product
from typing import Final, NamedTuple

from groundwire.epistemic.types import OperatingPoint
from groundwire.library.evaluate import Counted, Judged, counted

_SIDE, _LEFT, _TOP, _ROW, _LEGEND = 420, 60, 40, 20, 250  # pixels
_NEAR, _DOT, _LETTER, _LINE = 16, 6, 7, 14  # pixels: between marks, a dot's reach, a letter, a line
_COLOURS: Final = ("#1a5fb4", "#b5452c", "#777777", "#2a7f62")
_BLACK: Final = "#111"
_HALO: Final = 'stroke="#fff" stroke-width="4" paint-order="stroke"'
_FONT: Final = 'font-family="sans-serif" font-size="12"'
_THRESHOLDS: Final = tuple(twentieth / 20 for twentieth in range(1, 21))
"""Thresholds that a picture may name."""


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


def share_of(count: Counted) -> RatePoint:
    """Return verdicts as over-review and leak; both labels must occur."""
    return RatePoint(count.false_alarms / count.supported, count.missed / count.unsupported)


def thresholds(rows: Sequence[Judged]) -> dict[float, RatePoint]:
    """Return what thresholds of support do to rows at `balanced`: one may be chosen on the verifier's curve."""
    return {threshold: share_of(counted(rows, threshold, "balanced")) for threshold in _THRESHOLDS}


def curves(rows: Sequence[Judged]) -> dict[str, list[RatePoint]]:
    """Return the curve of the verifier beside those of plain baselines."""
    scores = {
        "verifier": [(2.0 if row.hard else 1 - row.whole, row.supported) for row in rows],
        "missing words": [(float(row.missing), row.supported) for row in rows],
        "length": [(float(row.length), row.supported) for row in rows],
    }
    return {name: curve(scored) for name, scored in scores.items()}


def picture(
    title: str,
    drawn: Mapping[str, Sequence[RatePoint]],
    points: Mapping[OperatingPoint, RatePoint],
    marked: Mapping[float, RatePoint] | None = None,
) -> str:
    """Return an SVG of curves, with the operating points and some of the `marked` thresholds on it.

    What each point costs stands beside the curves, where no label covers another.
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
            *_dots(points, marked or {}),
            *_legend(drawn, points, thresholds_too=bool(marked)),
            "</svg>",
            "",
        ]
    )


class _Labels:
    """Labels beside dots; none lies on another or on a dot."""

    def __init__(self, dots: Sequence[RatePoint]) -> None:
        self._taken = [(_x(dot) - _DOT, _y(dot) - _DOT, _x(dot) + _DOT, _y(dot) + _DOT) for dot in dots]

    def beside(self, dot: RatePoint, text: str, colour: str) -> str | None:
        """Return a label in the first place around a dot that is free; None where none is."""
        width, x, y = _LETTER * len(text), _x(dot), _y(dot)
        for left, top in product((x + _DOT, x - _DOT - width), (y - _DOT - _LINE, y + _DOT)):
            right, bottom = left + width, top + _LINE
            covers = any(
                left < other[2] and other[0] < right and top < other[3] and other[1] < bottom
                for other in self._taken
            )
            if left >= _LEFT and bottom <= _TOP + _SIDE and not covers:
                self._taken.append((left, top, right, bottom))
                return f'<text x="{left}" y="{top + _LINE - 3}" fill="{colour}" {_HALO}>{escape(text)}</text>'
        return None


def _dots(points: Mapping[OperatingPoint, RatePoint], marked: Mapping[float, RatePoint]) -> Iterator[str]:
    labels = _Labels(list(points.values()))
    for share in dict.fromkeys(points.values()):
        names = ", ".join(name for name, other in points.items() if other == share)
        yield f'<circle cx="{_x(share)}" cy="{_y(share)}" r="5" fill="{_BLACK}"/>'
        yield labels.beside(share, names, _BLACK) or ""
    taken = list(points.values())
    for threshold, share in marked.items():
        if any(abs(_x(share) - _x(o)) < _NEAR and abs(_y(share) - _y(o)) < _NEAR for o in taken):
            continue
        taken.append(share)
        if label := labels.beside(share, f"{threshold:g}", _COLOURS[0]):
            yield f'<circle cx="{_x(share)}" cy="{_y(share)}" r="4" fill="#fff" stroke="{_COLOURS[0]}"/>'
            yield label


def _legend(
    drawn: Mapping[str, Sequence[RatePoint]],
    points: Mapping[OperatingPoint, RatePoint],
    *,
    thresholds_too: bool,
) -> Iterator[str]:
    told = [(name, _colour(place)) for place, name in enumerate(drawn)]
    if thresholds_too:
        told.append(("○ support_threshold, at balanced", _COLOURS[0]))
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

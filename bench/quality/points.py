"""Over-review against leak: what the whole gate does at each operating point, beside plain baselines.

A baseline flags as many supported answers as the gate does at its default point, and leaks what it leaks then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import get_args

from bench.quality.data import Row
from bench.quality.gate import decide
from bench.quality.methods import METHODS
from bench.quality.trade_off import RatePoint, curve, picture
from groundwire.epistemic.types import OperatingPoint, VerificationConfig
from groundwire.library.evaluate import wilson
from groundwire.policy import Policy

HEAD = ("| set | answers | at | over-review | leak |", "|---|---|---|---|---|")
BASELINES = {"length": "length", "missing words": "absent words"}


def points_table(sets: Mapping[str, Sequence[Row]], pictures: Path | None = None) -> Iterator[str]:
    yield from HEAD
    for name, rows in sets.items():
        points = {point: _share(rows, point) for point in get_args(OperatingPoint)}
        for point, share in points.items():
            yield _line(name, rows, point, share)
        drawn = {
            title: curve([(METHODS[method](row), row.supported) for row in rows])
            for title, method in {"verifier": "verifier", **BASELINES}.items()
        }
        for title in BASELINES:
            within = [one for one in drawn[title] if one.over_review <= points["balanced"].over_review]
            yield _line(name, rows, f"{title}, as much over-review", min(within, key=lambda one: one.leak))
        if pictures:
            text = picture(f"{name}, {len(rows)} answers", drawn, points)
            (pictures / f"quality-{name}.svg").write_text(text, "utf-8")


def _share(rows: Sequence[Row], point: OperatingPoint) -> RatePoint:
    policy = Policy(verification=VerificationConfig(operating_point=point))
    verdicts = asyncio.run(decide(rows, policy))
    held = {
        label: [v != "approved" for row, v in zip(rows, verdicts, strict=True) if row.supported is label]
        for label in (True, False)
    }
    return RatePoint(sum(held[True]) / len(held[True]), 1 - sum(held[False]) / len(held[False]))


def _line(name: str, rows: Sequence[Row], at: str, share: RatePoint) -> str:
    cells = []
    for label, value in ((True, share.over_review), (False, share.leak)):
        total = sum(row.supported is label for row in rows)
        _, low, high = wilson(round(value * total), total)
        cells.append(f"{100 * value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]")
    return f"| {name} | {len(rows)} | {at} | {' | '.join(cells)} |"

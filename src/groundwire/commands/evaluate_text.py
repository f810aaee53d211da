"""Figures as a person or a program reads them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from groundwire.client.text import columns
from groundwire.quality.calibrate import Calibration
from groundwire.quality.figures import HEADINGS, Estimate
from groundwire.quality.judged import Counted
from groundwire.quality.measured import Measured


def report_lines(measured: Measured) -> Iterator[str]:
    """Yield the lines of a report: what was read, a table, and the verdicts at the threshold in force."""
    count = measured.counted
    yield (
        f"{measured.rows} rows from {measured.sources} sources: {count.supported} supported, "
        f"{count.unsupported} not" + (f"; {measured.bad_rows} bad, left out" if measured.bad_rows else "")
    )
    yield ""
    rows = [
        [method, *(estimate(figures[name]) for name in HEADINGS)]
        for method, figures in measured.methods.items()
    ]
    yield from columns([["method", *HEADINGS.values()], *rows])
    yield ""
    yield f"at support_threshold = {measured.support_threshold:g}: {verdicts(count)}"


def calibration_lines(found: Calibration) -> Iterator[str]:
    """Yield what was chosen, and what is to be expected of it."""
    yield f"chosen: support_threshold = {found.support_threshold:g}: {verdicts(found.chosen_on)}"
    yield f"on sources held out from the choice: {verdicts(found.held_out)}"


def estimate(given: Estimate) -> str:
    """Return a figure with its interval, `0.812 [0.77, 0.85]`."""
    return f"{given.value:.3f} [{given.low:.2f}, {given.high:.2f}]"


def verdicts(count: Counted) -> str:
    """Say how many verdicts were wrong, in both directions."""
    return (
        f"{count.false_alarms} of {count.supported} supported rows flagged ({_percent(count.false_alarm_share)}), "
        f"{count.missed} of {count.unsupported} others missed ({_percent(count.missed_share)})"
    )


def as_json(measured: Measured, found: Calibration | None) -> str:
    """Return everything as one line of JSON."""
    result: dict[str, Any] = {
        "rows": measured.rows,
        "bad_rows": measured.bad_rows,
        "sources": measured.sources,
        "support_threshold": measured.support_threshold,
        "verdicts": _counted(measured.counted),
        "methods": {
            method: {name: figure._asdict() for name, figure in figures.items()}
            for method, figures in measured.methods.items()
        },
    }
    if found is not None:
        result["calibration"] = {
            **found.keys,
            "chosen_on": _counted(found.chosen_on),
            "held_out": _counted(found.held_out),
        }
    return json.dumps(result, ensure_ascii=False)


def _counted(count: Counted) -> dict[str, Any]:
    return {
        **count._asdict(),
        "false_alarm_share": count.false_alarm_share._asdict(),
        "missed_share": count.missed_share._asdict(),
    }


def _percent(share: Estimate) -> str:
    return f"{100 * share.value:.1f} % [{100 * share.low:.1f}, {100 * share.high:.1f}]"

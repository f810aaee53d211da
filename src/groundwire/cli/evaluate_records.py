"""What `groundwire evaluate` prints of labelled claims and responses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from groundwire.cli.output import columns, cut
from groundwire.library.verdicts import JudgedRecord, Share, by_class, shares

_HEAD: Final = ("class", "rows", "leak", "over-hold")
_SHOWN: Final = 120  # characters of a text that was judged wrongly
_ALONE: Final = ("conflicts_caught", "false_conflicts", "wrong_duplicates")


def record_lines(judged: Sequence[JudgedRecord], bad: int, *, misses: bool) -> Iterator[str]:
    """Yield the lines of a report: what was read, a table by class, conflicts, and what was judged wrongly."""
    harmless = sum(one.harmless for one in judged)
    yield (
        f"{len(judged)} rows: {harmless} to approve, {len(judged) - harmless} to hold"
        + (f"; {bad} bad, left out" if bad else "")
    )
    if assumed := _assumed(judged):
        yield f'claims that name no source: {assumed}, taken for the user\'s own ("source": "user")'
    yield ""
    classes = {kind or "(none)": rows for kind, rows in by_class(judged).items()}
    rows = [_cells(kind, rows) for kind, rows in {"all": judged, **classes}.items()]
    yield from columns([_HEAD, *rows])
    figures = shares(judged)
    if figures["conflicts_caught"].total:
        yield ""
        yield from (f"{name.replace('_', ' ')}: {share(figures[name])}" for name in _ALONE)
    wrong = [one for one in judged if not one.right]
    if misses and wrong:
        yield ""
        yield from columns([("line", "class", "label", "came to", "reason", "text"), *map(_miss, wrong)])


def _assumed(judged: Sequence[JudgedRecord]) -> int:
    return sum(one.row.source_assumed for one in judged)


def _cells(kind: str, judged: Sequence[JudgedRecord]) -> tuple[str, ...]:
    figures = shares(judged)
    return (kind, str(len(judged)), share(figures["leak"]), share(figures["over_hold"]))


def share(given: Share) -> str:
    """Return a share with its interval, `5 of 32: 15.6 % [6.9, 31.8]`; a dash where there is nothing to share."""
    if not given.total:
        return "-"
    value, low, high = given.estimate
    return f"{given.found} of {given.total}: {100 * value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def _miss(one: JudgedRecord) -> tuple[str, ...]:
    row = one.row
    return (str(row.line), row.kind, row.label, str(one.outcome), one.reason, cut(row.text, _SHOWN))


def records_json(judged: Sequence[JudgedRecord], bad: int) -> str:
    """Return everything as one line of JSON, what was judged wrongly included."""
    result = {
        "rows": len(judged),
        "bad_rows": bad,
        "source_assumed": _assumed(judged),
        **_as_dict(judged),
        "classes": {kind: _as_dict(rows) for kind, rows in by_class(judged).items()},
        "misses": [
            {
                "line": one.row.line,
                "class": one.row.kind,
                "label": one.row.label,
                "outcome": one.outcome,
                "reason_code": one.reason,
                "text": one.row.text,
            }
            for one in judged
            if not one.right
        ],
    }
    return json.dumps(result, ensure_ascii=False)


def _as_dict(judged: Sequence[JudgedRecord]) -> Mapping[str, Any]:
    return {
        name: given._asdict() | (given.estimate._asdict() if given.total else {})
        for name, given in shares(judged).items()
    }

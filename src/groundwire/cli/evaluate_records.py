"""What `groundwire evaluate` prints of labelled claims and responses."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from groundwire.cli.output import columns, cut
from groundwire.library.verdicts import JudgedRecord, Share, by_class, shares


def record_lines(judged: Sequence[JudgedRecord], bad: int, *, misses: bool) -> Iterator[str]:
    """Yield the lines of a report: what was read, a table by class, conflicts, and what was judged wrongly."""
    harmless = sum(one.harmless for one in judged)
    yield (
        f"{len(judged)} rows: {harmless} to approve, {len(judged) - harmless} to hold"
        + (f"; {bad} bad, left out" if bad else "")
    )
    if assumed := sum(one.row.source_assumed for one in judged):
        yield f'claims that name no source: {assumed}, taken for the user\'s own ("source": "user")'
    yield ""
    table = [("class", "rows", "leak", "over-hold")]
    for kind, rows in {"all": judged, **by_class(judged)}.items():
        figures = shares(rows)
        table.append((kind or "(none)", str(len(rows)), share(figures["leak"]), share(figures["over_hold"])))
    yield from columns(table)
    figures = shares(judged)
    if figures["conflicts_caught"].total:
        yield ""
        for name in ("conflicts_caught", "false_conflicts", "wrong_duplicates"):
            yield f"{name.replace('_', ' ')}: {share(figures[name])}"
    wrong = [one for one in judged if not one.right]
    if misses and wrong:
        yield ""
        lines: list[tuple[str, ...]] = [("line", "class", "label", "came to", "reason", "text")]
        for one in wrong:
            row = one.row
            text = cut(row.text, 120)
            lines.append((str(row.line), row.kind, row.label, str(one.outcome), one.reason, text))
        yield from columns(lines)


def share(given: Share) -> str:
    """Return a share with its interval, `5 of 32: 15.6 % [6.9, 31.8]`; a dash where there is nothing to share."""
    if not given.total:
        return "-"
    value, low, high = given.estimate
    return f"{given.found} of {given.total}: {100 * value:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def records_json(judged: Sequence[JudgedRecord], bad: int) -> str:
    result = {
        "rows": len(judged),
        "bad_rows": bad,
        "source_assumed": sum(one.row.source_assumed for one in judged),
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

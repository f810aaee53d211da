"""What a replay found, for people and programs: a table, JSON, or a page of HTML."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from groundwire.errors import UsageError
from groundwire.replay.job import Job
from groundwire.replay.summary import Summary

_SHOWN: Final = 5
"""Fields that a line of the table names."""


def as_table(job: Job, summary: Summary) -> Iterator[str]:
    """Yield the lines of a table: counts, then each decision that came out otherwise."""
    outcomes = sum(summary.statuses.values())
    yield f"{summary.records} records replayed" + (
        f", {outcomes} outcomes" if outcomes != summary.records else ""
    )
    for status, count in sorted(summary.statuses.items()):
        yield f"{count:>9}  {status}"
    if summary.other_engine:
        yield f"{summary.other_engine:>9}  of another engine"
    moved = [(old, new, n) for (old, new), n in sorted(summary.reasons.items()) if old != new]
    if moved:
        yield ""
        yield f"{'decisions':>9}  recorded -> replayed"
    for old, new, count in moved:
        yield f"{count:>9}  {old} -> {new}"
    for index, (before, after, fields) in enumerate(job.changes()):
        if not index:
            yield ""
        yield _line(_plain(before), _plain(after), fields)


def as_json(job: Job, name: str, summary: Summary) -> Iterator[str]:
    """Yield the parts of one JSON object; each changed decision stands in it twice, as recorded and as derived."""
    head = {"name": name, **summary.as_json()}
    yield json.dumps(head, ensure_ascii=False)[:-1] + ', "changed": ['
    for index, (before, after, fields) in enumerate(job.changes()):
        change = {"fields": fields, "before": _plain(before), "after": _plain(after)}
        yield (", " if index else "") + json.dumps(change, ensure_ascii=False)
    yield "]}\n"


def as_html(job: Job, name: str, summary: Summary) -> Iterator[str]:
    """Yield the parts of an HTML page; whatever is put in is escaped.

    Raises:
        UsageError: Jinja2 is not installed.
    """
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined  # noqa: PLC0415 - an extra of its own
    except ImportError:
        raise UsageError("--html needs Jinja2: pip install 'groundwire[console]'") from None
    environment = Environment(
        loader=PackageLoader("groundwire.replay"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    changes = (
        {"before": _plain(before), "after": _plain(after), "fields": fields}
        for before, after, fields in job.changes()
    )
    return environment.get_template("report.html").generate(
        name=name, summary=summary.as_json(), changes=changes
    )


def _line(before: dict[str, Any] | None, after: dict[str, Any] | None, fields: list[str]) -> str:
    known = after or before or {}
    shown = " ".join(fields[:_SHOWN]) + (" ..." if len(fields) > _SHOWN else "")
    who = f"{known['tenant_id']}:{known['user_id']} {known['kind']} {known['subject_id']}"
    return f"{known['decision_id']}  {who}  {_short(before)} -> {_short(after)}  {shown}"


def _short(decision: dict[str, Any] | None) -> str:
    return f"{decision['verdict']} {decision['reason_code']}" if decision else "nothing"


def _plain(value: bytes | None) -> dict[str, Any] | None:
    return json.loads(value) if value is not None else None

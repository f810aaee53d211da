"""The parts of an item that its page and the terminal show: marked text, checks, citations, memories, history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final
from urllib.parse import urlsplit

from groundwire.console.words import TextMark, hidden_marks, label, marked_parts, quote_marks, word_diff
from groundwire.messages.base import format_time
from groundwire.review.model import Item, Nearest, Page, Related, SourceRecord
from groundwire.state.model import NOTING

_MOST_ROWS: Final = 100
DecisionView = Mapping[str, Any]


def item_parts(
    item: Item, memories: Sequence[Mapping[str, Any]], dependents: Page[Related]
) -> dict[str, Any]:
    """Return what is shown of an item, as JSON values; `dependents` are the approved claims that rest on it."""
    decision = item.decision
    return {
        **marked(decision, text_of(decision)),
        "checks": checks(decision),
        "citations": citations(decision),
        "warnings": warnings(decision),
        "report": report(decision),
        "memories": memories,
        "rests_on": related(item.parents),
        "resting": related(dependents.rows),
        "resting_total": dependents.total,
        "source": source(decision, item.source_record),
        "history": history(item),
    }


def memory_row(memory: Nearest, decision: DecisionView) -> dict[str, Any]:
    """Return what is shown of a memory beside a claim; `changes`: None where one of the texts is not available."""
    text = text_of(decision)
    return {
        "id": memory.decision_id,
        "revision": memory.revision,
        "subject_id": memory.subject_id,
        "state": memory.state,
        "since": memory.since,
        "similarity": f"{memory.similarity:.0%}",
        "difference": memory.difference if memory.difference != "none" else None,
        "verdict": str(memory.verdict) if memory.verdict else memory.match_class,
        "source": memory.source,
        "changes": word_diff(memory.text, text) if memory.text is not None and text is not None else None,
    }


def text_of(decision: DecisionView) -> str | None:
    """Return the claim; None of a response, whose text is not published."""
    found = (decision.get("evidence") or {}).get("claim")
    return found if isinstance(found, str) else None


def marked(decision: DecisionView, text: str | None) -> dict[str, Any]:
    if text is None:
        return {"segments": None, "legend": []}
    quotes = ((decision.get("report") or {}).get("quotes") or {}).get("validated") or {}
    marks = quote_marks(text, [quote for found in quotes.values() for quote in found])
    for hedge in decision["hedges"]:
        kind = "hedge-block" if hedge["action"] == "block" else "hedge-review"
        marks.append(TextMark(hedge["start"], hedge["end"], kind, f"hedge: {label(hedge['category'])}"))
    for cited in decision["citations"]:
        kind, title = f"citation-{cited['state']}", f"citation: {label(cited['state'])}"
        marks.append(TextMark(cited["start"], cited["end"], kind, title))
    legend = [
        {"kind": mark.kind, "text": text[mark.start : mark.end], "title": mark.title}
        for mark in sorted(marks)
        if text[mark.start : mark.end]
    ]
    found = marked_parts(text, [*marks, *hidden_marks(text)])
    return {"segments": found, "legend": list({tuple(entry.items()): entry for entry in legend}.values())}


def checks(decision: DecisionView) -> list[dict[str, str]]:
    flagged = any(check.startswith(("flagged_claims", "critical_gap")) for check in decision["checks_failed"])
    return [
        {
            "result": result,
            "name": name.removesuffix("_skipped"),
            "detail": label(detail) if result == "skipped" and detail else detail,
        }
        for result in ("failed", "passed", "skipped")
        for name, _, detail in (check.partition(": ") for check in decision[f"checks_{result}"])
        if not (flagged and name == "values_supported")  # a wrong value of a claim is no fine value
    ]


def citations(decision: DecisionView) -> list[dict[str, Any]]:
    """Return the citations; a link gets only what the gate verified: http or https, of printable ASCII."""
    rows = []
    for citation in decision["citations"]:
        value, linked = citation["value"], False
        if citation["state"] == "verified" and value.isascii() and value.isprintable() and " " not in value:
            with suppress(ValueError):
                parts = urlsplit(value)
                web = parts.scheme in ("http", "https") and bool(parts.hostname)
                linked = web and "@" not in parts.netloc
        copied = {name: citation[name] for name in ("type", "value", "state", "detail", "checked_at")}
        rows.append(copied | {"url": value if linked else None})
    return rows


def warnings(decision: DecisionView) -> list[dict[str, str]]:
    found = (decision.get("report") or {}).get("warnings") or []
    return [
        {"type": str(warning.get("type", "")), "message": str(warning.get("message", ""))}
        for warning in found[:_MOST_ROWS]
    ]


def report(decision: DecisionView) -> list[dict[str, Any]]:
    """Return the sections of a response's report as rows of path and value; single values come first."""
    found = {name: part for name, part in (decision.get("report") or {}).items() if name != "warnings"}
    single = {name: part for name, part in found.items() if not isinstance(part, dict | list)}
    sections = [("summary", single), *((name, part) for name, part in found.items() if name not in single)]
    return [
        {"name": name, "rows": [{"name": path, "value": value} for path, value in rows]}
        for name, part in sections
        if (rows := leaves(part))
    ]


def leaves(value: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - any JSON value
    """Return the values within a value, each with its path, at most so many as a page shows."""
    return list(islice(_leaves(value), _MOST_ROWS))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict) and path and all(not isinstance(part, dict | list) for part in value.values()):
        said = [f"{name}: {_said(part)}" for name, part in value.items() if part is not None]
        yield path, ", ".join(said)
    elif isinstance(value, dict):
        for name, part in value.items():
            yield from _leaves(part, f"{path} {name}".strip())
    elif isinstance(value, list):
        for place, part in enumerate(value, start=1):
            yield from _leaves(part, f"{path} {place}".strip())
    elif value is not None:
        yield path or "value", _said(value)


def _said(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def related(claims: Sequence[Related]) -> list[dict[str, Any]]:
    return [
        {"name": one.name, "id": one.decision_id, "state": one.state or None, "excerpt": one.excerpt}
        | {"reason_code": one.reason_code or None}
        for one in claims
    ]


def source(decision: Mapping[str, Any], record: SourceRecord) -> dict[str, Any] | None:
    if decision["source"] is None:
        return None
    judged = record.human_approved + record.human_rejected
    return {
        "name": decision["source"],
        "total": record.approved + record.blocked,
        "facts": [
            {"name": "approved", "value": record.approved},
            {"name": "blocked", "value": record.blocked},
            {"name": "approved by people", "value": record.human_approved},
            {"name": "rejected by people", "value": record.human_rejected},
        ],
        "approval": f"{record.human_approved / judged:.0%}" if judged else None,
    }


def history(item: Item) -> list[dict[str, Any]]:
    names = ("revision", "verdict", "reason_code", "at", "actor", "note", "id", "text")
    applied = {one.decision_id: one for one in item.attempts if one.applied and one.action not in NOTING}
    rows: list[tuple[Any, ...]] = []
    for one in item.history:
        made = applied.get(one.decision_id)
        what = one.revision, str(one.verdict), one.reason_code, format_time(one.decided_at)
        rows.append((*what, one.reviewer, one.review_reason, one.decision_id, made and made.note))
    for each in item.attempts:
        if not each.applied:
            refused = None, "refused", each.outcome, format_time(each.at)
            rows.append((*refused, each.actor, each.action, None, None))
        elif each.action in NOTING:
            rows.append((None, each.action, "", format_time(each.at), each.actor, None, None, each.note))
    steps = [dict(zip(names, row, strict=True)) for row in rows]
    return sorted(steps, key=lambda step: str(step["at"]))

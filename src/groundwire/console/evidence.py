"""What an item's page shows of a Decision: marked text, checks, citations, report, dependencies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final
from urllib.parse import urlsplit

from groundwire.console.site import Call
from groundwire.console.words import TextMark, hidden_marks, label, quote_marks, segments
from groundwire.review.model import Item, Related

_MOST_ROWS: Final = 100
DecisionView = Mapping[str, Any]


def text_of(decision: DecisionView) -> str | None:
    """Return the claim; None of a response, whose text is not published."""
    found = (decision.get("evidence") or {}).get("claim")
    return found if isinstance(found, str) else None


def marked(decision: DecisionView, text: str | None) -> dict[str, Any]:
    """Return the text in segments, and what is marked in it."""
    if text is None:
        return {"segments": None, "legend": []}
    marks = [*_hedges(decision), *_cited(decision), *_quoted(decision, text)]
    legend = [
        {"kind": mark.kind, "text": text[mark.start : mark.end], "title": mark.title}
        for mark in sorted(marks)
        if text[mark.start : mark.end]
    ]
    cut = segments(text, [*marks, *hidden_marks(text)])
    found = [{"text": part.text, "kinds": part.kinds, "title": part.title} for part in cut]
    return {"segments": found, "legend": list({tuple(entry.items()): entry for entry in legend}.values())}


def checks(decision: DecisionView) -> list[dict[str, str]]:
    """Return every check with its result; failed ones first."""
    return [
        {"result": result, "name": name.removesuffix("_skipped"), "detail": _why(result, detail)}
        for result in ("failed", "passed", "skipped")
        for name, _, detail in (check.partition(": ") for check in decision[f"checks_{result}"])
    ]


def _why(result: str, detail: str) -> str:
    return label(detail) if result == "skipped" and detail else detail


def citations(decision: DecisionView) -> list[dict[str, Any]]:
    """Return the citations; only those that the gate verified get a link."""
    return [
        {
            "type": citation["type"],
            "value": citation["value"],
            "state": citation["state"],
            "detail": citation["detail"],
            "checked_at": citation["checked_at"],
            "url": citation["value"] if _is_link(citation) else None,
        }
        for citation in decision["citations"]
    ]


def warnings(decision: DecisionView) -> list[dict[str, str]]:
    """Return the warnings of a response's report."""
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
    rows = [
        {
            "name": name,
            "rows": [{"name": path, "value": value} for path, value in leaves(part)],
        }
        for name, part in sections
    ]
    return [section for section in rows if section["rows"]]


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


def _hedges(decision: DecisionView) -> Iterator[TextMark]:
    for hedge in decision["hedges"]:
        kind = "hedge-block" if hedge["action"] == "block" else "hedge-review"
        yield TextMark(hedge["start"], hedge["end"], kind, f"hedge: {label(hedge['category'])}")


def _cited(decision: DecisionView) -> Iterator[TextMark]:
    for citation in decision["citations"]:
        title = f"citation: {label(citation['state'])}"
        yield TextMark(citation["start"], citation["end"], f"citation-{citation['state']}", title)


def _quoted(decision: DecisionView, text: str) -> list[TextMark]:
    quotes = ((decision.get("report") or {}).get("quotes") or {}).get("validated") or {}
    return quote_marks(text, [quote for found in quotes.values() for quote in found])


def _is_link(citation: Mapping[str, Any]) -> bool:
    """Say whether a page links a citation: http or https, printable ASCII, and verified by the gate."""
    value = citation["value"]
    if citation["state"] != "verified" or not value.isascii() or not value.isprintable() or " " in value:
        return False
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def dependents(call: Call, item: Item) -> dict[str, Any]:
    """Return the approved claims that rest on an item, and their number."""
    page = call.site.board.dependents(call.scope, item.current)
    return {"resting": [related_row(one) for one in page.rows], "resting_total": page.total}


def related_row(related: Related) -> dict[str, Any]:
    """Return what a page shows of an item's parent or dependent."""
    return {
        "name": related.name,
        "id": related.decision_id,
        "state": related.state or None,
        "excerpt": related.excerpt,
    }

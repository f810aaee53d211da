"""The report of a response's decision: part by part what held and what did not, within its limits of size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

from groundwire.checks.fields import FieldCheckResult
from groundwire.checks.quotes import QuoteGrounding
from groundwire.checks.sources import SourceReport
from groundwire.decide.response_reading import found
from groundwire.decide.responses import ResponseCase

_DETAILS: Final = "details"
_OPEN = frozenset({"validated", "rejected_by_domain", "hop_evidence", _DETAILS})
"""Parts whose keys come from the record: they are shortened like lists, at any depth."""
_CODES = frozenset(
    {
        *("type", "reason", "category", "severity", "stage", "mode", "why", "fallback"),
        *("gap_type", "flag_reason", "method", "kind", "suggested_action"),
    }
)
"""Parts that hold words of ours: they are short, and a consumer compares them."""
_KEY: Final = 40  # characters of a key that stay, however little room there is: our own are shorter
_NODES: Final = 100
"""Values of such a part for each entry that a list may have: lists of five within lists of five have no end."""


def report_of(case: ResponseCase) -> dict[str, Any]:
    """Return the whole report; sections whose check did not run are None."""
    reading, response = case.reading, case.response
    sources, fields, quotes = found(reading.sources), found(reading.fields), found(reading.quotes)
    entities, relations = found(reading.entities), found(reading.relations)
    claims = found(reading.claims)
    regeneration = case.regeneration
    return {
        "sources": _sources(sources) if sources else None,
        "fields": _fields(fields) if fields else None,
        "quotes": _quotes(quotes) if quotes else None,
        "entities": entities.as_report() if entities else None,
        "relations": relations.as_report(response.hop_results or []) if relations else None,
        "epistemic": claims.as_report() if claims else None,
        "warnings": [warning.as_dict() for warning in case.warnings],
        "validation": _validation(case),
        "confidence": case.confidence,
        "fallback": case.fallback,
        "fallback_chunks": [c.chunk_id for c in response.chunks or ()] if case.fallback else None,
        "attempt": case.attempt,
        "regenerate": regeneration._asdict() if regeneration else None,
    }


def shorten(
    report: Mapping[str, Any], entries: int, characters: int
) -> tuple[dict[str, Any], dict[str, int]]:
    """Cut lists and strings of a report.

    Parts whose keys come from the record may nest: of each, `_NODES` values for each entry that a list may have
    are kept, depth first.

    Returns:
        The report, and dotted name of each cut list -> entries left out of it, those of its parts together.
    """
    cutter = _Cutter(entries, characters)
    return {
        name: cutter.cut(value, f"report.{name}", name) for name, value in report.items()
    }, cutter.left_out


class _Cutter:
    """Cuts a report to lists of so many entries and strings of so many characters, and counts what it leaves out."""

    def __init__(self, entries: int, characters: int) -> None:
        self.left_out: dict[str, int] = {}
        self._entries = entries
        self._characters = characters
        self._nodes = 0  # that the open part may still have
        self._key = characters  # that its keys may have

    def cut(self, value: Any, path: str, name: str) -> Any:  # noqa: ANN401 - any JSON value
        """Cut a part of fixed keys."""
        if name in _OPEN:
            self._nodes = _NODES * self._entries
            self._key = max(self._characters, _KEY) if name == _DETAILS else self._characters
            return self._cut_open(value, path)
        if isinstance(value, list | tuple):
            self._count(path, len(value) - self._entries)
            return [self.cut(item, path, "") for item in value[: self._entries]]
        if isinstance(value, Mapping):
            return {key: self.cut(item, f"{path}.{key}", key) for key, item in value.items()}
        return value[: self._characters] if isinstance(value, str) and name not in _CODES else value

    def _cut_open(self, value: Any, path: str) -> Any:  # noqa: ANN401 - any JSON value
        """Cut a part whose keys come from the record: they name nothing, and are cut like strings."""
        self._nodes -= 1
        if isinstance(value, list | tuple):
            kept = []
            for item in value[: self._entries]:
                if self._nodes <= 0:
                    break
                kept.append(self._cut_open(item, path))
            self._count(path, len(value) - len(kept))
            return kept
        if isinstance(value, Mapping):
            named: dict[str, Any] = {}
            for key, item in value.items():
                if self._nodes <= 0 or len(named) == self._entries:
                    break
                # of two keys that begin alike only the first is kept: it would be overwritten unseen
                if (name := str(key)[: self._key]) not in named:
                    named[name] = self._cut_open(item, path)
            self._count(path, len(value) - len(named))
            return named
        return value[: self._characters] if isinstance(value, str) else value

    def _count(self, path: str, more: int) -> None:
        if more > 0:
            self.left_out[path] = self.left_out.get(path, 0) + more


def _sources(found: SourceReport) -> dict[str, Any]:
    results = [
        {
            "file": file,
            "exists": result.exists,
            "snippet_valid": result.snippet_valid,
            "lines_match": result.lines_match,
            "confidence": round(result.confidence, 4),
        }
        for file, result in found.results
    ]
    return {"results": results, "confidence": round(found.confidence, 4)}


def _fields(found: FieldCheckResult) -> dict[str, Any]:
    return {
        "verified": list(found.verified),
        "unverified": list(found.unverified),
        "confidence": round(found.confidence, 4),
    }


def _quotes(found: QuoteGrounding) -> dict[str, Any]:
    section = asdict(found.stats) | {"validated": found.validated}
    return section | {"failure": found.failure} if found.failure else section


def _validation(case: ResponseCase) -> dict[str, Any]:
    """Return the counts in the seed's spelling (S2-36)."""
    sources, fields = found(case.reading.sources), found(case.reading.fields)
    results = [result for _, result in sources.results] if sources else []
    verified, unverified = (fields.verified, fields.unverified) if fields else ((), ())
    return {
        "sourcesVerified": sum(result.confidence == 1 for result in results),
        "sourcesTotal": len(results),
        "fieldsVerified": len(verified),
        "fieldsTotal": len(verified) + len(unverified),
        "confidence": case.confidence,
    }

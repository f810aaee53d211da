"""The report of a response's decision: part by part what held and what did not, within its limits of size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from groundwire.checks.fields import FieldCheckResult
from groundwire.checks.quotes import QuoteGrounding
from groundwire.checks.sources import SourceReport
from groundwire.decide.response_reading import found
from groundwire.decide.responses import ResponseCase

_OPEN = frozenset({"validated", "rejected_by_domain", "hop_evidence", "details"})
"""Parts whose keys come from the record: they are shortened like lists, at any depth."""


def report_of(case: ResponseCase) -> dict[str, Any]:
    """Return the whole report; sections whose check did not run are None."""
    reading, response = case.reading, case.response
    sources, fields, quotes = found(reading.sources), found(reading.fields), found(reading.quotes)
    entities, relations = found(reading.entities), found(reading.relations)
    regeneration = case.regeneration
    return {
        "sources": _sources(sources) if sources else None,
        "fields": _fields(fields) if fields else None,
        "quotes": _quotes(quotes) if quotes else None,
        "entities": entities.as_report() if entities else None,
        "relations": relations.as_report(response.hop_results or []) if relations else None,
        "epistemic": None,
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

    Returns:
        The report, and dotted name of each cut list -> entries left out of it, those of its parts together.
    """
    left_out: dict[str, int] = {}

    def cut(value: Any, path: str, *, is_open: bool) -> Any:  # noqa: ANN401 - any JSON value
        if isinstance(value, str):
            return value[:characters]
        if isinstance(value, list | tuple):
            _count(left_out, path, len(value) - entries)
            return [cut(item, path, is_open=is_open) for item in value[:entries]]
        if isinstance(value, Mapping):
            items = list(value.items())
            if is_open:
                _count(left_out, path, len(items) - entries)
                items = items[:entries]
            return {
                str(key)[:characters]: cut(item, _join(path, key, is_open), is_open=is_open or key in _OPEN)
                for key, item in items
            }
        return value

    return {
        name: cut(value, f"report.{name}", is_open=name in _OPEN) for name, value in report.items()
    }, left_out


def _join(path: str, key: object, is_open: bool) -> str:  # noqa: FBT001 - private
    """Name a part; keys that come from the record name nothing."""
    return path if is_open else f"{path}.{key}"


def _count(left_out: dict[str, int], path: str, more: int) -> None:
    if more > 0:
        left_out[path] = left_out.get(path, 0) + more


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

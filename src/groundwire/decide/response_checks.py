"""The lists of checks of a response's decision, in the order of the contract's table."""

from __future__ import annotations

from collections.abc import Iterator

from groundwire.checks.entities import EntityGrounding
from groundwire.checks.fields import FieldCheckResult
from groundwire.checks.quotes import QuoteGrounding
from groundwire.checks.relations import RelationPreservation
from groundwire.checks.source_tags import TagReport
from groundwire.checks.sources import SourceReport
from groundwire.checks.stale_index import IndexReport
from groundwire.checks.values import ValueReport
from groundwire.decide.checks import Checks, list_place
from groundwire.decide.response_claims import ClaimReport
from groundwire.decide.response_reading import Broken, Skipped
from groundwire.decide.responses import SUFFICIENT, ResponseCase

_PASSED = {
    "sources": "sources_verified",
    "index": "index_current",
    "fields": "fields_verified",
    "source_tags": "source_tags_present",
    "quotes": "quotes_grounded",
    "entities": "entities_grounded",
    "relations": "relations_preserved",
    "values": "values_supported",
    "claims": "claims_supported",
}
"""Check -> what it says where it holds; each is an attribute of the reading."""


def list_response_checks(case: ResponseCase) -> Checks:
    """Name every check of a response as `name` or `name: detail`."""
    checks = Checks()
    # versions have no name of their own among the checks
    unknown_versions = isinstance(case.reading.versions, Broken)
    for name, passed in _PASSED.items():
        found = case.reading.versions if name == "index" and unknown_versions else getattr(case.reading, name)
        if isinstance(found, Skipped):
            checks.skipped.append(f"{name}_skipped: {found.why}")
        elif isinstance(found, Broken):
            checks.failed.append(f"{name}_unavailable")
        else:
            checks.add(passed, list(_failures(found)))
    low = case.confidence < SUFFICIENT
    checks.add("confidence_sufficient", [f"low_confidence: {case.confidence:g}"] if low else [])
    list_place(case.facts.place, checks)
    if case.response.fan_out and case.facts.extraction is None:
        checks.skipped.append("fan_out_skipped: disabled")
    return checks


def _failures(found: object) -> Iterator[str]:  # noqa: C901, PLR0912 - one arm for each check, in the table's words
    match found:
        case SourceReport():
            yield from (f"phantom_file: {file}" for file in dict.fromkeys(found.phantom_files))
            yield from (f"snippet_mismatch: {file}" for file in dict.fromkeys(found.mismatched_files))
        case IndexReport():
            yield from (f"stale_index: {file}" for file in found.stale)
        case FieldCheckResult():
            if found.unverified:
                yield f"unverified_fields: {', '.join(found.unverified)}"
        case TagReport():
            if found.missing:
                yield f"source_tags_missing: {len(found.missing)}"
            yield from (f"source_tag_phantom: {tag}" for tag in dict.fromkeys(found.phantom))
        case QuoteGrounding():
            if found.stats.rejected_count:
                yield f"quotes_rejected: {found.stats.rejected_count} of {found.stats.extracted_count}"
            domains = dict.fromkeys(note.domain for note in found.polarity)
            yield from (f"quote_polarity: {domain}" for domain in domains)
        case EntityGrounding():
            if found.missing:
                yield f"entity_grounding_failed: {len(found.missing)}"
        case RelationPreservation():
            if found.violations:
                yield f"relation_preservation_failed: {len(found.violations)}"
        case ValueReport():
            if found.unsupported:
                yield f"values_unsupported: {len(found.unsupported) + found.left_out}"
        case ClaimReport():
            if found.unheld:
                yield f"flagged_claims: {found.unheld}"
            if found.critical:
                yield f"critical_gap: {found.critical}"
            if found.over_budget:
                yield "claims_unavailable"

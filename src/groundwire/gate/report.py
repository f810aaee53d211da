"""What a decision lists: the checks of a claim or response, and the report of a response, each within its limits.

Checks stand in the order in which the gate looks, as in the contract's table (S0-03, S0-149, S0-150, S0-159, X-02).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from groundwire.gate.claim_case import ClaimCase
from groundwire.gate.response_case import SUFFICIENT, ResponseCase
from groundwire.gate.response_checks import RESPONSE_CHECKS, Broken, Skipped, result_of
from groundwire.messages.decisions import DedupMatch, Place

REVIEW_PLACE = "review_place"
"""The check of what has a place in the queue, and only of that."""

_FULL = {Place.USER_FULL: "user", Place.TENANT_FULL: "tenant", Place.TOTAL_FULL: "total"}


@dataclass(slots=True)
class Checks:
    """What held, what did not, and what was not looked at; each check is in one of them, once or more."""

    passed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add(self, passed: str, failed: list[str]) -> None:
        if failed:
            self.failed += failed
        else:
            self.passed.append(passed)


def list_checks(case: ClaimCase, *, joined: bool = False) -> Checks:
    """Name every check of a claim as `name` or `name: detail`; `joined`: whether it follows a pending one."""
    checks = Checks()
    if case.facts.error:  # the text was not read: nothing is known of hedges and citations
        checks.failed += ["hedges_unavailable", "citation_unavailable", "citation_verification_unavailable"]
    else:
        words = ", ".join(case.reading.hedge_words)
        failed = [f"hedge_words_detected: {words}"] if words else []
        if case.reading.hidden:
            failed.append(f"hidden_text: {', '.join(case.reading.hidden)}")
        checks.add("no_speculation", failed)
    _dedup(case, checks, joined=joined)
    if not case.facts.error:
        _citations(case, checks)
    _relevance(case, checks)
    _source(case, checks)
    _parents(case, checks)
    if case.claim.validity_horizon is None:
        checks.skipped.append("validity_skipped")
    else:
        checks.add("not_expired", ["expired"] if case.expired else [])
    list_place(case.facts.place, checks)
    return checks


def list_place(place: Place, checks: Checks) -> None:
    if place in _FULL:
        checks.failed.append(f"review_queue_full: {_FULL[place]}")
    elif place == Place.FREE:
        checks.passed.append(REVIEW_PLACE)


def _dedup(case: ClaimCase, checks: Checks, *, joined: bool) -> None:
    if case.dedup.status == "disabled":
        checks.skipped += ["dedup_skipped", "previously_rejected_skipped"]
    elif case.dedup.status == "failed":
        checks.failed += ["dedup_check_failed", "previously_rejected_unavailable"]
    else:
        matches = case.matches
        failed = [f"duplicate: {matches.duplicate.subject_id}"] if matches.duplicate else []
        if conflict := matches.conflict:
            failed.append(f"conflicting_near_duplicate: {conflict.subject_id}: {conflict.difference}")
        checks.add(_not_duplicate(matches.pending if joined else None), failed)
        rejected = [f"previously_rejected: {matches.rejected.subject_id}"] if matches.rejected else []
        checks.add("not_previously_rejected", rejected)


def _not_duplicate(followed: DedupMatch | None) -> str:
    """Name the check that passed, and the pending claim that is followed though its words are others."""
    if followed is None or followed.inter == followed.union:
        return "not_duplicate"
    return f"not_duplicate: {followed.subject_id}: in other words"


def _citations(case: ClaimCase, checks: Checks) -> None:
    if not case.reading.citations:
        checks.failed.append("citation_missing")
        checks.skipped.append("citation_verification_skipped")
        return
    checks.passed.append("citation_present")
    verified = {citation.label for citation in case.verified}
    for label in dict.fromkeys(citation.label for citation in case.reading.citations):
        if label in verified:
            checks.passed.append(f"citation_verified: {label}")
        else:
            checks.failed.append(f"citation_unverified: {label}")


def _relevance(case: ClaimCase, checks: Checks) -> None:
    if not case.policy.verify_claim_relevance or not case.verified:
        checks.skipped.append("relevance_skipped")
        return
    checks.add("citation_relevant", [f"citation_irrelevant: {label}" for label in case.irrelevant])


def _source(case: ClaimCase, checks: Checks) -> None:
    source = case.claim.source
    if case.unattested:
        checks.failed.append(f"source_unattested: {source}")
    elif source in case.policy.trusted_sources:
        checks.passed.append(f"trusted_source: {source}")
    else:
        checks.failed.append(f"source_not_trusted: {source}")


def _parents(case: ClaimCase, checks: Checks) -> None:
    if not case.claim.derived_from:
        checks.skipped.append("parents_skipped")
    elif case.facts.parents is None:
        checks.failed.append("parents_unavailable")
    else:
        failed = [f"derived_from_unapproved: {parent}" for parent in dict.fromkeys(case.unapproved_parents)]
        checks.add("parents_approved", failed)


def list_response_checks(case: ResponseCase) -> Checks:
    """Name every check of a response as `name` or `name: detail`."""
    checks = Checks()
    unknown_versions = isinstance(case.reading.versions, Broken)  # they are listed with the index
    for check in RESPONSE_CHECKS:
        if not check.passed:
            continue
        section = getattr(case.reading, check.name)
        if isinstance(section, Broken) or (check.name == "index" and unknown_versions):
            checks.failed.append(f"{check.name}_unavailable")
        elif isinstance(section, Skipped):
            checks.skipped.append(f"{check.name}_skipped: {section.why}")
        else:
            checks.add(check.passed, list(check.failures(section)))
    if case.grounding_attested is not None:
        checks.add("grounding_attested", [] if case.grounding_attested else ["grounding_unattested"])
    low = case.confidence < SUFFICIENT
    checks.add("confidence_sufficient", [f"low_confidence: {case.confidence:g}"] if low else [])
    list_place(case.facts.place, checks)
    if case.response.fan_out and case.facts.extraction is None:
        checks.skipped.append("fan_out_skipped: disabled")
    return checks


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
    sections = {check.section[0]: None for check in RESPONSE_CHECKS if check.section[0]}
    ran = {
        check.section[0]: check.section[1](result, case.response)
        for check, result in case.reading.results
        if check.section[0]
    }
    regeneration = case.regeneration
    return {
        **sections,
        **ran,
        "warnings": [warning.as_dict() for warning in case.warnings],
        "validation": _validation(case),
        "confidence": case.confidence,
        "fallback": case.fallback,
        "fallback_chunks": [c.chunk_id for c in case.response.chunks or ()] if case.fallback else None,
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
        if name in _OPEN:
            self._nodes = _NODES * self._entries
            self._key = max(self._characters, _KEY) if name == _DETAILS else self._characters
            return self._cut_open(value, path)
        if isinstance(value, str):
            return value if name in _CODES else value[: self._characters]
        if value is None or isinstance(value, int | float):  # before what takes longer to tell
            return value
        if isinstance(value, list | tuple):
            self._count(path, len(value) - self._entries)
            return [self.cut(item, path, "") for item in value[: self._entries]]
        if isinstance(value, Mapping):
            return {key: self.cut(item, f"{path}.{key}", key) for key, item in value.items()}
        return value

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


def _validation(case: ResponseCase) -> dict[str, Any]:
    """Return the counts in camel case (S2-36)."""
    sources, fields = result_of(case.reading.sources), result_of(case.reading.fields)
    results = [result for _, result in sources.results] if sources else []
    verified, unverified = (fields.verified, fields.unverified) if fields else ((), ())
    return {
        "sourcesVerified": sum(result.confidence == 1 for result in results),
        "sourcesTotal": len(results),
        "fieldsVerified": len(verified),
        "fieldsTotal": len(verified) + len(unverified),
        "confidence": case.confidence,
    }

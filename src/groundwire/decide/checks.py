"""The lists of checks of a claim's decision, in the order in which the gate looks (S0-03, S0-159)."""

from __future__ import annotations

from dataclasses import dataclass, field

from groundwire.decide.claims import ClaimCase
from groundwire.messages.decisions import Place

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
        """Record the failures of a check, or that it passed where there are none."""
        if failed:
            self.failed += failed
        else:
            self.passed.append(passed)


def list_checks(case: ClaimCase) -> Checks:
    """Name every check of a claim as `name` or `name: detail`."""
    checks = Checks()
    if case.facts.error:  # the text was not read: nothing is known of hedges and citations
        checks.failed += ["hedges_unavailable", "citation_unavailable", "citation_verification_unavailable"]
    else:
        words = ", ".join(case.reading.hedge_words)
        checks.add("no_speculation", [f"hedge_words_detected: {words}"] if words else [])
    _dedup(case, checks)
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
    """Say what became of a place in the queue, where one was asked for."""
    if place in _FULL:
        checks.failed.append(f"review_queue_full: {_FULL[place]}")
    elif place == Place.FREE:
        checks.passed.append(REVIEW_PLACE)


def _dedup(case: ClaimCase, checks: Checks) -> None:
    if case.dedup.status == "disabled":
        checks.skipped += ["dedup_skipped", "previously_rejected_skipped"]
    elif case.dedup.status == "failed":
        checks.failed += ["dedup_check_failed", "previously_rejected_unavailable"]
    else:
        found = case.bearing
        failed = [f"duplicate: {found.duplicate.subject_id}"] if found.duplicate else []
        if found.conflict:
            failed.append(
                f"conflicting_near_duplicate: {found.conflict.subject_id}: {found.conflict.difference}"
            )
        checks.add("not_duplicate", failed)
        rejected = [f"previously_rejected: {found.rejected.subject_id}"] if found.rejected else []
        checks.add("not_previously_rejected", rejected)


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

"""What a sample of claims would take of the review queue, and what would ground the claims that people must decide."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from math import ceil
from typing import Final

from groundwire.messages.decisions import CitationState, Decision, Kind, Place
from groundwire.policy import Limits

_DAY: Final = 86_400
_SAMPLE: Final = 20
_CAUSES: Final = {
    "hedged": "hold a hedge: state what is known, or leave the claim out",
    "not_found": "cite what is not there: correct what they cite",
    "unknown": "cite what could not be looked up here: give --adr-dir, --repo or the network",
    "unsigned": "name a trusted source and are not signed: sign them (`groundwire keys new --source`)",
    "uncited": 'cite nothing: name the ADR, commit, issue or URL that says so, as in "Per ADR-003, ..."',
    "other": "are held for another reason, which stands in their line",
}
"""Why claims need a person, first that applies, and what to do about it."""


class PlaceForecast:
    """Counts the claims of a sample that need a place, by user and by what would ground them."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._claims = self._refused = 0
        self._users: Counter[tuple[str, str]] = Counter()
        self._causes: Counter[str] = Counter()
        self._first: datetime | None = None
        self._last: datetime | None = None

    @property
    def refused(self) -> int:
        """Claims that found no place."""
        return self._refused

    def add(self, decision: Decision) -> None:
        if decision.kind is not Kind.CLAIM or decision.evidence is None:
            return
        self._claims += 1
        at = decision.evidence.capture_time
        self._first, self._last = min(at, self._first or at), max(at, self._last or at)
        place = decision.facts.place
        if place is not Place.NOT_NEEDED:
            self._refused += place is not Place.FREE
            self._users[decision.tenant_id, decision.user_id] += 1
            self._causes[_cause(decision)] += 1

    def lines(self) -> Iterator[str]:
        """Yield what to print; nothing where no claim needs a place, or where so few claims are no sample."""
        if not self._users or (self._claims < _SAMPLE and not self._refused):
            return
        days = max((self._last - self._first).total_seconds() / _DAY, 1) if self._first and self._last else 1
        needed, limits = self._users.total(), self._limits
        tenants: Counter[str] = Counter()
        for (tenant, _), count in self._users.items():
            tenants[tenant] += count
        (_, user), most = self._users.most_common(1)[0]
        _, of_tenant = tenants.most_common(1)[0]
        span = f"{days:.0f} days" if days > 1 else "one day"
        yield f"{needed} of {self._claims} claims need a place in review; the sample counts as {span}. Places a day:"
        yield f"  {ceil(most / days)} of user {user}; review_per_user is {limits.review_per_user}"
        yield f"  {ceil(of_tenant / days)} of one tenant; review_per_tenant is {limits.review_per_tenant}"
        yield f"  {ceil(needed / days)} in all; review_total is {limits.review_total}"
        yield "A place is taken until a person decides."
        if self._refused:
            yield (
                f"{self._refused} claims found no place and were blocked. Ground them, decide more a day, or raise the"
                " limit under [limits] of the policy."
            )
        yield "What would ground them:"
        for cause, count in self._causes.most_common():
            yield f"  {count} {_CAUSES[cause]}"


def _cause(decision: Decision) -> str:
    failed = {check.partition(":")[0] for check in decision.checks_failed}
    states = {citation.state for citation in decision.citations}
    if "hedge_words_detected" in failed:
        return "hedged"
    if CitationState.NOT_FOUND in states:
        return "not_found"
    if states & {CitationState.UNKNOWN, CitationState.NOT_CHECKED}:
        return "unknown"
    if "source_unattested" in failed:
        return "unsigned"
    return "uncited" if "citation_missing" in failed else "other"

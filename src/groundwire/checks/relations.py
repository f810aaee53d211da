"""Relation preservation: what an answer says of two things has to be what the sources say (S3-15..S3-27)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import repeat
from typing import Any

from groundwire.checks.grounding import MAX_ID, bounded
from groundwire.checks.relation_index import RelationIndex
from groundwire.checks.statements import Statement, read_statement
from groundwire.messages.events import Event
from groundwire.messages.responses import RelationClaim

__all__ = [
    "Claim",
    "RelationIndex",
    "RelationPreservation",
    "RelationReason",
    "Truths",
    "Violation",
    "preserve_each",
    "preserve_relations",
]

Claim = RelationClaim | Mapping[str, Any]
"""A relation `{subject, relation, object, timestamp?, version?, qualifiers?}`, stated or as ground truth."""
Truths = RelationIndex | Iterable[Claim]


class RelationReason(StrEnum):
    """What is wrong with a relation; the list is closed, and violations of a claim come in this order."""

    MISSING_SOURCE = "missing_source"
    VERSION_MISMATCH = "version_mismatch"
    RELATION_MISMATCH = "relation_mismatch"
    TIMESTAMP_MISMATCH = "timestamp_mismatch"
    MISSING_QUALIFIER = "missing_qualifier"


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that a claim says otherwise than the ground truth; one claim may have several (S3-20).

    Attributes:
        index: Place of the claim among the claims, from 0.
        reason: A member of `RelationReason`.
        expected_version: Of a version mismatch, the version as the ground truth writes it (S3-18).
        detail: `inverted` where the ground truth stands the other way round (S3-24); the names of the missing
            qualifiers.
    """

    index: int
    reason: str
    expected_version: str | None = None
    detail: str | None = None

    def as_dict(self, *, detailed: bool = True) -> dict[str, Any]:
        """The entry of report and event, without what it does not have; events leave `detail` out."""
        shown: dict[str, Any] = {"index": self.index, "reason": str(self.reason)}
        if self.expected_version is not None:
            shown["expected_version"] = self.expected_version
        if detailed and self.detail is not None:
            shown["detail"] = self.detail
        return shown


@dataclass(frozen=True, slots=True)
class RelationPreservation:
    """What comparing claims with the ground truth gave.

    Attributes:
        violations: In the order of the claims.
        unspecified: Places of claims without a version where the ground truth has one (C-53); under strict
            versions they are violations instead.
        claim_count: How many claims there were.
    """

    violations: tuple[Violation, ...]
    unspecified: tuple[int, ...]
    claim_count: int

    @property
    def grounded_claims(self) -> int:
        """How many claims have no violation."""
        return self.claim_count - len({violation.index for violation in self.violations})

    def as_report(self, hops: Sequence[Any] = ()) -> dict[str, Any]:
        """The section `relations` of a response's report; `hops` are passed through (S3-23)."""
        return {
            "violations": [violation.as_dict() for violation in self.violations],
            "grounded_claims": self.grounded_claims,
            "hop_evidence": list(hops),
        }

    def events(self, tenant_id: str) -> list[Event]:
        """Return `knowledge.rp.violation`, bounded, where there is a violation (S3-21, S3-29)."""
        if not self.violations:
            return []
        violations, truncated = bounded([one.as_dict(detailed=False) for one in self.violations])
        payload = {"violations": violations, "claim_count": self.claim_count, "tenant_id": tenant_id}
        return [Event("knowledge.rp.violation", {**payload, **truncated})]


def preserve_relations(
    claims: Iterable[Claim],
    truths: Truths,
    *,
    strict_versions: bool = False,
    require_qualifiers: bool = False,
) -> RelationPreservation:
    """Compare claims with the ground truth of their subject and object, in either direction (C-52).

    A claim holds where one statement that is in force agrees with it: in relation and direction, in version and
    timestamp where both have one (C-54), and in qualifiers where they are required. A claim that names the
    timestamp of an earlier statement may rest on that one; any other version than the one in force is stale
    (S3-25). What does not hold is reported against the statement that it comes nearest to. Names, versions and
    qualifiers are compared without regard to case, white space and Unicode form, timestamps as instants.

    Args:
        claims: What the answer says.
        truths: The ground truth, or an index of it that serves many calls.
        strict_versions: A claim without a version, where the ground truth has one, is a violation (C-53).
        require_qualifiers: A claim needs every qualifier that the ground truth has, with its value (S3-26).
    """
    index = truths if isinstance(truths, RelationIndex) else RelationIndex(truths)
    pairs = zip(claims, repeat(index), strict=False)
    return preserve_each(pairs, strict_versions=strict_versions, require_qualifiers=require_qualifiers)


def preserve_each(
    pairs: Iterable[tuple[Claim, RelationIndex]],
    *,
    strict_versions: bool = False,
    require_qualifiers: bool = False,
) -> RelationPreservation:
    """Do the same where each claim has a ground truth of its own, as a resolver gives it (S3-16)."""
    rules = _Rules(strict_versions=strict_versions, require_qualifiers=require_qualifiers)
    violations: list[Violation] = []
    unspecified: list[int] = []
    count = 0
    for place, (claim, index) in enumerate(pairs):
        count += 1
        statement = read_statement(claim)
        found, without_version = rules.examine(place, statement, index)
        violations += found
        if without_version:
            unspecified.append(place)
    return RelationPreservation(tuple(violations), tuple(unspecified), count)


@dataclass(frozen=True, slots=True)
class _Rules:
    """How strictly claims are compared."""

    strict_versions: bool
    require_qualifiers: bool

    def examine(self, place: int, claim: Statement, index: RelationIndex) -> tuple[list[Violation], bool]:
        """Return a claim's violations, and whether it leaves a version out."""
        found = index.find(claim)
        if found is None:
            return [Violation(place, RelationReason.MISSING_SOURCE)], False
        timeline, inverted = found
        nearest, fewest = None, tuple(RelationReason)
        for truth in timeline.candidates(claim):
            reasons = self._compare(claim, truth, inverted=inverted)
            if nearest is None or len(reasons) < len(fewest):
                nearest, fewest = truth, reasons
            if not reasons:
                break
        if nearest is None:
            return [Violation(place, RelationReason.MISSING_SOURCE)], False
        unspecified = not claim.version and bool(nearest.version) and not self.strict_versions
        return [
            _violation(place, reason, claim, nearest, inverted=inverted) for reason in fewest
        ], unspecified

    def _compare(self, claim: Statement, truth: Statement, *, inverted: bool) -> tuple[RelationReason, ...]:
        found: tuple[RelationReason, ...] = ()
        if truth.version and claim.version != truth.version and (claim.version or self.strict_versions):
            found += (RelationReason.VERSION_MISMATCH,)
        if inverted or claim.relation != truth.relation:
            found += (RelationReason.RELATION_MISMATCH,)
        if claim.moment is not None and truth.moment is not None and claim.moment != truth.moment:
            found += (RelationReason.TIMESTAMP_MISMATCH,)
        if self.require_qualifiers and truth.qualifiers and _missing(claim, truth):
            found += (RelationReason.MISSING_QUALIFIER,)
        return found


def _violation(
    place: int, reason: RelationReason, claim: Statement, truth: Statement, *, inverted: bool
) -> Violation:
    match reason:
        case RelationReason.VERSION_MISMATCH:
            return Violation(place, reason, truth.written_version)
        case RelationReason.RELATION_MISMATCH if inverted:
            return Violation(place, reason, detail="inverted")
        case RelationReason.MISSING_QUALIFIER:
            return Violation(place, reason, detail=", ".join(_missing(claim, truth))[:MAX_ID])
    return Violation(place, reason)


def _missing(claim: Statement, truth: Statement) -> list[str]:
    """Return the names of the truth's qualifiers that a claim lacks or contradicts."""
    return [name for name, value in truth.qualifiers.items() if claim.qualifiers.get(name) != value]

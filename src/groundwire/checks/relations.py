"""Relation preservation: what an answer says of two things has to be what the ground truth says (S3-15..S3-27).

Ground truth is arranged so that each claim is compared with the few statements that it may rest on. Statements of the
same subject, relation, object and qualifiers are one line: a newer one supersedes those before it (S3-25). What is
newer is told by timestamps where all of a line have one, else by versions where all are numbered alike (`v2` < `v10`,
`2023-04` < `2024-01`); where neither tells, all of a line are in force.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import chain, islice, product, repeat
from typing import Any, Final, NamedTuple

from groundwire.checks.entities import MAX_ID, bounded, comparable, part
from groundwire.messages.base import parse_time
from groundwire.messages.events import Event
from groundwire.messages.records import RelationClaim

MAX_CANDIDATES: Final = 8
"""Of each kind, with how many statements a claim is compared: those that fit it best; more than one is rare."""

_NUMBERED = re.compile(r"([a-z ]{0,20}?)[ .\-_]?(\d{1,9}(?:[.\-_]\d{1,9}){0,7})", re.ASCII)

RelationLike = RelationClaim | Mapping[str, Any]
"""A relation `{subject, relation, object, timestamp?, version?, qualifiers?}`, stated or as ground truth."""

_MAX_DEPTH: Final = 64
_NONE: Final[Mapping[str, Hashable]] = {}


class RelationStatement(NamedTuple):
    """A relation as it is compared; `version` is empty and `moment` None where it has none."""

    subject: str
    relation: str
    object: str
    version: str
    moment: Hashable
    qualifiers: Mapping[str, Hashable]
    written_version: str


def read_statement(record: RelationLike) -> RelationStatement:
    """Read a relation of an answer or of the ground truth; a part that is missing is the empty name."""
    version = part(record, "version")
    qualifiers = part(record, "qualifiers")
    return RelationStatement(
        comparable(part(record, "subject")),
        comparable(part(record, "relation")),
        comparable(part(record, "object")),
        comparable(version),
        _moment(part(record, "timestamp")),
        _qualifiers(qualifiers) if qualifiers and isinstance(qualifiers, Mapping) else _NONE,
        "" if version is None else str(version),
    )


def _moment(value: object) -> Hashable:
    """Return an instant; what is no time with an offset is compared as it is written."""
    if value is None:
        return None
    try:
        return parse_time(value)
    except ValueError:
        return comparable(value)


def _qualifiers(given: Mapping[Any, Any]) -> dict[str, Hashable]:
    values = ((comparable(name), _value(value, 0)) for name, value in given.items())
    return {name: value for name, value in values if value is not None and value != ""}


def _value(value: object, depth: int) -> Hashable:
    """Return a value that equals another where the two say the same; what is too odd to tell equals nothing."""
    if isinstance(value, str):
        return comparable(value)
    if isinstance(value, bool):
        return ("true or false", value)  # not the number 1 or 0
    if isinstance(value, Mapping | list | tuple):
        return _members(value, depth + 1) if depth < _MAX_DEPTH else object()
    try:
        hash(value)
    except TypeError:
        return object()
    return value


def _members(value: Mapping[Any, Any] | Sequence[Any], depth: int) -> Hashable:
    if isinstance(value, Mapping):
        return frozenset((comparable(name), _value(item, depth)) for name, item in value.items())
    return tuple(_value(item, depth) for item in value)


class Timeline:
    """Statements that a claim may rest on, by version and moment."""

    def __init__(self, statements: Sequence[RelationStatement]) -> None:
        self._statements = statements
        if len(statements) > 1:
            self._arrange(_in_force(statements))

    def candidates(self, claim: RelationStatement) -> Iterator[RelationStatement]:
        """Yield statements to compare a claim with, a bounded number.

        Where some agree with it in version and moment, they come first: a claim that states its moment may rest
        on what was in force then, any other only on what still is. Then come those that it should agree with:
        of its qualifiers, of its moment or in force at it, and the newest.
        """
        if len(self._statements) == 1:
            return iter(self._statements)
        qualified = self._qualified.get(_line(claim), ()) if claim.qualifiers else ()
        due = chain(self._at(claim.moment), reversed(self._in_force))
        return chain.from_iterable(
            islice(found, MAX_CANDIDATES) for found in (self._agreeing(claim), qualified, due)
        )

    def _arrange(self, in_force: list[RelationStatement]) -> None:
        ages = _ages(in_force)
        order = sorted(range(len(ages)), key=ages.__getitem__) if ages else range(len(in_force))
        self._in_force = [in_force[place] for place in order]
        self._current = _grouped(in_force, lambda one: one.version)
        self._qualified = _grouped(in_force, _line)
        # what has no moment holds at every moment, as long as it is in force
        dated = [one for one in self._statements if one.moment is not None]
        dated += [one for one in in_force if one.moment is None]
        self._dated = _grouped(dated, lambda one: one.moment)
        self._exact = _grouped(dated, lambda one: (one.moment, one.version))
        self._moments = sorted(moment for moment in self._dated if isinstance(moment, datetime))

    def _agreeing(self, claim: RelationStatement) -> Iterator[RelationStatement]:
        versions, moments = (claim.version, ""), (claim.moment, None)
        if claim.moment is None:
            found = map(self._current.get, versions)
        elif not claim.version:
            found = map(self._dated.get, moments)
        else:
            found = map(self._exact.get, product(moments, versions))
        return chain.from_iterable(filter(None, found))

    def _at(self, moment: Hashable) -> list[RelationStatement]:
        if not isinstance(moment, datetime):
            return [] if moment is None else self._dated.get(moment, [])
        place = bisect_right(self._moments, moment)
        return self._dated[self._moments[place - 1]] if place else []


class RelationFacts:
    """What the ground truth says of a subject and an object, in this direction."""

    __slots__ = ("_groups", "_statements")

    def __init__(self) -> None:
        self._statements: list[RelationStatement] = []
        self._groups: dict[Hashable, list[RelationStatement] | Timeline] | None = None

    def add(self, statement: RelationStatement) -> None:
        """Add a statement; all of them come before the first question."""
        self._statements.append(statement)

    def timeline(self, relation: str | None) -> Timeline | None:
        """Return the statements of a relation, of any for None; None where there is no such statement."""
        if len(self._statements) == 1:  # as nearly everywhere
            return Timeline(self._statements) if relation in (None, self._statements[0].relation) else None
        if self._groups is None:
            self._groups = {None: self._statements, **_grouped(self._statements, lambda one: one.relation)}
        group = self._groups.get(relation)
        if isinstance(group, list):  # arranged when it is first asked for
            group = self._groups[relation] = Timeline(group)
        return group


class RelationIndex:
    """Ground truth by subject and object; made once, in time linear in the number of truths (S3-28).

    Args:
        truths: `{subject, relation, object, timestamp?, version?, qualifiers?}`; one without subject, relation
            or object grounds nothing.
        inverses: Relations that say the same the other way round, such as `{"sued": "was sued by"}`; a relation
            that is its own inverse has no direction, such as `{"merged with": "merged with"}`.
    """

    def __init__(
        self,
        truths: Iterable[RelationLike],
        *,
        inverses: Mapping[str, str] | None = None,
    ) -> None:
        self._inverses = _both_ways(inverses or {})
        self._facts: defaultdict[tuple[str, str], RelationFacts] = defaultdict(RelationFacts)
        for truth in truths:
            statement = read_statement(truth)
            if not (statement.subject and statement.relation and statement.object):
                continue
            self._facts[statement.subject, statement.object].add(statement)
            inverse = self._inverses.get(statement.relation)
            if inverse is not None:
                turned = statement._replace(
                    subject=statement.object, relation=inverse, object=statement.subject
                )
                self._facts[turned.subject, turned.object].add(turned)

    def find(self, claim: RelationStatement) -> tuple[Timeline, bool] | None:
        """Return what to compare a claim with, and whether it stands there the other way round (S3-24).

        Its own relation comes first, in its direction and then in the other; then any relation of the two
        (C-52). None where the ground truth says nothing of them.
        """
        forward = self._facts.get((claim.subject, claim.object))
        inverse = self._facts.get((claim.object, claim.subject))
        for relation in (claim.relation, None):
            for facts, inverted in ((forward, False), (inverse, True)):
                timeline = facts.timeline(relation) if facts else None
                if timeline:
                    return timeline, inverted
        return None


def _both_ways(inverses: Mapping[str, str]) -> dict[str, str]:
    names = {comparable(name): comparable(inverse) for name, inverse in inverses.items()}
    return {inverse: name for name, inverse in names.items()} | names


def _grouped(
    statements: Iterable[RelationStatement], key: Callable[[RelationStatement], Hashable]
) -> dict[Hashable, list[RelationStatement]]:
    groups: dict[Hashable, list[RelationStatement]] = {}
    for statement in statements:
        groups.setdefault(key(statement), []).append(statement)
    return groups


def _in_force(statements: Sequence[RelationStatement]) -> list[RelationStatement]:
    lines = _grouped(statements, _line)
    found: list[RelationStatement] = []
    for line in lines.values():
        ages = _ages(line)
        newest = max(ages) if ages else None
        found += [one for one, age in zip(line, ages, strict=True) if age == newest] if ages else line
    return found


def _line(statement: RelationStatement) -> Hashable:
    return statement.relation, frozenset(statement.qualifiers.items())


def _ages(statements: Sequence[RelationStatement]) -> list[Any]:
    """Return what tells the statements' age, greater for the newer; an empty list where nothing does."""
    moments = [one.moment for one in statements]
    if all(isinstance(moment, datetime) for moment in moments):
        return moments
    numbered = [_number(one.version) for one in statements]
    if None in numbered or len({found[0] for found in numbered if found}) > 1:
        return []
    return numbered


def _number(version: str) -> tuple[str, tuple[int, ...]] | None:
    found = _NUMBERED.fullmatch(version)
    return found and (found[1], tuple(map(int, re.split(r"\D", found[2]))))


Truths = RelationIndex | Iterable[RelationLike]


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

    def stricter(self, other: RelationPreservation) -> RelationPreservation:
        """Return what holds by both: the violations of this one, and those of the other for further claims."""
        found = {violation.index for violation in self.violations}
        more = [violation for violation in other.violations if violation.index not in found]
        violations = sorted([*self.violations, *more], key=lambda violation: violation.index)
        unspecified = sorted({*self.unspecified, *other.unspecified})
        return RelationPreservation(tuple(violations), tuple(unspecified), self.claim_count)

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
    claims: Iterable[RelationLike],
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
    pairs: Iterable[tuple[RelationLike, RelationIndex]],
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

    def examine(
        self, place: int, claim: RelationStatement, index: RelationIndex
    ) -> tuple[list[Violation], bool]:
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

    def _compare(
        self, claim: RelationStatement, truth: RelationStatement, *, inverted: bool
    ) -> tuple[RelationReason, ...]:
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
    place: int, reason: RelationReason, claim: RelationStatement, truth: RelationStatement, *, inverted: bool
) -> Violation:
    match reason:
        case RelationReason.VERSION_MISMATCH:
            return Violation(place, reason, truth.written_version)
        case RelationReason.RELATION_MISMATCH if inverted:
            return Violation(place, reason, detail="inverted")
        case RelationReason.MISSING_QUALIFIER:
            return Violation(place, reason, detail=", ".join(_missing(claim, truth))[:MAX_ID])
    return Violation(place, reason)


def _missing(claim: RelationStatement, truth: RelationStatement) -> list[str]:
    return [name for name, value in truth.qualifiers.items() if claim.qualifiers.get(name) != value]

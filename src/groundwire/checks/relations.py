"""Relation preservation: what an answer says of two things has to be what the ground truth says (S3-15..S3-27).

Statements of the same subject, relation, object and qualifiers are one line: a newer one supersedes those before it
(S3-25). Age is read from timestamps where all of a line have one, else by versions where all are numbered alike
(`v2` < `v10`, `2023-04` < `2024-01`); else all of a line are in force.
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
    version = part(record, "version")
    qualifiers = part(record, "qualifiers")
    given = qualifiers.items() if isinstance(qualifiers, Mapping) else ()
    values = ((comparable(name), _value(value, 0)) for name, value in given)
    return RelationStatement(
        comparable(part(record, "subject")),
        comparable(part(record, "relation")),
        comparable(part(record, "object")),
        comparable(version),
        _moment(part(record, "timestamp")),
        {name: value for name, value in values if value is not None and value != ""},
        "" if version is None else str(version),
    )


def _moment(value: object) -> Hashable:
    """A time without an offset, and what is no time, is compared as written."""
    if value is None:
        return None
    try:
        return parse_time(value)
    except ValueError:
        return comparable(value)


def _value(value: object, depth: int) -> Hashable:
    if isinstance(value, str):
        return comparable(value)
    if isinstance(value, bool):
        return ("true or false", value)  # not the number 1 or 0
    if isinstance(value, Mapping | list | tuple):
        if depth >= _MAX_DEPTH:
            return object()
        if isinstance(value, Mapping):
            return frozenset((comparable(name), _value(item, depth + 1)) for name, item in value.items())
        return tuple(_value(item, depth + 1) for item in value)
    try:
        hash(value)
    except TypeError:
        return object()
    return value


class Timeline:
    def __init__(self, statements: Sequence[RelationStatement]) -> None:
        self._statements = statements
        if len(statements) == 1:
            return
        in_force = _in_force(statements)
        ages = _ages(in_force)
        order = sorted(range(len(ages)), key=ages.__getitem__) if ages else range(len(in_force))
        self._in_force = [in_force[place] for place in order]
        self._current = _grouped(in_force, lambda one: one.version)
        self._qualified = _grouped(in_force, _line)
        # what has no moment holds at every moment, as long as it is in force
        dated = [one for one in statements if one.moment is not None]
        dated += [one for one in in_force if one.moment is None]
        self._dated = _grouped(dated, lambda one: one.moment)
        self._exact = _grouped(dated, lambda one: (one.moment, one.version))
        self._moments = sorted(moment for moment in self._dated if isinstance(moment, datetime))

    def candidates(self, claim: RelationStatement) -> Iterator[RelationStatement]:
        """Yield a bounded number of statements to compare a claim with.

        Those that agree with it in version and moment come first: a claim with a moment may rest on what was in force
        then, any other only on what still is. Then come those that it should agree with: of its qualifiers, of its
        moment or in force at it, and the newest.
        """
        if len(self._statements) == 1:
            return iter(self._statements)
        versions, moments = (claim.version, ""), (claim.moment, None)
        if claim.moment is None:
            agreeing = map(self._current.get, versions)
        elif not claim.version:
            agreeing = map(self._dated.get, moments)
        else:
            agreeing = map(self._exact.get, product(moments, versions))
        qualified = self._qualified.get(_line(claim), ()) if claim.qualifiers else ()
        moment = claim.moment
        if isinstance(moment, datetime):
            place = bisect_right(self._moments, moment)
            moment = self._moments[place - 1] if place else None
        then = [] if moment is None else self._dated.get(moment, [])
        due = chain(then, reversed(self._in_force))
        ways = (chain.from_iterable(filter(None, agreeing)), qualified, due)
        return chain.from_iterable(islice(found, MAX_CANDIDATES) for found in ways)


class RelationFacts:
    """What the ground truth says of a subject and an object, in this direction; added before the first question."""

    __slots__ = ("_groups", "_statements")

    def __init__(self) -> None:
        self._statements: list[RelationStatement] = []
        self._groups: dict[Hashable, list[RelationStatement] | Timeline] | None = None

    def add(self, statement: RelationStatement) -> None:
        self._statements.append(statement)

    def timeline(self, relation: str | None) -> Timeline | None:
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

    A truth without subject, relation or object grounds nothing. `inverses` say the same the other way round, such as
    `{"sued": "was sued by"}`; a relation that is its own inverse has no direction.
    """

    def __init__(self, truths: Iterable[RelationLike], *, inverses: Mapping[str, str] | None = None) -> None:
        names = {comparable(name): comparable(inverse) for name, inverse in (inverses or {}).items()}
        self._inverses = {inverse: name for name, inverse in names.items()} | names
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
        """Return what to compare a claim with, and whether it is inverted there (S3-24).

        The claim's relation comes first, in its direction and then in the other; then any relation of the two (C-52).
        """
        forward = self._facts.get((claim.subject, claim.object))
        inverse = self._facts.get((claim.object, claim.subject))
        for relation in (claim.relation, None):
            for facts, inverted in ((forward, False), (inverse, True)):
                timeline = facts.timeline(relation) if facts else None
                if timeline:
                    return timeline, inverted
        return None


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
    moments = [one.moment for one in statements]
    if all(isinstance(moment, datetime) for moment in moments):
        return moments
    found = [_NUMBERED.fullmatch(one.version) for one in statements]
    numbered = [(match[1], tuple(map(int, re.split(r"\D", match[2])))) for match in found if match]
    alike = len(numbered) == len(statements) and len({prefix for prefix, _ in numbered}) <= 1
    return numbered if alike else []


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
    """A difference between a claim, by its place, and the ground truth; a claim may have several (S3-20).

    `expected_version` is as the ground truth writes it (S3-18). `detail` is `inverted` (S3-24), or the names of the
    missing qualifiers.
    """

    index: int
    reason: str
    expected_version: str | None = None
    detail: str | None = None

    def as_dict(self, *, detailed: bool = True) -> dict[str, Any]:
        shown: dict[str, Any] = {"index": self.index, "reason": str(self.reason)}
        if self.expected_version is not None:
            shown["expected_version"] = self.expected_version
        if detailed and self.detail is not None:
            shown["detail"] = self.detail
        return shown


@dataclass(frozen=True, slots=True)
class RelationPreservation:
    """The violations in the order of the claims, and the claims without a version where the truth has one.

    Under strict versions the latter are violations instead (C-53).
    """

    violations: tuple[Violation, ...]
    unspecified: tuple[int, ...]
    claim_count: int

    @property
    def grounded_claims(self) -> int:
        return self.claim_count - len({violation.index for violation in self.violations})

    def stricter(self, other: RelationPreservation) -> RelationPreservation:
        """Return what holds by both: the violations of this one, and those of the other for further claims."""
        found = {violation.index for violation in self.violations}
        more = [violation for violation in other.violations if violation.index not in found]
        violations = sorted([*self.violations, *more], key=lambda violation: violation.index)
        unspecified = sorted({*self.unspecified, *other.unspecified})
        return RelationPreservation(tuple(violations), tuple(unspecified), self.claim_count)

    def as_report(self, hops: Sequence[Any] = ()) -> dict[str, Any]:
        return {
            "violations": [violation.as_dict() for violation in self.violations],
            "grounded_claims": self.grounded_claims,
            "hop_evidence": list(hops),
        }

    def events(self, tenant_id: str) -> list[Event]:
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
    (S3-25). Otherwise the differences to the nearest statement are reported. Names, versions and
    qualifiers are compared without regard to case, white space and Unicode form, timestamps as instants. With
    `strict_versions` a claim needs a version where the ground truth has one (C-53), with `require_qualifiers` every
    qualifier that the ground truth has, with its value (S3-26).
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
    violations: list[Violation] = []
    unspecified: list[int] = []
    place = -1
    for place, (said, index) in enumerate(pairs):
        claim = read_statement(said)
        timeline, inverted = index.find(claim) or (None, False)
        nearest: RelationStatement | None = None
        fewest = [Violation(place, RelationReason.MISSING_SOURCE)]
        for truth in timeline.candidates(claim) if timeline else ():
            found = []
            stale = truth.version and claim.version != truth.version
            if stale and (claim.version or strict_versions):
                found.append(Violation(place, RelationReason.VERSION_MISMATCH, truth.written_version))
            if inverted or claim.relation != truth.relation:
                detail = "inverted" if inverted else None
                found.append(Violation(place, RelationReason.RELATION_MISMATCH, detail=detail))
            if claim.moment is not None and truth.moment is not None and claim.moment != truth.moment:
                found.append(Violation(place, RelationReason.TIMESTAMP_MISMATCH))
            required = truth.qualifiers.items() if require_qualifiers else ()
            if lacking := [name for name, value in required if claim.qualifiers.get(name) != value]:
                detail = ", ".join(lacking)[:MAX_ID]
                found.append(Violation(place, RelationReason.MISSING_QUALIFIER, detail=detail))
            if nearest is None or len(found) < len(fewest):
                nearest, fewest = truth, found
            if not found:
                break
        violations += fewest
        if nearest and nearest.version and not claim.version and not strict_versions:
            unspecified.append(place)
    return RelationPreservation(tuple(violations), tuple(unspecified), place + 1)

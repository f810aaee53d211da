"""Ground truth about relations, arranged so that each claim is compared with the few statements that it may rest on.

Statements of the same subject, relation, object and qualifiers are one line: a newer one supersedes those
before it (S3-25). What is newer is told by timestamps where all of a line have one, else by versions where all
are numbered alike (`v2` < `v10`, `2023-04` < `2024-01`); where neither tells, all of a line are in force.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice, product
from typing import Any, Final

from groundwire.checks.grounding import comparable
from groundwire.checks.statements import Statement, read_statement
from groundwire.messages.responses import RelationClaim

MAX_CANDIDATES: Final = 8
"""Of each kind, with how many statements a claim is compared: those that fit it best; more than one is rare."""

_NUMBERED = re.compile(r"([a-z ]{0,20}?)[ .\-_]?(\d{1,9}(?:[.\-_]\d{1,9}){0,7})", re.ASCII)


class Timeline:
    """Statements that a claim may rest on, by version and moment."""

    def __init__(self, statements: Sequence[Statement]) -> None:
        self._statements = statements
        if len(statements) > 1:
            self._arrange(_in_force(statements))

    def candidates(self, claim: Statement) -> Iterator[Statement]:
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

    def _arrange(self, in_force: list[Statement]) -> None:
        self._in_force = _by_age(in_force)
        self._current = _grouped(in_force, lambda one: one.version)
        self._qualified = _grouped(in_force, _line)
        # what has no moment holds at every moment, as long as it is in force
        dated = [one for one in self._statements if one.moment is not None]
        dated += [one for one in in_force if one.moment is None]
        self._dated = _grouped(dated, lambda one: one.moment)
        self._exact = _grouped(dated, lambda one: (one.moment, one.version))
        self._moments = sorted(moment for moment in self._dated if isinstance(moment, datetime))

    def _agreeing(self, claim: Statement) -> Iterator[Statement]:
        versions, moments = (claim.version, ""), (claim.moment, None)
        if claim.moment is None:
            found = map(self._current.get, versions)
        elif not claim.version:
            found = map(self._dated.get, moments)
        else:
            found = map(self._exact.get, product(moments, versions))
        return chain.from_iterable(filter(None, found))

    def _at(self, moment: Hashable) -> list[Statement]:
        """Return what is stated for a moment, else what was newest at it."""
        if not isinstance(moment, datetime):
            return [] if moment is None else self._dated.get(moment, [])
        place = bisect_right(self._moments, moment)
        return self._dated[self._moments[place - 1]] if place else []


class Facts:
    """What the ground truth says of a subject and an object, in this direction."""

    __slots__ = ("_groups", "_statements")

    def __init__(self) -> None:
        self._statements: list[Statement] = []
        self._groups: dict[Hashable, list[Statement] | Timeline] | None = None

    def add(self, statement: Statement) -> None:
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
        truths: Iterable[RelationClaim | Mapping[str, Any]],
        *,
        inverses: Mapping[str, str] | None = None,
    ) -> None:
        self._inverses = _both_ways(inverses or {})
        self._facts: defaultdict[tuple[str, str], Facts] = defaultdict(Facts)
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

    def find(self, claim: Statement) -> tuple[Timeline, bool] | None:
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
    statements: Iterable[Statement], key: Callable[[Statement], Hashable]
) -> dict[Hashable, list[Statement]]:
    groups: dict[Hashable, list[Statement]] = {}
    for statement in statements:
        groups.setdefault(key(statement), []).append(statement)
    return groups


def _in_force(statements: Sequence[Statement]) -> list[Statement]:
    """Return the statements that none of the same line supersedes."""
    lines = _grouped(statements, _line)
    found: list[Statement] = []
    for line in lines.values():
        ages = _ages(line)
        newest = max(ages) if ages else None
        found += [one for one, age in zip(line, ages, strict=True) if age == newest] if ages else line
    return found


def _line(statement: Statement) -> Hashable:
    return statement.relation, frozenset(statement.qualifiers.items())


def _by_age(statements: list[Statement]) -> list[Statement]:
    """Return statements from the oldest to the newest, as they came where nothing tells their age."""
    ages = _ages(statements)
    order = sorted(range(len(ages)), key=ages.__getitem__) if ages else range(len(statements))
    return [statements[place] for place in order]


def _ages(statements: Sequence[Statement]) -> list[Any]:
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

"""Which near-duplicates of a claim are reported, and which of them decide.

The same rules as in step.lua, in plain Python, for the state in memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction

from groundwire.checks.difference import Difference, difference, overlap
from groundwire.checks.similarity import is_near
from groundwire.messages.decisions import DedupMatch, MatchClass
from groundwire.messages.identity import Subject
from groundwire.state.model import MAX_MATCHES, DedupQuery


class Kind(StrEnum):
    """What a match decides."""

    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    REJECTED = "rejected"
    PENDING = "pending"


@dataclass(frozen=True, slots=True)
class Indexed:
    """A claim that others are compared with; times in milliseconds since 1970, horizon 0: none."""

    number: int
    subject: Subject
    match_class: MatchClass
    time: int
    horizon: int
    signature: bytes

    def hides(self, subject_id: str, clock: int) -> bool:
        """Tell whether it is no duplicate of a claim: because it is the same one, or no longer holds.

        What a person rejected outlives the entry of its subject, and holds against the same id as well.
        """
        if self.match_class is MatchClass.APPROVED and self.horizon and self.horizon <= clock:
            return True
        return self.subject.subject_id == subject_id and self.match_class is not MatchClass.REJECTED


@dataclass(frozen=True, slots=True)
class Match:
    """An indexed claim near to the one in question."""

    indexed: Indexed
    inter: int
    union: int
    difference: Difference

    @property
    def rank(self) -> tuple[Fraction, int, bytes, int]:
        """Sort key: higher similarity first, then the earlier, then by id."""
        indexed = self.indexed
        ratio = Fraction(self.inter, self.union)
        return -ratio, indexed.time, indexed.subject.subject_id.encode(), indexed.number

    def kind(self, *, material_difference: bool) -> Kind | None:
        """Return what the match decides, if anything."""
        plain = self.difference is Difference.NONE or not material_difference
        match self.indexed.match_class:
            case MatchClass.REJECTED:
                return Kind.REJECTED
            case MatchClass.APPROVED:
                return Kind.DUPLICATE if plain else Kind.CONFLICT
            case MatchClass.PENDING:
                return Kind.PENDING if plain else None

    def fact(self) -> DedupMatch:
        """Return the match as a Decision reports it."""
        return DedupMatch(
            subject_id=self.indexed.subject.subject_id,
            inter=self.inter,
            union=self.union,
            difference=self.difference.value,
            match_class=self.indexed.match_class,
        )


@dataclass(slots=True)
class Scope:
    """The index of one scope: ids under keys, claims under ids."""

    buckets: defaultdict[bytes, list[int]] = field(default_factory=lambda: defaultdict(list))
    claims: dict[int, Indexed] = field(default_factory=dict)
    last: int = 0

    def add(
        self, query: DedupQuery, subject: Subject, match_class: MatchClass, times: tuple[int, int]
    ) -> int:
        """Make a claim findable; `times`: that of its approval, and its horizon."""
        self.last += 1
        self.claims[self.last] = Indexed(self.last, subject, match_class, *times, query.signature)
        for key in query.stored:
            self.buckets[key].append(self.last)
        return self.last

    def candidates(self, query: DedupQuery) -> list[Indexed]:
        """Return the claims that share a key, each once."""
        ids = {number for key in query.probed for number in self.buckets.get(key, ())}
        return [self.claims[number] for number in ids if number in self.claims]


def near_duplicates(query: DedupQuery, candidates: Iterable[Indexed]) -> list[Match]:
    """Compare a claim with its candidates, exactly."""
    found = []
    for indexed in candidates:
        inter, union = overlap(query.signature, indexed.signature)
        if is_near(inter, union, query.threshold_parts):
            found.append(Match(indexed, inter, union, difference(query.signature, indexed.signature)))
    return found


def choose(
    matches: Iterable[Match], *, material_difference: bool
) -> tuple[Sequence[Match], dict[Kind, Match]]:
    """Return the matches to report, nearest first, and the best of each kind that decides.

    At most five are reported: those that decide, and the nearest of the others.
    """
    ranked = sorted(matches, key=lambda match: match.rank)
    best: dict[Kind, Match] = {}
    for match in ranked:
        kind = match.kind(material_difference=material_difference)
        if kind is not None:
            best.setdefault(kind, match)
    chosen = list(best.values())
    others = [match for match in ranked if match not in chosen]
    chosen += others[: MAX_MATCHES - len(chosen)]
    return sorted(chosen, key=lambda match: match.rank), best

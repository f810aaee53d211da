"""Matches of claims: which are reported, and which decide."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from groundwire.checks.dedup.signature import Difference, is_near
from groundwire.messages.base import immutable
from groundwire.messages.decisions import DedupMatch, MatchClass
from groundwire.state.model import MAX_MATCHES, MatchRules


class MatchKind(StrEnum):
    DUPLICATE = "duplicate"
    CONFLICT = "conflict"
    REJECTED = "rejected"
    PENDING = "pending"


@immutable
class Indexed:
    """An indexed claim; times in milliseconds since 1970, horizon 0: none."""

    number: int
    subject_id: str
    digest: bytes
    match_class: MatchClass
    time: int
    horizon: int
    signature: bytes

    def hides(self, subject_id: str, clock: int) -> bool:
        """Return whether it is ignored: the same claim, or one past its horizon.

        A rejected text outlives its subject, and counts against the same id too.
        """
        if self.match_class is MatchClass.APPROVED and self.horizon and self.horizon <= clock:
            return True
        return self.subject_id == subject_id and self.match_class is not MatchClass.REJECTED


@dataclass(frozen=True, slots=True)
class Match:
    indexed: Indexed
    inter: int
    union: int
    difference: Difference

    @property
    def rank(self) -> tuple[Fraction, bool, int, bytes, int]:
        """Sort key: higher similarity, approved first, earlier, then by id."""
        indexed = self.indexed
        ratio = Fraction(self.inter, self.union)
        waits = indexed.match_class is not MatchClass.APPROVED
        return -ratio, waits, indexed.time, indexed.subject_id.encode(), indexed.number

    def fact(self) -> DedupMatch:
        return DedupMatch(
            subject_id=self.indexed.subject_id,
            inter=self.inter,
            union=self.union,
            difference=self.difference.value,
            match_class=self.indexed.match_class,
        )


def kind_of(match: DedupMatch, rules: MatchRules) -> MatchKind | None:
    """Return what a match decides, if anything."""
    if match.match_class is MatchClass.REJECTED:
        return MatchKind.REJECTED
    approved = match.match_class is MatchClass.APPROVED
    ignored = {Difference.NONE, *(() if rules.word_difference else (Difference.WORD,))}
    differs = rules.material_difference and match.difference not in ignored
    if not differs and is_near(match.inter, match.union, rules.thresholds.duplicate):
        return MatchKind.DUPLICATE if approved else MatchKind.PENDING
    return MatchKind.CONFLICT if differs and approved else None


def choose(matches: Iterable[Match], rules: MatchRules) -> tuple[Sequence[Match], dict[MatchKind, Match]]:
    """Return at most five matches to report, nearest first, deciding ones included, and the best of each kind."""
    ranked = sorted(matches, key=lambda match: match.rank)
    best: dict[MatchKind, Match] = {}
    for match in ranked:
        kind = kind_of(match.fact(), rules)
        if kind is not None:
            best.setdefault(kind, match)
    chosen = list(best.values())
    others = [match for match in ranked if match not in chosen]
    chosen += others[: MAX_MATCHES - len(chosen)]
    return sorted(chosen, key=lambda match: match.rank), best

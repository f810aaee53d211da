"""How well the evidence supports a claim: what its missing, loose and conflicting parts cost, as a number 0..1.

Every part of a claim costs what it weighs, less what the evidence gives for it; the sum is divided by the root of
the claim's weight, as a long claim may miss a little more than a short one. The constants are set by hand, with
an eye on labelled sets (`bench/quality`), and stand here to be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import sqrt
from typing import Final

from groundwire.checks.epistemic.align import Alignment
from groundwire.checks.epistemic.atoms import Atom, Unit
from groundwire.checks.epistemic.evidence import Evidence, Sentence
from groundwire.checks.epistemic.words import OPPOSITES, SPEAKER, STRONG, WEAK
from groundwire.checks.values import SAID_OF_SOMETHING_ELSE, SOURCES_DIFFER, UnsupportedValue
from groundwire.checks.values_negation import OPPOSITE

ENOUGH: Final = 0.7
"""Support at which a claim counts as held by the evidence (S4-27)."""

_FUNCTION: Final = 0.2  # a function word that no passage holds
_SPEAKER: Final = 1.0  # a word about who speaks, the same
_PRONOUN: Final = 0.2  # a name left open
_NO_VALUE: Final = 2.0  # beside its weight, a value that no passage holds
_NO_NAME: Final = 1.0  # the same for a name
_NEGATION: Final = 1.5  # a denial that no passage makes
_OPPOSED: Final = 3.0  # the evidence says the opposite; this and what follows costs as much in a long claim
_DIFFERS: Final = 1.0  # the evidence gives another value
_STRONGER: Final = 1.0  # "all" where the evidence says "some"
_SHARE: Final = 0.5  # the share of the claim that no passage holds
_NOTHING: Final = 1.0  # none of the words stands in the evidence
_TOLERATED: Final = 1.0  # cost, so divided, at which support is ENOUGH
_NEAR: Final = 0.6  # of a claim, that a sentence must hold to be about the same thing


class Verdict(StrEnum):
    """What the evidence makes of a claim (S4-11)."""

    SUPPORTED = "supported"
    PARTIAL = "partial_support"
    UNSUPPORTED = "unsupported"
    CONTRADICTED = "contradicted"
    EXTRAPOLATED = "over_extrapolation"


@dataclass(frozen=True, slots=True)
class Score:
    """What a claim's parts cost.

    Attributes:
        support: 0..1.
        cost: the same before it is squeezed into that range: 0 is full support.
        verdict: what the evidence makes of the claim.
        missing: places of units that no passage binds.
        held: share of the claim's weight that passages hold, 0..1, wherever it stands.
    """

    support: float
    cost: float
    verdict: Verdict
    missing: tuple[int, ...]
    held: float


def support_of(cost: float) -> float:
    """Return the support that a cost leaves: 1 at 0, `ENOUGH` at what is tolerated, towards 0 from there."""
    excess = cost / _TOLERATED
    return 1 / (1 + (1 / ENOUGH - 1) * excess * excess)


def score(
    atom: Atom, alignment: Alignment, evidence: Evidence, faults: Sequence[UnsupportedValue] = ()
) -> Score:
    """Return how well the evidence supports a claim.

    Args:
        atom: the claim.
        alignment: where it stands in the evidence.
        evidence: the index of the passages.
        faults: its values and negations that the passages do not hold, or hold of something else.
    """
    bound = [
        0.0 if unit.value and any(_denies(atom, unit, fault) for fault in faults) else share
        for unit, share in zip(atom.units, alignment.bound, strict=True)
    ]
    window = [evidence.sentences[number] for number in (alignment.best, alignment.second) if number >= 0]
    opposed = _opposed(atom, window) if alignment.covered >= _NEAR * _rest(atom) else 0
    opposed += sum(fault.kind == "negation" and fault.why == OPPOSITE for fault in faults)
    stronger = _is_stronger(atom, window) and alignment.covered >= _NEAR
    denied = sum(fault.kind == "negation" and fault.why != OPPOSITE for fault in faults)
    weight = sum(unit.weight for unit in atom.units)
    held = sum(unit.weight for unit, share in zip(atom.units, bound, strict=True) if share)
    held = held / weight if weight else 0.0
    cost = sum(_lack(unit, share) for unit, share in zip(atom.units, bound, strict=True))
    cost += sum(
        _SPEAKER if word in SPEAKER else _FUNCTION for word in atom.function if word not in evidence.words
    )
    cost = (cost + _PRONOUN * atom.pronouns + _NEGATION * denied) / sqrt(max(1.0, weight))
    differs = any(fault.why == SOURCES_DIFFER for fault in faults)
    cost += _OPPOSED * opposed + _STRONGER * stronger + _DIFFERS * differs
    cost += _SHARE * (1 - held) + _NOTHING * (not any(bound))
    support = support_of(cost)
    missing = tuple(place for place, share in enumerate(bound) if not share)
    verdict = _verdict(support, held, conflict=bool(opposed or differs), stronger=stronger)
    return Score(support, cost, verdict, missing, held)


def _lack(unit: Unit, share: float) -> float:
    """Return what a unit costs that is bound as firmly as `share` says."""
    if share:
        # the fourth root: a claim drawn from two sentences keeps most of its credit
        return unit.weight * (1 - sqrt(sqrt(share)))
    return unit.weight + (_NO_VALUE if unit.value else _NO_NAME if unit.name else 0)


def _verdict(support: float, held: float, *, conflict: bool, stronger: bool) -> Verdict:
    if support >= ENOUGH:
        return Verdict.SUPPORTED
    if conflict:
        return Verdict.CONTRADICTED
    if stronger:
        return Verdict.EXTRAPOLATED
    return Verdict.PARTIAL if held >= 0.5 else Verdict.UNSUPPORTED


def _denies(atom: Atom, unit: Unit, fault: UnsupportedValue) -> bool:
    """Tell whether a fault takes a unit's value away; how far apart value and words stand is seen by the alignment."""
    start, end = atom.statement.span(unit.start, unit.end)
    hard = fault.kind != "negation" and fault.why != SAID_OF_SOMETHING_ELSE
    return hard and fault.start < end and start < fault.end


def _rest(atom: Atom) -> float:
    """Return the share of a claim's weight beside one of its words."""
    total = sum(unit.weight for unit in atom.units)
    return (total - 1) / total if total > 1 else 0


def _opposed(atom: Atom, window: Sequence[Sentence]) -> int:
    """Count the words of a claim whose opposite stands in the window in their place."""
    said = {key for sentence in window for key in (*sentence.markers, *sentence.place)}
    words = [unit.stem for unit in atom.units if not unit.value]
    own = {*words, *atom.function}
    return sum(
        word not in said and not OPPOSITES[word].isdisjoint(said - own) for word in own if word in OPPOSITES
    )


def _is_stronger(atom: Atom, window: Sequence[Sentence]) -> bool:
    """Tell whether a claim says "all" or "always" where its window says "some" or "often"."""
    strong = STRONG.intersection(atom.function)
    if not strong or not window:
        return False
    said = frozenset().union(*(sentence.markers for sentence in window))
    return strong.isdisjoint(said) and not (WEAK & said).issubset(atom.function)

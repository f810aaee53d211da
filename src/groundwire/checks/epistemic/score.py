"""How well the evidence supports a claim: what its missing, loose and conflicting parts cost, as a number 0..1.

Every part of a claim costs what it weighs, less what the evidence gives for it; the sum is divided by the root of
the claim's weight, as a long claim may miss a little more than a short one. What is wrong in a claim of any length
(an invented name or number, a denial, the opposite) is not divided. The constants are set by hand, with an eye on
labelled sets (`bench/quality`), and stand here to be read; small changes of any of them change little.
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
from groundwire.checks.epistemic.slots import replaced
from groundwire.checks.epistemic.words import OPPOSITES, SPEAKER, STRONG, WEAK
from groundwire.checks.values import SOURCES_DIFFER, UnsupportedValue
from groundwire.checks.values_negation import NOT_IN_SOURCES, OPPOSITE

ENOUGH: Final = 0.7
"""Support at which a claim counts as held by the evidence (S4-27)."""

# Divided by the root of the claim's weight:
_FUNCTION: Final = 0.3  # a function word, or a yes, that no passage holds
_SPEAKER: Final = 1.5  # a word about who speaks, the same
_PRONOUN: Final = 0.2  # a name left open
_NO_VALUE: Final = 1.0  # beside its weight, a value that no passage holds
# As much in a long claim as in a short one:
_INVENTED: Final = 0.8  # a value that no passage holds, and a name, however many
_DENIED: Final = 1.0  # a denial that no passage makes
_OPPOSED: Final = 3.0  # the evidence says the opposite, as far as it speaks of the same
_DIFFERS: Final = 1.3  # the evidence gives another value, the same
_REPLACED: Final = 1.5  # a word put for another in what is otherwise a quotation
_STRONGER: Final = 1.0  # "all" where the evidence says "some"
_SHARE: Final = 1.5  # the square of the share that no passage holds: half of a short claim is much
_NOTHING: Final = 1.0  # none of the words stands in the evidence
TOLERATED: Final = 1.1
"""Cost at which support is `ENOUGH`.

From 0.9 to 1.3 verdicts are about as often right, as the mean over the sets of `bench/quality` and both labels: what is
tolerated more takes away as many true alarms as false ones.
"""

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
    excess = cost / TOLERATED
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
    denials = sum(fault.kind == "negation" and fault.why == OPPOSITE for fault in faults)
    stronger = _is_stronger(atom, window) and alignment.covered >= _NEAR
    denied = any(fault.kind == "negation" and fault.why != OPPOSITE for fault in faults)
    differs = any(fault.why == SOURCES_DIFFER for fault in faults)
    weight = sum(unit.weight for unit in atom.units)
    held = sum(unit.weight for unit, share in zip(atom.units, bound, strict=True) if share)
    held = held / weight if weight else 0.0
    cost = _parts(atom, bound, evidence) / sqrt(max(1.0, weight))
    cost += _INVENTED * _kinds_missing(atom, bound) + _DENIED * denied
    cost += _SHARE * (1 - held) ** 2
    cost += _OPPOSED * opposed + _STRONGER * stronger + _NOTHING * (not any(bound))
    cost += (_OPPOSED * denials + _DIFFERS * differs) * alignment.covered**2
    if alignment.covered >= _NEAR and replaced(atom, window):
        cost += _REPLACED
    support = support_of(cost)
    missing = tuple(place for place, share in enumerate(bound) if not share)
    verdict = _verdict(support, held, conflict=bool(opposed or denials or differs), stronger=stronger)
    return Score(support, cost, verdict, missing, held)


def _parts(atom: Atom, bound: Sequence[float], evidence: Evidence) -> float:
    """Return what the words of a claim cost, each by itself."""
    cost = sum(_lack(unit, share) for unit, share in zip(atom.units, bound, strict=True))
    cost += sum(
        _SPEAKER if word in SPEAKER else _FUNCTION for word in atom.function if word not in evidence.words
    )
    return cost + _PRONOUN * atom.pronouns


def _lack(unit: Unit, share: float) -> float:
    """Return what a unit costs that is bound as firmly as `share` says."""
    if share:
        # the eighth root: a claim drawn from several sentences keeps most of its credit
        return unit.weight * (1 - sqrt(sqrt(sqrt(share))))
    return unit.weight + (_NO_VALUE if unit.value else 0)


def _kinds_missing(atom: Atom, bound: Sequence[float]) -> int:
    """Return 1 where a value is missing or a name, 2 where both are."""
    missing = [unit for unit, share in zip(atom.units, bound, strict=True) if not share]
    return any(unit.value for unit in missing) + any(unit.name for unit in missing)


def _verdict(support: float, held: float, *, conflict: bool, stronger: bool) -> Verdict:
    if support >= ENOUGH:
        return Verdict.SUPPORTED
    if conflict:
        return Verdict.CONTRADICTED
    if stronger:
        return Verdict.EXTRAPOLATED
    return Verdict.PARTIAL if held >= 0.5 else Verdict.UNSUPPORTED


def _denies(atom: Atom, unit: Unit, fault: UnsupportedValue) -> bool:
    """Tell whether a fault takes a unit's value away: no passage holds it.

    How far apart value and words stand is seen by the alignment; that another value is given counts for itself.
    """
    start, end = atom.statement.span(unit.start, unit.end)
    absent = fault.kind != "negation" and fault.why == NOT_IN_SOURCES
    return absent and fault.start < end and start < fault.end


def _rest(atom: Atom) -> float:
    """Return the share of a claim's weight beside one of its words."""
    total = sum(unit.weight for unit in atom.units)
    return (total - 1) / total if total > 1 else 0


def _opposed(atom: Atom, window: Sequence[Sentence]) -> int:
    """Count the words of a claim whose opposite stands in the window in their place."""
    own = {*atom.function, *(unit.stem for unit in atom.units if not unit.value)}
    asked = own & OPPOSITES.keys()
    if not asked:
        return 0
    said = {key for sentence in window for key in (*sentence.markers, *sentence.place)}
    return sum(word not in said and not OPPOSITES[word].isdisjoint(said - own) for word in asked)


def _is_stronger(atom: Atom, window: Sequence[Sentence]) -> bool:
    """Tell whether a claim says "all" or "always" where its window says "some" or "often"."""
    strong = STRONG.intersection(atom.function)
    if not strong or not window:
        return False
    said = frozenset().union(*(sentence.markers for sentence in window))
    return strong.isdisjoint(said) and not (WEAK & said).issubset(atom.function)

"""Whether the evidence asserts a claim, or says it with a weaker force: as denied, attributed, supposed or planned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from groundwire.checks.reading.force import Force, denied_by_frame, is_done, own_forces, tells
from groundwire.checks.support.atoms import Atom
from groundwire.checks.support.evidence import Evidence
from groundwire.checks.support.score import Alignment
from groundwire.text.negation import negations

_ENOUGH: Final = 0.6  # of a claim's weight, that one window has to hold
_PLAIN: Final = 0.75  # of what the best window holds, that another one has to assert
_WHOLE: Final = 0.7  # of a claim, that a sentence denies with "not"
_MOST: Final = 0.8  # of that, which is left where a sentence does not deny a claim with "not"
_ALL: Final = frozenset(Force)
_LOOKED: Final = 12  # sentences that are looked at per claim


def unasserted(atom: Atom, alignment: Alignment, evidence: Evidence) -> Force | None:
    """Return with what weaker force the evidence says what a claim asserts; None where it asserts it, or lacks it."""
    if alignment.covered < _ENOUGH or not tells(atom.statement):
        return None
    if _denies_told(atom, alignment, evidence):
        return Force.DENIED
    window = [number for number in (alignment.best, alignment.second) if number >= 0]
    forces = {scope.force for number in window for scope in evidence.scopes(number)}
    forces -= own_forces(atom.statement) if forces else set()
    if alignment.covered < _WHOLE:
        forces.discard(Force.NEGATED)
    wanted = _PLAIN * alignment.covered * sum(unit.weight for unit in atom.units)
    least = _MOST * wanted if forces == {Force.NEGATED} else wanted
    windows = (
        [(window, forces), *((other, _ALL) for other in _others(atom, alignment, evidence))] if forces else []
    )
    if any(_said(atom, other, alignment, evidence, weak) >= least for other, weak in windows):
        return None
    alone = (force for force in Force if _said(atom, window, alignment, evidence, {force} & forces) < least)
    return next(alone, max(forces, default=None))


def _others(atom: Atom, alignment: Alignment, evidence: Evidence) -> Iterator[Sequence[int]]:
    weights = [unit.weight for unit in atom.units]
    masks = alignment.masks
    for number in sorted(
        masks,
        key=lambda number: (
            -sum(weight for place, weight in enumerate(weights) if masks[number] >> place & 1),
            number,
        ),
    )[:_LOOKED]:
        yield (number,)
        if number + 1 in masks and evidence.sentences[number + 1].follows:
            yield number, number + 1


def _denies_told(atom: Atom, alignment: Alignment, evidence: Evidence) -> bool:
    """Return whether a claim denies what the evidence asserts: "it is a myth that"."""
    tokens = atom.statement.tokens
    denied = denied_by_frame(atom.statement)
    starts = {tokens[place].start for scope in denied for place in range(scope.first, scope.last)}
    inside = [place for place, unit in enumerate(atom.units) if unit.start in starts]
    mask = alignment.masks.get(alignment.best, 0)
    told = bool(inside) and all(mask >> place & 1 for place in inside)
    texts = evidence.sentences[alignment.best].statement.texts
    return told and not (evidence.scopes(alignment.best) or negations(texts))


def _said(
    atom: Atom, window: Sequence[int], alignment: Alignment, evidence: Evidence, forces: AbstractSet[Force]
) -> float:
    held = set[int]()
    for number in window:
        weak = _only_weak(evidence, number, atom, forces)
        holds = evidence.sentences[number].holds - weak
        mask = alignment.masks.get(number, 0)
        held |= {
            place
            for place, unit in enumerate(atom.units)
            if mask >> place & 1 and not unit.keys.isdisjoint(holds)
        }
    return sum(atom.units[place].weight for place in held)


def _only_weak(evidence: Evidence, number: int, atom: Atom, forces: AbstractSet[Force]) -> set[str]:
    tokens = evidence.sentences[number].statement.tokens
    texts = evidence.sentences[number].statement.texts
    supposed = is_done(atom.statement.texts) and not is_done(texts)  # told as done
    inside = set[int]()
    for scope in evidence.scopes(number):
        if scope.force not in forces:
            continue
        words = {stem for place in scope.condition if place < len(tokens) for stem in tokens[place].stems}
        words -= {stem for token in tokens[scope.first : scope.last] for stem in token.stems}
        if (scope.condition and supposed) or all(unit.keys.isdisjoint(words) for unit in atom.units):
            inside |= {*range(scope.first, scope.last)}
    if not inside:
        return set()
    weak, plain = set[str](), set[str]()
    for place, token in enumerate(tokens):
        said = (*token.stems, *(token.value.covers if token.value else ()))
        (weak if place in inside else plain).update(said)
    return weak - plain

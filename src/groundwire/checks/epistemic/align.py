"""Aligns a claim with its best evidence windows.

A window is a sentence, or two in a row. A word of the claim is bound as firmly as the window that holds most of the
claim's weight together with it; a word that stands only where nothing else of the claim does is hardly bound at all.
Binding can only grow when evidence is added.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, islice
from typing import Final, NamedTuple

from groundwire.checks.epistemic.atoms import Atom, Unit
from groundwire.checks.epistemic.evidence import Evidence

_LOOKED: Final = 1_024  # places of words that are looked at per claim, those of the rarest words first
_CANDIDATES: Final = 256  # sentences in which a word is looked for beyond that
_TWO: Final = 0.9  # of what one sentence counts that holds the same


class Alignment(NamedTuple):
    """Where a claim stands in the evidence.

    Attributes:
        bound: for each unit how firmly it is bound, 0 (absent) to 1 (with all other units in one sentence).
        best: number of the sentence that holds most of the claim, or -1.
        second: number of the sentence beside it that belongs to the window, or -1.
        covered: share of the claim's weight that the best window holds.
        passages: ids of the passages that bind its words, the best one first.
    """

    bound: Sequence[float]
    best: int
    second: int
    covered: float
    passages: tuple[str, ...]


def align(atom: Atom, evidence: Evidence) -> Alignment:
    """Return how the evidence binds the units of a claim."""
    units = atom.units
    total = sum(unit.weight for unit in units)
    masks = _masks(units, evidence)
    weights = [unit.weight / total for unit in units] if total else []
    bound = [0.0] * len(units)
    holder = [-1] * len(units)
    best = (0.0, 0.0, 1, -1)  # share, of which the sentence alone, minus its number, the other sentence
    known: dict[int, tuple[float, list[int]]] = {}  # share and places of each mask, worked out once
    seen: set[tuple[int, int, bool]] = set()
    for number in sorted(masks):
        mask = masks[number]
        for other in (-1, number - 1, number + 1):
            if other >= 0 and not (other in masks and evidence.sentences[max(number, other)].follows):
                continue
            held = mask | masks[other] if other >= 0 else mask
            if (mask, held, other < 0) in seen:  # the first one that holds the same counts
                continue
            seen.add((mask, held, other < 0))
            alone, places = _share(mask, weights, known)
            share = _TWO * _share(held, weights, known)[0] if other >= 0 else alone
            best = max(best, (share, alone, -number, other), key=lambda found: found[:3])
            for place in places:
                if share > bound[place]:
                    bound[place], holder[place] = share, number
    for place, unit in enumerate(units):  # it stands somewhere, far from all the rest
        if not bound[place] and not unit.keys.isdisjoint(evidence.postings):
            bound[place] = weights[place]
    passages = dict.fromkeys(evidence.sentences[number].passage for number in _first(-best[2], holder))
    return Alignment(bound, -best[2] if masks else -1, best[3], best[0], tuple(passages))


def _masks(units: Sequence[Unit], evidence: Evidence) -> dict[int, int]:
    """Return sentence -> the units that it holds, as bits."""
    masks: dict[int, int] = {}
    looked = 0
    found = [
        (place, [evidence.postings[key] for key in unit.keys if key in evidence.postings])
        for place, unit in enumerate(units)
    ]
    for place, lists in sorted(found, key=lambda pair: sum(map(len, pair[1]))):
        looked += sum(map(len, lists))
        if looked <= _LOOKED or not masks:
            for number in chain.from_iterable(lists):
                masks[number] = masks.get(number, 0) | 1 << place
            continue
        for number in islice(masks, _CANDIDATES):  # a common word is looked for where the rarer ones stand
            if not units[place].keys.isdisjoint(evidence.sentences[number].place):
                masks[number] |= 1 << place
    return masks


def _share(
    mask: int, weights: Sequence[float], known: dict[int, tuple[float, list[int]]]
) -> tuple[float, list[int]]:
    found = known.get(mask)
    if found is None:
        places = _places(mask)
        found = known[mask] = (sum([weights[place] for place in places]), places)
    return found


def _places(mask: int) -> list[int]:
    places = []
    while mask:
        low = mask & -mask
        places.append(low.bit_length() - 1)
        mask ^= low
    return places


def _first(best: int, holders: Sequence[int]) -> list[int]:
    """Return the best sentence and the holders of the other units, each once."""
    return [number for number in dict.fromkeys((best, *holders)) if number >= 0]

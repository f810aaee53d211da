"""Aligns a claim with its best evidence windows.

A window is a sentence, or two in a row. A word of the claim is bound as firmly as the window that holds most of the
claim's weight together with it; a word that stands only where nothing else of the claim does is hardly bound at all.
Binding can only grow when evidence is added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import Final, NamedTuple

from groundwire.checks.epistemic.atoms import Atom, Unit
from groundwire.checks.epistemic.evidence import Evidence, Sentence

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
    weights = [unit.weight / total for unit in units]
    windows = sorted(_windows(_masks(units, evidence), weights, evidence.sentences), reverse=True)
    bound = [0.0] * len(units)
    holders: dict[int, None] = {}
    free = (1 << len(units)) - 1  # units that no window looked at so far binds
    for window in windows:
        if window.mask & free:
            holders[-window.behind] = None
            for place in _places(window.mask & free):
                bound[place] = window.share
            free &= ~window.mask
            if not free:
                break
    for place in _places(free):
        if not units[place].keys.isdisjoint(evidence.postings):  # it stands somewhere, far from all the rest
            bound[place] = weights[place]
    best = windows[0] if windows else _NONE
    passages = dict.fromkeys(evidence.sentences[number].passage for number in holders)
    return Alignment(bound, -best.behind, best.other, best.share, tuple(passages))


class _Window(NamedTuple):
    """A sentence, with or without the one beside it; in order: the worst first."""

    share: float  # of the claim's weight
    alone: float  # the same, of the sentence alone
    behind: int  # its number, negative: of those that hold the same, the first one counts
    other: int  # number of the sentence beside it, or -1
    mask: int  # units that the sentence binds


_NONE: Final = _Window(0.0, 0.0, 1, -1, 0)


def _windows(
    masks: Mapping[int, int], weights: Sequence[float], sentences: Sequence[Sentence]
) -> Iterator[_Window]:
    """Yield the windows that can bind a unit more firmly than another one that holds as much does."""
    known: dict[int, float] = {}  # share of each mask
    seen: set[tuple[int, int]] = set()

    def share(mask: int) -> float:
        if mask not in known:
            known[mask] = sum([weights[place] for place in _places(mask)])
        return known[mask]

    for number in sorted(masks):
        mask = masks[number]
        if (mask, mask) not in seen:
            seen.add((mask, mask))
            yield _Window(share(mask), share(mask), -number, -1, mask)
        for other in (number - 1, number + 1):
            both = mask | masks.get(other, 0)
            # where either sentence holds all that both do, it is firmer alone
            if both in {mask, masks.get(other)} or (mask, both) in seen:
                continue
            if sentences[max(number, other)].follows:
                seen.add((mask, both))
                yield _Window(_TWO * share(both), share(mask), -number, other, mask)


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


@lru_cache(1 << 12)
def _places(mask: int) -> Sequence[int]:
    places = []
    while mask:
        low = mask & -mask
        places.append(low.bit_length() - 1)
        mask ^= low
    return places

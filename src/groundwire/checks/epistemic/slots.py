"""Finds a word that was put for another in what is otherwise a quotation.

Where the words on both sides are those of the evidence, and between them the evidence has another word, the claim does
not say the same in its own words: whoever writes freely changes more than one word in seven.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from groundwire.checks.epistemic.atoms import Atom
from groundwire.checks.epistemic.evidence import Sentence
from groundwire.checks.values_statements import Statement
from groundwire.checks.values_tokens import Token

_SAME: Final = 6  # words around it that are the same, at least one on each side
_SIDE: Final = 5  # words on a side that count
_EDGE: Final = ("",) * 3
"""The start and the end of a sentence count as three words."""
_PLACES: Final = 8  # between the same two words, that are looked at
_ALIKE: Final = 4  # letters at the start of two words that are forms, or spellings, of one


def replaced(atom: Atom, window: Sequence[Sentence]) -> bool:
    """Tell whether a word of a claim stands where its window has another one, between the same words."""
    held = [sentence.place.keys() for sentence in window]
    strange = {
        unit.start for unit in atom.units if unit.stem and all(unit.keys.isdisjoint(keys) for keys in held)
    }
    return bool(strange) and any(
        _is_replaced(_words(atom.statement), strange, _words(sentence.statement)) for sentence in window
    )


def _is_replaced(said: Sequence[Token], strange: set[int], there: Sequence[Token]) -> bool:
    texts, others = _texts(said), _texts(there)
    between = _between(others)
    return any(
        _around(texts, place, others, at) >= _SAME and _is_another(token, there[at - len(_EDGE)])
        for place, token in enumerate(said, start=len(_EDGE))
        if token.start in strange
        for at in between.get((texts[place - 1], texts[place + 1]), ())
    )


def _is_another(token: Token, other: Token) -> bool:
    """Tell whether a word says something else than another; of values that is seen elsewhere."""
    return not (other.value or other.text[:_ALIKE] == token.text[:_ALIKE])


def _around(one: Sequence[str], place: int, other: Sequence[str], at: int) -> int:
    """Count the words around a place that are the same around another, outwards to the first that is not."""
    return _run(one, place, other, at, -1) + _run(one, place, other, at, 1)


def _run(one: Sequence[str], place: int, other: Sequence[str], at: int, step: int) -> int:
    for count in range(_SIDE):
        place, at = place + step, at + step
        inside = 0 <= place < len(one) and 0 <= at < len(other)
        if not inside or one[place] != other[at]:
            return count
    return _SIDE


def _words(statement: Statement) -> list[Token]:
    return [token for token in statement.tokens if not token.mark]


def _texts(words: Sequence[Token]) -> list[str]:
    return [*_EDGE, *(token.text for token in words), *_EDGE]


def _between(texts: Sequence[str]) -> Mapping[tuple[str, str], Sequence[int]]:
    """Return two words -> the places of a word between them."""
    places: dict[tuple[str, str], list[int]] = {}
    for place in range(len(_EDGE), len(texts) - len(_EDGE)):
        known = places.setdefault((texts[place - 1], texts[place + 1]), [])
        if len(known) < _PLACES:
            known.append(place)
    return places

"""Finds a word that was put for another in what is otherwise a quotation.

Where the words on both sides are those of the evidence, and between them the evidence has another word, the claim does
not say the same in its own words: whoever writes freely changes more than one word in seven.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from groundwire.checks.epistemic.atoms import Atom
from groundwire.checks.epistemic.evidence import Sentence
from groundwire.checks.values_statements import Statement
from groundwire.checks.values_tokens import Token

_BESIDE: Final = ((3, 3), (2, 4), (4, 2), (1, 5), (5, 1))
"""So many words before it and behind it are the same; the start and the end of a sentence count as three words."""
_ALIKE: Final = 4  # letters at the start of two words that are forms, or spellings, of one

Context = tuple[str | int, ...]


def replaced(atom: Atom, window: Sequence[Sentence]) -> bool:
    """Tell whether a word of a claim stands where its window has another one, between the same words."""
    held = [sentence.place.keys() for sentence in window]
    strange = {
        unit.start for unit in atom.units if unit.stem and all(unit.keys.isdisjoint(keys) for keys in held)
    }
    if not strange:
        return False
    own = {token.text for token in atom.statement.tokens}
    asked = [(token, context) for token, context in _contexts(atom.statement) if token.start in strange]
    there = [_slots(sentence.statement) for sentence in window]
    return any(
        _is_another(token, other, own)
        for token, context in asked
        for slots in there
        if (other := slots.get(context))
    )


def _is_another(token: Token, other: Token, own: set[str]) -> bool:
    """Tell whether a word says something else, and did not only change its place."""
    moved = other.stems and other.text in own
    return not (other.value or moved or other.text[:_ALIKE] == token.text[:_ALIKE])


def _slots(statement: Statement) -> Mapping[Context, Token]:
    return {context: token for token, context in _contexts(statement)}


def _contexts(statement: Statement) -> Iterator[tuple[Token, Context]]:
    """Yield each word with those before it and behind it."""
    words = [token for token in statement.tokens if not token.mark]
    edge = [""] * 3
    texts = [*edge, *(token.text for token in words), *edge]
    for place, token in enumerate(words, start=len(edge)):
        for before, behind in _BESIDE:
            if place >= before and place + behind < len(texts):
                yield token, (before, *texts[place - before : place], *texts[place + 1 : place + 1 + behind])

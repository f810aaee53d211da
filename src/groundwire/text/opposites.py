"""Words of which a thing is one or the other: enabled and disabled, mandatory and optional, bought and sold.

English only, and the one table of opposites for claims and for answers. Each line is one pair of opposites: words of
one side, a bar, words of the other. Verbs and nouns stand in their base form, and so in all forms. Words of one side
say nearly the same of a thing, so they are compared as one word. What a prefix denies is read by
`groundwire.text.negation` and takes the other side of the plain word: unlocked, illegal, disagree.

Signatures of stored claims depend on this table: whoever changes it changes
`groundwire.checks.dedup.signature.SIGNATURE`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from groundwire.text.clauses import forms_of, role_of, stem_of
from groundwire.text.lists import tables
from groundwire.text.negation import is_affixed, without_affix
from groundwire.text.stems import CARDINALS


class Side(NamedTuple):
    """A pair of opposites, named by its first word, and the side of it that a word is on."""

    pair: str
    first: bool


def _read(table: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the name of each pair, and the words of its sides; lines that begin with "+" continue a pair."""
    name = ""
    for line in tables(__package__)[table].removesuffix(";").split(";"):
        pair = line.strip()
        one, other = (half.split() for half in pair.removeprefix("+ ").split("|"))
        name = name if pair.startswith("+") else one[0]
        yield name, one, other


def _sides() -> dict[str, Side]:
    sides: dict[str, Side] = {}
    for name, one, other in _read("contradictions"):
        for word in one:
            sides.setdefault(stem_of(word), Side(name, first=True))
        for word in other:
            sides.setdefault(stem_of(word), Side(name, first=False))
    return sides


_SIDES: Final = _sides()
_SIDES_OF_PARTICLES: Final = {
    word: Side(name, first)
    for name, *sides in _read("particles")
    for first, words in zip((True, False), sides, strict=True)
    for word in words
}
_LOOSE: Final = frozenset(("up", "down", "on", "off"))


def side_of(token: str) -> Side | None:
    """Return the pair of opposites that a token in lower case belongs to, if any."""
    side = _SIDES.get(stem_of(token))
    if side is None and is_affixed(token):
        bare = _SIDES.get(stem_of(without_affix(token)))
        return bare and Side(bare.pair, not bare.first)
    return side


def may_be_particle(token: str) -> bool:
    """Tell whether a function word has a side in some places: see `side_of_particle`."""
    return token in _SIDES_OF_PARTICLES


def side_of_particle(tokens: Sequence[str], place: int) -> Side | None:
    """Return the side of a function word behind the verb; none of "on Monday", "up to 30", "more than 30"."""
    behind = tokens[place + 1 : place + 3]
    bounds = any(word in CARDINALS or word[0].isdigit() for word in behind)
    free = not behind or role_of(behind[0]) or tokens[place] not in _LOOSE
    return _SIDES_OF_PARTICLES[tokens[place]] if free and not bounds else None


def opposite_words() -> Iterator[tuple[str, str]]:
    """Yield each word, in all its irregular forms too, with each that stands in for its opposite in a text."""
    for _, one, other in (*_read("contradictions"), *_read("counterparts")):
        others = [form for word in other for form in forms_of(word)]
        yield from ((form, opposed) for word in one for form in forms_of(word) for opposed in others)

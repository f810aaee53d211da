"""Words that say the same of a thing, so that claims which differ in them alone are compared by their values.

A measure is named by a noun, a verb or an adjective: "costs 12 euros", "the price is 15 euros"; and who does something
by its verb: "is owned by", "the owner is". Each line is one such meaning; nouns and verbs stand in their base form, and
so in all forms.

Signatures of stored claims depend on this table: whoever changes it changes
`groundwire.checks.dedup.signature.SIGNATURE`.
"""

from __future__ import annotations

from typing import Final

from groundwire.text.clauses import stem_of
from groundwire.text.lists import tables
from groundwire.text.opposites import side_of


def _table() -> dict[str, str]:
    found: dict[str, str] = {}
    for group in tables(__package__)["same"].removesuffix(";").split(";"):
        first, *others = group.split()
        side = side_of(first)
        for word in others:
            found[stem_of(word)] = f"={side.pair}" if side else stem_of(first)
    return found


_STEMS: Final = _table()


def same_stem(stem: str) -> str:
    """Return the stem by which a word is compared that others stand for too: "cost" for "price"."""
    return _STEMS.get(stem, stem)

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
from groundwire.text.opposites import side_of

_SAME: Final = """
cost price
last duration take
weigh weight
tall height
long length
wide width
deep depth
old age
fast speed
hold capacity seat carry accommodate
keep retention store storage
due deadline
write author
own owner
manage manager
lead leader
found founder
publish publisher
direct director
arrive land
population inhabitant
require requirement
permission allow
reservation reserve
delivery deliver
departure depart
closure close
"""


def _table() -> dict[str, str]:
    found: dict[str, str] = {}
    for line in _SAME.strip().splitlines():
        first, *others = line.split()
        side = side_of(first)
        for word in others:
            found[stem_of(word)] = f"={side.pair}" if side else stem_of(first)
    return found


_STEMS: Final = _table()


def same_stem(stem: str) -> str:
    """Return the stem by which a word is compared that others stand for too: "cost" for "price"."""
    return _STEMS.get(stem, stem)

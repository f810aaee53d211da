"""Which values tell what happened, so that with others it is another event: dates and ordinals of what can repeat.

Who visited Rome in 2010 may have been there in 2012 too, and who won the first round may win the second. What is told
in the past with any verb can have happened again, but for a few: a school is founded once. So may what is told of a
numbered thing ("ticket 310"), of which one event of a kind is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from groundwire.text.clauses import ADVERBS, AUXILIARIES, BE, is_past, participle_at, role_of, stem_of
from groundwire.text.lists import words_in
from groundwire.text.opposites import side_of
from groundwire.text.stems import ORDINALS, words_of

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from groundwire.text.clauses import Clause


def _name_of(verb: str) -> str:
    side = side_of(verb)
    return side.pair if side else stem_of(verb)


# What happens once to a thing or a person, or so rarely that another date is taken for an error.
_ONCE: Final = frozenset(
    map(
        _name_of,
        words_in(__package__, "once"),
    )
)
_PAST: Final = words_of("was were wasn't weren't had hadn't has have hasn't haven't did didn't")
_BEFORE_VERB: Final = AUXILIARIES | ADVERBS
_PLACED: Final = words_of("place position rank floor quarter")  # behind the verb they say where or when
_NEAREST: Final = 2  # words from "was" to the date that it states


def repeats(tokens: Sequence[str], clause: Clause, dated: Collection[int], named: Collection[int]) -> bool:
    """Tell whether a claim tells of an event of a kind that may have happened on other dates as well."""
    if named or clause.verb >= len(tokens):
        return False
    verb = tokens[clause.verb]
    main = participle_at(tokens, clause.verb) or clause.verb
    if main == clause.verb and verb in BE:  # "the meeting was on Tuesday", but "the bus was late on Tuesday"
        return verb in _PAST and not any(0 < place - main <= _NEAREST for place in dated)
    past = verb in _PAST
    while verb in AUXILIARIES and main + 1 < len(tokens) and tokens[main] in _BEFORE_VERB:
        main += 1
    past = past or (main > 0 and verb not in AUXILIARIES and is_past(verb))
    return past and _name_of(tokens[main]) not in _ONCE


def is_ordinal_name(tokens: Sequence[str], place: int, *, leads: bool) -> bool:
    """Tell whether a word numbers the noun behind it: "the second round", not "in second place" or "came second"."""
    if tokens[place] not in ORDINALS or place + 1 == len(tokens):
        return False
    follower = tokens[place + 1]
    return follower.isalpha() and not role_of(follower) and (leads or follower not in _PLACED)

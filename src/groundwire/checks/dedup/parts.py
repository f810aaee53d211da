"""What claims are compared by besides their words: wording, amounts, phrases that can move, events that can repeat.

A measure is named by a noun, a verb or an adjective ("costs 12 euros", "the price is 15 euros"): they have one stem.
Amounts are compared by value, whatever the unit is called: 90 minutes are 1.5 hours, 2 pm is 14:00; how they are
written is kept beside that. A phrase that opens a claim ("After 20:00 visitors use the side door") ends at its comma,
behind a date, a time or an amount, or before the article of the next noun. A date or ordinal tells which event is meant
where it can repeat: who visited Rome in 2010 may have been there in 2012, but a school is founded once.

Signatures of stored claims depend on all of it, and on `words.txt`: whoever changes one changes
`groundwire.checks.dedup.signature.SIGNATURE`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

from groundwire.checks.values.units import unit_readings
from groundwire.text.clauses import (
    ADVERBS,
    AUXILIARIES,
    BE,
    EACH,
    FUNCTION_WORDS,
    Clause,
    is_past,
    participle_at,
    role_of,
    stem_of,
)
from groundwire.text.lists import tables, words_in
from groundwire.text.negation import side_of
from groundwire.text.quantities import is_unit, may_be_time, may_count, may_date, quantities
from groundwire.text.stems import ORDINALS, words_of
from groundwire.text.tokens import tokenize


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


_LONGEST_NUMBER: Final = 40  # characters of a number that is converted


def amounts(tokens: Sequence[str]) -> list[tuple[str, str]]:
    """Return kind and value of what is counted: N numbers with no unit, n and Q with one, U units without a number."""
    numbers, units = quantities(tokens)
    found: list[tuple[str, str]] = []
    for unit in units:
        value, _, name = unit.partition(" ") if unit[0].isdigit() or unit[0] == "-" else ("", "", unit)
        while name[:1].isdigit():  # "2 30 pm"
            rest, _, name = name.partition(" ")
            value = f"{value} {rest}"
        member = value if value in numbers else ""
        if not member:
            member = next((number for number in numbers if number.lstrip("<>=") == value), "")
        if not member or name.startswith("/"):
            found.append(("U", unit))
            continue
        bound, at = member.removesuffix(value), numbers.index(member)
        if alone := value if name == "x" else _clock(value, name):  # "three times", "2 pm"
            numbers[at] = bound + alone
        else:
            if name == "m" and "m" in tokens:
                name = "metre"  # "30 m" is a length; "30m" may be minutes
            del numbers[at]
            found += [("n", member), ("Q", bound + _in_base_units(value, name))]
    return [("N", number) for number in numbers] + found


def _clock(value: str, name: str) -> str:
    """Return an hour of half a day as one of the whole day: "14 0" for 2 pm, as 14:00 is read."""
    hour, _, minute = value.partition(" ")
    if name not in {"am", "pm"} or not hour.isdecimal() or len(hour) > 2:
        return ""
    return f"{int(hour) % 12 + 12 * (name == 'pm')} {minute or 0}"


@lru_cache(1 << 12)
def _in_base_units(value: str, name: str) -> str:
    readings, _ = unit_readings(name)
    if not readings or len(value) > _LONGEST_NUMBER:
        return f"{value} {name}"
    dimension, factor = readings[0]
    try:
        return f"{Fraction(value) * factor} {dimension}"
    except ValueError:
        return f"{value} {name}"


_CONDITIONS: Final = words_of("when whenever if while once unless")
_LEADING: Final = words_of("only always usually starting beginning")
_SUBJECTS: Final = words_in(__package__, "subjects")
_NO_END: Final = words_of("and or nor but than of at least most all both")
_SEASONS: Final = words_in(__package__, "seasons")
_COMMA: Final = re.compile(r",\s")
_LONGEST: Final = 16  # words of a phrase that is moved
_SHORTEST: Final = 4  # words of a claim that has one


def in_place(tokens: list[str], sentence: str, first: int) -> tuple[list[str], range]:
    """Return a claim's tokens with the opening phrase moved to the end of its sentence, and its places."""
    end = _opening(tokens[:first], sentence)
    moved = [*tokens[end:first], *tokens[:end], *tokens[first:]] if end else tokens
    return moved, range(first - end, first)


def _opening(tokens: Sequence[str], sentence: str) -> int:
    """Return how many words open a sentence as a phrase that could as well stand at its end; 0 for none."""
    if len(tokens) < _SHORTEST or not _opens(*tokens[tokens[0] in _LEADING :][:2]):
        return 0
    comma = _COMMA.search(sentence)
    end = _end(tokens[: _LONGEST + 1], len(tokenize(sentence[: comma.start()])) if comma else 0)
    return end if end < len(tokens) - 1 else 0


def _opens(token: str, follower: str) -> bool:
    """Tell whether a word may begin such a phrase: "After 20:00", "Every morning", "When"."""
    timed = token in EACH and (_measures(follower) or may_count(follower))
    return bool(role_of(token)) or timed or token in _CONDITIONS


def _end(tokens: Sequence[str], comma: int) -> int:
    """Return where the phrase ends that words open; 0 where that cannot be told."""
    said = tokens[0] not in _CONDITIONS  # a condition has a verb of its own
    for place in range(2, len(tokens)):
        token, before = tokens[place], tokens[place - 1]
        if place == comma:
            return place
        if said and before in AUXILIARIES and not (may_date(before) and may_count(tokens[place - 2])):
            return 0  # the verb, but for "3 May"
        if said and token in _SUBJECTS and not role_of(before) and before not in _NO_END:
            return place
        if (
            said
            and _measures(before)
            and not (token in FUNCTION_WORDS or may_count(token) or _measures(token))
        ):
            return place
        said = said or (before in AUXILIARIES and token not in FUNCTION_WORDS)
    return 0


def _measures(token: str) -> bool:
    return is_unit(token) or may_date(token) or may_be_time(token) or token in _SEASONS


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

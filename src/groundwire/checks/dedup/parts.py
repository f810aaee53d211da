"""What claims are compared by besides their words: wording, amounts, phrases that move, events that repeat, and frames.

Amounts are compared by value, whatever the unit is called: 90 minutes are 1.5 hours, 2 pm is 14:00; the written form is
kept beside that. A date or ordinal tells which event is meant where it can repeat: who visited Rome in 2010 may have
been there in 2012, but a school is founded once. Stored signatures depend on all of it, and on `words.txt`: whoever
changes one changes `groundwire.checks.dedup.signature.SIGNATURE`.

"The lexer is written in Zig" has the frame "lexer, written in"; "in OCaml" contradicts it. Frames are few: a verb that
places its subject, "is" before a place or behind a noun of which a thing has but one, or before a name or one of a
small class of adjectives. What somebody likes, uses or reads has none.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final, NamedTuple

from groundwire.checks.dedup.notes import LABELS, head_at, is_of_entry, is_value, names_sole, stage_at
from groundwire.checks.reading.units import unit_readings
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

_STEMS: Final = {
    stem_of(word): f"={side.pair}" if (side := side_of(first)) else stem_of(first)
    for group in tables(__package__)["same"].removesuffix(";").split(";")
    for first, *others in (group.split(),)
    for word in others
}


def same_stem(stem: str) -> str:
    """Return the stem by which a word is compared that others share: "cost" for "price", "usa" for "u.s.a"."""
    if "." in stem and _DOTTED.fullmatch(stem):
        stem = stem.replace(".", "")
    return _STEMS.get(stem, stem)


_DOTTED: Final = re.compile(r"(?:[a-z]\.){1,8}[a-z]")


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
    said, end = tokens[:first], 0
    if len(said) >= _SHORTEST:
        token, follower = said[said[0] in _LEADING :][:2]
        timed = token in EACH and (_measures(follower) or may_count(follower))
        if role_of(token) or timed or token in _CONDITIONS:
            comma = _COMMA.search(sentence)
            end = _end(said[: _LONGEST + 1], len(tokenize(sentence[: comma.start()])) if comma else 0)
    if not 0 < end < len(said) - 1:
        return tokens, range(first, first)
    return [*tokens[end:first], *tokens[:end], *tokens[first:]], range(first - end, first)


def _end(tokens: Sequence[str], comma: int) -> int:
    """Return where the phrase ends that words open; 0 where that is unclear."""
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
_ONCE: Final = frozenset(map(_name_of, words_in(__package__, "once")))
_PAST: Final = words_of("was were wasn't weren't had hadn't has have hasn't haven't did didn't")
_BEFORE_VERB: Final = AUXILIARIES | ADVERBS
_PLACED: Final = words_of("place position rank floor quarter")  # behind the verb they say where or when
_NEAREST: Final = 2  # words from "was" to the date that it states


def repeats(tokens: Sequence[str], clause: Clause, dated: Collection[int], named: Collection[int]) -> bool:
    """Return whether a claim tells of an event of a kind that may have happened on other dates as well."""
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
    """Return whether a word numbers the noun behind it: "the second round", not "in second place" or "came second"."""
    if tokens[place] not in ORDINALS or place + 1 == len(tokens):
        return False
    follower = tokens[place + 1]
    return follower.isalpha() and not role_of(follower) and (leads or follower not in _PLACED)


def _stems_of(text: str) -> frozenset[str]:
    return frozenset(map(stem_of, text.split()))


# Verbs and participles, and the prepositions behind which there can be only one thing; "-": none.
_PLACING_TABLE: Final = """
written: in by
kept stored located situated hosted based housed placed parked filed archived held: in on at by with under
set tuned switched: to
owned led headed managed maintained chaired directed published manufactured made: by of
run: by of on
stands lives lies resides sits hangs: in at on under behind near
belongs reports married moved relocated goes points defaults: to
comes come: from
licensed: under
served sent handled shipped: by from with via to through
deployed installed mounted: on in at to
scheduled planned due: for on in
born: in on
rehearses meets works: in at for
painted named called titled labelled: -
"""
_PLACING: Final = {
    stem_of(verb): frozenset(prepositions.replace("-", "").split() or [""])
    for verbs, prepositions in (line.split(":") for line in _PLACING_TABLE.strip().splitlines())
    for verb in verbs.split()
}
_MOVING: Final = _stems_of("moved relocated")  # who did so lives there
_HAS: Final = frozenset(("has", "have"))
_STANDING: Final = _stems_of("stands lies sits located situated placed")  # where "is" says as much
# Of which one does it: "is owned by", "owns", "is the owner of".
_DOING: Final = _stems_of("own lead head manage maintain run chair direct publish write")
_FOR_GOOD: Final = frozenset(f"{stem} by" for stem in _stems_of("direct publish write"))
_PAST_BE: Final = frozenset(("was", "were", "wasn't", "weren't", "had"))
_INDEFINITE: Final = words_of("a an one some another")
_PLACES: Final = frozenset(("in", "at", "on", "under", "behind", "near"))
_ARTICLES: Final = frozenset(("a", "an", "the"))
_RELATIVE: Final = frozenset(("that", "which", "who", "where"))
_USES: Final = words_of("use uses using")
_USERS: Final = words_of("we i the our this")
_PURPOSE: Final = frozenset(("for", "to", "as"))
_COMMANDS: Final = words_of(
    "run format lint build test deploy install manage write store send publish serve check"
)
_MEANS: Final = frozenset(("with", "via", "using", "through"))
_DEFINITE: Final = words_of("the my our your his her its their")
# Of which a thing has but one, and of which it may have many.
_ATTRIBUTES: Final = _stems_of("""
name surname nickname title colour color owner author maintainer manager leader director ceo cto cfo chair president
mayor captain editor head capital currency birthday birthplace password default status state type kind format version
size shape material location address home headquarters seat venue date deadline priority severity level mode theme
font provider vendor supplier broker database engine framework compiler language host hostname port protocol region
zone timezone locale country city town street floor nationality religion profession job position employer doctor vet
dentist lawyer wife husband spouse mother father boss supervisor model brand make manufacturer operator landlord
winner champion favourite favorite motto slogan sponsor architect designer founder successor predecessor branch
default group nickname motto coach trainer
""")
_MANY: Final = _stems_of("""
friend colleague child son daughter brother sister member customer client user supplier partner sponsor example
contributor hobby neighbour visitor guest student employee
""")
# Adjectives of one kind, of which a thing is one.
_CLASS_TABLE: Final = """
colour: red green blue yellow black white orange purple pink brown grey gray beige turquoise silver
size: small medium large tiny huge
grade: minor major critical trivial moderate severe negligible
stage: draft final running approved rejected
material: wooden metal steel plastic glass stone concrete leather paper
"""
_CLASSES: Final = {
    word: kind
    for kind, words in (line.split(":") for line in _CLASS_TABLE.strip().splitlines())
    for word in words.split()
}


class Frame(NamedTuple):
    """Verb and preposition, empty for no frame; the places of the words that it is said of, and of its fillers."""

    text: str = ""
    about: Sequence[int] = ()
    fillers: Sequence[int] = ()


def frame_of(tokens: Sequence[str], clause: Clause, names: Collection[str], label: int, end: int) -> Frame:
    """Return the frame of a claim whose first sentence has `end` words, of which the first `label` are its label."""
    verb = clause.verb
    if label and verb == label:
        return _labelled(tokens, label, end)
    if not tokens or tokens[0] in _INDEFINITE:
        return Frame()
    if (used := _used(tokens, verb, end)).text or not verb:
        return used
    if all(token in names for token in tokens[:verb]) and (turned := _turned(tokens, verb)):
        return turned
    predicate, start = _predicate(tokens, clause, names)
    if not predicate:
        return Frame()
    if predicate == "be":
        predicate, about = _done(tokens, range(verb))
    else:
        about = range(verb)
    if predicate == "be stage":
        return Frame("be stage\0", about, range(start, start + 1))
    text = _timed(predicate, past=tokens[verb] in _PAST_BE)
    return Frame(text, about, range(verb, _end_of_noun(tokens, start)))


def _labelled(tokens: Sequence[str], label: int, end: int) -> Frame:
    """Return the frame of "Default branch: main", as of "the default branch is main"."""
    start = label + 1
    if stage := stage_at(tokens, start):
        return Frame("be stage\0", range(label), range(stage, stage + 1))
    head = tokens[head_at(tokens[:label])]
    one = head in LABELS or stem_of(head) in _ATTRIBUTES
    plural = head.endswith("s") and not head.endswith(("ss", "us", "is"))
    if plural or is_of_entry(tokens[:label]) or not is_value(tokens[start:end], of_one=one):
        return Frame()
    return Frame("be\0", range(label), range(start, end))


def _used(tokens: Sequence[str], verb: int, end: int) -> Frame:
    """Return the frame of what serves a purpose: "we use Kafka for events", "run the tests with pytest"."""
    place = 0 if tokens[0] in _USES else verb
    if tokens[place] in _USES and (tokens[:place] == [] or tokens[0] in _USERS):
        purpose = next((at for at in range(place + 2, end) if tokens[at] in _PURPOSE), 0)
        about = range(purpose, _end_of_noun(tokens, purpose + 1))
        return Frame("use\0", about, range(place + 1, purpose)) if purpose else Frame()
    if tokens[0] in _COMMANDS:
        means = next((at for at in range(2, end) if tokens[at] in _MEANS), 0)
        return Frame("with\0", range(means), range(means + 1, end)) if means else Frame()
    return Frame()


def _turned(tokens: Sequence[str], verb: int) -> Frame | None:
    """Return the frame of a claim that names first what fills it: "Ada owns the mill", "Ada is its owner"."""
    start, end = verb + 1, len(tokens)
    if start >= end or tokens[start] not in _DEFINITE:
        return None
    stem, fillers = same_stem(stem_of(tokens[verb])), range(start)
    if stem in _DOING and _end_of_noun(tokens, start) == end:
        return Frame(_timed(f"{stem} by", past=is_past(tokens[verb])), range(start, end), fillers)
    if tokens[verb] not in BE or head_of(tokens[start:]) not in _ATTRIBUTES:
        return None
    predicate, about = _done(tokens, range(start, end))
    return Frame(_timed(predicate, past=tokens[verb] in _PAST_BE), about, fillers)


def _done(tokens: Sequence[str], about: range) -> tuple[str, Sequence[int]]:
    """Return predicate and subject of what somebody is to a thing: "own by" and "mill" of "the owner of the mill"."""
    head = same_stem(head_of(tokens[about.start : about.stop]))
    if head not in _DOING:
        return "be", about
    return f"{head} by", [place for place in about if same_stem(stem_of(tokens[place])) != head]


def _timed(predicate: str, *, past: bool) -> str:
    return f"{predicate}\0{'past' if past and predicate not in _FOR_GOOD else ''}"


def _end_of_noun(tokens: Sequence[str], start: int) -> int:
    while start < len(tokens) and tokens[start] in _ARTICLES:
        start += 1
    while start < len(tokens) and tokens[start] not in FUNCTION_WORDS:
        start += 1
    return start


def _predicate(tokens: Sequence[str], clause: Clause, names: Collection[str]) -> tuple[str, int]:
    participle = participle_at(tokens, clause.verb)
    place = participle or clause.verb
    if tokens[place] in _HAS and place + 1 < len(tokens) and is_past(tokens[place + 1]):
        place += 1
    stem, start = stem_of(tokens[place]), place + 1
    placed = stem in _PLACING and "".join(tokens[start : start + 1]) in _PLACING[stem]
    if (
        not placed
        and (participle or tokens[place] in BE)
        and (stage := stage_at(tokens, participle or start))
    ):
        return "be stage", stage
    while start < len(tokens) and tokens[start] in ADVERBS:
        start += 1
    preposition = tokens[start] if start < len(tokens) and role_of(tokens[start]) else ""
    thing = tokens[start + 1] if preposition and start + 1 < len(tokens) else ""
    definite = preposition in _PLACES and (thing in _DEFINITE or thing in names)
    if stem in _STANDING and definite:
        return f"be {preposition}", start + 1
    if stem in _PLACING:
        fits = preposition in _PLACING[stem]
        if stem in _MOVING and fits:
            return "liv in", start + 1
        return (f"{same_stem(stem)} {preposition}", start + bool(preposition)) if fits else ("", 0)
    if participle or tokens[place] not in BE or start >= len(tokens):
        return "", 0
    if preposition:
        return (f"be {preposition}", start + 1) if definite else ("", 0)
    ends = start + 1 == len(tokens) or tokens[start + 1] in FUNCTION_WORDS
    if ends and tokens[start] in _CLASSES:
        return f"be {_CLASSES[tokens[start]]}", start
    head = head_of(tokens[: clause.verb])
    single = (
        head in _ATTRIBUTES or (tokens[start] in names and head not in _MANY) or names_sole(tokens[:place])
    )
    return ("be", start) if single else ("", 0)


def head_of(tokens: Sequence[str]) -> str:
    """Return the stem of the noun that a phrase is about: "vet" of "the vet of the farm"; "" where it has none."""
    head = ""
    for place, token in enumerate(tokens):
        if place and (role_of(token) or token in _RELATIVE):
            break
        if token not in FUNCTION_WORDS:
            head = token
    return stem_of(head) if head else ""

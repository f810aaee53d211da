"""What a thing can have but one of: the frame of a claim, and what fills it.

"The lexer is written in Zig" has the frame "lexer, written in"; who says OCaml instead contradicts it. Frames are
few: a verb that places its subject, "is" before a place or behind a noun of which a thing has but one, or before a
name or one of a small class of adjectives. What somebody likes, uses or reads has none.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from groundwire.checks.dedup.parts import same_stem
from groundwire.text.clauses import BE, FUNCTION_WORDS, Clause, is_past, participle_at, role_of, stem_of
from groundwire.text.stems import words_of


def _stems_of(text: str) -> frozenset[str]:
    return frozenset(map(stem_of, text.split()))


# Verbs and participles, and the prepositions behind which only one thing can stand; "-": none.
_PLACING_TABLE: Final = """
written: in by
kept stored located situated hosted based housed placed parked filed archived held: in on at by with under
set tuned switched: to
owned led headed managed maintained run chaired directed published manufactured made: by of
stands lives lies resides sits hangs: in at on under behind near
belongs reports married: to
licensed: under
deployed installed mounted: on in at
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
_STANDING: Final = _stems_of("stands lies sits located situated placed")  # where "is" says as much
# Of which one does it: "is owned by", "owns", "is the owner of".
_DOING: Final = _stems_of("own lead head manage maintain run chair direct publish write")
_FOR_GOOD: Final = frozenset(f"{stem} by" for stem in _stems_of("direct publish write"))
_PAST: Final = frozenset(("was", "were", "wasn't", "weren't", "had"))
_INDEFINITE: Final = words_of("a an one some another")
_PLACES: Final = frozenset(("in", "at", "on", "under", "behind", "near"))
_ARTICLES: Final = frozenset(("a", "an", "the"))
_RELATIVE: Final = frozenset(("that", "which", "who", "where"))
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
stage: draft final planned running pending approved rejected finished cancelled postponed
material: wooden metal steel plastic glass stone concrete leather paper
"""
_CLASSES: Final = {
    word: kind
    for kind, words in (line.split(":") for line in _CLASS_TABLE.strip().splitlines())
    for word in words.split()
}


class Frame(NamedTuple):
    """What a claim says that one thing can fill.

    Attributes:
        text: verb and preposition; empty where there is no such thing.
        about: places of the words that tell of what it is said.
        fillers: places of the words that fill it.
    """

    text: str = ""
    about: Sequence[int] = ()
    fillers: Sequence[int] = ()


def frame_of(tokens: Sequence[str], clause: Clause, names: Collection[str]) -> Frame:
    """Return the frame of a claim."""
    verb = clause.verb
    if not verb or tokens[0] in _INDEFINITE:
        return Frame()
    if all(token in names for token in tokens[:verb]) and (turned := _turned(tokens, verb)):
        return turned
    predicate, start = _predicate(tokens, clause, names)
    if not predicate:
        return Frame()
    if predicate == "be":
        predicate, about = _done(tokens, range(verb))
    else:
        about = range(verb)
    text = _timed(predicate, past=tokens[verb] in _PAST)
    return Frame(text, about, range(verb, _end_of_noun(tokens, start)))


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
    return Frame(_timed(predicate, past=tokens[verb] in _PAST), about, fillers)


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
    stem, start = stem_of(tokens[place]), place + 1
    preposition = tokens[start] if start < len(tokens) and role_of(tokens[start]) else ""
    thing = tokens[start + 1] if preposition and start + 1 < len(tokens) else ""
    definite = preposition in _PLACES and (thing in _DEFINITE or thing in names)
    if stem in _STANDING and definite:
        return f"be {preposition}", start + 1
    if stem in _PLACING:
        fits = preposition in _PLACING[stem]
        return (f"{same_stem(stem)} {preposition}", start + bool(preposition)) if fits else ("", 0)
    if participle or tokens[place] not in BE or start >= len(tokens):
        return "", 0
    if preposition:
        return (f"be {preposition}", start + 1) if definite else ("", 0)
    ends = start + 1 == len(tokens) or tokens[start + 1] in FUNCTION_WORDS
    if ends and tokens[start] in _CLASSES:
        return f"be {_CLASSES[tokens[start]]}", start
    head = head_of(tokens[: clause.verb])
    single = head in _ATTRIBUTES or (tokens[start] in names and head not in _MANY)
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

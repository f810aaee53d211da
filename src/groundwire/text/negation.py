"""Negations and opposites: the one list of words of each, and the questions that checks ask of them. English only.

What reverses a statement word by word (not, never, un-, -less, "fails to") is a negation; pairs of opposites ("allows"
and "blocks", "all" and "some") are not. Words of one side of a pair say nearly the same, so they are compared as one;
what a prefix denies takes the other side of the plain word: unlocked, illegal, disagree (S0-121, C-41).

Signatures of stored claims depend on `negations` and on the table of opposites: whoever changes them changes
`groundwire.checks.dedup.signature.SIGNATURE` too.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from groundwire.text.clauses import forms_of, role_of, stem_of
from groundwire.text.lists import tables, words_in
from groundwire.text.stems import CARDINALS, content_words, stem, uninflected, words_of
from groundwire.text.tokens import CACHED_LENGTH, per_token

FULL: Final = "not"
WEAK: Final = "rarely"

# They reach the words behind them and mean nothing else.
_FUNCTION_WORDS: Final = words_in(__package__, "function_words")
_WEAK_WORDS: Final = words_of("hardly barely scarcely rarely seldom")
_CONTRACTED: Final = words_in(__package__, "contracted")
# Negations only in front of "to".
_BEFORE_TO: Final = words_in(__package__, "before_to")
# Negations only in front of a verb in "-ing", or of "of".
_BEFORE_ING: Final = words_in(__package__, "before_ing")
DENYING: Final = {
    word: tuple(endings.split())
    for words, endings in (
        (_BEFORE_TO, "to"),
        (_BEFORE_ING, "ing"),
        (_BEFORE_TO & _BEFORE_ING, "to ing"),
        (words_of("refrain refrains refrained abstain abstains abstained"), "from"),
        (words_of("give gives gave given"), "up"),
        (words_of("unable yet"), "to"),
        (words_of("instead incapable"), "of"),
    )
    for word in words
}
"""Word that denies before another one -> how that one may end."""
_NO_DOING: Final = words_in(__package__, "no_doing")
"""Words in -ing that say no doing: who skips one denies nothing."""
# They reach nothing: what they negate is in another clause, or in themselves.
_BARE: Final = words_of("unless except false disable disables disabled disabling")
_EXCLUDING: Final = {"exclude": "include", "excludes": "includes", "excluded": "included"}
_SIGNS: Final = words_of("!= !== ≠ ¬ disconnected excluding")
_FULL_WORDS: Final = _FUNCTION_WORDS | _CONTRACTED | _BARE | _EXCLUDING.keys() | _SIGNS
_SAY_NOTHING: Final = _FUNCTION_WORDS | _WEAK_WORDS | _CONTRACTED | _BARE

# Prefixes with which other words begin too -> the words in front of which they deny. "un-", "non-" and "-less" deny
# nearly always, and "in-" in front of what ends in "-able".
_PREFIX_TABLE: Final = """
in: accurate active adequate advisable animate appropriate articulate attentive audible capable clement coherent
    compatible competent complete conclusive congruent considerate consistent conspicuous constant convenient correct
    credible curable decent decisive definite dependent determinate direct discreet discriminate distinct edible
    effective efficient elastic elegant eligible equitable essential exact expensive experienced explicable fallible
    fertile finite flexible formal frequent hospitable human humane offensive opportune operable operative
    organic sane secure sensitive separable sincere soluble solvent stability substantial sufficient tangible tolerant
    valid variable visible voluntary vulnerable
im: balance mature measurable mobile modest moral mortal movable mutable palpable partial passable patient penetrable
    perceptible perfect permeable personal plausible polite possible potent practicable practical precise probable
    proper pure
ir: rational reconcilable reducible refutable regular relevant reparable replaceable resistible resolute responsible
    reversible revocable
il: legal legible legitimate liberal literate logical
dis: advantage agree allow appear approve assemble believe comfort confirm connect content continue
    courage credit embark engage entangle favour honest honour integrate join like loyal mount obey own parity please
    possess prefer proportionate prove qualify respect satisfied satisfy similar trust united
de: activate allocate blur carbonise centralise centralize classify commission compress contaminate couple crypt
    escalate frost humidify militarise militarize mobilise mobilize populate register regulate segregate select
    stabilise stabilize value
"""
_PLAIN: Final = {
    prefix: frozenset(map(uninflected, plain.split()))
    for prefix, plain in (
        line.split(":") for line in _PREFIX_TABLE.replace("\n    ", " ").strip().splitlines()
    )
}
# un- but not under, until, unit, union, unique, unify, Unix; non- but not nonce; -less but not regardless.
_AFFIX: Final = re.compile(
    r"un(?!der|til|to$|it|ion|iq|if[ioy]|ivers|ix|ic[oa]|ison|ilateral|ary|cle|ctuous)[a-z-]{3,}$"
    r"|non(?!e$|etheless|ce|sens)[a-z-]{3,}$"
    r"|(?!regard|neverthe|nonethe|wire|harm|blame)[a-z]{3,}less(?:ly|ness)?$"
)
_JOINED: Final = re.compile(r"[-/]")
_PREFIXES: Final = ("dis", "non-", "non", "un", *_PLAIN)


def _either(words: frozenset[str]) -> str:
    return "|".join(sorted(words))


def negations(tokens: Sequence[str]) -> list[str]:
    """Return `FULL` or `WEAK` for each negation among the tokens of a claim, in text order."""
    found: list[str] = []
    if not any(map(may_negate, tokens)):  # as nearly always
        return found
    for place, token in enumerate(tokens):
        if negated := _of_token(token):
            found += negated
        elif denies(tokens, place):
            if token in _BEFORE_TO and place and _of_token(tokens[place - 1]) == (FULL,):
                found.pop()  # "do not forget to lock it", "never fails to lock"
            else:
                found.append(FULL)
    return found


def is_affixed(token: str) -> bool:
    """Return whether a token says what it negates: "unlocked", "invalid", "stateless"."""
    return token in _SIGNS or _AFFIX.match(token) is not None or _is_prefixed(token)


def _is_prefixed(token: str) -> bool:
    for prefix, plain in _PLAIN.items():
        bare = token.removeprefix(prefix)
        if bare != token and not plain.isdisjoint((uninflected(bare), uninflected(bare.removesuffix("ly")))):
            return True
    return False


def may_deny(token: str) -> bool:
    return token in DENYING


def denies(tokens: Sequence[str], place: int) -> bool:
    """Return whether the word at a place denies the next one: "fails to", "stopped recording", "instead of"."""
    endings = DENYING.get(tokens[place])
    if endings is None or place + 1 >= len(tokens):
        return False
    following = tokens[place + 1]
    does = "ing" in endings and following.endswith("ing") and following not in _NO_DOING
    return does or following in endings


def negation_of(word: str) -> str:
    """Return `FULL` or `WEAK` for a word, in lower case, that is a negation by itself, else an empty text."""
    found = _of_token(word) if 0 < len(word) <= CACHED_LENGTH else ()
    return found[0] if found else ""


@lru_cache(1 << 14)
def negated_stems(word: str) -> tuple[str, ...]:
    """Return the stems of what a negating word negates: of "valid" for "invalid", none for "not"."""
    if word in _SAY_NOTHING or word.endswith("n't"):
        return ()
    if word in _EXCLUDING:
        return (stem(_EXCLUDING[word]),)
    return content_words(without_affix(word))


def without_affix(word: str) -> str:
    """Return what a word with a negating affix negates: "locked" of "unlocked", "state" of "stateless"."""
    bare = next((word[len(prefix) :] for prefix in _PREFIXES if word.startswith(prefix)), word)
    return bare.removesuffix("less")


@per_token
def _of_token(token: str) -> tuple[str, ...]:
    if token in _FULL_WORDS or token.endswith("n't"):
        return (FULL,)
    if token in _WEAK_WORDS:
        return (WEAK,)
    if token[:1] == "!":  # "!ready"
        return (FULL,)
    if _AFFIX.match(token) or _is_prefixed(token):
        return (FULL,)
    parts = _JOINED.split(token)
    if len(parts) == 1:
        return ()
    return tuple(FULL for part in parts if part in {"non", "un"} or part in _FULL_WORDS)


@per_token
def may_negate(token: str) -> bool:
    """Return whether a token can be a negation, or begin one: `negations` finds none among others."""
    return token in DENYING or bool(_of_token(token))


_REACH: Final = 120  # characters that a negation reaches: speech written down may go without full stops
_PIECE: Final = 50_000
_LONGEST_MATCH: Final = 64  # characters, with the text around a match
_MOST_PLACES: Final = 100  # at which a quote is looked at; one that is negated at all of these gets its note


# Negations with a reach, in lower-case text: "unhappy" and "invalid" negate themselves alone.
_REACHING: Final = re.compile(
    r"\b(?:not(?! (?:only|just|merely|simply)\b)"
    r"|no(?![,.!?;:]| (?:doubt|wonder|question|matter)\b)"
    r"|nothing(?! but\b)"
    rf"|{_either(_FUNCTION_WORDS - {'not', 'no', 'nothing', 'w/o'})}|{_either(_WEAK_WORDS)}|unlikely"
    rf"|(?:{_either(frozenset(word.removesuffix('nt') for word in _CONTRACTED))})nt"
    r"|den(?:y|ies|ied|ying)|(?:absence|free|instead|incapable) of|rather than|far from|ruled? out|unable to"
    rf"|(?:{_either(_BEFORE_TO)}) to)\b"
    r"|n['\u02bc\u00b4\u2032]t\b|\bw/o\b"
)
_SUBJECT: Final = (
    r"(?:i(?! (?:mean|think|guess|suppose|believe)\b)|we|he|she|they|you(?! know\b)|it|there)\b(?!-)"
)
_CLAUSE_END: Final = re.compile(
    r"[!?;\u2026\u3002]"
    r"|(?<![. ][a-z])(?<!\bdr)(?<!\bmr)(?<!\bms)(?<!\bmrs)(?<!\bvs)(?<!\betc)\.(?=[ \"')\]]|$)"
    r"| (?:--?|[\u2013\u2014]) |\u2014"
    r"| (?=(?:but|however|although|though|whereas|because|when|while|until|after|before|if)\b)"
    rf"|,(?= {_SUBJECT})| (?=(?:and|or|so) {_SUBJECT})"
)


class _Marks(NamedTuple):
    starts: list[int]  # of clauses, in ascending order
    negations: list[int]


class Clauses:
    """The clauses of a source, in the form in which quotes are compared, and the negations in them.

    Only the text around a place is read, until that has cost as much as the whole source does.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._unread = len(source)
        self._whole: _Marks | None = None

    def negates(self, place: int) -> bool:
        return _negates(self._around(place), place)

    def always_negates(self, quote: str, *, whole_words: bool = False) -> bool:
        place = self._source.find(quote)
        for _ in range(_MOST_PLACES):
            if place < 0:
                break
            edges = (place, place + len(quote)) if whole_words else ()
            if any(
                _is_word(self._source[edge - 1 : edge]) and _is_word(self._source[edge : edge + 1])
                for edge in edges
            ):
                place = self._source.find(quote, place + 1)
                continue
            marks = self._around(place)
            if not _negates(marks, place):
                return False
            # on at the first place that may not be negated: past its clause, or out of reach
            reach = marks.negations[bisect_left(marks.negations, place) - 1] + _REACH + 1
            clause = bisect_right(marks.starts, place)
            end = marks.starts[clause] if clause < len(marks.starts) else reach
            place = self._source.find(quote, max(place + 1, min(end, reach)))
        return True

    def _around(self, place: int) -> _Marks:
        """Return the marks that bear on a place.

        No match of `_REACHING` begins within another one, and no match of `_CLAUSE_END` holds a letter: behind the
        negation that counts, the clauses that start are the same wherever before it reading began.
        """
        if self._whole is None:
            start = max(0, place - _REACH)
            beyond = min(place + _REACH + 1, len(self._source))
            self._unread -= beyond - start
            if self._unread > 0:
                return _marks(self._source, start, place, beyond)
            self._whole = _marks(self._source, 0, len(self._source), len(self._source))
        return self._whole


def negation_places(text: str) -> list[tuple[int, int]]:
    """Return where negations with a reach stand in a text."""
    lowered = text.lower()
    return [one.span() for one in _all(_REACHING, lowered, 0, len(text))] if len(lowered) == len(text) else []


def _marks(source: str, start: int, place: int, beyond: int) -> _Marks:
    negations = [found.start() for found in _all(_REACHING, source, start, place)]
    ends = _all(_CLAUSE_END, source, start, beyond) if negations else ()  # what nothing negates needs none
    return _Marks([0, *(end.end() for end in ends)], negations)


def _negates(marks: _Marks, place: int) -> bool:
    last = bisect_left(marks.negations, place) - 1
    if last < 0 or place - marks.negations[last] > _REACH:
        return False
    return marks.negations[last] >= marks.starts[bisect_right(marks.starts, place) - 1]


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _all(pattern: re.Pattern[str], text: str, first: int, last: int) -> Iterator[re.Match[str]]:
    """Yield the matches that start from first to last; no call of the engine reads more than a piece of the text."""
    done = 0
    for start in range(first, last, _PIECE):
        beyond = min(start + _PIECE, last)
        for found in pattern.finditer(text, max(start, done), beyond + _LONGEST_MATCH):
            if found.start() < beyond:
                done = found.end()
                yield found


class Side(NamedTuple):
    """A pair of opposites, named by its first word, and the side of it that a word is on."""

    pair: str
    first: bool


def _pairs(table: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the name of each pair, and the words of its sides; lines that begin with "+" continue a pair."""
    name = ""
    for line in tables(__package__)[table].removesuffix(";").split(";"):
        pair = line.strip()
        one, other = (half.split() for half in pair.removeprefix("+ ").split("|"))
        name = name if pair.startswith("+") else one[0]
        yield name, one, other


_SIDES: Final[dict[str, Side]] = {}
for _name, _one, _other in _pairs("contradictions"):
    for _word in _one:
        _SIDES.setdefault(stem_of(_word), Side(_name, first=True))
    for _word in _other:
        _SIDES.setdefault(stem_of(_word), Side(_name, first=False))
_SIDES_OF_PARTICLES: Final = {
    word: Side(name, first)
    for name, *sides in _pairs("particles")
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
    return token in _SIDES_OF_PARTICLES


def side_of_particle(tokens: Sequence[str], place: int) -> Side | None:
    """Return the side of a function word behind the verb; none of "on Monday", "up to 30", "more than 30"."""
    behind = tokens[place + 1 : place + 3]
    bounds = any(word in CARDINALS or word[0].isdigit() for word in behind)
    free = not behind or role_of(behind[0]) or tokens[place] not in _LOOSE
    return _SIDES_OF_PARTICLES[tokens[place]] if free and not bounds else None


def opposite_words() -> Iterator[tuple[str, str]]:
    """Yield each word, in all its irregular forms too, with each that stands in for its opposite in a text."""
    for _, one, other in (*_pairs("contradictions"), *_pairs("counterparts")):
        others = [form for word in other for form in forms_of(word)]
        yield from ((form, opposed) for word in one for form in forms_of(word) for opposed in others)

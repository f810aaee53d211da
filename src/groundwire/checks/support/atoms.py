"""Splits an answer into atomic claims: what can be checked against evidence piece by piece (S4-05). English only.

Headings, lead-ins, questions and courtesy are checked too: they can carry what nobody said. No claims: courtesy, frames
and restated questions without a word of their own, and reports of what the sources lack (S2-21).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple, Protocol

from groundwire.checks.reading.statements import Statement
from groundwire.checks.reading.units import ValueToken
from groundwire.text.clauses import forms_of
from groundwire.text.lists import tables, words_in
from groundwire.text.negation import negations, opposite_words
from groundwire.text.refusals import frame_of, is_courtesy, is_wish, lack_of, presumes, says_nothing
from groundwire.text.stems import stem, words_of
from groundwire.text.work import spend

SPEAKER: Final = words_in(__package__, "speaker")
"""A statement about the speaker or the listener is not supported by evidence that speaks of neither."""
INTERJECTIONS: Final = words_in(__package__, "interjections")
"""Courtesy and assent: nothing that evidence could support."""
ASSENT: Final = words_of("yes yeah yea yep nope")
"""They answer a question that the evidence may not answer."""
APPRAISALS: Final = frozenset(
    map(stem, words_of("true really agree agreed interesting cool great nice funny amazing"))
)
"""Stems of words with which an answer takes up what was said: "that's true", "I agree"."""
CONTRACTED: Final = frozenset(
    f"{word}'{ending}"
    for word in words_of("i you he she it we they that this there here who what where when how")
    for ending in words_of("s m re ve d ll")
)
"""Two function words in one."""
LIGHT: Final = frozenset(map(stem, words_in(__package__, "light")))
"""Stems of words by which an answer speaks of itself and its sources, or that say little in any sentence."""

COURTESY: Final = frozenset(map(stem, words_in(__package__, "courtesy")))
"""Stems of the words of courtesy; a sentence that begins as courtesy does and has others says something."""

_LEADING: Final = frozenset(map(stem, words_in(__package__, "leading")))
"""Stems of words that lead in what an answer says next, and of words for a kind of value below."""

STRONG: Final = words_in(__package__, "strong")
"""They say more than the words of `WEAK`."""
WEAK: Final = words_in(__package__, "weak")
"""A statement with one of these does not support the same statement with a word of `STRONG` instead."""

_BARE: Final = words_of("above below before after under over more less fewer with without")


def _opposites() -> dict[str, frozenset[str]]:
    table: dict[str, set[str]] = {}
    for pair in opposite_words():
        one, other = (word if word in _BARE else stem(word) for word in pair)
        if one != other and pair[0] not in STRONG and pair[0] not in WEAK:  # those are compared by themselves
            table.setdefault(one, set()).add(other)
            table.setdefault(other, set()).add(one)
    return {word: frozenset(others) for word, others in table.items()}


OPPOSITES: Final = _opposites()
"""Stems, and some function words, with what contradicts them in the same place."""
MARKERS: Final = STRONG | WEAK | _BARE
"""Function words that a window keeps, as their stems are empty."""
KEPT: Final = frozenset(chain(MARKERS, SPEAKER))


def _groups(*names: str) -> dict[str, frozenset[str]]:
    """Return stem -> the stems of the same meaning; groups that share a word stay groups of their own."""
    table: dict[str, frozenset[str]] = {}
    for group in ";".join(tables(__package__)[name] for name in names).split(";"):
        stems = frozenset(stem(form) for word in group.split() for form in forms_of(word))
        for one in stems:
            table[one] = table.get(one, frozenset()) | stems
    return table


SAME: Final = _groups("groups")
"""Stem -> all stems of the same meaning, itself among them."""
NEAR: Final = _groups("groups", "near")
"""The same, with words that stand for each other in some sentences: they cover a word, and tell no roles apart."""


WORD: Final = 1.0
NAME: Final = 2.0
LITTLE: Final = 0.25
VALUE: Final = 2.0
"""What a word, a name, a word of `LIGHT` and a value weigh: an invented name or number is worse than another word
for the same thing."""

_LEAST: Final = 3  # content words of a clause that is complete by itself
_LONG: Final = 64  # words of a claim; what is behind them is another one
_FRAMED: Final = 240  # characters that may frame a clause
_WISHED: Final = 3  # words of a good wish
_PRESUMED: Final = 2  # words that a report of what the sources lack may take for granted
_LACKING: Final = 4  # words that only a report of what the sources lack may hold
_READ: Final = 20  # units of work that finding the claims of a statement takes, beside those of its tokens
_TOKEN: Final = 6
_REPORTED: Final = 2  # words behind the first that tell whether it is a name
_DEFINITE: Final = words_of("the a an this that these those his her its their")
_DID: Final = words_in(__package__, "did")
_JOINTS: Final = frozenset(("but", "whereas", "while", "although", "though", "however"))
_TO_COME: Final = re.compile(r"\b(?:will|may|might|can|could|would|should|to)\b")
_RULE: Final = re.compile(r"[ \t|]{0,9}\n[ \t|]{0,9}:?-{2}")
"""What follows the head of a table."""


class Unit(NamedTuple):
    """A word or a value of a claim that evidence has to hold; any of `keys` will do."""

    keys: frozenset[str]
    weight: float
    start: int
    end: int
    stem: str = ""
    value: bool = False
    name: bool = False


@dataclass(slots=True)
class Atom:
    """An atomic claim: its content words and values in text order, its other words in lower case."""

    start: int
    end: int
    units: list[Unit]
    function: list[str]
    statement: Statement


def atoms(
    answer: str, said: Iterable[Statement], given: Given | None = None, *, declared: bool = False
) -> Iterator[Atom]:
    found = [
        atom
        for statement in said
        for atom in _of_statement(answer, statement)
        if declared or given is None or not _claims_nothing(answer, atom, given)
    ]
    if not declared and given and all(_lacks(answer, atom, given, _PRESUMED) for atom in found):
        return  # beside nothing else, "I could not find who built it" is no claim that somebody did
    if declared or all(map(_is_appraisal, found)):
        yield from found
    else:  # beside what it states, an appraisal of what was said before is courtesy
        yield from (atom for atom in found if not _is_appraisal(atom))


class Given(Protocol):
    def holds(self, unit: Unit) -> bool:
        pass

    def asks_of(self, unit: Unit) -> bool:
        pass

    def tells(self, what: str) -> bool:
        pass


def _of_statement(answer: str, statement: Statement) -> Iterator[Atom]:
    spend(_READ + _TOKEN * len(statement.tokens))
    if says_nothing(answer[statement.start : statement.end]):
        return
    text = statement.reading.text
    for place, tokens in enumerate(_clauses(statement.tokens)):
        at = next((token.start for token in tokens if not token.mark), 0) if place else 0
        framed = at + frame_of(text[at : at + _FRAMED])
        said = [token for token in tokens if token.start >= framed] if framed > at else tokens
        if said and (atom := _atom(said, statement, first=place == 0)):
            yield atom


def _claims_nothing(answer: str, atom: Atom, given: Given) -> bool:
    text = answer[atom.start : atom.end]
    if is_wish(text):
        return len(atom.units) <= _WISHED and not any(unit.value or unit.name for unit in atom.units)
    if _lacks(answer, atom, given):
        return True
    if negations(atom.function) or not all(
        _is_known(unit, given) or unit.stem in _LEADING for unit in atom.units
    ):
        return False
    if not ASSENT.isdisjoint(atom.function):
        return False  # "| Is it safe? | Yes |" answers
    whole = answer[atom.statement.start : atom.statement.end].rstrip("*_\"' )")
    leads = whole[-1:] == ":" and ":" not in whole[:-1]
    header = "|" in whole and _RULE.match(answer, atom.statement.end) is not None
    title = whole.startswith(("#", "**")) and whole[-1:] not in {".", "!"}
    empty = LIGHT | _LEADING if leads or header or title else LIGHT
    if is_courtesy(answer[atom.start : atom.end]):
        empty |= COURTESY
    elif "|" in whole and not header:  # the question's words answer it in a row
        return all(unit.stem in LIGHT or unit.stem in _LEADING for unit in atom.units)
    elif not (leads or header or title or whole[-1:] == "?"):
        return False
    return all(unit.stem in empty or given.asks_of(unit) for unit in atom.units)


def _is_known(unit: Unit, given: Given) -> bool:
    return unit.stem in LIGHT or unit.stem in COURTESY or given.holds(unit) or given.asks_of(unit)


def _lacks(answer: str, atom: Atom, given: Given, presumed: int = 0) -> bool:
    """Return whether a clause only tells what the sources lack, in few words that neither these nor the question hold.

    What it takes for granted ("who built it") may have `presumed` of them; what is to come ("when they will") is none.
    """
    lack = lack_of(answer[atom.start : atom.end])
    if lack is None or given.tells(lack):
        return False
    spans = (atom.statement.span(unit.start, unit.end) for unit in atom.units if not _is_known(unit, given))
    strange = sum(answer[start:end] in lack for start, end in spans)
    behind = len(re.split(r",|;|\band\b", lack, maxsplit=1)) > 1
    presumed = _PRESUMED if _TO_COME.search(lack) else presumed
    return strange <= (presumed if presumes(lack) else 2 if behind else _LACKING)


def _is_appraisal(atom: Atom) -> bool:
    return (
        bool(atom.units)
        and all(unit.stem in APPRAISALS for unit in atom.units)
        and not negations(atom.function)
    )


def _clauses(tokens: Iterable[ValueToken]) -> Iterator[list[ValueToken]]:
    clauses: list[list[ValueToken]] = [[]]
    for token in tokens:
        full = len(clauses[-1]) >= _LONG and not token.mark
        if (token.mark and token.text == ";") or token.text in _JOINTS or full:
            clauses.append([])
        clauses[-1].append(token)
    kept: list[list[ValueToken]] = []
    for clause in clauses:
        short = kept and len(kept[-1]) < _LONG and (_size(clause) < _LEAST or _size(kept[-1]) < _LEAST)
        if short:
            kept[-1] += clause
        else:
            kept.append(clause)
    yield from kept


def _size(tokens: Iterable[ValueToken]) -> int:
    return sum(bool(token.stems or token.value) for token in tokens)


def _atom(tokens: list[ValueToken], statement: Statement, *, first: bool) -> Atom | None:
    units: list[Unit] = []
    function: list[str] = []
    for place, token in enumerate(tokens):
        if token.value and not token.value.implied:
            units.append(Unit(token.value.keys, VALUE, token.start, token.end, value=True))
        elif token.text in CONTRACTED:
            function.append(token.text.partition("'")[0])
        elif token.stems and not token.mark and token.text not in INTERJECTIONS and token.text != "s":
            # a capital at the start of a sentence says nothing, unless somebody does something: "Ada wrote the"
            named = token.written[:1].isupper() and (place > 0 or not first or _acts(tokens))
            units += [
                Unit(keys, weight, token.start, token.end, stem, name=name)
                for keys, weight, stem, name in _said_by(token.stems, named=named)
            ]
        elif (not token.mark and not token.stems) or token.text in ASSENT:
            function.append(token.text)
    words = [token for token in tokens if not token.mark]
    if not units and not any(word in SPEAKER for word in function):
        return None
    start, end = statement.span((words or tokens)[0].start, tokens[-1].end)
    return Atom(start, end, units, function, statement)


def _acts(tokens: Sequence[ValueToken]) -> bool:
    if len(tokens) <= _REPORTED:
        return False
    _, verb, what = tokens[: _REPORTED + 1]
    did = verb.text in _DID or (verb.text.endswith("ed") and verb.value is None)
    return did and (what.text in _DEFINITE or what.written[:1].isupper())


@lru_cache(1 << 13)
def _said_by(stems: tuple[str, ...], *, named: bool) -> Sequence[tuple[frozenset[str], float, str, bool]]:
    return [
        (
            NEAR.get(stem) or frozenset((stem,)),
            (LITTLE if stem in LIGHT else NAME if named else WORD) / len(stems),
            stem,
            named and stem not in LIGHT,
        )
        for stem in stems
    ]

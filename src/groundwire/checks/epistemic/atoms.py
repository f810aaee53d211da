"""Splits an answer into atomic claims: what can be held against evidence piece by piece (S4-05).

A claim is a sentence, a list item, a table row or a line of code, cut again where a clause opens that stands on its
own: behind a semicolon, and before "but", "whereas" and the like. A clause that holds too little to be judged stays
with its neighbour. A question is held against the evidence too: it can carry what nobody said. No claims: courtesy
and talk about the answer, lead-ins and headings, and what says only that the sources do not hold something (S2-21).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from groundwire.checks.claim_sentences import is_claim, is_refusal, says_nothing
from groundwire.checks.epistemic.synonyms import SAME
from groundwire.checks.epistemic.words import (
    APPRAISALS,
    ASSENT,
    CONTRACTED,
    INTERJECTIONS,
    LIGHT,
    PRONOUNS,
    SPEAKER,
)
from groundwire.checks.negations import negations
from groundwire.checks.values_statements import Statement
from groundwire.checks.values_tokens import Token

WORD: Final = 1.0
NAME: Final = 2.0
LITTLE: Final = 0.25
VALUE: Final = 2.0
"""What a word, a name, a word of `LIGHT` and a value weigh: an invented name or number is worse than another word
for the same thing."""

_LEAST: Final = 3  # content words of a clause that stands on its own
_UNITS: Final = 64  # words of a claim that are looked at
_JOINTS: Final = frozenset(("but", "whereas", "while", "although", "though", "however"))
_TAG: Final = re.compile(r"\[\s*sources?\s*:[^\[\]]{0,60}\]", re.IGNORECASE)


class Unit(NamedTuple):
    """A word or a value of a claim that evidence has to hold; `keys` are what it says, any of which will do."""

    keys: frozenset[str]
    weight: float
    start: int
    end: int
    stem: str = ""
    value: bool = False
    name: bool = False


@dataclass(slots=True)
class Atom:
    """An atomic claim.

    Attributes:
        start: position in the answer, in characters.
        end: the same, behind its last character.
        units: its content words and values, in text order, at most 64.
        function: its other words, in lower case.
        statement: the statement that it stands in.
        speaker: words about who speaks.
        pronouns: words that stand for a name not said.
        first: whether it is the statement's first clause.
    """

    start: int
    end: int
    units: list[Unit]
    function: list[str]
    statement: Statement
    speaker: int
    pronouns: int
    first: bool = True


def atoms(answer: str, said: Iterable[Statement], *, declared: bool = False) -> Iterator[Atom]:
    """Yield the atomic claims of an answer, in text order.

    Args:
        answer: the text whose statements are given.
        said: its statements, from `groundwire.checks.values_statements.statements`.
        declared: the text was given as a claim: whatever says anything is one.
    """
    found = list(_atoms(answer, said, declared=declared))
    if declared or all(map(_is_appraisal, found)):
        yield from found
    else:  # beside what it states, an appraisal of what was said before is courtesy
        yield from (atom for atom in found if not _is_appraisal(atom))


def _atoms(answer: str, said: Iterable[Statement], *, declared: bool) -> Iterator[Atom]:
    for statement in said:
        text = _TAG.sub(" ", answer[statement.start : statement.end])
        if not (_is_claim(text) or (declared and not says_nothing(text))):
            continue
        for place, tokens in enumerate(_clauses(statement.tokens)):
            if atom := _atom(tokens, statement, first=place == 0):
                yield atom


def _is_appraisal(atom: Atom) -> bool:
    """Tell whether a claim says no more than "that is true"."""
    return (
        bool(atom.units)
        and all(unit.stem in APPRAISALS for unit in atom.units)
        and not negations(atom.function)
    )


def _is_claim(text: str) -> bool:
    bare = text.strip().rstrip("*_\"' ")
    if says_nothing(bare) or bare[-1] == ":" or bare.startswith("#") or is_refusal(bare):
        return False
    # A question and a short answer ("Paris") are no technical claims, but there is something to be held.
    short = len(bare.split()) < _LEAST
    return is_claim(bare.rstrip("?") if not short else f"{bare} is so")


def _clauses(tokens: Iterable[Token]) -> Iterator[list[Token]]:
    clauses: list[list[Token]] = [[]]
    for token in tokens:
        if (token.mark and token.text == ";") or token.text in _JOINTS:
            clauses.append([])
        clauses[-1].append(token)
    kept: list[list[Token]] = []
    for clause in clauses:
        if kept and (_size(clause) < _LEAST or _size(kept[-1]) < _LEAST):
            kept[-1] += clause
        else:
            kept.append(clause)
    yield from kept


def _size(tokens: Iterable[Token]) -> int:
    return sum(bool(token.stems or token.value) for token in tokens)


def _atom(tokens: list[Token], statement: Statement, *, first: bool) -> Atom | None:
    units: list[Unit] = []
    function: list[str] = []
    for place, token in enumerate(tokens):
        if len(units) >= _UNITS:
            break
        if token.value and not token.value.implied:
            units.append(Unit(token.value.keys, VALUE, token.start, token.end, value=True))
        elif token.text in CONTRACTED:
            function.append(token.text.partition("'")[0])
        elif token.stems and not token.mark and token.text not in INTERJECTIONS and token.text != "s":
            # a capital at the start of a sentence says nothing
            named = token.written[:1].isupper() and (place > 0 or not first)
            units += _word_units(token, named=named)
        elif (not token.mark and not token.stems) or token.text in ASSENT:
            function.append(token.text)
    words = [token for token in tokens if not token.mark]
    if not units and not any(word in SPEAKER for word in function):
        return None
    start, end = statement.span((words or tokens)[0].start, tokens[-1].end)
    speaker = sum(word in SPEAKER for word in function)
    pronouns = sum(word in PRONOUNS for word in function)
    return Atom(start, end, units, function, statement, speaker, pronouns, first)


def _word_units(token: Token, *, named: bool) -> list[Unit]:
    parts = len(token.stems)
    return [
        Unit(
            SAME.get(stem) or frozenset((stem,)),
            _weight(stem, named=named) / parts,
            token.start,
            token.end,
            stem,
            name=named,
        )
        for stem in token.stems
    ]


def _weight(stem: str, *, named: bool) -> float:
    if stem in LIGHT:
        return LITTLE
    return NAME if named else WORD

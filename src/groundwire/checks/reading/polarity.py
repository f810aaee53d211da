"""The clauses of a statement, and which of them are negated.

A clause is negated when it holds an odd number of negations (`groundwire.text.negation`), so that "not disabled" is
"enabled". "Not only", "no more than 5" and the like negate nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from groundwire.checks.reading.adjuncts import PART_ENDS
from groundwire.checks.reading.units import ValueToken
from groundwire.text.lists import words_in
from groundwire.text.negation import FULL, WEAK, negated_stems, negation_of, negations
from groundwire.text.negation import denies as denies_next
from groundwire.text.stems import stem, words_of

if TYPE_CHECKING:
    from groundwire.checks.reading.statements import Statement


@dataclass(slots=True, eq=False)
class PolarClause:
    """A clause, its words and values, and its polarity: "", "not" or "rarely".

    `head` is the word that is negated; `first` and `last` are the words that negate it, else its first and last one.
    `denies`: a word negates it that says nothing else, such as "not", unlike "invalid". `leads`: it is the first of its
    statement, and so has a subject.
    """

    polarity: str
    head: str
    opening: str
    words: frozenset[str]
    first: ValueToken
    last: ValueToken
    statement: Statement
    denies: bool = False
    leads: bool = True


_WORDS: Final = 24  # words of a clause that count
_EMPTY_BEFORE: Final = words_in(__package__, "empty_before")
_SWITCHES: Final = frozenset(map(stem, words_of("enabled enable enables true active yes on off")))
_NO_MORE: Final = words_of("longer more")
_ASIDES: Final = words_of("however though therefore indeed moreover then too")
_UNTRUE: Final = words_of("falsely wrongly mistakenly supposedly")


def denies(texts: Sequence[str]) -> bool:
    return bool(negations(texts)) or not _UNTRUE.isdisjoint(texts)


def clauses(statement: Statement) -> Iterator[PolarClause]:
    read = _clause if statement.denies else _assertion
    before = ""
    start = 0
    tokens = statement.tokens
    for place in range(len(tokens) + 1):
        if place < len(tokens) and (tokens[place].value or tokens[place].text not in PART_ENDS):
            continue
        if _is_aside(statement.texts, place):
            continue
        said = tokens[start:place]
        if [token.text for token in tokens[max(0, start - 2) : start]] in (["with", "or"], ["whether", "or"]):
            said = said[1:]
        if clause := read(said, statement):
            inherits = start and tokens[start - 1].text == "or" and not clause.polarity
            if inherits and before:  # "does not read or write"
                clause.polarity, clause.head = before, clause.opening
            before = clause.polarity if clause.denies or inherits else ""
            clause.leads = not start
            yield clause
        start = place + 1


def _is_aside(texts: Sequence[str], place: int) -> bool:
    """Return whether a place is in an aside that ends no clause: "it did not, however, end"."""
    return any(
        texts[at : at + 1] == texts[at + 2 : at + 3] == [","] and texts[at + 1] in _ASIDES
        for at in range(max(0, place - 2), place + 1)
    )


def _assertion(tokens: Sequence[ValueToken], statement: Statement) -> PolarClause | None:
    words: dict[str, None] = {}
    for token in tokens:
        if len(words) >= _WORDS:
            break
        if token.value and not token.value.implied:
            words[min(token.value.keys)] = None
        if token.stems:
            words |= {stem: None for stem in token.stems if stem not in _SWITCHES}
    if not words:
        return None
    return PolarClause("", "", next(iter(words)), frozenset(words), tokens[0], tokens[-1], statement)


def _clause(tokens: Sequence[ValueToken], statement: Statement) -> PolarClause | None:
    words: dict[str, None] = {}
    marks: list[ValueToken] = []
    weak = affixed = False
    head = ""
    for place, token in enumerate(tokens):
        if len(words) >= _WORDS:
            break
        if token.value and not token.value.implied:
            words[min(token.value.keys)] = None
            head = head or (min(token.value.keys) if marks else "")
            continue
        following = tokens[place + 1].text if place + 1 < len(tokens) else ""
        found, stems = "", token.stems
        if not token.mark or token.text == "!=":
            found = negation_of(token.text)
        if found and not (token.text.endswith("nt") and not negated_stems(token.text)):
            # "dont", without its apostrophe, is a word of its clause as well
            stems = negated_stems(token.text)
        if token.text in _UNTRUE or (following and denies_next((token.text, following), 0)):
            found, stems = FULL, ()
        compares = following in _EMPTY_BEFORE
        if token.text == "no" and following in _NO_MORE:
            compares = [one.text for one in tokens[place + 2 : place + 3]] == ["than"]
        if found and not compares and not (token.text == "nor" and marks):
            marks.append(token)
            weak = found == WEAK
            affixed = affixed or bool(stems and negated_stems(token.text))
        kept = [word for word in stems if word not in _SWITCHES]
        if token.text in _NO_MORE and tokens[place - 1].text == "no":
            kept = []  # "no longer polls" denies the polling
        for word in kept:
            words[word] = None
        if marks and not head and kept:
            head = kept[0]
    if not words:
        return None
    polarity = ("rarely" if weak else "not") if len(marks) % 2 else ""
    first, last = (marks[0], marks[0]) if polarity else (tokens[0], tokens[-1])
    head = head or next(reversed(words))  # "retries are disabled"
    opening = next(iter(words))
    bare = bool(polarity) and not affixed
    return PolarClause(
        polarity, head if polarity else "", opening, frozenset(words), first, last, statement, bare
    )

"""Finds clauses of an answer that deny what its passages state, or state what they deny.

A clause is negated when it holds an odd number of negations (`groundwire.text.negation`), so that "not disabled" is
"enabled". "Not only", "no more than 5" and the like negate nothing. Opposites ("allows", "blocks") are not compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Final

from groundwire.checks.values.binding import CLAUSE_ENDS
from groundwire.checks.values.statements import Exempted, NegationScope, ValueStatement
from groundwire.checks.values.units import ValueToken
from groundwire.text.clauses import AUXILIARIES, is_past, read_clause
from groundwire.text.lists import words_in
from groundwire.text.negation import FULL, WEAK, negated_stems, negation_of, negations
from groundwire.text.negation import denies as denies_next
from groundwire.text.stems import stem, words_of
from groundwire.text.work import spend


def _stems(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in text.split())


_ENDS: Final = CLAUSE_ENDS | frozenset(("if", "when", "unless", "which", "that", "who"))
_WORDS: Final = 24  # words of a clause that count
_CANDIDATES: Final = 24  # clauses of the passages that are looked at per word
_EMPTY_BEFORE: Final = words_in(__package__, "empty_before")
_SWITCHES: Final = _stems("enabled enable enables true active yes on off")
_SOURCES: Final = _stems("source document documentation context passage excerpt snippet text material")
_WE: Final = frozenset(("i", "we"))
_SAYING: Final = _stems(
    "mention provide specify state contain include say describe find found give given list indicate define cover "
    "discuss address answer know show tell determine confirm verify document explain locate"
)
_SAID_ONLY: Final = _stems("mention specify state describe discuss document indicate")
_SAID_NOUNS: Final = _stems("information mention evidence indication detail")
_NONE: Final = frozenset(("number 0",))
_SUPPOSING: Final = words_of("if unless when whenever whether may might could")
_ASIDES: Final = words_of("however though therefore indeed moreover then too")
_EXCEPTING: Final = words_of("unless except excepting excluding")
_EXCEPTING_TWO: Final = frozenset(
    (("save", "where"), ("save", "that"), ("but", "the"), ("other", "than"), ("apart", "from"))
)
_CONDITIONS: Final = words_of("if when where whenever")
_COMPARED: Final = 3  # units of work that it takes to compare two clauses
_ALIKE: Final = 0.75  # of the words of a denial, that what it reverses holds
_PART: Final = 0.5  # of the words of what is reversed, that the denial holds
_SHORT: Final = 6
_PRONOUNS: Final = words_of("it he she they this these")
_NOTHING: Final = frozenset[str]()
_INTENDED: Final = words_of("planned intended meant wanted hoped proposed")
"""What they lead to need not be so."""
_UNTRUE: Final = words_of("falsely wrongly mistakenly supposedly")
_WORD: Final = 4  # weight of a word that both clauses hold; one that only the statement holds weighs 1

OPPOSITE: Final = "sources_say_the_opposite"
NOT_IN_SOURCES: Final = "not_in_sources"


def denies(statement: ValueStatement) -> bool:
    if statement.denies is None:
        texts = statement.texts
        statement.denies = bool(negations(texts)) or not _UNTRUE.isdisjoint(texts)
    return statement.denies


def clauses(statement: ValueStatement) -> Sequence[NegationScope]:
    if statement.clauses is None:
        statement.clauses = [*_clauses(statement)]
    return statement.clauses


def _clauses(statement: ValueStatement) -> Iterator[NegationScope]:
    read = _clause if denies(statement) else _assertion
    before = ""
    start = 0
    tokens = statement.tokens
    for place in range(len(tokens) + 1):
        if place < len(tokens) and (tokens[place].value or tokens[place].text not in _ENDS):
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


def _assertion(tokens: Sequence[ValueToken], statement: ValueStatement) -> NegationScope | None:
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
    return NegationScope("", "", next(iter(words)), frozenset(words), tokens[0], tokens[-1], statement)


def _clause(tokens: Sequence[ValueToken], statement: ValueStatement) -> NegationScope | None:
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
        if found and following not in _EMPTY_BEFORE and not (token.text == "nor" and marks):
            marks.append(token)
            weak = found == WEAK
            affixed = affixed or bool(stems and negated_stems(token.text))
        kept = [word for word in stems if word not in _SWITCHES]
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
    return NegationScope(
        polarity, head if polarity else "", opening, frozenset(words), first, last, statement, bare
    )


class ClauseIndex:
    """The clauses of passages that share a word with a clause of the answer; size and work of a look-up are bounded."""

    def __init__(self, asked: Iterable[NegationScope]) -> None:
        self._wanted = frozenset(word for clause in asked for word in clause.words)
        self._said: dict[str, list[NegationScope]] = {}
        self._denied: dict[str, list[NegationScope]] = {}
        self._about: dict[int, frozenset[str]] = {}  # what a statement's first pronoun refers to
        self._before = _NOTHING

    def add(self, statement: ValueStatement) -> None:
        before, self._before = self._before, statement.words
        if statement.tokens and statement.tokens[0].text in _PRONOUNS:
            self._about[id(statement)] = before
        if self._wanted.isdisjoint(statement.words) and not any(
            negation_of(t.text) for t in statement.tokens
        ):
            return
        none = any(not value.keys.isdisjoint(_NONE) for value in statement.given)
        for clause in clauses(statement):
            words = clause.words & self._wanted
            if clause.polarity or none:  # "retries: 0" says no as well
                _keep(self._denied, words, clause)
            if not (clause.polarity or _INTENDED.intersection(statement.texts)):
                _keep(self._said, words, clause)

    def reverses(self, clause: NegationScope) -> bool:
        """Return whether a passage says the opposite of a clause in nearly its words, and none says the same."""
        # a long assertion says more than what was denied
        if not (clause.denies or (clause.leads and not clause.polarity and len(clause.words) <= _SHORT)):
            return False
        denied = [other for other in _sharing(self._denied, clause.words) if other.denies]
        if not (clause.polarity or denied) or any(
            token.text in _SUPPOSING for token in clause.statement.tokens if token.start < clause.last.start
        ):
            return False
        said = _sharing(self._said, clause.words)
        if clause.polarity and _contrasts(clause):
            return False
        if clause.polarity:
            nearest = max(
                (_alike(clause, one) for one in said if not _excepts_alike(clause, one)), default=0.0
            )
            same = max((_alike(clause, other) for other in denied), default=0.0)
        else:
            heads = (other for other in denied if other.head in clause.words)
            nearest = max(
                (_alike(one, clause) for one in heads if not _excepts_alike(clause, one)), default=0.0
            )
            same = max((_alike(clause, other) for other in said), default=0.0)
        return nearest >= _ALIKE and nearest > same

    def contradicted(self, clause: NegationScope) -> str:
        if clause.polarity:
            if _is_about_sources(clause):
                return ""
            said = max((_closeness(clause, other) for other in _sharing(self._said, clause.words)), default=0)
            denials = [other for other in _sharing(self._denied, clause.words) if _denies_same(clause, other)]
            best = max((_closeness(clause, other) for other in denials), default=0)
            if best and best + _WORD > said:
                return ""
            same = [other for other in _sharing(self._said, clause.words) if clause.head in other.words]
            if same and _contrasts(clause):  # "at pier C, not at pier F": is this said of F?
                rest = clause.statement.words - clause.words
                says = (
                    len(rest & self._whole(other)) >= _PART * len(rest)
                    for other in same
                    if clause.words <= other.words
                )
                return OPPOSITE if any(says) else ""
            if any(_excepts_alike(clause, other) for other in same):
                return ""
            return OPPOSITE if same else NOT_IN_SOURCES
        if clause.first is clause.last:
            return ""
        denials = [
            other
            for other in _sharing(self._denied, clause.words)
            if other.polarity
            and other.head in clause.words
            and clause.words
            <= other.statement.words | other.words | self._about.get(id(other.statement), _NOTHING)
            and (len(clause.words) > 1 or other.words == clause.words)
        ]
        if not denials or any(_excepts_alike(clause, other) for other in denials):
            return ""
        best = max(_closeness(clause, other) for other in denials)
        said = max((_closeness(clause, other) for other in _sharing(self._said, clause.words)), default=0)
        return "" if said >= best else OPPOSITE

    def _whole(self, clause: NegationScope) -> frozenset[str]:
        """Return the words of a clause, with those that it leaves to another one: "and on Tuesday", "it also"."""
        said = clause.statement
        texts = [
            token.text for token in said.tokens if clause.first.start <= token.start <= clause.last.start
        ]
        verbless = not read_clause(texts, len(texts), ()).verb
        return clause.words | self._about.get(id(said), _NOTHING) | (said.words if verbless else _NOTHING)


def _keep(index: dict[str, list[NegationScope]], words: Iterable[str], clause: NegationScope) -> None:
    for word in words:
        entries = index.setdefault(word, [])
        if len(entries) < _CANDIDATES:
            entries.append(clause)


def _sharing(index: dict[str, list[NegationScope]], words: Iterable[str]) -> list[NegationScope]:
    found: dict[int, NegationScope] = {}
    for entries in sorted((index.get(word, []) for word in sorted(words)), key=len):
        found.update(zip(map(id, entries), entries, strict=True))
        if len(found) >= 2 * _CANDIDATES:
            break
    spend(_COMPARED * len(found))
    return list(found.values())


def _closeness(one: NegationScope, other: NegationScope) -> int:
    own = one.words & other.words
    shared = one.words & other.statement.words
    return _WORD * len(own) + len(shared) - min(len(other.words - one.words), 3)


def _alike(denial: NegationScope, other: NegationScope) -> float:
    """Return the share of a denial's words that another clause holds, 0..1; 0 where that says much more."""
    common = len(denial.words & other.words)
    enough = common > 1 and common >= _PART * len(other.words)
    return common / len(denial.words) if enough or denial.words == other.words else 0.0


def _denies_same(one: NegationScope, other: NegationScope) -> bool:
    same = one.polarity == (other.polarity or one.polarity)
    common = one.words & other.words
    return same and (one.head in common or other.head in common or len(common) > 1)


def _excepts_alike(one: NegationScope, other: NegationScope) -> bool:
    """Return whether sentences agree as a whole but for an exception: "none unless it rains", "needed if it rains"."""
    mine, theirs = _exempted(one.statement), _exempted(other.statement)
    return (
        mine.odd == theirs.odd
        and (mine.excepts or theirs.excepts)
        and not mine.words.isdisjoint(theirs.words)
    )


def _contrasts(clause: NegationScope) -> bool:
    """Return whether a clause has no verb, but ends what it is part of: ", not at pier F", "and not the cook"."""
    tokens = clause.statement.tokens
    at = bisect_left(tokens, clause.first.start, key=attrgetter("start"))
    behind = [token.text for token in tokens[at + 1 :]]
    end = next((place for place, text in enumerate(behind) if text in _ENDS), len(behind))
    follows = at > 1 and clause.first.text == "not" and tokens[at - 1].text in {",", "and"}
    return follows and AUXILIARIES.isdisjoint(behind[:end]) and not any(map(is_past, behind[:end]))


def _exempted(statement: ValueStatement) -> Exempted:
    if statement.exempted is None:
        texts = statement.texts
        at = exception(texts)
        excepts = at >= 0
        if not excepts:
            at = next((place for place, text in enumerate(texts) if text in _CONDITIONS), len(texts))
        words = frozenset(stem for token in statement.tokens[at:] for stem in token.stems)
        odd = (len(negations(texts)) + (texts[at : at + 1] == ["save"])) % 2 == 1
        statement.exempted = Exempted(excepts, odd, words)
    return statement.exempted


def exception(texts: Sequence[str], start: int = 0) -> int:
    """Return the place where a sentence says what it does not hold for: "unless", "but the"; -1 where it says none."""
    for place in range(start, len(texts)):
        if texts[place] in _EXCEPTING or (*texts[place : place + 2],) in _EXCEPTING_TWO:
            return place
    return -1


def _is_about_sources(clause: NegationScope) -> bool:
    """Also "is not specified", "I could not find", "no information" (S2-21); not "the API does not list users"."""
    if clause.head not in _SAYING:
        return clause.head in _SAID_NOUNS and clause.first.text == "no"
    before = [token for token in clause.statement.tokens if token.start < clause.first.start]
    by_whom = any(token.text in _WE or not _SOURCES.isdisjoint(token.stems) for token in before)
    return by_whom or clause.head in _SAID_ONLY

"""Finds clauses of an answer that deny what its passages state, or state what they deny.

Opposites ("allows", "blocks") are not compared.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from operator import attrgetter
from typing import Final

from groundwire.checks.reading.adjuncts import PART_ENDS
from groundwire.checks.reading.polarity import PolarClause
from groundwire.checks.reading.statements import Statement
from groundwire.text.clauses import AUXILIARIES, is_past, read_clause
from groundwire.text.negation import negation_of
from groundwire.text.stems import stem, words_of
from groundwire.text.work import spend


def _stems(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in text.split())


_CANDIDATES: Final = 24  # clauses of the passages that are looked at per word
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
_COMPARED: Final = 3  # units of work that it takes to compare two clauses
_ALIKE: Final = 0.75  # of the words of a denial, that what it reverses holds
_PART: Final = 0.5  # of the words of what is reversed, that the denial holds
_SHORT: Final = 6
_PRONOUNS: Final = words_of("it he she they this these")
_NOTHING: Final = frozenset[str]()
_INTENDED: Final = words_of("planned intended meant wanted hoped proposed")
"""What they lead to need not be so."""
_WORD: Final = 4  # weight of a word that both clauses hold; one that only the statement holds weighs 1

OPPOSITE: Final = "sources_say_the_opposite"
NOT_IN_SOURCES: Final = "not_in_sources"


class ClauseIndex:
    """The clauses of passages that share a word with a clause of the answer; size and work of a look-up are bounded."""

    def __init__(self, asked: Iterable[PolarClause]) -> None:
        self._wanted = frozenset(word for clause in asked for word in clause.words)
        self._said: dict[str, list[PolarClause]] = {}
        self._denied: dict[str, list[PolarClause]] = {}
        self._about: dict[int, frozenset[str]] = {}  # what a statement's first pronoun refers to
        self._before = _NOTHING

    def add(self, statement: Statement) -> None:
        before, self._before = self._before, statement.words
        if statement.tokens and statement.tokens[0].text in _PRONOUNS:
            self._about[id(statement)] = before
        if self._wanted.isdisjoint(statement.words) and not any(
            negation_of(t.text) for t in statement.tokens
        ):
            return
        none = any(not value.keys.isdisjoint(_NONE) for value in statement.given)
        for clause in statement.clauses:
            words = clause.words & self._wanted
            if clause.polarity or none:  # "retries: 0" says no as well
                _keep(self._denied, words, clause)
            if not (clause.polarity or _INTENDED.intersection(statement.texts)):
                _keep(self._said, words, clause)

    def reverses(self, clause: PolarClause) -> bool:
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

    def contradicted(self, clause: PolarClause) -> str:
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

    def _whole(self, clause: PolarClause) -> frozenset[str]:
        """Return the words of a clause, with those that it leaves to another one: "and on Tuesday", "it also"."""
        said = clause.statement
        texts = [
            token.text for token in said.tokens if clause.first.start <= token.start <= clause.last.start
        ]
        verbless = not read_clause(texts, len(texts), ()).verb
        return clause.words | self._about.get(id(said), _NOTHING) | (said.words if verbless else _NOTHING)


def _keep(index: dict[str, list[PolarClause]], words: Iterable[str], clause: PolarClause) -> None:
    for word in words:
        entries = index.setdefault(word, [])
        if len(entries) < _CANDIDATES:
            entries.append(clause)


def _sharing(index: dict[str, list[PolarClause]], words: Iterable[str]) -> list[PolarClause]:
    found: dict[int, PolarClause] = {}
    for entries in sorted((index.get(word, []) for word in sorted(words)), key=len):
        found.update(zip(map(id, entries), entries, strict=True))
        if len(found) >= 2 * _CANDIDATES:
            break
    spend(_COMPARED * len(found))
    return list(found.values())


def _closeness(one: PolarClause, other: PolarClause) -> int:
    own = one.words & other.words
    shared = one.words & other.statement.words
    return _WORD * len(own) + len(shared) - min(len(other.words - one.words), 3)


def _alike(denial: PolarClause, other: PolarClause) -> float:
    """Return the share of a denial's words that another clause holds, 0..1; 0 where that says much more."""
    common = len(denial.words & other.words)
    enough = common > 1 and common >= _PART * len(other.words)
    return common / len(denial.words) if enough or denial.words == other.words else 0.0


def _denies_same(one: PolarClause, other: PolarClause) -> bool:
    same = one.polarity == (other.polarity or one.polarity)
    common = one.words & other.words
    return same and (one.head in common or other.head in common or len(common) > 1)


def _excepts_alike(one: PolarClause, other: PolarClause) -> bool:
    """Return whether sentences agree as a whole but for an exception: "none unless it rains", "needed if it rains"."""
    mine, theirs = one.statement.exempted, other.statement.exempted
    return (
        mine.odd == theirs.odd
        and (mine.excepts or theirs.excepts)
        and not mine.words.isdisjoint(theirs.words)
    )


def _contrasts(clause: PolarClause) -> bool:
    """Return whether a clause has no verb, but ends what it is part of: ", not at pier F", "and not the cook"."""
    tokens = clause.statement.tokens
    at = bisect_left(tokens, clause.first.start, key=attrgetter("start"))
    behind = [token.text for token in tokens[at + 1 :]]
    end = next((place for place, text in enumerate(behind) if text in PART_ENDS), len(behind))
    follows = at > 1 and clause.first.text == "not" and tokens[at - 1].text in {",", "and"}
    return follows and AUXILIARIES.isdisjoint(behind[:end]) and not any(map(is_past, behind[:end]))


def _is_about_sources(clause: PolarClause) -> bool:
    """Also "is not specified", "I could not find", "no information" (S2-21); not "the API does not list users"."""
    if clause.head not in _SAYING:
        return clause.head in _SAID_NOUNS and clause.first.text == "no"
    before = [token for token in clause.statement.tokens if token.start < clause.first.start]
    by_whom = any(token.text in _WE or not _SOURCES.isdisjoint(token.stems) for token in before)
    return by_whom or clause.head in _SAID_ONLY

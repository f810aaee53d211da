"""An index of the evidence: which sentences hold which words of the answer.

Passages are sorted, so that their order changes nothing. Only words of the answer are kept; size and work are in
proportion to the length of both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

from groundwire.checks.marks import without_marks
from groundwire.checks.support.atoms import KEPT, SAME, Unit
from groundwire.checks.support.parts import Part, Sides, parts
from groundwire.checks.values.answer import ValueIndex, ValueQuery, index_clauses
from groundwire.checks.values.bounds import resolved
from groundwire.checks.values.statements import StatementReader, ValueStatement

if TYPE_CHECKING:
    from groundwire.checks.support.force import Scope

_BEGUN: Final = 4  # letters
_KEPT: Final = 256  # sentences per word; those beyond support nothing


class Sentence(NamedTuple):
    """A sentence of a passage.

    Attributes:
        passage: the id of its passage.
        follows: it directly follows the sentence before it in the index.
        holds: words and values of the answer that it and what is above it hold.
        statement: as it was read.
    """

    passage: str
    follows: bool
    holds: frozenset[str]
    statement: ValueStatement

    @property
    def markers(self) -> frozenset[str]:
        """Words of it that say how many, how sure and in which direction, and what else it says that is not held."""
        stems = {stem for token in self.statement.tokens for stem in token.stems}
        return KEPT.intersection(self.statement.texts) | (stems - self.holds)


class Evidence:
    """What the passages say of what an answer asks about."""

    def __init__(
        self,
        texts: Mapping[str, str] | Sequence[str],
        said: Sequence[ValueStatement],
        read: StatementReader,
        question: str = "",
    ) -> None:
        named = texts if isinstance(texts, Mapping) else {str(n): text for n, text in enumerate(texts, 1)}
        ordered = sorted(named, key=lambda name: (named[name], name))
        passages = [(name, read(without_marks(named[name]))) for name in ordered]
        said = self.said = resolved(said, chain.from_iterable(found for _, found in passages))
        self.sentences: list[Sentence] = []
        self.words: set[str] = set()
        self._begun: set[str] | None = None
        self._parts: dict[int, list[Part]] = {}
        self.sides: dict[tuple[int, int], Sides] = {}
        self.forces: dict[int, Sequence[Scope]] = {}
        self.postings: dict[str, list[int]] = {}
        asked = read(question)
        self.values = ValueIndex(ValueQuery(said), [found for _, found in passages], asked)
        self._asked = {
            key
            for statement in asked
            for token in statement.tokens
            for key in (*token.stems, *(token.value.covers if token.value else ()))
        }
        self._wanted = {
            same
            for statement in said
            for token in statement.tokens
            for stem in token.stems
            for same in SAME.get(stem, (stem,))
        }
        self._wanted |= {
            key for statement in said for token in statement.tokens if token.value for key in token.value.keys
        }
        self.sayings = index_clauses(said, [statement for _, found in passages for statement in found])
        for passage, found in passages:
            for place, statement in enumerate(found):
                self._add(passage, statement, follows=place > 0)

    def holds(self, unit: Unit) -> bool:
        """Tell whether a passage holds a word or value."""
        return not unit.keys.isdisjoint(self.postings)

    def asks_of(self, unit: Unit) -> bool:
        """Tell whether the question holds a word or value."""
        return not unit.keys.isdisjoint(self._asked)

    def knows(self, keys: frozenset[str]) -> bool:
        """Tell whether a passage or the question holds a word."""
        return not (self._asked.isdisjoint(keys) and all(key not in self.postings for key in keys))

    def recalls(self, stem: str) -> bool:
        """Tell whether a passage or the question holds a word that begins as a name does: "Libyan" and "Libya"."""
        if self._begun is None:
            self._begun = {word[:_BEGUN] for word in chain(self.words, self._asked)}
        return stem[:_BEGUN] in self._begun

    def parts(self, number: int) -> list[Part]:
        """Return the parts of a sentence."""
        if number not in self._parts:
            found = [*parts(self.sentences[number].statement.tokens)]
            about = found[0].opening if found else frozenset[str]()
            self._parts[number] = [
                *found[:1],
                *(part._replace(about=about) if part.is_open else part for part in found[1:]),
            ]
        return self._parts[number]

    @cached_property
    def names(self) -> set[str]:
        """What words with a capital say that begin no sentence."""
        words = chain.from_iterable(sentence.statement.tokens[1:] for sentence in self.sentences)
        return {stem for word in words if word.stems and word.written[:1].isupper() for stem in word.stems}

    def _add(self, passage: str, statement: ValueStatement, *, follows: bool) -> None:
        self.words.update(statement.texts)
        holds = statement.says & self._wanted  # headings above the statement belong to it
        number = len(self.sentences)
        for key in holds:
            entries = self.postings.setdefault(key, [])
            if len(entries) < _KEPT:
                entries.append(number)
        self.sentences.append(Sentence(passage, follows, holds, statement))

"""The evidence as an index: which sentences hold which words of the answer.

Passages are taken in one order, whatever order they come in, so that a permutation changes nothing. Only what the
answer asks about is kept; size and work are in proportion to the length of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from groundwire.checks.epistemic.synonyms import SAME
from groundwire.checks.epistemic.words import KEPT
from groundwire.checks.values import index_clauses
from groundwire.checks.values_index import ValueIndex, Wanted
from groundwire.checks.values_statements import Read, Statement

_KEPT: Final = 256  # sentences per word; what is beyond supports nothing


class Sentence(NamedTuple):
    """A sentence of a passage.

    Attributes:
        passage: the id of its passage.
        follows: it stands right behind the sentence before it in the index.
        markers: words of it that say how many, how sure and in which direction.
        place: word -> where it stands among the sentence's words, for the answer's words alone.
        statement: as it was read.
    """

    passage: str
    follows: bool
    markers: frozenset[str]
    place: Mapping[str, int]
    statement: Statement


class Evidence:
    """What the passages say of what an answer asks about."""

    def __init__(
        self, texts: Mapping[str, str] | Sequence[str], said: Sequence[Statement], read: Read
    ) -> None:
        """Index passages.

        Args:
            texts: id -> text, or texts, which are numbered from 1.
            said: the statements of the answer.
            read: reads a text's statements.
        """
        named = texts if isinstance(texts, Mapping) else {str(n): text for n, text in enumerate(texts, 1)}
        passages = [(name, read(named[name])) for name in sorted(named, key=lambda name: (named[name], name))]
        self.sentences: list[Sentence] = []
        self.words: set[str] = set()
        self.postings: dict[str, list[int]] = {}
        self.values = ValueIndex(Wanted(said))
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

    def _add(self, passage: str, statement: Statement, *, follows: bool) -> None:
        self.values.add(statement)
        found: dict[str, int] = {}
        markers: set[str] = set()
        for place, token in enumerate(statement.tokens):
            self.words.add(token.text)
            if token.text in KEPT:
                markers.add(token.text)
            keys: Iterable[str] = (*token.stems, *token.value.covers) if token.value else token.stems
            for key in keys:
                if key in self._wanted:
                    found.setdefault(key, place)
                elif token.stems:
                    markers.add(key)
        for key in self._wanted & statement.words:  # what stands above the statement belongs to it
            found.setdefault(key, -1)
        number = len(self.sentences)
        for key in found:
            entries = self.postings.setdefault(key, [])
            if len(entries) < _KEPT:
                entries.append(number)
        self.sentences.append(Sentence(passage, follows, frozenset(markers), found, statement))

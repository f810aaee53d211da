"""An index of the evidence: which sentences and parts of them hold which words of the answer.

Passages are sorted, so that their order changes nothing; only words of the answer are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain, takewhile
from typing import Final, NamedTuple

from groundwire.checks.marks import without_marks
from groundwire.checks.reading.adjuncts import PART_ENDS
from groundwire.checks.reading.force import Scope, scopes
from groundwire.checks.reading.statements import Statement, StatementReader, scan
from groundwire.checks.reading.units import ValueToken
from groundwire.checks.support.atoms import KEPT, LIGHT, NEAR, SAME, Unit
from groundwire.checks.values.answer import index_clauses
from groundwire.checks.values.postings import ValueIndex, ValueQuery, resolved
from groundwire.text.stems import words_of
from groundwire.text.work import spend

_OWNERS: Final = words_of("his her its their")
_ENDS: Final = PART_ENDS | words_of("( : whose where as")
_OPENING: Final = 4  # words of a part that may name what it is about


Sides = tuple[frozenset[str], frozenset[str]]
"""What is on the two sides of a word."""


class Part(NamedTuple):
    """A part of a statement, and for each word and value what says the same; empty for function words.

    `about` is what the statement begins with, where the part is not its first and names nothing before its verb: "The
    study was led by Ada and paid for by Bea" says of the study, too, who paid.
    """

    tokens: Sequence[ValueToken]
    keys: Sequence[frozenset[str]]
    all: frozenset[str]
    about: frozenset[str] = frozenset()

    @property
    def opening(self) -> frozenset[str]:
        """What its first words say, as far as the first function word behind an article."""
        known = [at for at, keys in enumerate(self.keys[:_OPENING]) if keys]
        first = known[0] if known else 0
        run = takewhile(bool, self.keys[first : first + _OPENING - 1])
        return frozenset[str]().union(*run)

    @property
    def is_open(self) -> bool:
        """Whether it may begin with its verb: with no name, no function word, and nobody's brother."""
        begins = bool(self.keys and self.keys[0]) and not self.tokens[0].written[:1].isupper()
        return begins and _OWNERS.isdisjoint(token.text for token in self.tokens[1:2])

    def says(self, keys: frozenset[str]) -> bool:
        return not (keys.isdisjoint(self.all) and keys.isdisjoint(self.about))

    def text(self, at: int) -> str:
        return self.tokens[at].text if 0 <= at < len(self.tokens) else ""


def parts(tokens: Iterable[ValueToken]) -> Iterator[Part]:
    """Yield the parts of a statement; one with a single word or value belongs to the one before it."""
    kept: list[list[ValueToken]] = [[]]
    for token in tokens:
        if token.value is None and token.text in _ENDS:
            named = token.text == "," and all(word.written[:1].isupper() for word in kept[-1])
            if _size(kept[-1]) > 1 and not named:  # "the captain, Ada Byron, commands": she does
                kept.append([])
        elif not token.mark:
            kept[-1].append(token)
    if len(kept) > 1 and _size(kept[-1]) < 2:
        last = kept.pop()
        kept[-1] += last
    for piece in kept:
        keys = [_keys(token) for token in piece]
        yield Part(piece, keys, frozenset().union(*keys))


def _size(tokens: Iterable[ValueToken]) -> int:
    return sum(bool(token.stems or token.value) for token in tokens)


def _keys(token: ValueToken) -> frozenset[str]:
    said = same(token.stems) if token.stems else _NOTHING
    return said | token.value.covers if token.value else said


_NOTHING: Final = frozenset[str]()


@lru_cache(1 << 13)
def same(stems: tuple[str, ...]) -> frozenset[str]:
    return _NOTHING.union(*(SAME.get(stem, (stem,)) for stem in stems))


_ASKING: Final = words_of("when where who whom whose why how")
_UNTOLD: Final = words_of("where why")
_PERSON: Final = words_of("who whom whose")
_OFTEN: Final = words_of(
    "every each per once twice times hourly daily nightly weekly monthly quarterly yearly annually rarely seldom"
)
_TOLD: Final = 24  # sentences that may tell what an answer says is lacking
_BEGUN: Final = 4  # letters
_KEPT: Final = 256  # sentences per word; those beyond support nothing


class Sentence(NamedTuple):
    """A sentence of a passage; `holds` are words and values of the answer that it and what is above it hold."""

    passage: str
    follows: bool
    holds: frozenset[str]
    statement: Statement

    @property
    def is_data(self) -> bool:
        """Whether it is a row of a table, or a key with its value."""
        texts = self.statement.texts
        return bool(self.statement.heads) or (texts[:1] in (["{"], ['"'], ["-"]) and ":" in texts)

    @property
    def markers(self) -> frozenset[str]:
        """Words of it that say how many, how sure and in which direction, and what else it says that is not held."""
        stems = {stem for token in self.statement.tokens for stem in token.stems}
        return KEPT.intersection(self.statement.texts) | (stems - self.holds)

    @property
    def place(self) -> tuple[str, int, int]:
        return self.passage, self.statement.start, self.statement.end


class Evidence:
    def __init__(
        self,
        texts: Mapping[str, str] | Sequence[str],
        said: Sequence[Statement],
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
        self._scopes: dict[int, Sequence[Scope]] = {}
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
            for same in NEAR.get(stem, (stem,))
        }
        self._wanted |= {
            key for statement in said for token in statement.tokens if token.value for key in token.value.keys
        }
        self.sayings = index_clauses(said, [statement for _, found in passages for statement in found])
        for passage, found in passages:
            for place, statement in enumerate(found):
                self.words.update(statement.texts)
                says = statement.says  # headings above the statement belong to it
                if statement.valued and (
                    statement.heads or ":" in statement.texts
                ):  # and units in a head or key
                    says = says.union(*(value.value.covers for value in statement.values))
                holds = says & self._wanted
                number = len(self.sentences)
                for key in holds:
                    entries = self.postings.setdefault(key, [])
                    if len(entries) < _KEPT:
                        entries.append(number)
                self.sentences.append(Sentence(passage, place > 0, holds, statement))

    def holds(self, unit: Unit) -> bool:
        return not unit.keys.isdisjoint(self.postings)

    def asks_of(self, unit: Unit) -> bool:
        return not unit.keys.isdisjoint(self._asked)

    def tells(self, what: str) -> bool:
        """Return whether one or two sentences hold all words of what an answer says that the sources lack.

        Where it asks for a time, a number or a person, they have to give one.
        """
        said = [token for token in scan(what) if not token.mark]
        words = [
            keys
            for before, token in zip((None, *said), said, strict=False)
            if token.stems and not (before and before.text == "how")
            for keys in (same(token.stems),)
            if not keys <= LIGHT
        ]
        at = next((at for at, token in enumerate(said) if token.text in _ASKING), len(said))
        asked = " ".join(token.text for token in said[at : at + 2])
        asked = asked if asked.startswith("how ") else asked.partition(" ")[0]
        if not words or asked in _UNTOLD:
            return False
        rarest = min(words, key=lambda keys: sum(len(self.postings.get(key, ())) for key in keys))
        near = {number for key in rarest for number in self.postings.get(key, ())}
        spend(_TOLD * len(near))
        return any(
            self._gives(asked, window, words)
            for number in sorted(near)[:_TOLD]
            for window in ((number,), (number - 1, number), (number, number + 1))
        )

    def _gives(self, asked: str, numbers: Sequence[int], words: Sequence[frozenset[str]]) -> bool:
        window = [self.sentences[number] for number in numbers if 0 <= number < len(self.sentences)]
        holds = _NOTHING.union(*(sentence.holds for sentence in window))
        if any(keys.isdisjoint(holds) for keys in words) or not all(one.follows for one in window[1:]):
            return False
        tokens = [token for sentence in window for token in sentence.statement.tokens[1:]]
        values = [token.value for token in tokens if token.value and not token.value.implied]
        if asked in _PERSON:
            return any(
                token.written[:1].isupper() and token.stems and token.text not in holds for token in tokens
            )
        if asked == "when":
            return any(value.kind == "date" or (value.amount and value.amount.readings) for value in values)
        if asked in {"how often", "how frequently"}:
            return len(window) == 1 and any(token.text in _OFTEN for token in tokens)
        if asked == "how many":  # a count has no unit; that of another sentence may be of another thing
            return any(value.amount and (value.amount.readings or len(window) == 1) for value in values)
        return not asked.startswith("how") or any(value.amount and value.amount.readings for value in values)

    def knows(self, keys: frozenset[str]) -> bool:
        return not (self._asked.isdisjoint(keys) and all(key not in self.postings for key in keys))

    def recalls(self, stem: str) -> bool:
        """Return whether a passage or the question holds a word that begins as a name does: "Libyan" and "Libya"."""
        if self._begun is None:
            self._begun = {word[:_BEGUN] for word in chain(self.words, self._asked, self.postings)}
        return stem[:_BEGUN] in self._begun

    def parts(self, number: int) -> list[Part]:
        if number not in self._parts:
            found = [*parts(self.sentences[number].statement.tokens)]
            about = found[0].opening if found else frozenset[str]()
            self._parts[number] = [
                *found[:1],
                *(part._replace(about=about) if part.is_open else part for part in found[1:]),
            ]
        return self._parts[number]

    def scopes(self, number: int) -> Sequence[Scope]:
        if number not in self._scopes:
            following = self.sentences[number + 1] if number + 1 < len(self.sentences) else None
            behind = following.statement if following and following.follows else None
            self._scopes[number] = scopes(self.sentences[number].statement, behind)
        return self._scopes[number]

    def asks_together(self, one: str, other: str) -> bool:
        return {one, other} <= self._asked

    @cached_property
    def neighbours(self) -> dict[str, set[str]]:
        """The stem of each word of a name of several words, with those beside it."""
        found: dict[str, set[str]] = {}
        for sentence in self.sentences:
            name: list[str] = []
            for token in sentence.statement.tokens:
                if not (token.stems and token.written[:1].isupper()):
                    name.clear()
                    continue
                for other in name[-_OPENING:]:
                    found.setdefault(other, set()).update(token.stems)
                    for stem in token.stems:
                        found.setdefault(stem, set()).add(other)
                name += token.stems
        return found

    @cached_property
    def names(self) -> set[str]:
        """Stems of words that have a capital inside of a sentence, and nowhere a small letter."""
        words = [word for sentence in self.sentences for word in sentence.statement.tokens[1:] if word.stems]
        small = {stem for word in words if word.written[:1].islower() for stem in word.stems}
        return {stem for word in words if word.written[:1].isupper() for stem in word.stems} - small

"""Whether an answer says no where its passages say yes, or yes where they say no.

What is compared is clauses: what a clause says is negated when it holds an odd number of negations
(`groundwire.checks.negations`: not, never, no longer, un-, disabled, ...), so that "not disabled" is "enabled".
"Not only", "no more than 5" and the like negate nothing. Pairs of opposites ("allows", "blocks") are not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from groundwire.checks.negations import WEAK, negations
from groundwire.checks.values_binding import CLAUSE_ENDS
from groundwire.checks.values_words import content_words, stem, words_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from groundwire.checks.values_statements import Statement
    from groundwire.checks.values_tokens import Token


def _stems(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in text.split())


_ENDS: Final = CLAUSE_ENDS | frozenset(("if", "when", "unless", "which", "that", "who"))
_WORDS: Final = 24  # words of a clause that count
_CANDIDATES: Final = 24  # clauses of the passages that are looked at per word
_EMPTY_BEFORE: Final = words_of(
    "only just merely simply necessarily doubt matter problem more less fewer later earlier sooner "
    "greater than"
)
_SWITCHES: Final = _stems("enabled enable enables true active yes on off")
_PREFIXES: Final = ("dis", "non-", "non", "un", "in", "im", "ir", "il")
_BASES: Final = {"exclude": "include", "excluded": "included", "excludes": "includes"}
_BARE: Final = words_of(
    "not no never none neither nor nothing nobody nowhere noone without w/o cannot unless except lack "
    "lacks lacked lacking false disable disables disabled disabling hardly barely scarcely rarely "
    "seldom fail fails failed failing refuse refuses refused refusing decline declines declined"
)
_SOURCES: Final = _stems("source document documentation context passage excerpt snippet text material")
_WE: Final = frozenset(("i", "we"))
_SAYING: Final = _stems(
    "mention provide specify state contain include say describe find found give given list indicate define cover "
    "discuss address answer know show tell determine confirm verify document explain locate"
)
_SAID_ONLY: Final = _stems("mention specify state describe discuss document indicate")
_SAID_NOUNS: Final = _stems("information mention evidence indication detail")
_NONE: Final = frozenset(("number 0",))
_WORD: Final = 4  # weight of a word that both clauses hold; one that only the statement holds weighs 1

OPPOSITE: Final = "sources_say_the_opposite"
NOT_IN_SOURCES: Final = "not_in_sources"


@dataclass(slots=True, eq=False)
class Clause:
    """A clause: `polarity` is "", "not" or "rarely", `head` the word that is negated, `opening` its first word."""

    polarity: str
    head: str
    opening: str
    words: frozenset[str]
    first: Token
    last: Token
    statement: Statement


def denies(statement: Statement) -> bool:
    """Tell whether a statement holds a negation; where none does, no clause contradicts another."""
    if statement.denies is None:
        statement.denies = bool(negations([token.text for token in statement.tokens]))
    return statement.denies


def clauses(statement: Statement) -> Sequence[Clause]:
    """Return the clauses of a statement that say anything."""
    if statement.clauses is None:
        statement.clauses = [*_clauses(statement)]
    return statement.clauses


def _clauses(statement: Statement) -> Iterator[Clause]:
    before = ""
    start = 0
    tokens = statement.tokens
    for place in range(len(tokens) + 1):
        if place < len(tokens) and (tokens[place].value or tokens[place].text not in _ENDS):
            continue
        if clause := _clause(tokens[start:place], statement):
            inherits = start and tokens[start - 1].text == "or" and not clause.polarity
            if inherits and before:  # "does not read or write"
                clause.polarity, clause.head = before, clause.opening
            before = clause.polarity
            yield clause
        start = place + 1


def _clause(tokens: Sequence[Token], statement: Statement) -> Clause | None:
    words: dict[str, None] = {}
    marks: list[Token] = []
    weak = False
    head = ""
    for place, token in enumerate(tokens):
        if len(words) >= _WORDS:
            break
        if token.value and not token.value.implied:
            words[min(token.value.keys)] = None
            head = head or (min(token.value.keys) if marks else "")
            continue
        following = tokens[place + 1].text if place + 1 < len(tokens) else ""
        found = "" if token.mark and token.text != "!=" else _negates(token.text, "to" * (following == "to"))
        if found and following not in _EMPTY_BEFORE and not (token.text == "nor" and marks):
            marks.append(token)
            weak = found == WEAK
        stems = _bases(token.text) if found else token.stems
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
    return Clause(polarity, head if polarity else "", opening, frozenset(words), first, last, statement)


@lru_cache(1 << 14)
def _negates(word: str, following: str = "") -> str:
    found = negations((word, following) if following else (word,)) if len(word) <= 64 else []
    return found[0] if found else ""


def _bases(word: str) -> tuple[str, ...]:
    """Return what a negating word negates: "valid" for "invalid"; nothing for "not"."""
    if word in _BARE or word.endswith("n't"):
        return ()
    if word in _BASES:
        return (stem(_BASES[word]),)
    bare = next((word[len(prefix) :] for prefix in _PREFIXES if word.startswith(prefix)), word)
    return content_words(bare.removesuffix("less"))


class ClauseIndex:
    """Holds the clauses of passages; its size and the work of every question are bounded."""

    def __init__(self, asked: Iterable[Clause]) -> None:
        """Start empty.

        Args:
            asked: the clauses of the answer; of the passages, only what shares a word with them is kept.
        """
        self._wanted = frozenset(word for clause in asked for word in clause.words)
        self._said: dict[str, list[Clause]] = {}
        self._denied: dict[str, list[Clause]] = {}

    def add(self, statement: Statement) -> None:
        """Take in a statement of a passage."""
        if self._wanted.isdisjoint(statement.words) and not any(
            _negates(token.text) for token in statement.tokens
        ):
            return
        none = any(token.value and not token.value.keys.isdisjoint(_NONE) for token in statement.tokens)
        for clause in clauses(statement):
            words = clause.words & self._wanted
            if clause.polarity or none:  # "retries: 0" says no as well
                _keep(self._denied, words, clause)
            if not clause.polarity:
                _keep(self._said, words, clause)

    def contradicted(self, clause: Clause) -> str:
        """Return why no passage supports a clause's yes or no, or an empty text."""
        if clause.polarity:
            return "" if _is_about_sources(clause) else self._denial(clause)
        return self._assertion(clause)

    def _denial(self, clause: Clause) -> str:
        said = max((_closeness(clause, other) for other in _sharing(self._said, clause.words)), default=0)
        denials = [other for other in _sharing(self._denied, clause.words) if _denies_same(clause, other)]
        best = max((_closeness(clause, other) for other in denials), default=0)
        if best and best + _WORD > said:
            return ""
        same = any(clause.head in other.words for other in _sharing(self._said, clause.words))
        return OPPOSITE if same else NOT_IN_SOURCES

    def _assertion(self, clause: Clause) -> str:
        if clause.first is clause.last:
            return ""
        denials = [
            other
            for other in _sharing(self._denied, clause.words)
            if other.polarity
            and other.head in clause.words
            and clause.words <= other.statement.words | other.words
            and (len(clause.words) > 1 or other.words == clause.words)
        ]
        if not denials:
            return ""
        best = max(_closeness(clause, other) for other in denials)
        said = max((_closeness(clause, other) for other in _sharing(self._said, clause.words)), default=0)
        return "" if said >= best else OPPOSITE


def _keep(index: dict[str, list[Clause]], words: Iterable[str], clause: Clause) -> None:
    for word in words:
        entries = index.setdefault(word, [])
        if len(entries) < _CANDIDATES:
            entries.append(clause)


def _sharing(index: dict[str, list[Clause]], words: Iterable[str]) -> list[Clause]:
    """Return clauses that share a word, those of the rarest words first; a bounded number."""
    found: dict[int, Clause] = {}
    for entries in sorted((index.get(word, []) for word in sorted(words)), key=len):
        found.update(zip(map(id, entries), entries, strict=True))
        if len(found) >= 2 * _CANDIDATES:
            break
    return list(found.values())


def _closeness(one: Clause, other: Clause) -> int:
    own = one.words & other.words
    shared = one.words & other.statement.words
    return _WORD * len(own) + len(shared) - min(len(other.words - one.words), 3)


def _denies_same(one: Clause, other: Clause) -> bool:
    same = one.polarity == (other.polarity or one.polarity)
    common = one.words & other.words
    return same and (one.head in common or other.head in common or len(common) > 1)


def _is_about_sources(clause: Clause) -> bool:
    """Tell whether a clause says that something is not said (S2-21): "the sources do not mention ...".

    So also "is not specified", "I could not find", "no information"; "the API does not list users" says more.
    """
    if clause.head not in _SAYING:
        return clause.head in _SAID_NOUNS and clause.first.text == "no"
    before = [token for token in clause.statement.tokens if token.start < clause.first.start]
    by_whom = any(token.text in _WE or not _SOURCES.isdisjoint(token.stems) for token in before)
    return by_whom or clause.head in _SAID_ONLY

"""What a sentence depends on: its conditions, exceptions and moments, and the clause that each belongs to.

An adjunct begins with a link ("if", "unless", "before") and ends at the next comma, semicolon, colon or full stop. It
belongs to the clause in front of it, or, at the start of a clause, to the one behind it. English only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from groundwire.text.clauses import AUXILIARIES, is_past, read_clause
from groundwire.text.lists import words_in
from groundwire.text.stems import words_of


class AdjunctKind(Enum):
    CONDITION = auto()  # "if", "provided", "in case"
    WHEN = auto()  # "when", "where": a condition, or a time that is told
    EXCEPTION = auto()  # "except", "but the"
    UNLESS = auto()  # both an exception and a condition
    BEFORE = auto()  # the clause is earlier than the adjunct
    AFTER = auto()


class Adjunct(NamedTuple):
    kind: AdjunctKind
    link: int  # place of its link, of the first word of one
    words: range  # places of its own words
    main: range  # places of the clause that depends on it


EXCEPTIONS: Final = frozenset((AdjunctKind.EXCEPTION, AdjunctKind.UNLESS))
CONDITIONS: Final = frozenset((AdjunctKind.CONDITION, AdjunctKind.UNLESS))

_LINKS: Final[dict[str, AdjunctKind]] = {
    link: kind
    for kind, links in (
        (AdjunctKind.CONDITION, "if;provided;providing;assuming;in case;only when"),
        (AdjunctKind.WHEN, "when;where;whenever"),
        (
            AdjunctKind.EXCEPTION,
            "except;excepting;excluding;save where;save that;but the;other than;apart from",
        ),
        (AdjunctKind.UNLESS, "unless"),
        (AdjunctKind.BEFORE, "before;until"),
        (AdjunctKind.AFTER, "after;once"),
    )
    for link in links.split(";")
}
_FIRST_WORDS: Final = {link.partition(" ")[0] for link in _LINKS}
_INVERTED: Final = words_of("had should were")
"""At the start of a sentence: "Should it fail, ..."."""
_NO_CONDITION: Final = words_in(__package__, "no_condition")
_ENDS: Final = words_of(", ; : .")
_BREAKS: Final = words_of("; ) . ? ! but while whereas although though because")
CLAUSE_ENDS: Final = _BREAKS | words_of(": ( so")
"""A clause ends here whatever it is joined with; at a comma or an "and", where a clause begins behind it."""
PHRASE_ENDS: Final = _BREAKS | words_of(", | · • — and or however")
PART_ENDS: Final = PHRASE_ENDS | words_of("if when unless which who that")
"""What is between them is compared by itself."""
AFTER_COMMA: Final = words_in(__package__, "after_comma")
SUBJECTS: Final = words_in(__package__, "subjects")
_RELATIVE: Final = words_of("which who whose")
_SUBORDINATE: Final = words_of("although though while whereas because after when since as")
_REACH: Final = 40  # words of a clause


def adjuncts(texts: Sequence[str]) -> Iterator[Adjunct]:
    done = 0
    for place, text in enumerate(texts):
        if place < done:
            continue
        inverted = place == 0 and text in _INVERTED
        if not (inverted or text in _FIRST_WORDS):  # as most
            continue
        both = " ".join(texts[place : place + 2])
        link = both if both in _LINKS else text
        if not (inverted or link in _LINKS):
            continue
        kind = AdjunctKind.CONDITION if inverted else _LINKS[link]
        first = place + len(link.split())
        behind = texts[first] if first < len(texts) else ""
        if kind in CONDITIONS and not inverted and (not behind or behind in _NO_CONDITION):
            continue
        done, end = first, first_of(texts, first, _ENDS)
        yield Adjunct(kind, place, range(first, end), _main(texts, place, end))


def _main(texts: Sequence[str], place: int, end: int) -> range:
    start = clause_start(texts, place)
    if start == place > 1 and texts[place - 1] == ",":  # "the match is off, if it rains"
        front = clause_start(texts, place - 1)
        if read_clause(texts[front : place - 1], place - 1 - front, ()).verb:
            return range(front, place - 1)
    if start < place:
        return range(start, place)
    return range(end + 1, max(end + 1, clause_end(texts, end + 1)))


def clause_start(texts: Sequence[str], place: int) -> int:
    for at in range(min(place, len(texts)) - 1, max(0, place - _REACH) - 1, -1):
        text = texts[at]
        behind = texts[at + 1] if at + 1 < len(texts) else ""
        joins = text == "and" and (behind in AUXILIARIES or behind in SUBJECTS or is_past(behind))
        if joins or text == "," or text in CLAUSE_ENDS or text in _RELATIVE:
            return at + 1
    return max(0, place - _REACH)


def clause_end(texts: Sequence[str], place: int) -> int:
    """Return where the clause at a place ends; one that begins with its link ends at the next comma."""
    start = clause_start(texts, place)
    linked = start > 1 and texts[start - 1] in _RELATIVE and texts[start - 2] == ","
    linked = linked or (texts[0] in _SUBORDINATE and start <= 1)
    for at in range(place, _reach(texts, place)):
        text = texts[at]
        joins = text == "," and (linked or (at + 1 < len(texts) and texts[at + 1] in AFTER_COMMA))
        if joins or text in CLAUSE_ENDS:
            return at
    return _reach(texts, place)


def _reach(texts: Sequence[str], place: int) -> int:
    return min(len(texts), place + _REACH)


def first_of(texts: Sequence[str], place: int, marks: frozenset[str]) -> int:
    """Return the place of the first of some words in a clause, or where the clause may end at most."""
    end = _reach(texts, place)
    return next((at for at in range(place, end) if texts[at] in marks), end)

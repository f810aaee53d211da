"""Whether a quote stands where something before it in the clause negates it (C-41).

"feel tired" is a quote of "I don't feel tired", by the rule of substrings; a note says that it may not mean
what it says. English only, and no parser: where the rules are in doubt they note, and a person looks.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

_REACH: Final = 120  # characters that a negation reaches: speech written down may go without full stops
_PIECE: Final = 50_000
_LONGEST_MATCH: Final = 64  # characters, with what stands around a match
_MOST_PLACES: Final = 100  # at which a quote is looked at; one that is negated at all of these gets its note

# What negates the words after it. Of the negations of `groundwire.checks.negations` these are the ones with a
# reach: "unhappy" and "invalid" negate themselves alone.
_NEGATION: Final = re.compile(
    r"\b(?:not(?! (?:only|just|merely|simply)\b)"
    r"|no(?![,.!?;:]| (?:doubt|wonder|question|matter)\b)"
    r"|nothing(?! but\b)|never|none|neither|nor|nobody|nowhere|noone|without|cannot"
    r"|hardly|barely|scarcely|rarely|seldom|unlikely"
    r"|(?:do|does|did|is|are|was|were|wo|ca|could|should|would|must|has|have|had)nt"
    r"|den(?:y|ies|ied|ying)|lack(?:s|ed|ing)?|(?:absence|free|instead|incapable) of|rather than|far from"
    r"|ruled? out|unable to|(?:fail(?:s|ed)?|refus(?:e|es|ed)|declin(?:e|es|ed)) to)\b"
    r"|n['\u02bc\u00b4\u2032]t\b|\bw/o\b"
)
_SUBJECT: Final = (
    r"(?:i(?! (?:mean|think|guess|suppose|believe)\b)|we|he|she|they|you(?! know\b)|it|there)\b(?!-)"
)
_CLAUSE_END: Final = re.compile(
    r"[!?;\u2026\u3002]"
    r"|(?<![. ][a-z])(?<!\bdr)(?<!\bmr)(?<!\bms)(?<!\bmrs)(?<!\bvs)(?<!\betc)\.(?=[ \"')\]]|$)"
    r"| (?:--?|[\u2013\u2014]) |\u2014"
    r"| (?=(?:but|however|although|though|whereas|because|when|while|until|after|before|if)\b)"
    rf"|,(?= {_SUBJECT})| (?=(?:and|or|so) {_SUBJECT})"
)


class _Marks(NamedTuple):
    """Where clauses start and where negations stand, in ascending order."""

    starts: list[int]
    negations: list[int]


class Clauses:
    """The clauses of a source and the negations in them.

    Only what stands around a place is read, until that has cost as much as the whole source does.

    Args:
        source: In the form in which quotes are compared.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._unread = len(source)
        self._whole: _Marks | None = None

    def negates(self, place: int) -> bool:
        """Tell whether a negation stands before a place of the source: in its clause, within reach."""
        return _negates(self._around(place), place)

    def always_negates(self, quote: str, *, whole_words: bool = False) -> bool:
        """Tell whether each place at which a quote stands is negated.

        Args:
            quote: One that stands in the source.
            whole_words: Places inside a word do not count.
        """
        place = self._source.find(quote)
        for _ in range(_MOST_PLACES):
            if place < 0:
                break
            if whole_words and self._cuts_word(place, place + len(quote)):
                place = self._source.find(quote, place + 1)
                continue
            marks = self._around(place)
            if not _negates(marks, place):
                return False
            place = self._source.find(quote, _beyond(marks, place))
        return True

    def _around(self, place: int) -> _Marks:
        """Return the marks that bear on a place.

        No match of `_NEGATION` begins within another one, and no match of `_CLAUSE_END` holds a letter: behind the
        negation that counts, the clauses that start are the same wherever before it reading began.
        """
        if self._whole is None:
            start = max(0, place - _REACH)
            beyond = min(place + _REACH + 1, len(self._source))
            self._unread -= beyond - start
            if self._unread > 0:
                return _marks(self._source, start, place, beyond)
            self._whole = _marks(self._source, 0, len(self._source), len(self._source))
        return self._whole

    def _cuts_word(self, start: int, end: int) -> bool:
        return any(
            0 < edge < len(self._source) and _is_word(self._source[edge - 1]) and _is_word(self._source[edge])
            for edge in (start, end)
        )


def _marks(source: str, start: int, place: int, beyond: int) -> _Marks:
    negations = [found.start() for found in _all(_NEGATION, source, start, place)]
    ends = _all(_CLAUSE_END, source, start, beyond) if negations else ()  # what nothing negates needs none
    return _Marks([0, *(end.end() for end in ends)], negations)


def _negates(marks: _Marks, place: int) -> bool:
    last = bisect_left(marks.negations, place) - 1
    if last < 0 or place - marks.negations[last] > _REACH:
        return False
    return marks.negations[last] >= marks.starts[bisect_right(marks.starts, place) - 1]


def _beyond(marks: _Marks, place: int) -> int:
    """Return the first place after a negated one that may not be: past its clause, or out of reach."""
    reach = marks.negations[bisect_left(marks.negations, place) - 1] + _REACH + 1
    clause = bisect_right(marks.starts, place)
    end = marks.starts[clause] if clause < len(marks.starts) else reach
    return max(place + 1, min(end, reach))


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _all(pattern: re.Pattern[str], text: str, first: int, last: int) -> Iterator[re.Match[str]]:
    """Yield the matches that start from first to last; no call of the engine reads more than a piece of the text."""
    done = 0
    for start in range(first, last, _PIECE):
        beyond = min(start + _PIECE, last)
        for found in pattern.finditer(text, max(start, done), beyond + _LONGEST_MATCH):
            if found.start() < beyond:
                done = found.end()
                yield found

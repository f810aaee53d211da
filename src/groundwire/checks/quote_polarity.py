"""Whether a quote stands where something before it in the clause negates it (C-41).

"feel tired" is a quote of "I don't feel tired", by the rule of substrings; a note says that it may not mean
what it says. English only, and no parser: where the rules are in doubt they note, and a person looks.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final

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


class Clauses:
    """The clauses of a source and the negations in them.

    Args:
        source: In the form in which quotes are compared.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._starts = [0, *(end.end() for end in _all(_CLAUSE_END, source))]
        self._negations = [found.start() for found in _all(_NEGATION, source)]

    def negates(self, place: int) -> bool:
        """Tell whether a negation stands before a place of the source: in its clause, within reach."""
        last = bisect_left(self._negations, place) - 1
        if last < 0 or place - self._negations[last] > _REACH:
            return False
        return self._negations[last] >= self._starts[bisect_right(self._starts, place) - 1]

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
            elif self.negates(place):
                place = self._source.find(quote, self._beyond(place))
            else:
                return False
        return True

    def _beyond(self, place: int) -> int:
        """Return the first place after a negated one that may not be: past its clause, or out of reach."""
        clause = bisect_right(self._starts, place)
        end = self._starts[clause] if clause < len(self._starts) else len(self._source)
        reach = self._negations[bisect_left(self._negations, place) - 1] + _REACH + 1
        return max(place + 1, min(end, reach))

    def _cuts_word(self, start: int, end: int) -> bool:
        return any(
            0 < edge < len(self._source) and _is_word(self._source[edge - 1]) and _is_word(self._source[edge])
            for edge in (start, end)
        )


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _all(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of a pattern; no call of the engine reads more than a piece of the text."""
    done = 0
    for start in range(0, len(text), _PIECE):
        beyond = start + _PIECE
        for found in pattern.finditer(text, max(start, done), beyond + _LONGEST_MATCH):
            if found.start() < beyond:
                done = found.end()
                yield found

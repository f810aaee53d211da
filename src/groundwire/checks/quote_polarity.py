"""Whether a quote stands where something before it in the clause negates it (C-41).

"feel tired" is a quote of "I don't feel tired", by the rule of substrings; a note says that it may not mean
what it says. English only, and no parser: where the rules are in doubt they note, and a person looks.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

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
    """The clauses of a source, and where in each the first negation stands.

    Args:
        source: In the form in which quotes are compared.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._starts = [0, *(end.end() for end in _CLAUSE_END.finditer(source))]
        self._negations: dict[int, int] = {}
        for found in _NEGATION.finditer(source):
            self._negations.setdefault(self._clause(found.start()), found.start())

    def negates(self, place: int) -> bool:
        """Tell whether a negation stands before a place of the source, in its clause."""
        first = self._negations.get(self._clause(place))
        return first is not None and first < place

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
            elif self.negates(place):  # as is all that follows in this clause
                place = self._source.find(quote, self._next_start(place))
            else:
                return False
        return True

    def _clause(self, place: int) -> int:
        return bisect_right(self._starts, place) - 1

    def _next_start(self, place: int) -> int:
        following = self._clause(place) + 1
        return self._starts[following] if following < len(self._starts) else len(self._source)

    def _cuts_word(self, start: int, end: int) -> bool:
        return any(
            0 < edge < len(self._source) and _is_word(self._source[edge - 1]) and _is_word(self._source[edge])
            for edge in (start, end)
        )


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"

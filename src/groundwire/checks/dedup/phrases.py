"""Where a phrase of a claim ends that could stand elsewhere, so that claims are compared with each in one place.

"After 20:00 visitors use the side door" and "Visitors use the side door after 20:00" say the same. No parser: a phrase
that opens a claim ends at its comma, behind a date, a time or an amount, or before the article of the next noun.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from groundwire.text.clauses import AUXILIARIES, EACH, FUNCTION_WORDS, role_of
from groundwire.text.dates import may_be_time, may_date
from groundwire.text.lists import words_in
from groundwire.text.quantities import is_unit, may_count
from groundwire.text.stems import words_of
from groundwire.text.tokens import tokenize

if TYPE_CHECKING:
    from collections.abc import Sequence

_CONDITIONS: Final = words_of("when whenever if while once unless")
_LEADING: Final = words_of("only always usually starting beginning")
_SUBJECTS: Final = words_in(__package__, "subjects")
_NO_END: Final = words_of("and or nor but than of at least most all both")
_SEASONS: Final = words_in(__package__, "seasons")
_COMMA: Final = re.compile(r",\s")
_LONGEST: Final = 16  # words of a phrase that is moved
_SHORTEST: Final = 4  # words of a claim that has one


def in_place(tokens: list[str], sentence: str, first: int) -> tuple[list[str], range]:
    """Return a claim's tokens with the opening phrase moved to the end of its sentence, and its places."""
    end = _opening(tokens[:first], sentence)
    moved = [*tokens[end:first], *tokens[:end], *tokens[first:]] if end else tokens
    return moved, range(first - end, first)


def _opening(tokens: Sequence[str], sentence: str) -> int:
    """Return how many words open a sentence as a phrase that could as well stand at its end; 0 for none."""
    if len(tokens) < _SHORTEST or not _opens(*tokens[tokens[0] in _LEADING :][:2]):
        return 0
    comma = _COMMA.search(sentence)
    end = _end(tokens[: _LONGEST + 1], len(tokenize(sentence[: comma.start()])) if comma else 0)
    return end if end < len(tokens) - 1 else 0


def _opens(token: str, follower: str) -> bool:
    """Tell whether a word may begin such a phrase: "After 20:00", "Every morning", "When"."""
    timed = token in EACH and (_measures(follower) or may_count(follower))
    return bool(role_of(token)) or timed or token in _CONDITIONS


def _end(tokens: Sequence[str], comma: int) -> int:
    """Return where the phrase ends that words open; 0 where that cannot be told."""
    said = tokens[0] not in _CONDITIONS  # a condition has a verb of its own
    for place in range(2, len(tokens)):
        token, before = tokens[place], tokens[place - 1]
        if place == comma:
            return place
        if said and before in AUXILIARIES and not (may_date(before) and may_count(tokens[place - 2])):
            return 0  # the verb, but for "3 May"
        if said and token in _SUBJECTS and not role_of(before) and before not in _NO_END:
            return place
        if (
            said
            and _measures(before)
            and not (token in FUNCTION_WORDS or may_count(token) or _measures(token))
        ):
            return place
        said = said or (before in AUXILIARIES and token not in FUNCTION_WORDS)
    return 0


def _measures(token: str) -> bool:
    return is_unit(token) or may_date(token) or may_be_time(token) or token in _SEASONS

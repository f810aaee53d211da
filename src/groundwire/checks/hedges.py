"""Hedges: words by which a speaker tells that a claim may not hold.

Personal speculation, admitted uncertainty and suggestions block a claim; technical hedges and approximations
send it to review (S0-78 to S0-103). Nothing else in the text, a citation or "definitely", takes a hedge back
(C-02, S0-89), and neither do quotation marks or code spans; only inside a URL, which the speaker did not
word, and inside an identifier with underscores a hedge word counts for nothing. Look-alikes are not seen
through: digits and letters of other scripts put for Latin letters ("I th1nk") pass (S0-102).
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from groundwire.checks.hedge_words import (
    LEFT,
    LETTER,
    RIGHT,
    RULES,
    SPACE,
    first_words,
    is_factual,
    is_month,
    may_begin,
)
from groundwire.checks.text import Reading, has_gaps, normalise, tidy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class HedgeAction(StrEnum):
    """What a hedge does to the claim that holds it, strictest first (S0-78)."""

    BLOCK = "block"
    REVIEW = "review"
    CONTINUE = "none"


class Hedge(NamedTuple):
    """One hedge; `text` is exactly `original[start:end]`, in characters of the original text."""

    text: str
    category: str
    action: HedgeAction
    start: int
    end: int


class HedgeResult(NamedTuple):
    """The hedges of a text, summed up.

    `is_speculative` says that there is a hedge of any kind (C-25); `action` is that of the strictest, and
    `hedge_words` are as written, in text order, each written form once.
    """

    is_speculative: bool
    action: HedgeAction
    hedge_words: list[str]


class _Match(NamedTuple):
    """A hedge in a reading of the text; positions are the reading's."""

    category: str
    action: HedgeAction
    start: int
    end: int


_ACTIONS = {
    "personal_speculation": HedgeAction.BLOCK,
    "admitted_uncertainty": HedgeAction.BLOCK,
    "suggestion": HedgeAction.BLOCK,
    "technical_hedge": HedgeAction.REVIEW,
    "approximation": HedgeAction.REVIEW,
}


class HedgeDetector:
    """Finds hedges, in English.

    Args:
        block: further words or phrases that block: literal text, matched as whole words in any case (S0-103).
        review: the same, for review. What is built in stays: of hedges that overlap the stricter one stands.
    """

    def __init__(self, *, block: Iterable[str] = (), review: Iterable[str] = ()) -> None:
        added = ((HedgeAction.BLOCK, _compile(block)), (HedgeAction.REVIEW, _compile(review)))
        self._added = [(action, pattern) for action, pattern in added if pattern is not None]

    def find(self, text: str) -> list[Hedge]:
        """Return the hedges of a text, in text order and without overlaps."""
        return [hedge for hedge, _ in self._found(text)]

    def analyze(self, text: str) -> HedgeResult:
        """Sum up the hedges of a text: the strictest action, and the words (S0-85 to S0-87, S0-93)."""
        return self.read(text)[1]

    def read(self, text: str) -> tuple[list[Hedge], HedgeResult]:
        """Return what `find` and `analyze` return, for the price of one."""
        found = self._found(text)
        if not found:
            return [], HedgeResult(is_speculative=False, action=HedgeAction.CONTINUE, hedge_words=[])
        blocks = any(hedge.action is HedgeAction.BLOCK for hedge, _ in found)
        words = list(dict.fromkeys(word for _, word in found))
        strictest = HedgeAction.BLOCK if blocks else HedgeAction.REVIEW
        return [hedge for hedge, _ in found], HedgeResult(
            is_speculative=True, action=strictest, hedge_words=words
        )

    def _found(self, text: str) -> list[tuple[Hedge, str]]:
        """Return each hedge with its words as they are reported."""
        # "I\u200bthink" hides a space, "may\u200bbe" splits a word: such a text is read both ways (S0-102).
        ways = (False, True) if has_gaps(text) else (False,)
        if len(ways) == 1 and not self._added and not may_begin(text):
            return []  # saves the map of positions, which costs most in other scripts
        return _without_overlaps([entry for split in ways for entry in self._read(text, split=split)])

    def _read(self, text: str, *, split: bool) -> Iterator[tuple[Hedge, str]]:
        reading = normalise(text, split=split)
        for match in self._matches(reading):
            start, end = reading.span(match.start, match.end)
            written = text[start:end]
            yield Hedge(written, match.category, match.action, start, end), tidy(written, split=split)

    def _matches(self, reading: Reading) -> Iterator[_Match]:
        text = reading.text
        for match in _built_in(text):
            if not is_month(text, match.start, match.end):
                yield match
        for action, pattern in self._added:
            for found in pattern.finditer(text):
                if not is_month(text, *found.span()) and not is_factual(text, *found.span()):
                    yield _Match("configured", action, *found.span())


def _built_in(text: str) -> Iterator[_Match]:
    done = 0
    for start, end, word in first_words(text):
        if start < done:
            continue
        for rule in RULES[word]:
            rest = rule.rest.match(text, end)
            if rest is not None:
                done = rest.end()
                category = rule.category or rest.lastgroup or ""
                if category in _ACTIONS:
                    yield _Match(category, _ACTIONS[category], start, done)
                break


def _compile(phrases: Iterable[str]) -> re.Pattern[str] | None:
    """Compile an operator's phrases, longest first, or return None where there are none."""
    read = {normalise(phrase).text.strip() for phrase in phrases} - {""}
    patterns = []
    for phrase in sorted(read, key=lambda phrase: (-len(phrase), phrase)):
        left = LEFT if LETTER.match(phrase[0]) else ""
        right = RIGHT if LETTER.match(phrase[-1]) else ""
        patterns.append(left + SPACE.join(map(re.escape, phrase.split(" "))) + right)
    return re.compile("|".join(patterns), re.IGNORECASE) if patterns else None


def _without_overlaps(found: list[tuple[Hedge, str]]) -> list[tuple[Hedge, str]]:
    """Keep, of hedges that overlap, the stricter one; then the longer; then the first."""
    kept: list[tuple[Hedge, str]] = []
    for entry in sorted(found, key=lambda entry: entry[0].start):
        if not kept or entry[0].start >= kept[-1][0].end:
            kept.append(entry)
        elif _rank(entry[0]) > _rank(kept[-1][0]):
            kept[-1] = entry
    return kept


def _rank(hedge: Hedge) -> tuple[bool, int]:
    return hedge.action is HedgeAction.BLOCK, hedge.end - hedge.start

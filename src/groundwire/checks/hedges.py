"""Hedges: words by which a speaker tells that a claim may not hold.

Personal speculation, admitted uncertainty and suggestions block a claim; technical hedges and approximations
send it to review (S0-78 to S0-103). Nothing else in the text, a citation or "definitely", takes a hedge back
(C-02, S0-89), and neither do quotation marks or code spans; only inside a URL, which the speaker did not
word, and inside an identifier or the name of a file a hedge word counts for nothing. Letters of other scripts that look
like Latin ones are read as these; digits put for letters ("I th1nk") pass (S0-102).

What is built in stands in `hedge_grammar.txt`. A policy can add phrases of its own, or a lexicon for a
field of knowledge (S0-103).
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Final, Literal, NamedTuple
from unicodedata import normalize

from groundwire.arguments import takes
from groundwire.checks.hedge_context import is_factual, is_month, is_name, reported
from groundwire.checks.hedge_rules import CHUNKS, RULES, HedgeTokens
from groundwire.text.normalise import plain, read
from groundwire.text.tokens import PerToken
from groundwire.text.visible import splits_words, visible, without_markup

Lexicon = Literal["none", "scientific"]
LEXICONS: Final[dict[Lexicon, str]] = {"scientific": "hedges_scientific.txt"}
"""Name -> the file beside this one: a phrase to a line, comments behind "#"."""


@cache
def hedge_lexicon(name: Lexicon) -> tuple[str, ...]:
    """Return the phrases of a lexicon, for `HedgeDetector(review=...)`; of "none", none.

    Raises:
        ValueError: there is no lexicon of that name.
    """
    if name == "none":
        return ()
    if name not in LEXICONS:
        raise ValueError(f"hedge_lexicon must be none or {', '.join(LEXICONS)}, got {name!r}")
    lines = (files("groundwire.checks") / LEXICONS[name]).read_text("utf-8").splitlines()
    return tuple(line.strip() for line in lines if line.strip() and not line.startswith("#"))


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
    "question": HedgeAction.REVIEW,
}


class HedgeDetector:
    """Finds hedges, in English.

    Args:
        block: further words or phrases that block: literal text, matched as whole words in any case (S0-103).
        review: the same, for review. What is built in stays: of hedges that overlap the stricter one stands.
    """

    @takes(block=Iterable, review=Iterable)
    def __init__(self, *, block: Iterable[str] = (), review: Iterable[str] = ()) -> None:
        added = ((HedgeAction.BLOCK, _compile(block)), (HedgeAction.REVIEW, _compile(review)))
        self._added = [(action, pattern) for action, pattern in added if pattern is not None]

    @takes(text=str)
    def find(self, text: str) -> list[Hedge]:
        """Return the hedges of a text, in text order and without overlaps."""
        return [hedge for hedge, _ in self._found(text)]

    @takes(text=str)
    def analyze(self, text: str) -> HedgeResult:
        """Sum up the hedges of a text: the strictest action, and the words (S0-85 to S0-87, S0-93)."""
        return self.read(text)[1]

    def read(self, text: str) -> tuple[list[Hedge], HedgeResult]:
        """Return what `find` and `analyze` return, in one pass."""
        found = self._found(text)
        telling = [(hedge, words) for hedge, words in found if hedge.action is not HedgeAction.CONTINUE]
        if not telling:
            none = HedgeResult(is_speculative=False, action=HedgeAction.CONTINUE, hedge_words=[])
            return [hedge for hedge, _ in found], none
        blocks = any(hedge.action is HedgeAction.BLOCK for hedge, _ in telling)
        words = list(dict.fromkeys(words for _, words in telling))
        strictest = HedgeAction.BLOCK if blocks else HedgeAction.REVIEW
        return [hedge for hedge, _ in found], HedgeResult(
            is_speculative=True, action=strictest, hedge_words=words
        )

    def _found(self, text: str) -> list[tuple[Hedge, str]]:
        """Return each hedge with its words as they are reported."""
        # "I\u200bthink" hides a space, "may\u200bbe" splits a word: such a text is read both ways (S0-102).
        ways = (False, True) if splits_words(text) else (False,)
        bare = text if text.isascii() else _as_latin(text)
        looks = not text.isascii() and len(ways) == 1 and not self._added
        if looks and not may_begin(plain(without_markup(bare))):
            return []  # saves the map of positions, which costs most in other scripts
        found = [entry for split in ways for entry in self._read(text, bare, split=split)]
        return _without_overlaps(found) if len(found) > 1 else found

    def _read(self, text: str, bare: str, *, split: bool) -> Iterator[tuple[Hedge, str]]:
        reading = read(bare, split=split)
        matches = list(self._matches(reading.text))
        spans = list(reported(reading.text)) if matches else []
        for match in matches:
            first, last = match.start, match.end
            start, end = reading.span(first, last)
            written = text[start:end]
            place = bisect_right(spans, (first, last)) - 1
            is_reported = place >= 0 and last <= spans[place][1]
            silent = is_reported or is_name(reading.text, first, last)
            words = " ".join(visible(written, split=split).split())
            yield (
                Hedge(written, match.category, HedgeAction.CONTINUE if silent else match.action, start, end),
                words,
            )

    def _matches(self, text: str) -> Iterator[_Match]:
        for match in built_in(text):
            if not is_month(text, match.start, match.end):
                yield match
        for action, pattern in self._added:
            for found in pattern.finditer(text):
                if not is_month(text, *found.span()) and not is_factual(text, *found.span()):
                    yield _Match("configured", action, *found.span())


def built_in(text: str) -> Iterator[_Match]:
    """Yield the hedges of the grammar in a text in normal form."""
    asked = _ASKED.match(text)
    if asked:
        yield _Match("question", HedgeAction.REVIEW, *asked.span())
    tokens = HedgeTokens(text)
    spans: list[tuple[int, int]] = []
    for index in [index for index, word in enumerate(tokens.each) if word in RULES]:
        if found := _first_match(tokens, index):
            category, before, behind = found
            spans = spans or tokens.spans()
            start, end = spans[max(0, index - before)][0], spans[min(index + behind, len(spans) - 1)][1]
            yield _Match(category, _ACTIONS[category], start, end)


def _first_match(tokens: HedgeTokens, index: int) -> tuple[str, int, int] | None:
    left, right = tokens.beside(index)
    before: list[str] = []
    behind = ""
    for rule in RULES[tokens.each[index]]:
        if not rule.may_stand(left, right):
            continue
        if not before:
            before, after = tokens.around(index)
            behind = " ".join(["", *after])
        if rule.may_begin(before) and (found := rule.match(before, behind)):
            return (rule.category, *found) if rule.category in _ACTIONS else None
    return None


_MARKS: Final = re.compile("[\u0300-\u036f\u20d0-\u20f0]")
"""Marks that letters carry one by one: "m\\u0301aybe" reads as the word without them."""
_LOOKS: Final = str.maketrans(
    "\u0410\u0412\u0415\u0406\u0408\u041a\u041c\u041d\u041e\u0420\u0405\u0421\u0422\u0423\u0425\u0430\u0432\u0435\u0456\u0458\u043a"
    "\u043c\u043d\u043e\u0440\u0455\u0441\u0442\u0443\u0445\u0501\u04bb\u0391\u0392\u0395\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4"
    "\u03a5\u03a7\u03b1\u03b9\u03bd\u03bf",
    "ABEIJKMHOPSCTYXabeijkmhopsctyxdhABEHIKMNOPTYXaivo",
)
"""The letters of Cyrillic and Greek that look like Latin ones, small or as capitals."""
_ACCENTED: Final = re.compile("[A-Za-z\u00c0-\u024f\u1e00-\u1eff]{4,}")
"""Words that are long enough that their accents tell no other word apart: Vietnamese "m\u00e1y" is no "may"."""


def _as_latin(text: str) -> str:
    bare = _MARKS.sub("\u200b", text).translate(_LOOKS)
    return _ACCENTED.sub(_without_accents, bare)


def _without_accents(word: re.Match[str]) -> str:
    return word[0] if word[0].isascii() else "".join(normalize("NFD", letter)[0] for letter in word[0])


# A question is told by its mark, which is a word of the grammar, or by how it begins.
_ASKED: Final = re.compile(
    r"(?:(?:is|are|was|were|do|does|did|can|could|should|would|has|have|will) (?:it|we|you|they|he|she|there|i|any\w*)|"
    r"(?:is|are|was|were|does|did|has|could|would|should) (?:the|an?|this|these|those|our|your|my|his|her|their|its)|"
    r"(?:(?-i:Is|Are|Was|Were|Does|Did|Could|Would|Can) (?-i:[A-Z][a-z])\w*)|what if|what about|how about|"
    r"(?:why|where|when|how|what|who) (?:is|are|was|were|do|does|did|can|could|should|would|will|has|have) "
    r"(?:it|we|you|they|he|she|there|i|the|an?|this|that|these|our|your|my|his|her|their))\b",
    re.IGNORECASE,
)


def may_begin(text: str) -> bool:
    """Tell at small cost whether a text in normal form, but for its white space, may hold a hedge."""
    chunks = text.split()
    return any(_TELLING.of(chunks)) or text.endswith("?") or _ASKED.match(text) is not None


_TELLING: Final = PerToken(lambda chunk: not RULES.keys().isdisjoint(CHUNKS[chunk][0]), 1 << 14)
"""Whether what stands between two blanks holds a word that a rule is filed under."""


# Words stay neighbours when one of them is emphasised, and a word is no part of an identifier.
_SPACE: Final = "(?:[*_]{0,3} [*_]{0,3})"
_LETTER: Final = re.compile(r"[0-9A-Za-z\u00c0-\u1fff]")
_LEFT: Final = f"(?<!{_LETTER.pattern})(?<!{_LETTER.pattern}_)(?<!{_LETTER.pattern}__)"
_RIGHT: Final = f"(?!{_LETTER.pattern})(?!_{{1,2}}{_LETTER.pattern})"


def _compile(phrases: Iterable[str]) -> re.Pattern[str] | None:
    wanted = {read(phrase).text.strip() for phrase in phrases} - {""}
    patterns = []
    for phrase in sorted(wanted, key=lambda phrase: (-len(phrase), phrase)):
        left = _LEFT if _LETTER.match(phrase[0]) else ""
        right = _RIGHT if _LETTER.match(phrase[-1]) else ""
        patterns.append(left + _SPACE.join(map(re.escape, phrase.split(" "))) + right)
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


_STRICT: Final = {HedgeAction.CONTINUE: 0, HedgeAction.REVIEW: 1, HedgeAction.BLOCK: 2}


def _rank(hedge: Hedge) -> tuple[int, int]:
    return _STRICT[hedge.action], hedge.end - hedge.start

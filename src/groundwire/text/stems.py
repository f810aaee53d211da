"""Words as they are compared: lower case, lightly stemmed, no function words. English only.

Stems are cut at six letters, so that "configure", "configured" and "configuration" are one word; that some different
words fall together costs little, as several words decide. Where claims are compared, one decides: see `uninflected`.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from groundwire.text.lists import words_in
from groundwire.text.tokens import CACHED_LENGTH, per_token

_PART: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VOWELS: Final = frozenset("aeiou")
_STEM: Final = 6  # letters of a word that count


def words_of(text: str) -> frozenset[str]:
    return frozenset(text.split())


_NUMBER_NAMES: Final = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety"
)
_ORDINAL_NAMES: Final = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
ONES: Final = {word: n for n, word in enumerate(_NUMBER_NAMES.split()[:20])}
TENS: Final = {word: 10 * n for n, word in enumerate(_NUMBER_NAMES.split()[20:], start=2)}
SCALES: Final = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
CARDINALS: Final = frozenset((*ONES, *TENS, *SCALES))
ORDINALS: Final = {word: n for n, word in enumerate(_ORDINAL_NAMES.split(), start=1)}
IMPLIED: Final = {"no": 0, "none": 0, "single": 1, "once": 1, "sole": 1, "both": 2, "couple": 2, "pair": 2}
"""Words that prove a number, but say none that could be wrong."""
PARTICLES: Final = ("out", "back", "down", "off", "up")
_COUNTING: Final = CARDINALS | ORDINALS.keys() | IMPLIED.keys() | {"a", "an", "half", "noon", "midnight"}
_FUNCTION_WORDS: Final = words_in(__package__, "stems_function_words")
_ENDINGS: Final = ("ingly", "edly", "ings", "ied", "ies", "ing", "ed", "es", "ly", "s", "e", "y")


class Lexeme(NamedTuple):
    text: str  # in lower case
    stems: tuple[str, ...]  # `connectTimeout_ms` has three, a function word none
    counts: bool  # it may be a number word


@per_token
def lexeme(word: str) -> Lexeme:
    """Read a word or an identifier as written: case tells where the parts of an identifier begin."""
    text = word.lower()
    if text in _FUNCTION_WORDS:
        return Lexeme(text, (), text in _COUNTING)
    parts = (part for run in _PART.findall(word[: 4 * CACHED_LENGTH]) for part in _CAMEL.split(run))
    stems = tuple(stem(part) for part in parts if part.lower() not in _FUNCTION_WORDS)
    return Lexeme(text, stems, text.partition("-")[0] in _COUNTING)


def content_words(word: str) -> tuple[str, ...]:
    return lexeme(word).stems


@lru_cache(1 << 14)
def stem(word: str) -> str:
    word = word.lower().removesuffix("'s").rstrip("'")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word.removesuffix(ending)
            if ending in {"ing", "ed"} and len(word) > 3 and word[-1] == word[-2] not in "lsz":
                word = word[:-1]  # "running", "stopped"
            break
    for particle in PARTICLES:  # "timeout" is the stem of "times out" too
        if word.endswith(particle) and len(word) - len(particle) >= 3:
            return stem(word.removesuffix(particle)) + particle
    return word[:_STEM].removesuffix("i") if len(word) > 3 else word[:_STEM]


def uninflected(word: str) -> str:
    """Return a word in lower case without the endings "-s", "-ing", "-ed" and "-e", uncut."""
    if not word.isalpha():
        return word  # a number or an identifier is itself
    if word.endswith(("ies", "ied")) and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("s") and len(word) > 3 and not word.endswith(("ss", "us", "is")):  # class, status
        word = word[:-1]
    for ending in ("ing", "ed", "ed"):  # "needed" and "exceeded" have two
        bare = word.removesuffix(ending)
        if len(bare) > 2 or bare[:1] in _VOWELS:  # of "using", but not of "need"
            word = bare
    word = word.rstrip("e") or word
    if len(word) > 3 and word[-1] == word[-2]:  # planned as plan, calls as called
        word = word[:-1]
    return word

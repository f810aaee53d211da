"""Words of a claim, as deduplication sees them (C-07): the same words with other punctuation, quotes, width or case.

What a symbol says stays: "C++", "C#", "-5", ".5", "30%", "$30", "<100ms", "!=". Words are separated by white space, so
text in a script without spaces is few, long tokens: its copies are found, its near-duplicates are not.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import blake2b
from typing import Final, TypeVar

from groundwire.text.normalise import nfkc
from groundwire.text.visible import visible

_T = TypeVar("_T")

TOKENIZER: Final = "words-2"
"""Names this tokeniser in the dedup scheme. Whoever changes what `tokenize` returns changes this too."""

CACHED_TOKENS: Final = 1 << 16
CACHED_LENGTH: Final = 64  # characters; longer tokens are rare, and would let one sender fill the memory

_TRADE_MARKS: Final = "\u00a9\u00ae\u2120\u2122"
_FOLDED: Final = {
    **dict.fromkeys(map(ord, _TRADE_MARKS)),
    **dict.fromkeys(map(ord, "\u2018\u2019\u201b\u02bc\u00b4"), "'"),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212"), "-"),  # hyphens, en dash, minus
    **dict.fromkeys(map(ord, "\u2014\u2015"), " "),  # an em dash separates two words
    **dict.fromkeys(map(ord, "\u2044\u2215"), "/"),
}
# NFKC would turn a power into digits ("10⁶" into "106") and glue a fraction to its number ("5½" into "51/2").
_POWER: Final = re.compile(
    "(?=[\u2070\u00b9\u00b2\u00b3\u2074-\u207b])(?<![\u2070\u00b9\u00b2\u00b3\u2074-\u207b])"
)
_ACUTE: Final = re.compile("(?<=n) \u0301(?=t\\b)")  # an accent for an apostrophe, as NFKC writes it
_FRACTION: Final = re.compile(r"(?<=\d)(?=[\u00bc-\u00be\u2150-\u215f\u2189])")

# Edge punctuation that belongs to what follows: a sign, a decimal point, a "not".
_MEANT: Final = re.compile(r"-[^\w\s]?\.?\d|\.\d|!(?:=|[^\W_])")
_KEPT_PUNCTUATION: Final = frozenset("%‰#")
_STRIPPED_SYMBOLS: Final = frozenset("|~")
# Edges of ASCII, by which most words are done: those that never belong to what follows, and all of them.
_BEFORE: Final = "\"&'()*,/:;?@[\\]^_`{|}~"
_BEHIND: Final = _BEFORE + "-.!"


def tokenize(text: str) -> list[str]:
    """Split text into its tokens, in text order, repeats kept (S0-104, C-07).

    Markup and invisible characters are removed (`groundwire.text.visible`), apostrophes and dashes folded, then
    NFKC, lower case, white space, and the punctuation at the edges of every word. No token is empty. Tokenising the
    tokens joined by spaces gives the same tokens, where they hold no markup.
    """
    return tokenize_visible(visible(text))


def tokenize_visible(shown: str) -> list[str]:
    if shown.isascii():
        folded = shown.lower()
    else:
        spaced = _FRACTION.sub(" ", _POWER.sub("^", _ACUTE.sub("'", shown.translate(_FOLDED))))
        folded = nfkc(nfkc(spaced).lower()).translate(_FOLDED)
    return [token for word in folded.split() if (token := word if word.isalnum() else _strip(word))]


class PerToken(dict[str, _T]):
    """A cache of at most `kept` values, each computed by `work` from a token of up to `CACHED_LENGTH` characters."""

    def __init__(self, work: Callable[[str], _T], kept: int = CACHED_TOKENS) -> None:
        super().__init__()
        self._work, self._kept = work, kept

    def __missing__(self, token: str) -> _T:
        value = self._work(token)
        if len(token) <= CACHED_LENGTH:
            if len(self) >= self._kept:
                self.clear()  # to forget the oldest one would cost every look-up more than this costs
            self[token] = value
        return value

    def of(self, tokens: Iterable[str]) -> list[_T]:
        return list(map(self.__getitem__, tokens))


def per_token(work: Callable[[str], _T]) -> Callable[[str], _T]:
    """Decorate a function of a token alone: its values are cached (`PerToken`) and shared."""
    return PerToken(work, 1 << 14).__getitem__


def token_digest(token: str) -> bytes:
    """Return the 8 bytes that identify a token: blake2b of its UTF-8 text, equal in every process."""
    # A lone surrogate cannot come over the wire; the library must not break on one.
    return blake2b(token.encode("utf-8", "surrogatepass"), digest_size=8).digest()


def _strip(word: str) -> str:
    token = word.lstrip(_BEFORE).rstrip(_BEHIND)
    if token and token[0].isalnum() and token[-1].isalnum():
        return token
    start, end = 0, len(word)
    while start < end and _is_edge(word[start]) and not _MEANT.match(word, start):
        start += 1
    while end > start and _is_edge(word[end - 1]):
        end -= 1
    token = word[start:end]
    return token if token.strip("#") else ""  # the mark of a heading is no word


@lru_cache(1 << 12)
def _is_edge(char: str) -> bool:
    if char in _KEPT_PUNCTUATION:
        return False
    category = unicodedata.category(char)
    return category[0] == "P" or category == "Sk" or char in _STRIPPED_SYMBOLS

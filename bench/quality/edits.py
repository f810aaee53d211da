"""Makes a set of its own from evidence alone: sentences as they stand in a passage, and the same with one seeded edit.

Every edit is wrong by construction: a number that the passage does not hold, two numbers of the sentence that changed
places, a name of another passage, a denial put in or taken out, a content word of another passage. What is edited
follows from the text by a hash; there is no state and no chance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from typing import Final, NamedTuple

from groundwire.text.sentences import sentences
from groundwire.text.stems import content_words
from groundwire.text.tokens import tokenize

_PER_PASSAGE: Final = 3
_LENGTH: Final = range(40, 300)  # characters of a sentence that is quoted
_NUMBER: Final = re.compile(r"(?<![\w.,])\d{1,4}(?![\w.,]*\d)(?!(?:st|nd|rd|th)\b)")
_NAME: Final = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{3,}\b")
_WORD: Final = re.compile(r"(?<=[a-z] )[a-z]{5,}\b")
_SAID: Final = re.compile(r"\b(?:is|are|was|were|has been|can|will) (?!not\b|n't\b)(?=[a-z])")
_DENIED: Final = re.compile(r"\b(is|are|was|were|did|does|do|can|will) not\b")


class Edit(NamedTuple):
    kind: str
    passage: str
    quote: str
    edited: str


def edits(passages: Iterable[str]) -> Iterator[Edit]:
    """Yield edits of sentences of the passages, at most three for each passage."""
    texts = sorted({text for text in passages if len(text) > _LENGTH.start})
    for place, text in enumerate(texts):
        other = texts[(place + 1 + _draw(text, len(texts) - 1)) % len(texts)] if len(texts) > 1 else ""
        yield from islice(_of(text, other), _PER_PASSAGE)


def _of(text: str, other: str) -> Iterator[Edit]:
    quotes = [span.text for span in sentences(text) if len(span.text) in _LENGTH and "\n" not in span.text]
    for quote in sorted(quotes, key=lambda found: _draw(found, 1 << 30)):
        kinds = sorted(_EDITS, key=lambda kind: _draw(f"{kind}{quote}", 1 << 30))
        for kind in kinds:
            edited = _EDITS[kind](quote, text, other)
            if edited and edited not in text:
                yield Edit(kind, text, quote, edited)
                break


def _number(quote: str, text: str, _: str) -> str:
    found = _one(_NUMBER, quote)
    taken = {int(match[0]) for match in _NUMBER.finditer(text)}
    new = next(number for number in range(int(found[0]) + 1, 1 << 20) if number not in taken) if found else 0
    return _put(quote, found, str(new))


def _exchange(quote: str, *_: str) -> str:
    found = [*_NUMBER.finditer(quote)]
    if len(found) < 2 or found[0][0] == found[1][0]:
        return ""
    first, second = found[:2]
    return (
        quote[: first.start()]
        + second[0]
        + quote[first.end() : second.start()]
        + first[0]
        + quote[second.end() :]
    )


def _taken(pattern: re.Pattern[str]) -> Callable[[str, str, str], str]:
    def edit(quote: str, text: str, other: str) -> str:
        known = {stem for word in tokenize(text) for stem in content_words(word)}
        new = sorted(
            {
                word
                for word in pattern.findall(other)
                if (stems := content_words(word)) and known.isdisjoint(stems)
            }
        )
        found = _one(re.compile(rf"{pattern.pattern}"), quote, content=True)
        return _put(quote, found, new[_draw(quote, len(new))]) if new else ""

    return edit


def _deny(quote: str, *_: str) -> str:
    if denied := _DENIED.search(quote):
        return f"{quote[: denied.start()]}{denied[1]}{quote[denied.end() :]}"
    said = _SAID.search(quote)
    return f"{quote[: said.end()]}not {quote[said.end() :]}" if said else ""


_EDITS: Final[dict[str, Callable[[str, str, str], str]]] = {
    "number": _number,
    "exchange": _exchange,
    "name": _taken(_NAME),
    "word": _taken(_WORD),
    "denial": _deny,
}


def _one(pattern: re.Pattern[str], text: str, *, content: bool = False) -> re.Match[str] | None:
    found = [match for match in pattern.finditer(text) if not content or content_words(match[0])]
    return found[_draw(text, len(found))] if found else None


def _put(text: str, found: re.Match[str] | None, new: str) -> str:
    return f"{text[: found.start()]}{new}{text[found.end() :]}" if found else ""


def _draw(text: str, of: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) % max(of, 1)

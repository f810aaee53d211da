"""Reads the values of a statement: numbers with their units, amounts, percentages, dates, versions.

No values: `[source:N]` tags and footnote marks, numbers of headings, URLs, identifiers (`v2_client`,
`retry.py`, hashes, `#12`). Of number words, all that count do ("zero", "one retry", "thirty-two",
"the third attempt"); "one" as a pronoun and "first" or "second" without an article do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from groundwire.checks.values_dates import clock, iso, named, quarter, slash, version
from groundwire.checks.values_numbers import number, word
from groundwire.checks.values_tokens import Raw, Reading, Token, cut, plain
from groundwire.checks.values_words import PARTICLES, lexeme

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_BELOW: Final = frozenset(
    ("at most", "up to", "no more than", "not more than", "less than", "fewer than", "no longer than", "not exceed",
     "no later than", "<", "<=", "≤", "under", "below", "maximum of", "within", "at maximum", "no greater than")
)  # fmt: skip
_ABOVE: Final = frozenset(
    ("at least", "more than", "no less than", "no fewer than", "not less than", "greater than", "longer than",
     ">", ">=", "≥", "over", "above", "exceeds", "exceeding", "minimum of", "at minimum", "larger than")
)  # fmt: skip
_BEFORE_DATE: Final = frozenset(("before", "until", "till", "prior to"))
_AFTER_DATE: Final = frozenset(("after", "since"))
_BOUNDING: Final = frozenset(
    phrase.rpartition(" ")[2] for phrase in (*_BELOW, *_ABOVE, *_BEFORE_DATE, *_AFTER_DATE)
)
"""Words and marks with which these phrases end."""
_RANGE_LINKS: Final = frozenset(("-", "to", "and", "or"))


def scan(text: str) -> list[Token]:
    """Return the tokens of one statement in normal form, in text order; positions are those of `text`."""
    raw = cut(text)
    tokens: list[Token] = []
    place = 0
    while place < len(raw):
        match = raw[place]
        if (
            match.lastgroup == "word" and not (known := lexeme(match[0])).counts
        ):  # most words: quickly past them
            start, end = match.span()
            if tokens and known.text in PARTICLES and tokens[-1].stems:
                stems = tokens[-1].stems
                tokens[-1] = tokens[-1]._replace(stems=(*stems, stems[-1] + known.text))
            tokens.append(Token(known.text, start, end, None, False, match[0], known.stems))  # noqa: FBT003 - a field
            place += 1
            continue
        token, place = _READERS[match.lastgroup or "mark"](raw, place, tokens)
        if token.value and not token.value.implied:
            token = token._replace(value=token.value._replace(bound=_bound(tokens, token.value.kind)))
        tokens.append(token)
    return _with_ranges(tokens)


def _bound(tokens: Sequence[Token], kind: str) -> str:
    """Return "<" or ">" where the words before a value bound it."""
    if not tokens or tokens[-1].text not in _BOUNDING:  # as nearly always
        return ""
    last = [token.text for token in tokens[-3:]]
    for phrase in (" ".join(last[start:]) for start in range(len(last))):
        if phrase in _BELOW or (kind == "date" and phrase in _BEFORE_DATE):
            return "<"
        if phrase in _ABOVE or (kind == "date" and phrase in _AFTER_DATE):
            return ">"
    return ""


def _with_ranges(tokens: list[Token]) -> list[Token]:
    """Give the first number of "5-10 s" or "between 5 and 10 seconds" the unit of the second as well."""
    for place in range(len(tokens) - 2):
        low, link, high = tokens[place : place + 3]
        if not (low.value and high.value) or link.text not in _RANGE_LINKS:
            continue
        one, other = low.value.amount, high.value.amount
        if one and other and not one.readings and not one.rate and (other.readings or other.rate):
            keys = low.value.keys | one._replace(readings=other.readings, rate=other.rate).keys
            tokens[place] = low._replace(value=low.value._replace(keys=keys, covers=keys))
    return tokens


_READERS: Final[dict[str, Callable[[Sequence[Raw], int, Sequence[Token]], Reading]]] = {
    "word": word,
    "mark": lambda raw, place, _: plain(raw, place),
    "number": number,
    "named": named,
    "iso": iso,
    "slash": slash,
    "clock": clock,
    "version": version,
    "quarter": quarter,
}

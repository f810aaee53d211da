"""Cuts a statement into words, marks and the raw text of its values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from groundwire.checks.values_words import lexeme

if TYPE_CHECKING:
    from collections.abc import Sequence

    from groundwire.checks.values_units import Amount

_MONTHS: Final = (
    r"Jan(?:uary)?|Feb(?:ruary)?|Apr(?:il)?|June?|July?|Aug(?:ust)?|Sept(?:ember)?|Sep|"
    r"Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?"
)
_SKIPPED: Final = r"""
    (?P<skip>(?i:\[\s*sources?\s*:[^\[\]\n]{0,60}\])
      | (?<=[^\s:=,(\[])\s?\[\d{1,3}(?:,\s?\d{1,3}){0,5}\](?!\w)
      | \#\d+\b
      | (?:(?<=\.[ch])|(?<=\.[a-z]{2})|(?<=\.[a-z]{3})|(?<=\.[a-z]{4})):\d+(?:-\d+)?(?!\w)
      | (?<!\w)[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12})
"""
_WITH_DIGITS: Final = r"""
    (?P<iso>(?<![\w.-])(?P<iy>\d{4})(?P<is>[-/])(?P<im>0[1-9]|1[0-2])
      (?:(?P=is)(?P<id>[0-3]\d)(?:[T\ ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[-+]\d\d:?\d\d)?)?)?(?![\w-]))
  | (?P<slash>(?<![\w./])(?P<sa>\d{1,2})[/.](?P<sb>\d{1,2})[/.](?P<sy>\d{4})(?![\w/]))
  | (?P<clock>(?<![\w:.])(?:(?P<ch>[0-2]?\d):(?P<cm>[0-5]\d)(?::[0-5]\d)?(?![\w:])
      |(?P<ph>[01]?\d)(?=\s?[ap]\.?m\b))(?:\s?(?P<half>[ap])\.?m\b\.?)?)
  | (?P<version>(?<!\w)(?i:v(?:ersions?\s|er\.\s?|\.)?)
      (?P<ver>\d+(?:\.\d+)*(?:-(?:alpha|beta|rc)\.?\d*)?)(?!\w))
  | (?P<quarter>(?<!\w)Q[1-4](?!\w))
  | (?P<number>(?P<sign>(?<![\w.)\]%])-)?(?:(?P<cur>US\$|[$€£¥₹]|(?:USD|EUR|GBP|JPY|CHF|INR)(?=\s?\d))\s?)?
      (?:(?P<hex>0[xX][0-9A-Fa-f]{1,40})
        |(?P<digits>\d{1,3}(?:[,_]\d{3}){1,12}(?!\d)(?:\.\d+)?|\d+(?:\.\d+)*|(?<!\w)\.\d+))
      (?P<exp>[eE][-+]?\d{1,2}(?!\w))?(?P<plus>\+(?!\w))?
      (?P<glue>\s?[%‰]|\s?°[CcFf]?|\w*(?:/[A-Za-z]{1,12})?))
"""
_NAMED: Final = rf"""
    (?P<named>(?<!\w)(?=[\dJFMASONDjfmasond])(?:(?P<d1>[0-3]?\d)(?:st|nd|rd|th)?\s(?:of\s)?)?
      (?P<mon>(?i:{_MONTHS})|MAY|May|MARCH|March|Mar|(?i:may|march)(?=\s\d{{4}}))\b\.?
      (?:\s(?P<d2>[0-3]?\d)(?:st|nd|rd|th)?(?!\w|[:.]\d|\s?%|,\d{{3}}))?(?:,?\s(?P<y>\d{{4}})(?!\w))?)
"""
_WORDS: Final = r"""
    (?P<word>[^\W\d](?:[\w']|[/\\@](?=\w)|-(?=[^\W\d])|\.(?=[a-z_])
      |(?<!\bmid)(?<!\bpre)(?<!\bpost)(?<!\blate)-(?=\d)|(?<=\d)\.(?=\d))*)
  | (?P<mark>[<>!=]=|[^\w\s])
"""
# White space, and the letters of words that open nothing else: no name of a month, no version, amount or UUID.
_NOTHING_ELSE: Final = r"""
    (?!\s(?!\[)
      |(?!j[auAU]|f[eE]|ma|mA|a[puPU]|s[eE]|o[cC]|n[oO]|d[eE]|v|[0-9A-Fa-f]{8})[a-zHKLPRTWXYZ])
"""
_TOKEN: Final = re.compile(f"{_NOTHING_ELSE}(?:{_SKIPPED}|{_NAMED}|{_WITH_DIGITS})|{_WORDS}", re.VERBOSE)
_TOKEN_WITHOUT_DIGITS: Final = re.compile(f"{_NOTHING_ELSE}(?:{_SKIPPED}|{_NAMED})|{_WORDS}", re.VERBOSE)
_DIGIT: Final = re.compile(r"\d")
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s)>\]\"'`]+")


class Value(NamedTuple):
    """A value as read: `keys` are what it says, `covers` what it proves ("May 2024" proves "May")."""

    kind: str
    keys: frozenset[str]
    covers: frozenset[str]
    bound: str = ""  # "<" for "at most 5", ">" for "at least 5"
    amount: Amount | None = None
    implied: bool = False  # only supports: "a single retry" is one retry, but says no number of its own


class Token(NamedTuple):
    """A word, a mark or a value of a statement; `text` is in lower case, `stems` are what the word says."""

    text: str
    start: int
    end: int
    value: Value | None = None
    mark: bool = False
    written: str = ""
    stems: tuple[str, ...] = ()


Raw = re.Match[str]
Reading = tuple[Token, int]
"""A token, and the place behind it."""


def cut(text: str) -> list[Raw]:
    """Return the matches of a statement in normal form; what is no value (tags, URLs, `#12`) is left out."""
    if "://" in text:
        text = _URL.sub(lambda match: " " * len(match[0]), text)
    found = _TOKEN.finditer(text) if _DIGIT.search(text) else _TOKEN_WITHOUT_DIGITS.finditer(text)
    return [match for match in found if match.lastgroup != "skip"]


def plain(raw: Sequence[Raw], place: int) -> Reading:
    """Read a word or mark, or what looked like a value, as what it is as written."""
    match = raw[place]
    word = lexeme(match[0])
    start, end = match.span()
    return Token(word.text, start, end, None, match.lastgroup == "mark", match[0], word.stems), place + 1


def valued(match: Raw, value: Value, end: int = 0) -> Token:
    """Read a match, or the text from its start to `end`, as a value."""
    written = match.string[match.start() : end or match.end()]
    return Token(written.lower(), match.start(), end or match.end(), value, written=written)

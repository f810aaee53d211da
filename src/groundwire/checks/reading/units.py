"""Amounts in the form in which the values of an answer and of its sources are compared.

A value is a set of keys, each a dimension and a magnitude in that dimension's base unit: "5 s" and "5000 ms" share the
key ``time 5``, "1k" and "1,000" the key ``number 1000``. Two values are equal when they share a key; one text may have
several ("5m" is minutes, metres or millions). `cut` splits a statement into words, marks and raw values.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final, NamedTuple, cast

from groundwire.text.quantities import quantities
from groundwire.text.stems import PARTICLES, lexeme
from groundwire.text.tokens import PerToken

NUMBER: Final = "number"
VERSION: Final = "version"
DATE: Final = "date"

_TIME: Final = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 1000),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
    "day": Fraction(86400),
    "week": Fraction(604800),
}
_MONTHS: Final = {"month": 1, "quarter": 3, "year": 12, "decade": 120}
CURRENCIES: Final = ("usd", "eur", "gbp", "jpy", "inr", "chf", "cny")
_CURRENCIES: Final = frozenset((*CURRENCIES, "cent"))
_SHARES: Final = frozenset(("%", "‰", "pp", "bp"))
_RAISED: Final = "\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079"
_FRACTIONS: Final = {
    "\u00bc": "1/4", "\u00bd": "1/2", "\u00be": "3/4",
    "\u2153": "1/3", "\u2154": "2/3", "\u2155": "1/5", "\u215b": "1/8",
}  # fmt: skip
RAISED: Final[dict[int, int | str]] = {
    **{ord(char): 0x16A0 + number for number, char in enumerate((*_RAISED, *_FRACTIONS))},
    ord("\u00ba"): "\u00b0",
    ord("\u02da"): "\u00b0",
}
"""A letter without case, that no unit is written with, for each raised digit and fraction; one sign of degrees."""
_VULGAR: Final = {chr(0x16AA + place): text for place, text in enumerate(_FRACTIONS.values())}
_PREFIXES: Final = ("", "k", "m", "g", "t", "p")
_MAGNITUDES: Final = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
    "dozen": 12,
    "k": 10**3,
    "mn": 10**6,
    "mln": 10**6,
    "bn": 10**9,
    "bln": 10**9,
    "tn": 10**12,
}
_MONEY_MAGNITUDES: Final = {"m": 10**6, "b": 10**9, "t": 10**12}
_SCALED: Final = {"c": "°c", "celsius": "°c", "centigrade": "°c", "f": "°f", "fahrenheit": "°f"}
_OTHERS: Final = {
    **dict.fromkeys(("fortnight", "fortnights"), (("time", Fraction(14 * 86400)),)),
    **dict.fromkeys(("p", "penny", "pence"), (("gbp", Fraction(1, 100)),)),
    **dict.fromkeys(("cent", "cents"), (("usd", Fraction(1, 100)), ("eur", Fraction(1, 100)))),
    **dict.fromkeys(("pound", "pounds"), (("gbp", Fraction(1)), ("mass", Fraction("453592.37")))),
}
"""Units that deduplication does not compare, or reads in one way alone."""
_ALIASES: Final = {"deg": "degree", "degs": "degree", "percentage": "percent"}
_FRACTION_PART: Final = re.compile(r"\d+(?:/\d+)?|[\u16aa-\u16b0]")
_MAX_UNIT: Final = 24  # characters; no unit is longer


def _scales() -> dict[str, tuple[tuple[str, Fraction], ...]]:
    table: dict[str, tuple[tuple[str, Fraction], ...]] = {}
    table.update({unit: (("time", factor),) for unit, factor in _TIME.items()})
    table.update({unit: (("months", Fraction(factor)),) for unit, factor in _MONTHS.items()})
    for power, prefix in enumerate(_PREFIXES):
        # "1 GB" is said of 1000 MB and of 1024 MB; "1 GiB" only of 1024 MiB.
        decimal, binary = Fraction(1000**power), Fraction(1024**power)
        table[f"{prefix}b" if prefix else "byte"] = (("bytes", decimal), ("bytes-1024", binary))
        table[f"{prefix}ib"] = (("binary-bytes", binary),)
        table[f"{prefix}bit"] = (("bits", decimal),)
    table["hz"], table["khz"] = (("hz", Fraction(1)),), (("hz", Fraction(10**3)),)
    table["mhz"], table["ghz"] = (("hz", Fraction(10**6)),), (("hz", Fraction(10**9)),)
    for dimension, factors in (
        (
            "length",
            "um 1/1000 mm 1 cm 10 metre 1000 km 1000000 inch 25.4 ft 304.8 yd 914.4 mi 1609344",
        ),
        ("mass", "ug 1/1000 mg 1 g 1000 kg 1000000 t 1000000000 lb 453592.37 oz 28349.523125"),
        ("volume", "ul 1/1000 ml 1 cl 10 dl 100 l 1000"),
        ("voltage", "v 1 kv 1000"),
        ("pressure", "hpa 1 kpa 10"),
    ):
        pairs = factors.split()
        for unit, size in zip(pairs[::2], pairs[1::2], strict=True):
            table[unit] = ((dimension, Fraction(size)),)
    table["x"] = (("x", Fraction(1)),)
    # A lone letter after a number says several things: minutes, metres or millions.
    table["m"] = (("time", Fraction(60)), ("length", Fraction(1000)), (NUMBER, Fraction(10**6)))
    return table


_SCALES: Final = _scales()


Readings = tuple[tuple[str, Fraction], ...]
"""What a unit may be: dimension and factor to its base unit."""


class Amount(NamedTuple):
    """A number as read: `readings` are the possible interpretations of its unit; without a unit, one plain reading."""

    magnitude: Fraction
    literal: str
    readings: Readings = ()
    rate: str = ""

    @property
    def keys(self) -> frozenset[str]:
        keys = {
            f"{dimension}{self.rate} {shown(self.magnitude * factor)}" for dimension, factor in self.readings
        }
        if not self.readings:
            keys.add(f"{NUMBER}{self.rate} {shown(self.magnitude)}")
            if self.literal and not self.rate:  # "version 3.11" is said by "3.11" as well
                keys.add(version_key(self.literal))
        return frozenset(keys)

    @property
    def kind(self) -> str:
        dimensions = {dimension for dimension, _ in self.readings}
        if dimensions & {"time", "months"}:
            return "duration"
        if dimensions & _SHARES:
            return "percent"
        if dimensions & _CURRENCIES:
            return "amount"
        return "quantity" if (dimensions - {NUMBER}) or self.rate else NUMBER


@lru_cache(1 << 12)
def dimensions(keys: frozenset[str]) -> frozenset[str]:
    """Return the dimensions of keys: only values that share one can be two values of the same thing."""
    return frozenset(key.partition(" ")[0] for key in keys)


def version_key(literal: str) -> str:
    """Return the key of a version: "2.0" is "2", but "3.10" is not "3.1"."""
    parts = literal.lstrip("+").split(".")
    while len(parts) > 1 and not parts[-1].strip("0"):
        parts.pop()
    return f"{VERSION} {'.'.join(part.lstrip('0') or '0' for part in parts)}"


@lru_cache(1 << 12)
def unit_readings(word: str, *, attached: bool = False) -> tuple[tuple[tuple[str, Fraction], ...], str]:
    """Return the possible interpretations of a word after a number as a unit, and its rate ("MB/s": bytes, "/s").

    Both are empty where the word is no unit.
    """
    if not word or len(word) > _MAX_UNIT:
        return (), ""
    word = _ALIASES.get(word, word)
    if word in _OTHERS and (attached or word != "p"):
        return _OTHERS[word], ""
    _, units = quantities([f"1{word}"] if attached else ["1", word])
    readings: tuple[tuple[str, Fraction], ...] = ()
    rate = ""
    for name in (unit.removeprefix("1 ") for unit in units):
        if name.startswith("/"):
            rate = name
        elif name not in {"am", "pm"}:
            readings = _SCALES.get(name, ((name, Fraction(1)),))
    if word == "times":
        readings = ((NUMBER, Fraction(1)), ("x", Fraction(1)))
    return readings, rate


def scaled(readings: Readings, word: str) -> Readings:
    """Return the readings of degrees with the scale that a word behind them names, or as they are."""
    return (
        ((_SCALED[word], Fraction(1)),)
        if word in _SCALED and readings and readings[0][0] == "°"
        else readings
    )


def fraction(text: str) -> Fraction:
    parts = (_VULGAR.get(part, part) for part in _FRACTION_PART.findall(text))
    return sum(map(Fraction, parts), Fraction(0))


def magnitude(word: str, *, money: bool = False) -> int:
    return _MAGNITUDES.get(word, 0) or (_MONEY_MAGNITUDES.get(word, 0) if money else 0)


def shown(value: Fraction) -> str:
    return str(value.numerator) if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


_MONTH_NAMES: Final = (
    r"Jan(?:uary)?|Feb(?:ruary)?|Apr(?:il)?|June?|July?|Aug(?:ust)?|Sept(?:ember)?|Sep|"
    r"Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?"
)
_SKIPPED: Final = r"""
    (?P<skip>\#\d+\b
      | (?:(?<=\.[ch])|(?<=\.[a-z]{2})|(?<=\.[a-z]{3})|(?<=\.[a-z]{4})):\d+(?:-\d+)?(?!\w)
      | (?<!\w)[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12})
"""
_WITH_DIGITS: Final = r"""
    (?P<iso>(?<![\w.-])(?P<iy>\d{4})(?P<is>[-/])(?P<im>0[1-9]|1[0-2])
      (?:(?P=is)(?P<id>[0-3]\d)(?:[T\ ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[-+]\d\d:?\d\d)?)?)?(?![\w-]))
  | (?P<slash>(?<![\w./])(?P<sa>\d{1,2})[/.](?P<sb>\d{1,2})[/.](?P<sy>\d{4}|(?<=/)\d{2})(?![\w/]))
  | (?P<clock>(?<![\w:.])(?:(?P<ch>[0-2]?\d):(?P<cm>[0-5]\d)(?::[0-5]\d)?(?![\w:])
      |(?P<ph>[01]?\d)(?=\s?(?:[ap]\.?m|o'clock)\b))(?:\s?(?:o'clock|(?P<half>[ap])\.?m\b\.?))?)
  | (?P<version>(?<!\w)(?i:v(?:ersions?\s|er\.\s?|\.)?)
      (?P<ver>\d+(?:\.\d+)*(?:-(?:alpha|beta|rc)\.?\d*)?)(?!\w))
  | (?P<quarter>(?<!\w)Q[1-4](?!\w))
  | (?P<number>(?P<sign>(?<![\w.)\]%])-)?(?:(?P<cur>US\$|[$€£¥₹]|(?:USD|EUR|GBP|JPY|CHF|INR)(?=\s?\d))\s?)?
      (?:(?P<fraction>(?:\d{1,4}(?:\s|-(?=\d/)))?\d{1,2}/[1-9]\d?(?![\d/])|(?:\d{1,4}\s?)?[\u16aa-\u16b0])
        |(?P<hex>0[xX][0-9A-Fa-f]{1,40})
        |(?P<comma>(?:\d{1,3}(?:\.\d{3}){1,5}|\d{1,12}),\d{1,2}(?![\d,]|\.\d|\s(?:and|or|to|&)\s))
        |(?P<digits>\d{1,3}(?:[,_']\d{3}){1,12}(?!\d)(?:\.\d+)?|\d{1,3}(?:\ \d{3}){1,4}(?![\d.,]\d|\d)
          |\d+(?:\.\d+)*|(?<!\w)\.\d+))
      (?P<exp>[eE][-+]?\d{1,2}(?!\w))?(?P<plus>\+(?!\w))?
      (?P<glue>\s?[%‰]|\s?°(?:\s?[CcFf](?!\w))?|\s[CF](?![\w'+#-])|\w*(?:/[A-Za-z]{1,12})?))
"""
_NAMED: Final = rf"""
    (?P<named>(?<!\w)(?=[\dJFMASONDjfmasond])(?:(?P<d1>[0-3]?\d)(?:st|nd|rd|th)?[\s-](?:of\s)?)?
      (?P<mon>(?i:{_MONTH_NAMES})|MAY|May|MARCH|March|Mar|(?i:may|march)(?=\s\d{{4}}))\b\.?
      (?:(?(d1)(?!))\s(?P<d2>[0-3]?\d)(?:st|nd|rd|th)?(?!\w|[:.]\d|\s?%|,\d{{3}}))?
      (?:(?:,?\s|-)(?P<y>\d{{4}})(?!\w)|(?(d1)[\s-]'?(?P<yy>\d{{2}})(?![\w:%/°]|[.,]\d)(?:(?<=-\d\d)|(?!\s?[%°a-z]))))?)
"""
# runs of letters in one step each: nothing is given back, for what goes on a word begins with none of them
_WORDS: Final = r"""
    (?P<word>(?<![\w.])(?:[A-Z]\.){3,6}|[^\W\d][\w']*+(?:(?:[/\\@](?=\w)|-(?=[^\W\d])|\.(?=[a-z_])
      |(?<!\bmid)(?<!\bpre)(?<!\bpost)(?<!\blate)-(?=\d)|(?<=\d)\.(?=\d))[\w']*+)*+)
  | (?P<mark>[<>!=]=|[^\w\s])
"""
# White space, and the letters of words that open nothing else: no name of a month, no version, amount or UUID.
_NOTHING_ELSE: Final = r"""
    (?!\s(?!\[)
      |(?!j[auAU]|f[eE]|ma|mA|a[puPU]|s[eE]|o[cC]|n[oO]|d[eE]|v|[0-9A-Fa-f]{8})[a-zHKLPRTWXYZ])
"""
_TOKEN: Final = re.compile(f"{_NOTHING_ELSE}(?:{_SKIPPED}|{_NAMED}|{_WITH_DIGITS})|{_WORDS}", re.VERBOSE)
_OPENS: Final = re.compile(
    rf"[\d\s\[$€£¥₹\u16aa-\u16b0]|(?<!\w)(?i:{_MONTH_NAMES}|mar|march|may)\b|(?<!\w)(?i:versions?|ver\.)$"
    r"|(?:USD|EUR|GBP|JPY|CHF|INR)$"
)
"""What may be a value, or begin one that goes on behind a blank."""
_BARE_NUMBER: Final = re.compile(
    r"(?P<number>[0-9]{1,40})(?=\Z| (?!of|o'|am?\b|a\.|pm?\b|p\.|jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z])"
)
"""A number behind which no sign, month or half of the day goes on with it."""
_DIGIT: Final = re.compile(r"[\d\u16aa-\u16b0]")  # and the letters of `RAISED` for fractions
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{1,15}://[^\s)>\]\"'`]+")
# "(Passage 2)", "passages 1, 2 and 3", "steps 4-6", "Question 1:": they count what was given, or parts of the answer
_PLACES: Final = (
    *("passage", "source", "document", "context", "excerpt", "snippet", "chunk", "reference"),
    *("citation", "step", "question", "option"),
)
_PLACE_NUMBERS: Final = re.compile(
    rf"(?<!\w)(?i:(?:{'|'.join(_PLACES)})s?)\s{{1,2}}[#(\[]?"
    r"(?P<digits>\d{1,3}(?:\s?(?:[,:&/-]|(?:,\s?)?(?:and|or|to))\s?\d{1,3}){0,9})(?![\w%°]|[.,]\d)"
)
_NUMERO: Final = re.compile(r"(?<!\w)(?i:nos?)(?:\.\s?|\s)(?=\d)")


class TextValue(NamedTuple):
    """A value as read: `keys` are what it says, `covers` what it proves ("May 2024" proves "May")."""

    kind: str
    keys: frozenset[str]
    covers: frozenset[str]
    bound: str = ""  # "<" for "less than 5", "<=" for "at most 5", "~" for "about 5", ...
    amount: Amount | None = None
    implied: bool = False  # only supports: "a single retry" is one retry, but says no number of its own
    ranged: bool = False  # an end of "5 to 10 s"


class ValueToken(NamedTuple):
    """A word, a mark or a value of a statement; `text` is in lower case, `stems` are what the word says."""

    text: str
    start: int
    end: int
    value: TextValue | None = None
    mark: bool = False
    written: str = ""
    stems: tuple[str, ...] = ()


Raw = re.Match[str]
UnitReading = tuple[ValueToken, int]
"""A token, and the place behind it."""


class Cut(NamedTuple):
    """A statement in normal form, split, with URLs and numbers of passages blanked.

    `special` are the places, ascending, of tokens that may say a number or a date, and of particles; `matches` holds
    how what looks like a value was found.
    """

    text: str
    tokens: list[ValueToken]
    special: list[int]
    matches: dict[int, Raw]

    def is_word(self, place: int) -> bool:
        return place < len(self.tokens) and not self.tokens[place].mark and place not in self.matches

    def is_number(self, place: int) -> bool:
        return place in self.matches and self.matches[place].lastgroup == "number"

    def plain(self, place: int) -> ValueToken:
        token = self.tokens[place]
        return token._replace(stems=lexeme(token.written).stems) if place in self.matches else token

    def valued(self, place: int, value: TextValue, end: int = 0) -> ValueToken:
        _, start, last, _, _, written, _ = self.tokens[place]
        if end and end != last:
            last, written = end, self.text[start:end]
        return _token((written.lower(), start, last, value, False, written, ()))


def cut(text: str) -> Cut:
    """Cut a statement in normal form into words, marks and the raw text of its values.

    Most of a text are words whose neighbours change nothing: those are looked up, each with the marks beside it.
    """
    text = _without_places(text)
    found = Cut(text, [], [], {})
    tokens, special = found.tokens, found.special
    start = done = 0
    unread = -1  # where chunks begin that only the whole grammar can read
    for chunk in text.split(" "):
        known = _chunks[chunk]
        if known is None:
            if unread < 0 and (start < done or not _is_bare_number(found, start)):
                unread = max(start - 1, done)
        else:
            if unread >= 0:
                done, unread = _match(found, unread, start - 1), -1
            if start < done:  # it belongs to what is before it
                unread = done
            else:
                if known.special:
                    special += [len(tokens) + place for place in known.special]
                for folded, first, last, mark, written, stems in known.pieces:
                    tokens.append(_token((folded, start + first, start + last, None, mark, written, stems)))
        start += len(chunk) + 1
    if unread >= 0:
        _match(found, unread, start)
    return found


def _is_bare_number(found: Cut, start: int) -> bool:
    match = _BARE_NUMBER.match(found.text, start)
    if match is None:
        return False
    found.special.append(len(found.tokens))
    found.matches[len(found.tokens)] = match
    found.tokens.append(_token((match[0], start, match.end(), None, False, match[0], ())))
    return True


def _match(found: Cut, start: int, end: int) -> int:
    """Take in what begins between two places, by the whole grammar; return where that ends."""
    text, tokens, special, matches = found
    for match in _TOKEN.finditer(text, start):
        if match.start() >= end:
            break
        start, kind = match.end(), match.lastgroup
        if kind == "skip":
            continue
        written = match[0]
        if kind in _PLAIN:
            folded, stems, counts = lexeme(_ABBREVIATED.sub(_joined, written))
            if counts or folded in PARTICLES:
                special.append(len(tokens))
            tokens.append(_token((folded, match.start(), start, None, kind == "mark", written, stems)))
        else:
            special.append(len(tokens))
            matches[len(tokens)] = match
            tokens.append(_token((written.lower(), match.start(), start, None, False, written, ())))
    return start


class _Chunk(NamedTuple):
    """What is between two blanks, where it is read the same in any context.

    `pieces` are the fields of its tokens except for the value, places counted from its start; `special` as in `Cut`.
    """

    pieces: tuple[tuple[str, int, int, bool, str, tuple[str, ...]], ...]
    special: tuple[int, ...]


def _read_chunk(chunk: str) -> _Chunk | None:
    if _OPENS.search(chunk):
        return None
    pieces: list[tuple[str, int, int, bool, str, tuple[str, ...]]] = []
    special: list[int] = []
    for match in _TOKEN.finditer(chunk):
        if match.lastgroup not in _PLAIN:
            if match.lastgroup == "skip":
                continue
            return None
        folded, stems, counts = lexeme(_ABBREVIATED.sub(_joined, match[0]))
        if counts or folded in PARTICLES:
            special.append(len(pieces))
        pieces.append((folded, *match.span(), match.lastgroup == "mark", match[0], stems))
    return _Chunk(tuple(pieces), tuple(special))


def _joined(letters: Raw) -> str:
    return letters[0].replace(".", "")


_ABBREVIATED: Final = re.compile(r"(?:[A-Z]\.){3,6}")
_PLAIN: Final = frozenset(("word", "mark"))
_chunks: Final = PerToken(_read_chunk, 1 << 14)


def _without_places(text: str) -> str:
    """Return a text without URLs, without numbers that count what was given, and without "No."."""
    if "://" in text:
        text = _URL.sub(_blank, text)
    if _DIGIT.search(text) is None:
        return text
    folded = text.lower()
    if not text.isascii() or any(map(folded.__contains__, _PLACES)):
        text = _PLACE_NUMBERS.sub(
            lambda match: match[0][: match.start("digits") - match.start()] + " " * len(match["digits"]), text
        )
    return _NUMERO.sub(_blank, text) if "no" in folded or not text.isascii() else text


def _blank(match: Raw) -> str:
    return " " * len(match[0])


_token: Final = cast("Callable[[tuple[object, ...]], ValueToken]", partial(tuple.__new__, ValueToken))
"""Makes a token of its fields in half the time: most of what is read are words."""

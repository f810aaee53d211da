"""Reads the values of a statement: numbers with their units, amounts, percentages, dates, versions.

No values: `[source:N]` tags and footnote marks, numbers of headings, URLs, identifiers (`v2_client`,
`retry.py`, hashes, `#12`). Of number words, all that count do ("zero", "one retry", "thirty-two",
"the third attempt"); "one" as a pronoun and "first" or "second" without an article do not.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import TYPE_CHECKING, Final, NamedTuple

from groundwire.checks.quantities import quantities
from groundwire.checks.values_units import DATE, NUMBER, Amount, magnitude, unit_readings, version_key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MONTH_NAMES: Final = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_MONTH: Final = {name[:length]: n for n, name in enumerate(_MONTH_NAMES, start=1) for length in (3, len(name))}
_MONTH["sept"] = 9
_MONTHS: Final = (
    r"Jan(?:uary)?|Feb(?:ruary)?|Apr(?:il)?|June?|July?|Aug(?:ust)?|Sept(?:ember)?|Sep|"
    r"Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?"
)
_TOKEN: Final = re.compile(
    rf"""
    (?P<skip>\[\s*sources?\s*:[^\[\]\n]{{0,60}}\]
      | (?<=[^\s:=,(\[])\s?\[\d{{1,3}}(?:,\s?\d{{1,3}}){{0,5}}\](?!\w)
      | [A-Za-z][A-Za-z0-9+.-]{{1,15}}://[^\s)>\]"'`]+
      | \#\d+\b
      | (?:(?<=\.[ch])|(?<=\.[a-z]{{2}})|(?<=\.[a-z]{{3}})|(?<=\.[a-z]{{4}})):\d+(?:-\d+)?(?!\w)
      | [0-9A-Fa-f]{{8}}-(?:[0-9A-Fa-f]{{4}}-){{3}}[0-9A-Fa-f]{{12}})
  | (?P<iso>(?<![\w.-])(?P<iy>\d{{4}})(?P<is>[-/])(?P<im>0[1-9]|1[0-2])
      (?:(?P=is)(?P<id>[0-3]\d)(?:[T\ ]\d\d:\d\d(?::\d\d(?:\.\d{{1,9}})?)?(?:Z|[-+]\d\d:?\d\d)?)?)?(?![\w-]))
  | (?P<slash>(?<![\w./])(?P<sa>\d{{1,2}})[/.](?P<sb>\d{{1,2}})[/.](?P<sy>\d{{4}})(?![\w/]))
  | (?P<named>(?<!\w)(?:(?P<d1>[0-3]?\d)(?:st|nd|rd|th)?\s(?:of\s)?)?
      (?P<mon>(?i:{_MONTHS})|MAY|May|MARCH|March|Mar|(?i:may|march)(?=\s\d{{4}}))\b\.?
      (?:\s(?P<d2>[0-3]?\d)(?:st|nd|rd|th)?(?!\w|[:.]\d|\s?%|,\d{{3}}))?(?:,?\s(?P<y>\d{{4}})(?!\w))?)
  | (?P<clock>(?<![\w:.])(?:(?P<ch>[0-2]?\d):(?P<cm>[0-5]\d)(?::[0-5]\d)?(?![\w:])
      |(?P<ph>[01]?\d)(?=\s?[ap]\.?m\b))(?:\s?(?P<half>[ap])\.?m\b\.?)?)
  | (?P<version>(?<!\w)(?i:v(?:ersions?\s|er\.\s?|\.)?)(?P<ver>\d+(?:\.\d+)*(?:-(?:alpha|beta|rc)\.?\d*)?)(?!\w))
  | (?P<quarter>(?<!\w)Q[1-4](?!\w))
  | (?P<number>(?P<sign>(?<![\w.)\]%])-)?(?:(?P<cur>US\$|[$€£¥₹]|(?:USD|EUR|GBP|JPY|CHF|INR)(?=\s?\d))\s?)?
      (?:(?P<hex>0[xX][0-9A-Fa-f]{{1,40}})
        |(?P<digits>\d{{1,3}}(?:[,_]\d{{3}}){{1,12}}(?!\d)(?:\.\d+)?|\d+(?:\.\d+)*|(?<!\w)\.\d+))
      (?P<exp>[eE][-+]?\d{{1,2}}(?!\w))?(?P<plus>\+(?!\w))?
      (?P<glue>\s?[%‰]|\s?°[CcFf]?|\w*(?:/[A-Za-z]{{1,12}})?))
  | (?P<word>[^\W\d](?:[\w']|[/\\@](?=\w)|-(?=[^\W\d])|(?<!\bmid)(?<!\bpre)(?<!\bpost)(?<!\blate)-(?=\d)|\.(?=[a-z_])|(?<=\d)\.(?=\d))*)
  | (?P<mark>[<>!=]=|[^\w\s])
    """,
    re.VERBOSE,
)
_ORDINAL: Final = re.compile(r"(?:st|nd|rd|th)$")
_DECADE: Final = re.compile(r"\d{3}0$")
_LONGEST: Final = 40  # digits; longer numbers are compared as they are written
_YEARS: Final = range(1000, 2200)
_DATE_OPENERS: Final = frozenset(
    "in of since by until till from early late mid last next this every to and during before after through".split()
)
_CARDINALS: Final = frozenset(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million "
    "billion dozen".split()
)
_ORDINAL_NAMES: Final = "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
_ORDINALS: Final = {word: n for n, word in enumerate(_ORDINAL_NAMES.split(), start=1)}
_IMPLIED: Final = {"no": 0, "none": 0, "single": 1, "once": 1, "sole": 1, "both": 2, "couple": 2, "pair": 2}
_MONEY_WORDS: Final = frozenset("dollars dollar euros pounds us usd eur gbp".split())
_PER: Final = frozenset(("per", "/"))
_EACH: Final = frozenset(("a", "an", "each", "every"))
_DETERMINERS: Final = frozenset("the its his her their our your a every each".split())
_PRONOUN_BEFORE: Final = frozenset("the this that no any each every which another only next last".split())
_NO_NOUN: Final = frozenset(
    "of can could may might should must would will is was has who that which another by to for in on at and or "
    "another's with".split()
)
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
_RANGE_LINKS: Final = frozenset(("-", "to", "and", "or"))


class Value(NamedTuple):
    """A value as read: `keys` are what it says, `covers` what it proves ("May 2024" proves "May")."""

    kind: str
    keys: frozenset[str]
    covers: frozenset[str]
    bound: str = ""  # "<" for "at most 5", ">" for "at least 5"
    amount: Amount | None = None
    implied: bool = False  # only supports: "a single retry" is one retry, yet says no number that could be wrong


class Token(NamedTuple):
    """A word, a mark or a value of a statement; `text` is in lower case."""

    text: str
    start: int
    end: int
    value: Value | None = None
    mark: bool = False
    written: str = ""


def scan(text: str) -> list[Token]:
    """Return the tokens of one statement in normal form, in text order; positions are those of `text`."""
    raw = [match for match in _TOKEN.finditer(text) if match.lastgroup != "skip"]
    tokens: list[Token] = []
    place = 0
    while place < len(raw):
        token, place = _READERS[raw[place].lastgroup or "mark"](raw, place, tokens)
        if token.value and not token.value.implied:
            token = token._replace(value=token.value._replace(bound=_bound(tokens, token.value.kind)))
        tokens.append(token)
    return _with_ranges(tokens)


Reading = tuple[Token, int]
"""A token, and the place behind it."""


def _plain(raw: Sequence[re.Match[str]], place: int, _: Sequence[Token]) -> Reading:
    match = raw[place]
    mark = match.lastgroup == "mark"
    return Token(match[0].lower(), *match.span(), mark=mark, written=match[0]), place + 1


def _valued(match: re.Match[str], value: Value) -> Token:
    return Token(match[0].lower(), *match.span(), value, written=match[0])


def _date(year: str | None, month: int, day: str | None) -> set[str]:
    parts = (year or "", f"{month}" if month else "", day.lstrip("0") if day else "")
    return {f"{DATE} {'.'.join(parts)}"}


def _dated(readings: Sequence[tuple[str | None, int, str | None]]) -> Value:
    """Return a date; what it covers is the date with any of its parts left out, but no day alone."""
    keys: set[str] = set()
    covers: set[str] = set()
    for year, month, day in readings:
        keys |= _date(year, month, day)
        for y in {year, None}:
            for m, d in {(month, day), (month, None), (0, None)}:
                if y or m:
                    covers |= _date(y, m, d)
    return Value("date", frozenset(keys), frozenset(covers | keys))


def _iso(raw: Sequence[re.Match[str]], place: int, _: Sequence[Token]) -> Reading:
    match = raw[place]
    return _valued(match, _dated([(match["iy"], int(match["im"]), match["id"])])), place + 1


def _slash(raw: Sequence[re.Match[str]], place: int, _: Sequence[Token]) -> Reading:
    """03/05/2024 is the 3rd of May to some and the 5th of March to others: either is equal to it."""
    match = raw[place]
    one, other = match["sa"], match["sb"]
    dates = [(match["sy"], int(m), d) for m, d in ((one, other), (other, one)) if 1 <= int(m) <= 12]
    return _valued(match, _dated(dates or [(match["sy"], 0, None)])), place + 1


def _named(raw: Sequence[re.Match[str]], place: int, before: Sequence[Token]) -> Reading:
    match = raw[place]
    name, year = match["mon"].lower(), match["y"]
    day = match["d1"] or match["d2"]
    if not (day or year):
        opened = bool(before) and before[-1].text in _DATE_OPENERS
        full = len(name) > 3 or name == "may"
        if not full or not match["mon"][0].isupper() or (name in {"may", "march"} and not opened):
            return _plain(raw, place, before)
    return _valued(match, _dated([(year, _MONTH[name], day)])), place + 1


def _clock(raw: Sequence[re.Match[str]], place: int, _: Sequence[Token]) -> Reading:
    match = raw[place]
    hour, minute, half = int(match["ch"] or match["ph"]), match["cm"] or "00", match["half"]
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    exact, open_half = f"clock {hour}:{minute}", f"clock ?{hour % 12}:{minute}"
    keys = {exact} if half or hour > 12 else {open_half}
    return _valued(match, Value("date", frozenset(keys), frozenset({exact, open_half}))), place + 1


def _version(raw: Sequence[re.Match[str]], place: int, _: Sequence[Token]) -> Reading:
    match = raw[place]
    keys = frozenset({version_key(match["ver"].lower())})
    return _valued(match, Value("version", keys, keys)), place + 1


def _quarter(raw: Sequence[re.Match[str]], place: int, _: Sequence[Token]) -> Reading:
    keys = frozenset({f"quarter {raw[place][0][1]}"})
    return _valued(raw[place], Value("date", keys, keys)), place + 1


def _number(raw: Sequence[re.Match[str]], place: int, before: Sequence[Token]) -> Reading:
    match = raw[place]
    digits = re.sub("[,_]", "", match["digits"] or str(int(match["hex"], 16)))
    glue = match["glue"].strip()
    literal = f"{match['sign'] or ''}{digits}{match['exp'] or ''}"
    if _ORDINAL.fullmatch(glue):
        keys = frozenset({f"ordinal {int(digits[:_LONGEST].split('.')[0] or 0)}"})
        return _valued(match, Value("number", keys, keys)), place + 1
    if glue == "s" and _DECADE.fullmatch(digits):
        keys = frozenset({f"{DATE} {digits}s"})
        return _valued(match, Value("date", keys, keys)), place + 1
    if digits.count(".") > 1 or len(literal) > _LONGEST:
        keys = frozenset({version_key(literal)})
        return _valued(match, Value("version", keys, keys)), place + 1
    amount = Amount(Fraction(literal), "" if match["digits"] and len(digits) < len(match["digits"]) else literal)
    if match["cur"]:
        amount = amount._replace(readings=unit_readings(match["cur"].lower().removeprefix("us"))[0])
    if glue:
        glued = _glued(amount, glue, money=bool(match["cur"]))
        if glued is None:
            return Token(match[0].lower(), *match.span(), written=match[0]), place + 1
        amount = glued
    value, place, end = _with_unit(raw, place + 1, amount)
    if _is_version(match, amount, before) and value.kind == "number":
        keys = frozenset({version_key(literal)})
        value = Value("version", keys, keys)
    return Token(match.string[match.start() : end].lower(), match.start(), end, value), place


def _is_version(match: re.Match[str], amount: Amount, before: Sequence[Token]) -> bool:
    """Tell whether a decimal stands behind a name ("Python 3.10"): 3.10 is then not 3.1."""
    named = bool(before) and before[-1].written[:1].isupper() and before[-1].end + 1 == match.start()
    return named and "." in amount.literal[1:] and amount.literal[0] not in "-0." and not amount.readings


def _glued(amount: Amount, glue: str, *, money: bool) -> Amount | None:
    """Read what touches a number: a unit, "k" or "M"; None where it makes the number an identifier."""
    word = glue.lower()
    factor = magnitude(word, money=money) or (10**6 if glue == "M" else 0)
    if factor:
        return amount._replace(magnitude=amount.magnitude * factor, literal="")
    readings, rate = unit_readings(word, attached=True)
    if glue == "B":
        readings = (*readings, (NUMBER, Fraction(10**9)))
    if readings or rate:
        return amount._replace(readings=readings, rate=rate)
    return amount if glue.startswith("/") else None


def _with_unit(raw: Sequence[re.Match[str]], place: int, amount: Amount) -> tuple[Value, int, int]:
    """Take in the words after a number that belong to it: "million", "-second", "dollars"; see its rate."""
    end = raw[place - 1].end()
    after, word = _next_word(raw, place, end)
    if factor := magnitude(word):
        amount = amount._replace(magnitude=amount.magnitude * factor, literal="")
        place, end = after, raw[after - 1].end()
        after, word = _next_word(raw, place, end)
    if word == "per" and raw[after : after + 1] and raw[after][0].lower() == "cent":
        after, word = after + 1, "percent"
    if not amount.rate and (not amount.readings or word in _MONEY_WORDS):
        readings, rate = unit_readings(word.partition("-")[0])
        if readings or rate:
            amount = amount._replace(readings=readings or amount.readings, rate=rate)
            place, end = after, raw[after - 1].end()
    value = _value(amount)
    if not amount.rate and (rate := _rate(raw, place)):
        value = _value(amount._replace(rate=rate))
        if raw[place][0].lower() in _EACH:  # "the Billboard 200 a year later" is no rate
            value = value._replace(keys=value.keys | amount.keys, covers=value.covers | amount.keys)
    elif "year-old" in raw[place - 1][0].lower():
        value = value._replace(covers=value.covers | amount._replace(readings=()).keys)
    return value, place, end


def _value(amount: Amount) -> Value:
    keys = amount.keys
    if len(amount.literal) == 4 and amount.literal.isdigit() and int(amount.literal) in _YEARS:
        if not amount.readings and not amount.rate:
            keys |= _date(amount.literal, 0, None)
    return Value(amount.kind, keys, keys, amount=amount)


def _next_word(raw: Sequence[re.Match[str]], place: int, end: int) -> tuple[int, str]:
    """Return the word behind a number or its hyphen, in lower case, and the place behind the word."""
    if place + 1 < len(raw) and raw[place][0] == "-" and raw[place].span() == (end, raw[place + 1].start()):
        place += 1
    if place < len(raw) and raw[place].lastgroup == "word":
        return place + 1, raw[place][0].lower()
    return place, ""


def _rate(raw: Sequence[re.Match[str]], place: int) -> str:
    """Return "/s" for "(100) requests per second", "(5) times a day", "(100) requests/s"."""
    for distance, match in enumerate(raw[place : place + 4]):
        word = match[0].lower()
        if match.lastgroup == "mark" and word != "/":
            break
        if "/" in word[1:]:
            return _per(word.rpartition("/")[2])
        if word in _PER or (word in _EACH and distance < 2):
            following = raw[place + distance + 1 : place + distance + 2]
            return _per(following[0][0].lower()) if following else ""
    return ""


def _per(unit: str) -> str:
    _, units = quantities(("per", unit)) if len(unit) < _LONGEST else ((), ())
    return units[0] if units and units[0].startswith("/") else ""


def _word(raw: Sequence[re.Match[str]], place: int, before: Sequence[Token]) -> Reading:
    """Read a word; of number words those that count something."""
    match = raw[place]
    word = match[0].lower()
    first = word.partition("-")[0]
    if first in _CARDINALS:
        return _spelled(raw, place, before)
    if first in _ORDINALS:
        keys = frozenset({f"ordinal {_ORDINALS[first]}"})
        counted = bool(before) and before[-1].text in _DETERMINERS and bool(_next_word(raw, place + 1, -1)[1])
        return _valued(match, Value("number", keys, keys, implied=first in {"first", word[:-1]} or not counted)), place + 1
    if word in _IMPLIED:
        keys = Amount(Fraction(_IMPLIED[word]), str(_IMPLIED[word])).keys
        return _valued(match, Value("number", keys, keys, implied=True)), place + 1
    if word in {"a", "an"} and (readings := unit_readings(_next_word(raw, place + 1, -1)[1])[0]):
        keys = Amount(Fraction(1), "1", readings).keys
        return _valued(match, Value("number", keys, keys, implied=True)), place + 1
    return _plain(raw, place, before)


def _spelled(raw: Sequence[re.Match[str]], place: int, before: Sequence[Token]) -> Reading:
    words: list[str] = []
    last = place
    while last < len(raw) and len(words) < 12:
        parts = raw[last][0].lower().split("-")
        if not _CARDINALS.issuperset(parts):
            break
        words += parts
        last += 1
    if not words:  # "three-day", "two-factor": a number only before a unit
        number, _, unit = raw[place][0].lower().partition("-")
        readings, rate = unit_readings(unit.partition("-")[0])
        amount = Amount(Fraction(quantities((number,))[0][0]), "", readings, rate)
        value = _value(amount)._replace(implied=not (readings or rate))
        return _valued(raw[place], value), place + 1
    if words == ["one"] and _is_pronoun(raw, last, before):
        return _plain(raw, place, before)
    numbers, _ = quantities(words)
    value, last, end = _with_unit(raw, last, Amount(Fraction(numbers[0]), numbers[0]))
    match = raw[place]
    return Token(match.string[match.start() : end].lower(), match.start(), end, value), last


def _is_pronoun(raw: Sequence[re.Match[str]], after: int, before: Sequence[Token]) -> bool:
    if before and before[-1].text in _PRONOUN_BEFORE:
        return True
    return after >= len(raw) or raw[after][0].lower() in _NO_NOUN or raw[after].lastgroup == "mark"


def _bound(tokens: Sequence[Token], kind: str) -> str:
    """Return "<" or ">" where the words before a value bound it."""
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
        if link.text not in _RANGE_LINKS or not (low.value and high.value):
            continue
        one, other = low.value.amount, high.value.amount
        if one and other and not one.readings and not one.rate and (other.readings or other.rate):
            keys = low.value.keys | one._replace(readings=other.readings, rate=other.rate).keys
            tokens[place] = low._replace(value=low.value._replace(keys=keys, covers=keys))
    return tokens


_READERS: Final[dict[str, Callable[[Sequence[re.Match[str]], int, Sequence[Token]], Reading]]] = {
    **{"word": _word, "mark": _plain, "number": _number, "named": _named, "iso": _iso, "slash": _slash},
    **{"clock": _clock, "version": _version, "quarter": _quarter},
}

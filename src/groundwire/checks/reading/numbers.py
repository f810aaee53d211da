"""Reads numbers with their units, amounts and number words; dates, times of day and versions."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Final

from groundwire.checks.reading.units import (
    DATE,
    NUMBER,
    Amount,
    Cut,
    TextValue,
    UnitReading,
    ValueToken,
    fraction,
    magnitude,
    scaled,
    unit_readings,
    version_key,
)
from groundwire.text.lists import words_in
from groundwire.text.quantities import continues_number, quantities
from groundwire.text.stems import CARDINALS, IMPLIED, ONES, ORDINALS, words_of

_MONTH_NAMES: Final = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
_MONTH: Final = {
    name[:length]: n for n, name in enumerate(_MONTH_NAMES, start=1) for length in (3, len(name))
}
_MONTH["sept"] = 9
_DATE_OPENERS: Final = words_in(__package__, "date_openers")


_CELLS: Final = frozenset("|:(")


def date_keys(year: str | None, month: int, day: str | None) -> set[str]:
    """Return the key of a date; parts that are not said are left out of it."""
    parts = (year or "", f"{month}" if month else "", day.lstrip("0") if day else "")
    return {f"{DATE} {'.'.join(parts)}"}


def _dated(readings: Sequence[tuple[str | None, int, str | None]]) -> TextValue:
    """Return a date; what it covers is the date with any of its parts left out, but no day alone."""
    keys: set[str] = set()
    covers: set[str] = set()
    for year, month, day in readings:
        keys |= date_keys(year, month, day)
        for y in {year, None}:
            for m, d in {(month, day), (month, None), (0, None)}:
                if y or m:
                    covers |= date_keys(y, m, d)
    return TextValue("date", frozenset(keys), frozenset(covers | keys))


def day_of(day: str, date: TextValue) -> TextValue | None:
    """Return the date of another day in the month of a date that has a day."""
    parts = [key.partition(" ")[2].split(".") for key in date.keys if key.startswith(f"{DATE} ")]
    dated = [
        (year or None, int(month), day) for year, month, other in (p for p in parts if len(p) == 3) if other
    ]
    return _dated(dated) if dated and len(day) < 3 and 0 < int(day) < 32 else None


def iso(raw: Cut, place: int, _: Sequence[ValueToken]) -> UnitReading:
    match = raw.matches[place]
    return raw.valued(place, _dated([(match["iy"], int(match["im"]), match["id"])])), place + 1


def slash(raw: Cut, place: int, _: Sequence[ValueToken]) -> UnitReading:
    """03/05/2024 is the 3rd of May to some and the 5th of March to others: either is equal to it."""
    match = raw.matches[place]
    one, other = match["sa"], match["sb"]
    years = [match["sy"]] if len(match["sy"]) > 2 else [f"20{match['sy']}", f"19{match['sy']}"]
    dates = [(y, int(m), d) for y in years for m, d in ((one, other), (other, one)) if 1 <= int(m) <= 12]
    return raw.valued(place, _dated(dates or [(year, 0, None) for year in years])), place + 1


def named(raw: Cut, place: int, before: Sequence[ValueToken]) -> UnitReading:
    match = raw.matches[place]
    name, years = match["mon"].casefold(), [match["y"]]  # a long s too
    if match["yy"]:
        years = [f"20{match['yy']}", f"19{match['yy']}"]
    day = match["d1"] or match["d2"]
    if not (day or years[0]):
        opened = bool(before) and (before[-1].text in _DATE_OPENERS or before[-1].text in _CELLS)
        full = len(name) > 3 or name == "may"
        if not full or not match["mon"][0].isupper() or (name in {"may", "march"} and not opened):
            return raw.plain(place), place + 1
    return raw.valued(place, _dated([(year, _MONTH[name], day) for year in years])), place + 1


def clock(raw: Cut, place: int, _: Sequence[ValueToken]) -> UnitReading:
    match = raw.matches[place]
    hour, minute, half = int(match["ch"] or match["ph"]), match["cm"] or "00", match["half"]
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    value = _time_of_day(hour, minute, exact=bool(half) or hour > 12)
    zone = raw.tokens[place + 1].text if place + 1 < len(raw.tokens) else ""
    if zone not in _ZONES:
        return raw.valued(place, value), place + 1
    keys = frozenset((f"utc {(60 * (hour - _ZONES[zone]) + int(minute)) % 1440}",))
    value = value._replace(keys=keys, covers=value.covers | keys)
    return raw.valued(place, value, raw.tokens[place + 1].end), place + 2


_DAYTIMES: Final = {"noon": 12, "midnight": 0}
_ZONES: Final = {
    zone: offset
    for offset, zones in (
        *((-8, "pst"), (-7, "pdt mst"), (-6, "mdt cst"), (-5, "cdt est"), (-4, "edt")),
        *((0, "utc gmt z"), (1, "bst cet"), (2, "cest eet"), (3, "eest msk"), (9, "jst")),
    )
    for zone in zones.split()
}
"""Names of time zones -> hours ahead of UTC."""


def _time_of_day(hour: int, minute: str, *, exact: bool = False) -> TextValue:
    written, open_half = f"clock {hour}:{minute}", f"clock ?{hour % 12}:{minute}"
    return TextValue("date", frozenset((written if exact else open_half,)), frozenset((written, open_half)))


def version(raw: Cut, place: int, _: Sequence[ValueToken]) -> UnitReading:
    match = raw.matches[place]
    keys = frozenset({version_key(match["ver"].lower())})
    return raw.valued(place, TextValue("version", keys, keys)), place + 1


def quarter(raw: Cut, place: int, _: Sequence[ValueToken]) -> UnitReading:
    keys = frozenset({f"quarter {raw.matches[place][0][1]}"})
    return raw.valued(place, TextValue("date", keys, keys)), place + 1


_ORDINAL: Final = re.compile(r"(?:st|nd|rd|th)$")
_DECADE: Final = re.compile(r"\d{3}0$")
_LONGEST: Final = 40  # digits; longer numbers are compared as they are written
_YEARS: Final = range(1000, 2200)
_MONEY_WORDS: Final = words_of("dollars dollar euros pounds us usd eur gbp")
_ENDS: Final = frozenset(",.;:|)]}")
_PER: Final = frozenset(("per", "/"))
_LINKS: Final = frozenset(("to", "or", "and"))
_EACH: Final = frozenset(("a", "an", "each", "every"))
_DETERMINERS: Final = words_of("the its his her their our your a every each")
_PRONOUN_BEFORE: Final = words_of("the this that no any each every which another only next last")
_NO_NOUN: Final = words_in(__package__, "no_noun")


def number(raw: Cut, place: int, before: Sequence[ValueToken]) -> UnitReading:
    match = raw.matches[place]
    if match[0].isdecimal() and len(match[0]) <= _LONGEST:  # most numbers: quickly past them
        literal, end = raw.tokens[place].written, raw.tokens[place].end
        behind = raw.tokens[place + 1 : place + 2]
        if not behind or behind[0].text in _ENDS or raw.is_number(place + 1):
            return raw.valued(place, _written(literal)), place + 1
        after, unit = _next_word(raw, place + 1, end)
        short = len(unit) < _LONGEST  # what is kept of texts stays small
        if before and before[-1].text == "minus":
            literal = f"-{literal}"
        if short and (simple := _in_unit(literal, unit)) and not _rate(raw, after):
            return raw.valued(place, simple, raw.tokens[after - 1].end), after
        value, after, end = _with_unit(raw, place + 1, Amount(_fraction(literal), literal))
        return raw.valued(place, value, end), after
    if match["fraction"]:
        amount = Amount(fraction(match["fraction"]), "")
        if glue := match["glue"].replace(" ", ""):
            amount = _glued(amount, glue, money=False) or amount
        value, after, end = _with_unit(raw, place + 1, amount)
        return raw.valued(place, value, end), after
    if match["comma"]:  # "1.410,50", as much of Europe writes it
        digits = match["comma"].replace(".", "").replace(",", ".")
    else:
        digits = re.sub("[,_' ]", "", match["digits"] or str(int(match["hex"], 16)))
    glue = match["glue"].replace(" ", "")
    minus = "-" if before and before[-1].text == "minus" else ""
    literal = f"{match['sign'] or minus}{digits}{match['exp'] or ''}"
    if special := _ordinal_decade_or_version(glue, digits, literal):
        return raw.valued(place, special), place + 1
    amount = Amount(
        _fraction(literal), "" if len(digits) < len(match["comma"] or match["digits"] or "") else literal
    )
    if match["cur"]:
        amount = amount._replace(readings=unit_readings(match["cur"].lower().replace("us$", "$"))[0])
    if glue:
        glued = _glued(amount, glue, money=bool(match["cur"]))
        if glued is None:
            return raw.plain(place), place + 1
        amount = glued
    value, after, end = _with_unit(raw, place + 1, amount)
    named = bool(before) and before[-1].written[:1].isupper() and before[-1].end + 1 == match.start()
    if (
        named and "." in amount.literal[1:] and amount.literal[0] not in "-0." and not amount.readings
    ) and value.kind == "number":
        keys = frozenset({version_key(literal)})
        value = TextValue("version", keys, keys)
    return raw.valued(place, value, end), after


def _ordinal_decade_or_version(glue: str, digits: str, literal: str) -> TextValue | None:
    """Read "3rd", "1990s" and "1.2.3", and what is too long for a number; None for another number."""
    if _ORDINAL.fullmatch(glue):
        keys = frozenset({f"ordinal {int(digits[:_LONGEST].split('.', maxsplit=1)[0] or 0)}"})
        return TextValue("number", keys, keys)
    if glue == "s" and _DECADE.fullmatch(digits):
        keys = frozenset({f"{DATE} {digits}s"})
        return TextValue("date", keys, keys)
    if digits.count(".") > 1 or len(literal) > _LONGEST:
        keys = frozenset({version_key(literal)})
        return TextValue("version", keys, keys)
    return None


def _glued(amount: Amount, glue: str, *, money: bool) -> Amount | None:
    """Read what touches a number: a unit, "k" or "M"; None where it makes the number an identifier."""
    word = glue.lower()
    if any(char.isdigit() for char in word):
        return None
    factor = magnitude(word, money=money) or (10**6 if glue == "M" else 0)
    if factor:
        return amount._replace(magnitude=amount.magnitude * factor, literal="")
    readings, rate = unit_readings(word, attached=True)
    if glue == "B":
        readings = (*readings, (NUMBER, Fraction(10**9)))
    if readings or rate:
        return amount._replace(readings=readings, rate=rate)
    return amount if glue.startswith("/") else None


def _with_unit(raw: Cut, place: int, amount: Amount) -> tuple[TextValue, int, int]:
    """Take in the words after a number that belong to it: "million", "-second", "dollars"; see its rate."""
    tokens = raw.tokens
    amount, place = _and_half(raw, place, amount)
    end = tokens[place - 1].end
    after, word = _next_word(raw, place, end)
    if factor := magnitude(word):
        amount = amount._replace(magnitude=amount.magnitude * factor, literal="")
        place, end = after, tokens[after - 1].end
        after, word = _next_word(raw, place, end)
    if word == "percentage" and tokens[after : after + 1] and tokens[after].text in {"point", "points"}:
        after, word = after + 1, "pp"
    if word == "per" and after < len(tokens) and tokens[after].text == "cent":
        after, word = after + 1, "percent"
    if not amount.rate and (not amount.readings or word in _MONEY_WORDS):
        readings, rate = unit_readings(word.partition("-")[0])
        if readings or rate:
            amount = Amount(amount.magnitude, amount.literal, readings or amount.readings, rate)
            amount, place = _and_half(raw, after, amount)
            end = tokens[place - 1].end
            after, word = _next_word(raw, place, end)
    if (degrees := scaled(amount.readings, word)) is not amount.readings:
        amount = amount._replace(readings=degrees)
        place, end = after, tokens[after - 1].end
    if [token.text for token in tokens[place : place + 2]] == ["below", "zero"]:
        amount, place = amount._replace(magnitude=-amount.magnitude, literal=""), place + 2
        end = tokens[place - 1].end
    value = _written(amount.literal, amount.readings, amount.rate) if amount.literal else _value(amount)
    if not amount.rate and (rate := _rate(raw, place)):
        value = _value(amount._replace(rate=rate))
        if tokens[place].text in _EACH:  # "the Billboard 200 a year later" is no rate
            value = value._replace(keys=value.keys | amount.keys, covers=value.covers | amount.keys)
    elif "year-old" in tokens[place - 1].text:
        value = value._replace(covers=value.covers | amount._replace(readings=()).keys)
    return value, place, end


def _and_half(raw: Cut, place: int, amount: Amount) -> tuple[Amount, int]:
    """Take in "and a half" behind a number, or behind its unit."""
    if [token.text for token in raw.tokens[place : place + 3]] != ["and", "a", "half"]:
        return amount, place
    return amount._replace(magnitude=amount.magnitude + Fraction(1, 2), literal=""), place + 3


def _value(amount: Amount) -> TextValue:
    keys = amount.keys
    bare = not amount.readings and not amount.rate
    if bare and len(amount.literal) == 4 and amount.literal.isdigit() and int(amount.literal) in _YEARS:
        keys |= date_keys(amount.literal, 0, None)
    # degrees prove those without a scale, or with either; a rate its amount
    scale = amount.readings[0][0] if amount.readings else ""
    others = ("°c", "°f") if scale == "°" else ("°",) if scale in {"°c", "°f"} else ()
    also = [amount._replace(readings=((one, Fraction(1)),)).keys for one in others]
    if amount.rate:
        also.append(amount._replace(rate="").keys)
    return TextValue(amount.kind, keys, keys.union(*also), amount=amount)


def _next_word(raw: Cut, place: int, end: int) -> tuple[int, str]:
    tokens = raw.tokens
    if place + 1 < len(tokens) and tokens[place].text == "-":
        hyphen = tokens[place]
        if hyphen.start == end and hyphen.end == tokens[place + 1].start:
            place += 1
    if raw.is_word(place):
        return place + 1, tokens[place].text
    return place, ""


def _rate(raw: Cut, place: int) -> str:
    tokens = raw.tokens
    for distance, token in enumerate(tokens[place : place + 4]):
        word = token.text
        if token.mark and word != "/":
            break
        if "/" in word[1:]:
            return _per(word.rpartition("/")[2])
        if word in _LINKS:  # "45 minutes to an hour"
            break
        # "5 times a day", "20 tonnes of water a second"; not "5 users read it in an hour"
        if word in _PER or (word in _EACH and (distance < 2 or tokens[place].text == "of")):
            following = tokens[place + distance + 1 : place + distance + 2]
            return _per(following[0].text) if following else ""
    return ""


def _per(unit: str) -> str:
    _, units = quantities(("per", unit)) if len(unit) < _LONGEST else ((), ())
    return units[0] if units and units[0].startswith("/") else ""


_fraction = lru_cache(1 << 12)(Fraction)


@lru_cache(1 << 12)
def _written(literal: str, readings: tuple[tuple[str, Fraction], ...] = (), rate: str = "") -> TextValue:
    return _value(Amount(_fraction(literal), literal, readings, rate))


@lru_cache(1 << 12)
def _in_unit(literal: str, word: str) -> TextValue | None:
    readings, rate = unit_readings(word)
    more = (
        rate
        or not readings
        or word == "percentage"
        or readings[0][0] == "\u00b0"
        or magnitude(word)
        or "-" in word
    )
    return None if more else _written(literal, readings)


_REFERRING: Final = words_of("the these those all both")
_GIVEN: Final = words_in(__package__, "given") | {""}
"""Behind a number in letters, that counts what the model was given: "the second passage", "all three sources"."""


def word(raw: Cut, place: int, before: Sequence[ValueToken]) -> UnitReading:
    word = raw.tokens[place].text
    first = word.partition("-")[0]
    if first in CARDINALS:
        return _spelled(raw, place, before)
    if first in ORDINALS:
        keys = frozenset({f"ordinal {ORDINALS[first]}"})
        after, following = _next_word(raw, place + 1, -1)
        if following == "quarter" and ORDINALS[first] <= 4:
            keys = frozenset({f"quarter {ORDINALS[first]}"})
            return raw.valued(place, TextValue("date", keys, keys), raw.tokens[after - 1].end), after
        counted = bool(before) and before[-1].text in _DETERMINERS and following not in _GIVEN
        implied = first in {"first", word[:-1]} or not counted
        return raw.valued(place, TextValue("number", keys, keys, implied=implied)), place + 1
    if word in IMPLIED:
        keys = Amount(Fraction(IMPLIED[word]), str(IMPLIED[word])).keys
        return raw.valued(place, TextValue("number", keys, keys, implied=True)), place + 1
    if word in _DAYTIMES:
        return raw.valued(place, _time_of_day(_DAYTIMES[word], "00", exact=True)), place + 1
    if [token.text for token in raw.tokens[place : place + 2]] == ["half", "past"]:
        hour = raw.tokens[place + 2].text if place + 2 < len(raw.tokens) else ""
        number = ONES.get(hour, int(hour) if hour.isdecimal() and len(hour) < 3 else 0)
        if 0 < number < 13:
            return raw.valued(place, _time_of_day(number, "30"), raw.tokens[place + 2].end), place + 3
    if word == "half" and (half := _half(raw, place)):
        return half
    if word == "a":  # "a third of" and "a third" at the end of a clause: "a third attempt" is an ordinal
        after, following = _next_word(raw, place + 1, -1)
        part = _part_of(following)
        if part and _next_word(raw, after, -1)[1] == "of":
            return _share_of(raw, place, place + 1, Fraction(1, part))
    if raw.tokens[place].text in {"a", "an"}:
        after, following = _next_word(raw, place + 1, -1)
        if readings := unit_readings(following)[0]:
            amount, last = _and_half(raw, after, Amount(Fraction(1), "1", readings))
            if last > after:  # "an hour and a half"
                return raw.valued(place, _value(amount), raw.tokens[last - 1].end), last
            return raw.valued(place, TextValue("number", amount.keys, amount.keys, implied=True)), place + 1
    return raw.plain(place), place + 1


def _half(raw: Cut, place: int) -> UnitReading | None:
    after, following = _next_word(raw, place + 1, -1)
    if following in {"a", "an"}:
        after, following = _next_word(raw, after, -1)
        readings, _ = unit_readings(following)
        if readings or magnitude(following):
            value = _value(Amount(Fraction(magnitude(following) or 1, 2), "", readings))
            return raw.valued(place, value, raw.tokens[after - 1].end), after
    if following not in {"of", "the"}:
        return None
    keys = frozenset({"% 50", f"{NUMBER} 1/2"})
    amount = Amount(Fraction(50), "", unit_readings("percent")[0])
    return raw.valued(place, TextValue("number", keys, keys, amount=amount)), place + 1


def _spelled(raw: Cut, place: int, before: Sequence[ValueToken]) -> UnitReading:
    words: list[str] = []
    last = place
    tokens = raw.tokens
    while last < len(tokens) and len(words) < 12:
        if words and continues_number([token.text for token in tokens[last - 1 : last + 3]], 1):
            last += 1
        parts = tokens[last].text.split("-")
        if not CARDINALS.issuperset(parts):
            break
        words += parts
        last += 1
    if not words:  # "three-day", "two-factor": a number only before a unit
        number, _, unit = tokens[place].text.partition("-")
        readings, rate = unit_readings(unit.partition("-")[0])
        amount = Amount(Fraction(quantities((number,))[0][0]), "", readings, rate)
        value = _value(amount)._replace(implied=not (readings or rate))
        return raw.valued(place, value), place + 1
    following = tokens[last] if last < len(tokens) else None
    pronoun = before and before[-1].text in _PRONOUN_BEFORE
    alone = not following or following.mark or following.text in _NO_NOUN
    alone = alone and not (raw.tokens[last + 1 :] and raw.tokens[last + 1].text in CARDINALS)  # "one in four"
    if words == ["one"] and (pronoun or alone) and _and_half(raw, last, _ONE)[1] == last:
        return raw.plain(place), place + 1
    if (
        last < len(tokens)
        and len(words) == 1
        and (part := _part_of(tokens[last].text))
        and tokens[last].text.endswith("s") is (words != ["one"])
    ):
        return _share_of(raw, place, last, Fraction(quantities(words)[0][0]) / part)
    numbers, _ = quantities(words)
    given = _next_word(raw, last, -1)[1] in _GIVEN - {""}
    value, last, end = _with_unit(raw, last, Amount(Fraction(numbers[0]), numbers[0]))
    refers = given and bool(before) and before[-1].text in _REFERRING
    value = value._replace(implied=value.implied or refers)
    return raw.valued(place, value, end), last


_ONE: Final = Amount(Fraction(1), "1")
_PARTS: Final = {"third": 3, "quarter": 4, "fifth": 5, "sixth": 6, "eighth": 8, "tenth": 10}


def _part_of(word: str) -> int:
    """Return 3 for "third" and "thirds", 0 for what is no part of a whole."""
    return _PARTS.get(word.removesuffix("s"), 0)


def _share_of(raw: Cut, place: int, last: int, share: Fraction) -> UnitReading:
    keys = Amount(share, "").keys | Amount(share * 100, "", unit_readings("percent")[0]).keys
    amount = Amount(share * 100, "", unit_readings("percent")[0])
    return raw.valued(place, TextValue("number", keys, keys, amount=amount), raw.tokens[last].end), last + 1

"""Numbers, units and dates of a claim, in the one form in which claims are compared (S0-121). English only.

"30 seconds", "30s" and "thirty seconds" are the number 30 and the unit "30 s"; "at least 30" is ">=30"; "requests per
day" and "daily" are the unit "/day"; "1 May 2024" and "2024-05-01" have the same parts. Clock times are numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Final, NamedTuple
from unicodedata import category

from groundwire.text.stems import CARDINALS, ONES, ORDINALS, SCALES, TENS
from groundwire.text.tokens import per_token

# Between semicolons, one unit: the form in which it is compared, then its other spellings.
_UNIT_TABLE: Final = """
ns nanosecond nanoseconds; us µs μs microsecond microseconds; ms msec msecs millisecond milliseconds;
s sec secs second seconds; min mins minute minutes; h hr hrs hour hours; am a.m; pm p.m;
day d days; week wk wks weeks; month mo months; quarter quarters; year y yr yrs years; decade decades;
bit bits; byte b bytes; kb kilobyte kilobytes; mb megabyte megabytes; gb gigabyte gigabytes;
tb terabyte terabytes; pb petabyte petabytes; kib kibibyte kibibytes; mib mebibyte mebibytes;
gib gibibyte gibibytes; tib tebibyte tebibytes; kbit kbits; mbit mbits; gbit gbits;
kbit/s kbps; mbit/s mbps; gbit/s gbps; /s rps qps tps; /min rpm;
hz hertz; khz kilohertz; mhz megahertz; ghz gigahertz;
nm nanometre nanometres nanometer nanometers; um µm μm micron microns;
mm millimetre millimetres millimeter millimeters; cm centimetre centimetres centimeter centimeters;
metre metres meter meters; km kilometre kilometres kilometer kilometers; inch inches in; ft foot feet;
yd yard yards; mi mile miles; ul µl μl; cl; dl; ml millilitre millilitres milliliter milliliters;
l litre litres liter liters; ug µg μg mcg microgram micrograms;
mg milligram milligrams; g gram grams; kg kilogram kilograms kilo kilos; t tonne tonnes ton tons;
lb lbs pound pounds; oz ounce ounces; gal gallon gallons; pint pints; acre acres; ha hectare hectares;
°c c celsius; °f f fahrenheit; kelvin; ° degree degrees;
% percent pct; ‰ permille; pp; bp bps; x times; k; m; px pixel pixels; pt point points;
usd $ dollar dollars; eur € euro euros; gbp £ sterling; jpy ¥ yen; inr ₹ rupee rupees; chf franc francs;
cny yuan; cent cents; w watt watts; kw kilowatt kilowatts; kwh; v volt volts; mv; kv; a amp amps;
kpa; hpa; mpa; psi; ppm; ppb; mmol; kcal; kj
"""
UNIT_NAMES: Final = {name: unit.split()[0] for unit in _UNIT_TABLE.split(";") for name in unit.split()}
_CODES: Final = frozenset(("usd", "eur", "gbp", "jpy", "inr", "chf", "cny"))
# "3in" is a length, "3 in a row" is not
_ATTACHED_ONLY: Final = frozenset(("a", "c", "f", "in", "k", "t", "x"))
_RATES: Final = {"hourly": "/h", "daily": "/day", "weekly": "/week", "monthly": "/month"}
_RATES.update(quarterly="/quarter", yearly="/year", annually="/year")
_PER: Final = frozenset(("per", "every", "each"))
_MEASURES: Final = frozenset(
    name for name in UNIT_NAMES if len(name) > 4 and name.endswith("s") and name not in {"times", "points"}
)
"""Units that are used without a number too: "the timeout is in milliseconds"."""
_COUNTED: Final = frozenset(("once", "twice", "thrice", "times"))

_SMALL: Final = ONES | TENS
_BEFORE_AND: Final = SCALES.keys() - {"dozen"}
_LARGEST: Final = 10**15  # no higher: "million million ..." must not grow without end
_OTHERS: Final = {"half": "0.5", "once": "1", "twice": "2", "double": "2", "thrice": "3", "triple": "3"}
_OTHERS.update(noon="12 0", midnight="0 0")
_OTHERS.update({word: f"{value}th" for word, value in ORDINALS.items()})
_NUMBER_WORDS: Final = CARDINALS | _OTHERS.keys()
_RATE_WORDS: Final = _PER | _RATES.keys() | {"a", "an", "in"}
_OPENERS: Final = _NUMBER_WORDS | _RATE_WORDS

_BOUNDS: Final = {
    **dict.fromkeys((">", "more", "over", "above", "exceeding"), ">"),
    **dict.fromkeys((">=", "≥", "least", "minimum", "min"), ">="),
    **dict.fromkeys(("<", "less", "fewer", "under", "below"), "<"),
    **dict.fromkeys(("<=", "≤", "most", "maximum", "max", "up"), "<="),
}
_LINKS: Final = frozenset(("than", "of", "to", "a", "an"))

_DIGIT: Final = re.compile(r"\d")
_TOKEN: Final = re.compile(r"(?P<head>\D*)(?P<body>\d(?:.*\d)?)(?P<tail>\D*)", re.DOTALL)
_HEAD: Final = re.compile(
    r"(?P<name>.*?)(?P<relation>[<>≤≥=:]*)(?P<sign>[-+]?)[^\w\s.<>≤≥=:+-]?(?P<point>\.?)", re.DOTALL
)
_HEAD_LENGTH: Final = 64  # characters before the digits that are read: the expression is quadratic
_SCIENTIFIC: Final = re.compile(r"\d(?:\.\d{1,6})?e[+-]?\d{1,2}")
_THOUSANDS: Final = re.compile(r"(?<=\d)[,_](?=\d{3}(?!\d))")
_PLAIN: Final = re.compile(r"\d{1,12}(?:\.\d{1,6})?")
_RUN: Final = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)*")
_LEADING_ZEROS: Final = re.compile(r"^0+(?=\d)")


class _Number(NamedTuple):
    member: str  # as it is compared: with its bound or name
    value: str
    units: list[str]
    end: int  # place of the first word after it


def quantities(tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the numbers and the units among the tokens of a claim, in text order."""
    words = _words(tokens)
    numbers: list[str] = []
    units: list[str] = []
    done = 0
    # most words can begin nothing, and are skipped here
    for place in [at for at, word in enumerate(words) if word in _OPENERS or not word.isalpha()]:
        if place < done:
            continue
        if words[place] in _RATE_WORDS:
            if rate := _rate(words, place):
                units.append(rate[0])
                done = place + rate[1]
        elif number := _number(words, place):
            # "at most", "up to" and the like before it
            last = place - 1
            linked = last >= done and words[last] in _LINKS
            last -= linked
            bound = ""
            if number.member == number.value and last >= done and (words[last] != "up" or linked):
                bound = _BOUNDS.get(words[last], "")
            numbers.append(bound + number.member)
            units += [f"{number.value} {unit}" for unit in number.units]
            done = number.end
    return numbers, units


def _words(tokens: Sequence[str]) -> Sequence[str]:
    if "-" not in "".join(tokens):
        return tokens
    words: list[str] = []
    for token in tokens:
        parts = token.split("-") if "-" in token else ()
        words += [part for part in parts if part] if not _NUMBER_WORDS.isdisjoint(parts) else [token]
    return words


def may_count(token: str) -> bool:
    """Return whether a token can begin a number or a unit: `quantities` finds none among others."""
    return any(word in _OPENERS or _DIGIT.search(word) for word in _words([token]))


def is_scientific(token: str) -> bool:
    """Return whether a number is written with an exponent: "1.5e6"."""
    return _SCIENTIFIC.fullmatch(token) is not None


def is_unit(token: str) -> bool:
    return bool(_units(token)) and token not in _ATTACHED_ONLY


def _number(words: Sequence[str], place: int) -> _Number | None:
    word = words[place]
    units: list[str] = []
    if word in _OTHERS:
        member = value = _OTHERS[word]
        if word == "half" and {"a", "an"}.issuperset(words[place + 1 : place + 2]):  # "half a mg"
            measured = _with_next(words, _Number(member, value, units, place + 2))
            if measured.units:
                return measured
    elif word in _NUMBER_WORDS:
        total = current = 0
        end = place
        while end < len(words):  # the words that continue it
            word, before = words[end], words[end - 1] if end > place else "hundred"
            if end > place and continues_number(words, end):
                end += 1
                word = words[end]
            if word in _SMALL and (before in SCALES or (before in TENS and 0 < _SMALL[word] < 10)):
                current += _SMALL[word]
            elif word in SCALES and max(current, 1) * SCALES[word] <= _LARGEST:
                current = max(current, 1) * SCALES[word]
                if SCALES[word] >= 1000:
                    total, current = total + current, 0
            else:
                break
            end += 1
        value = str(total + current)
        return _with_next(words, _Number(value, value, [], end))
    elif _DIGIT.search(word):
        member, value, attached = _digits(word)
        units += attached
        scale = SCALES.get(words[place + 1], 0) if place + 1 < len(words) else 0
        if scale >= 1000 and _PLAIN.fullmatch(member):  # "$5 million", "1.5 billion"
            member = value = format((Decimal(member) * scale).normalize(), "f")
            return _with_next(words, _Number(member, value, units, place + 2))
    else:
        return None
    if place and words[place - 1] in _CODES:
        units.append(words[place - 1])
    return _with_next(words, _Number(member, value, units, place + 1))


def continues_number(words: Sequence[str], place: int) -> bool:
    """Return whether a word is the "and" of "three hundred and ten", not of "two hundred and five hundred"."""
    joins = words[place] == "and" and words[place - 1] in _BEFORE_AND
    behind = words[place + 1 : place + 3]
    return joins and behind != [] and behind[0].partition("-")[0] in _SMALL and behind[1:] != ["hundred"]


def _with_next(words: Sequence[str], number: _Number) -> _Number:
    if number.end >= len(words) or not _CODES.issuperset(number.units) or number.value.endswith("th"):
        return number
    word = words[number.end]
    units = [] if word in _ATTACHED_ONLY else _units(word)
    return _Number(number.member, number.value, number.units + units, number.end + 1) if units else number


@per_token
def _digits(word: str) -> tuple[str, str, list[str]]:
    word = format(Decimal(word).normalize(), "f") if is_scientific(word) else word
    token = _TOKEN.fullmatch(word)
    head = token and _HEAD.fullmatch(token["head"][-_HEAD_LENGTH:])
    if not token or not head:  # cannot be: the expressions match every token with a digit
        return word, word, []
    runs = _RUN.findall(_THOUSANDS.sub("", word))
    value = " ".join(_LEADING_ZEROS.sub("", run) for run in runs)
    free = bool(head["relation"]) or not head["name"][-1:].isalnum()  # else the minus is a hyphen: "adr-003"
    value = ("-" if free and head["sign"] == "-" else "") + ("0." if free and head["point"] else "") + value
    tail = "" if value.startswith("0x") else token["tail"]
    if len(runs) == 1 and tail in {"st", "nd", "rd", "th"}:
        return f"{value}th", f"{value}th", []
    bound = ">=" if tail.startswith("+") else _BOUNDS.get(head["relation"], "")
    name = f"{head['name']}=" if head["relation"] in {"=", ":", ":="} else ""
    units = [UNIT_NAMES.get(char, char) for char in token["head"] if category(char) == "Sc"]
    return name + bound + value, value, units + _units(tail.lstrip("+-_").split("-")[0])


@per_token
def _units(text: str) -> list[str]:
    unit, *per = UNIT_NAMES.get(text, text).split("/")
    whole = [UNIT_NAMES[unit]] if unit in UNIT_NAMES else []
    return whole + [f"/{UNIT_NAMES[part]}" for part in per if part in UNIT_NAMES]


def _rate(words: Sequence[str], place: int) -> tuple[str, int] | None:
    """Return "/day" and the number of words that say it, for "daily", "per day", "twice a day".

    So also "in ms", for "in milliseconds".
    """
    word = words[place]
    if word in _RATES:
        return _RATES[word], 1
    if word == "in" and place + 1 < len(words) and words[place + 1] in _MEASURES:
        return f"in {UNIT_NAMES[words[place + 1]]}", 2
    counted = word in {"a", "an"} and place > 0 and words[place - 1] in _COUNTED
    if (word in _PER or counted) and place + 1 < len(words) and words[place + 1] in UNIT_NAMES:
        return f"/{UNIT_NAMES[words[place + 1]]}", 2
    return None


_MONTHS: Final = (
    "january jan; february feb; march mar; april apr; may; june jun; july jul; august aug; september sep sept; "
    "october oct; november nov; december dec"
)
_WEEKDAYS: Final = "monday; tuesday; wednesday; thursday; friday; saturday; sunday"
# Name of a month or a day, in full or short -> its number.
MONTHS: Final = {name: n for n, names in enumerate(_MONTHS.split(";"), 1) for name in names.split()}
WEEKDAYS: Final = {day: n for n, names in enumerate(_WEEKDAYS.split("; "), 1) for day in (names, f"{names}s")}
_ISO: Final = re.compile(r"(\d{4})-(\d{1,2})(?:-(\d{1,2}))?(?:t[\d:.z+-]*)?")
_DOTTED: Final = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})")
_QUARTER: Final = re.compile(r"q[1-4]")
_DAY: Final = re.compile(r"(\d{1,2})(?:st|nd|rd|th)?")
_YEAR: Final = re.compile(r"(?:1[89]|20)\d\d")
_BEFORE_YEAR: Final = frozenset(
    ("in", "since", "until", "till", "by", "of", "from", "before", "after", "during")
)
_CLOCK: Final = re.compile(r"\d{1,2}:\d\d(?::\d\d)?(?:am|pm)?|\d{1,2}(?:am|pm)|noon|midnight")
_HOURS: Final = frozenset(("am", "pm", "a.m", "p.m", "o'clock"))
_RELATIVE: Final = frozenset(("today", "tomorrow", "yesterday"))
_AMBIGUOUS: Final = frozenset(("may", "march", "mar", "jan", "sun", "sat"))

DatePart = tuple[str, str]
"""Which part of a date it is (Y, M, D, W) and its value."""


@per_token
def may_date(token: str) -> bool:
    """Return whether a token can begin a date or be one: `dates` finds none without such a token."""
    return (
        token in MONTHS
        or token in WEEKDAYS
        or token in _RELATIVE
        or any(pattern.fullmatch(token) for pattern in (_QUARTER, _ISO, _DOTTED, _YEAR))
    )


def is_year(token: str) -> bool:
    return _YEAR.fullmatch(token) is not None


def may_be_time(token: str) -> bool:
    """Return whether a token can be a time of the day or a part of one: `clock_times` finds none among others."""
    return token in _HOURS or _CLOCK.fullmatch(token) is not None


def clock_times(tokens: Sequence[str]) -> list[int]:
    found = [place for place, token in enumerate(tokens) if _CLOCK.fullmatch(token)]
    hours = [place for place, token in enumerate(tokens) if place and token in _HOURS]
    return [*found, *hours, *(place - 1 for place in hours if tokens[place - 1].isdecimal())]


def dates(tokens: Sequence[str]) -> list[tuple[DatePart, int]]:
    """Return the parts of the dates among tokens, each with the place of the token that says it."""
    return dates_at(tokens, [place for place, token in enumerate(tokens) if may_date(token)])


def dates_at(tokens: Sequence[str], places: Sequence[int]) -> list[tuple[DatePart, int]]:
    """Return what `dates` does; `places` are all those of tokens that `may_date`, in text order."""
    parts: list[tuple[DatePart, int]] = []
    done: set[int] = set()
    for place in places:
        if place not in done:
            found = list(_date_at(tokens, place))
            parts += found
            done.update([at for _, at in found])
    return parts


def _date_at(tokens: Sequence[str], place: int) -> Iterator[tuple[DatePart, int]]:
    token = tokens[place]
    if token in MONTHS:
        # "4 [of] May [2024]", "May 4[,] [2024]"; a month whose name is another word needs one of these beside it
        day = place - 1 - (place > 1 and tokens[place - 1] == "of")
        behind = place + 1
        found: list[tuple[DatePart, int]] = []
        if day >= 0 and (number := _day(tokens[day])):
            found.append((("D", number), day))
        elif behind < len(tokens) and (number := _day(tokens[behind])):
            found.append((("D", number), behind))
            behind += 1
        if behind < len(tokens) and is_year(tokens[behind]):
            found.append((("Y", tokens[behind]), behind))
        if found or token not in _AMBIGUOUS or (place and tokens[place - 1] in _BEFORE_YEAR):
            yield ("M", str(MONTHS[token])), place
            yield from found
    elif token in WEEKDAYS:
        yield ("W", str(WEEKDAYS[token])), place
    elif token in _RELATIVE or _QUARTER.fullmatch(token):
        yield ("M", token), place
    elif numbers := _ISO.fullmatch(token) or _DOTTED.fullmatch(token):
        order = "YMD" if numbers.re is _ISO else "DMY"
        for kind, part in zip(order, numbers.groups(), strict=True):
            if part:
                yield (kind, str(int(part))), place
    elif is_year(token) and place and tokens[place - 1] in _BEFORE_YEAR:
        yield ("Y", token), place


def _day(token: str) -> str:
    found = _DAY.fullmatch(token)
    return str(int(found[1])) if found and 0 < int(found[1]) < 32 else ""
